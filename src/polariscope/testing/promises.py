"""Shared parts of the contract checks: the error of a failed check, and rebuilding an object from its description."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from polariscope.registry import Registry, from_plain, plain

FACTOR_SIZES = (4, 5, 3)
"""Positions of the factors that synthetic batches and representations have."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def is_registered(registry: Registry[Any], thing: object) -> bool:
    return any(registry.get(name) is type(thing) for name in registry.names())


def rebuilt(registry: Registry[Any], thing: Any) -> Any:
    """The thing built again from its JSON description, by its name where it is registered."""
    name = type(thing).__name__
    require(dataclasses.is_dataclass(thing), f"{name} is no dataclass: its fields are its configuration")
    try:
        if is_registered(registry, thing):
            return registry.build(json.loads(json.dumps(registry.describe(thing))))
        return from_plain(type(thing), json.loads(json.dumps(plain(thing))), name)
    except ValueError as error:
        raise AssertionError(f"{name} cannot be built again from its description: {error}") from error
