"""A square of some size somewhere: the smallest image world whose three factors a small network can read exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.world import GridWorld, worlds


@worlds.register("squares")
@dataclass(frozen=True)
class Squares(GridWorld):
    """Anti-aliased squares in 8 sizes at 24 x 24 places, 16 pixels a side (4,608 images; Spec 001a, section 13).

    A pixel is as bright as the share of it that the square covers, so that every step of a factor shows.

    >>> len(Squares()), Squares().shape, [factor.name for factor in Squares().factors]
    (4608, (1, 16, 16), ['scale', 'x', 'y'])
    """

    size: int = 16
    """Pixels a side."""
    scales: int = 8
    positions: int = 24

    def __post_init__(self) -> None:
        for name, least in (("size", 8), ("scales", 1), ("positions", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"squares need {name} of at least {least}; got {getattr(self, name)}")

    @cached_property
    def grid(self) -> FactorGrid:
        sides = np.linspace(0.15, 0.45, self.scales) * self.size
        return FactorGrid(
            (
                Factor("scale", self.scales, "ordinal", tuple(sides.tolist())),
                Factor("x", self.positions, "ordinal", self._centres),
                Factor("y", self.positions, "ordinal", self._centres),
            )
        )

    @cached_property
    def _centres(self) -> tuple[float, ...]:
        """From the place where the largest square touches one border to where it touches the other."""
        margin = 0.225 * self.size
        return tuple(np.linspace(margin, self.size - margin, self.positions).tolist())

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        meant = [np.asarray(f.values)[at] for f, at in zip(self.factors, np.asarray(factors).T, strict=True)]
        side, x, y = meant
        pixel = np.arange(self.size)

        def covered(centre: NDArray[np.float64]) -> NDArray[np.float64]:
            """Share of each pixel between the square's two borders along one axis, ``(n, size)``."""
            low, high = (centre - side / 2)[:, None], (centre + side / 2)[:, None]
            return (np.minimum(pixel + 1, high) - np.maximum(pixel, low)).clip(0, 1)

        return np.rint(255 * covered(y)[:, None, :, None] * covered(x)[:, None, None, :]).astype(np.uint8)
