"""Properties in their own units (a level, a band gap in kcal/mol), and the targets that a model is trained with.

A world may standardise its targets, or embed a number in several of them. Users give and get a property in its own
unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.grammar import counted
from polariscope.registry import nearest
from polariscope.worlds.targets import targets_of
from polariscope.worlds.view import View
from polariscope.worlds.world import World

Floats = NDArray[np.float64]
NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


@runtime_checkable
class ScaledProperty(Protocol):
    """A world whose targets are another form of its properties."""

    @property
    def property_names(self) -> tuple[str, ...]:
        """Names of the properties, each with its unit in brackets if it has one."""

    def shown_property(self, targets: ArrayLike) -> Floats:
        """Properties ``(n, k)`` of targets ``(n, columns)``."""

    def property_target(self, values: ArrayLike) -> Floats:
        """Targets ``(n, columns)`` of properties ``(n, k)``."""


@dataclass(frozen=True, eq=False)
class PropertyScale:
    """The names of properties, and their conversion to and from targets."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    shown: Callable[[ArrayLike], Floats]
    """Properties of targets."""
    target: Callable[[ArrayLike], Floats]
    """Targets of properties."""

    @property
    def titles(self) -> tuple[str, ...]:
        """Names with their units."""
        return tuple(f"{name} ({unit})" if unit else name for name, unit in zip(self.names, self.units, strict=True))

    def asked(self, words: str | Mapping[str, float] | Sequence[float] | float) -> dict[str, float]:
        """The wanted properties, by name.

        As text they are numbers in the order of the properties (``150`` or ``0.3,0.7``), or ``x=0.3,scale=0.7``; a
        number may be followed by its unit.

        >>> scale = PropertyScale(("gap",), ("kcal/mol",), np.asarray, np.asarray)
        >>> scale.asked("150 kcal/mol"), scale.asked("gap=150"), scale.asked(150)
        ({'gap': 150.0}, {'gap': 150.0}, {'gap': 150.0})
        """
        known = ", ".join(self.titles)
        if isinstance(words, str):
            parts = [part for part in words.split(",") if part.strip()]
            pairs = [self._named(part, place, len(parts)) for place, part in enumerate(parts)]
            asked = dict(pairs)
            if len(asked) < len(pairs):
                raise ValueError(f"the wanted property is {words!r}, which names one property twice")
        elif isinstance(words, Mapping):
            asked = {self._known(str(name)): float(value) for name, value in words.items()}
        else:
            values = np.atleast_1d(np.asarray(words, dtype=np.float64))
            if values.shape != (len(self.names),):
                raise ValueError(
                    f"the wanted property has shape {values.shape}, and this model was trained with "
                    f"{len(self.names)}: {known}"
                )
            asked = dict(zip(self.names, values.tolist(), strict=True))
        if not asked:
            raise ValueError(f"no property is given: give a value of {known}")
        for name, value in asked.items():
            if not np.isfinite(value):
                raise ValueError(f"the wanted property needs to be a finite number, and {name} is {value}")
        return asked

    def _named(self, part: str, place: int, count: int) -> tuple[str, float]:
        name, equals, number = part.partition("=")
        if not equals:
            if count != len(self.names):
                raise ValueError(
                    f"expected {counted(len(self.names), 'value')}, for {', '.join(self.titles)}, but got "
                    f"{counted(count, 'value')}: give one for each in this order, or name some of them, as in "
                    f"{self.names[0]}=0.5"
                )
            name, number = self.names[place], part
        name = self._known(name.strip())
        match = NUMBER.fullmatch(number)
        if match is None:
            raise ValueError(f"the property {name} needs a number; got {number.strip()!r}")
        unit = self.units[self.names.index(name)]
        if match.group(2) and match.group(2) != unit:
            has = f"has the unit {unit}" if unit else "has no unit"
            raise ValueError(f"the property {name} {has}; got {number.strip()!r}")
        return name, float(match.group(1))

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise ValueError(f"this model has no property {name!r}: {nearest(name, self.names)}")
        return name


def property_scale(world: World) -> PropertyScale:
    """The properties of a world in their own units; by default its targets.

    >>> from polariscope.worlds.points.level_sets import LevelSets
    >>> scale = property_scale(LevelSets(count=10, tested=2))
    >>> scale.names, scale.target([[0.5]]).shape, scale.shown(scale.target([[0.5]])).round(4).tolist()
    (('level',), (1, 3), [[0.5]])
    """
    targets = targets_of(world)
    if any(target.kind != "number" for target in targets):
        classes = next(target.name for target in targets if target.kind != "number")
        raise ValueError(
            f"a property must be a number, and {classes!r} is a {_kind(targets, classes)}: use the view properties, "
            "which turns factors into numbers"
        )
    while isinstance(world, View) and not isinstance(world, ScaledProperty):
        if "target_of" in vars(type(world)):  # its targets are its own
            break
        world = world.of
    if isinstance(world, ScaledProperty):
        pairs = [_without_unit(name) for name in world.property_names]
        names, units = zip(*pairs, strict=True)
        return PropertyScale(names, units, world.shown_property, world.property_target)
    pairs = [_without_unit(target.name) for target in targets]
    names, units = zip(*pairs, strict=True)
    return PropertyScale(names, units, _as_they_are, _as_they_are)


def _kind(targets: Sequence[Any], name: str) -> str:
    return next(str(target.kind) for target in targets if target.name == name)


def _as_they_are(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _without_unit(name: str) -> tuple[str, str]:
    """
    >>> _without_unit("gap (kcal/mol)"), _without_unit("x")
    (('gap', 'kcal/mol'), ('x', ''))
    """
    match = re.fullmatch(r"(.*\S)\s*\(([^()]*)\)", name)
    return (match.group(1), match.group(2)) if match else (name, "")
