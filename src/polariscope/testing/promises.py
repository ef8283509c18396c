"""Shared parts of the contract checks: the error of a failed check, and rebuilding an object from its description."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from polariscope.registry import Registry, from_plain, plain

FACTOR_SIZES = (4, 5, 3)
"""Numbers of positions of the factors in synthetic batches and representations."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def is_registered(registry: Registry[Any], thing: object) -> bool:
    return any(registry.get(name) is type(thing) for name in registry.names())


def rebuilt(registry: Registry[Any], thing: Any) -> Any:
    """The object rebuilt from its JSON description, by its name if it is registered."""
    name = type(thing).__name__
    require(dataclasses.is_dataclass(thing), f"{name} is not a dataclass: its fields are its configuration")
    try:
        if is_registered(registry, thing):
            return registry.build(json.loads(json.dumps(registry.describe(thing))))
        return from_plain(type(thing), json.loads(json.dumps(plain(thing))), name)
    except ValueError as error:
        raise AssertionError(f"{name} cannot be rebuilt from its description: {error}") from error
