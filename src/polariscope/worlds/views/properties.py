"""Factors as properties to predict and to generate, in the units of the publication on conditional invariance.

A discrete factor becomes its value divided by the largest one, so that the positions of sprites run from 0 to 1, their
shapes are 1/3, 2/3 and 1, and their scales stay what they are (Spec 000, section 6.8). A task with form="values" counts
positions instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings, nearest
from polariscope.worlds.factors import Factor
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.targets import Target
from polariscope.worlds.view import View
from polariscope.worlds.world import World, worlds

SPRITE_SETTINGS: dict[str, tuple[str, ...]] = {
    "x": ("x",),
    "y": ("y",),
    "shape": ("shape",),
    "scale": ("scale",),
    "orientation": ("orientation",),
    "no shape": ("x", "y", "scale", "orientation"),
}
"""The six published settings, by name, with the properties of each."""


@worlds.register("properties")
@dataclass(frozen=True)
class Properties(View):
    """A world whose targets are some of its factors, as numbers: one property, or several at once.

    Periodic factors are refused, because a property must not jump from its end to its start: use sprites with
    ``unambiguous``, whose orientations lie in one quarter of the circle.

    >>> sprites = Properties(Sprites(unambiguous=True), "shape,orientation")
    >>> sprites.target_of([0, len(sprites) - 1]).astype(float).round(4).tolist()
    [[0.3333, 0.0], [1.0, 1.0]]
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": "mini-sprites", "factor": "shape,x"},)

    of: World
    factor: str = ""
    """Names of the factors, separated by commas; the first if not given."""

    def __post_init__(self) -> None:
        for column in self.columns:
            factor = self.of.factors[column]
            if factor.kind == "periodic":
                raise ValueError(
                    f"the factor {factor.name!r} is periodic, so one observation has several values of it: use "
                    "another property (for sprites: unambiguous=True, --world.of.unambiguous, has one quarter of the "
                    "circle)"
                )
            if factor.size == 1:
                raise ValueError(f"the property {factor.name!r} is constant, so it cannot be learned")
            if not factor.size:
                _check_numbers(np.asarray(self.of.factors_of(np.arange(len(self.of))))[:, column], factor.name)

    @property
    def names(self) -> tuple[str, ...]:
        if not self.of.factors:
            raise ValueError("this world has no factors, so it has no property: give data with a column for it")
        return tuple(name.strip() for name in self.factor.split(",")) if self.factor else (self.of.factors[0].name,)

    @property
    def columns(self) -> list[int]:
        known = [factor.name for factor in self.of.factors]
        for name in self.names:
            if name not in known:
                raise ValueError(f"the data has no factor {name!r}: {nearest(name, known)}")
        return [known.index(name) for name in self.names]

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(Target(name, "number") for name in self.names)

    @cached_property
    def _scaled(self) -> list[NDArray[np.float64] | None]:
        """The number of each position of each property; None where the factor is a number already."""
        return [scaled_values(self.of.factors[column]) for column in self.columns]

    def target_of(self, index: ArrayLike) -> NDArray[np.float32]:
        table = np.asarray(self.of.factors_of(index))[:, self.columns]
        columns = [
            column if values is None else values[column.astype(np.int64)]
            for column, values in zip(table.T, self._scaled, strict=True)
        ]
        return np.stack(columns, axis=1).astype(np.float32)


def scaled_values(factor: Factor) -> NDArray[np.float64] | None:
    """The values of a discrete factor divided by the largest; None for a continuous one.

    >>> scaled_values(Factor("scale", 3, values=(0.5, 0.75, 1.0))).tolist(), scaled_values(Factor("x", 3)).tolist()
    ([0.5, 0.75, 1.0], [0.0, 0.5, 1.0])
    """
    if not factor.size:
        return None
    values = np.asarray(factor.values or range(factor.size), dtype=np.float64)
    return values / np.abs(values).max()


def sprite_property(setting: str, size: int = 64) -> Properties:
    """Sprites with the property (or properties) of one of the six published settings.

    >>> len(sprite_property("x")), len(sprite_property("no shape"))
    (737280, 184320)
    """
    if setting not in SPRITE_SETTINGS:
        raise ValueError(f"there is no setting {setting!r} of sprites: {nearest(setting, SPRITE_SETTINGS)}")
    names = SPRITE_SETTINGS[setting]
    return Properties(Sprites(size, unambiguous="orientation" in names), ",".join(names))


def _check_numbers(column: NDArray[np.generic], name: str) -> None:
    values = np.asarray(column, dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"the property {name!r} needs finite numbers, and that of observation {row} is {values[row]}")
    if values.min() == values.max():
        raise ValueError(f"the property {name!r} is {values[0]:g} everywhere, so it cannot be learned")
