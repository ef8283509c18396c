"""Names of a package that are imported on first use."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any


def exported(package: str, file: str) -> dict[str, str]:
    """The names that a package imports under ``if TYPE_CHECKING``, with their modules, from its source: so they are
    listed once, in the form that type checkers read."""
    export = re.compile(rf"^    from {re.escape(package)}\.([\w.]+) import (\w+) as \2$", re.MULTILINE)
    with open(file, encoding="utf-8") as source:
        return {name: module for module, name in export.findall(source.read())}


def looked_up(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that offers names from modules of its own, by name and module."""

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted([*vars(sys.modules[package]), *places])
