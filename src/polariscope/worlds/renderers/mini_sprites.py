"""A sprite world small enough to be seen whole in one epoch of seconds: the toy of the CPU-scale studies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.world import GridWorld, worlds

SUPERSAMPLING = 4


@worlds.register("mini-sprites")
@dataclass(frozen=True)
class MiniSprites(GridWorld):
    """Three shapes in 3 scales, 4 orientations and 6 x 6 positions, 12 pixels a side, anti-aliased (1,296 images).

    Drawn by the rule of the sprite world on a finer canvas and averaged down. The orientations divide a quarter turn,
    so that no two images coincide.

    >>> len(MiniSprites()), MiniSprites().shape
    (1296, (1, 12, 12))
    """

    size: int = 12
    scales: int = 3
    orientations: int = 4
    positions: int = 6

    def __post_init__(self) -> None:
        if self.size < 4:
            raise ValueError(f"mini-sprites need at least 4 pixels a side; got {self.size}")
        for name in ("scales", "orientations", "positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"mini-sprites need at least one of {name}; got {getattr(self, name)}")

    @cached_property
    def grid(self) -> FactorGrid:
        def spread(low: float, high: float, count: int) -> tuple[float, ...]:
            return tuple(np.linspace(low, high, count).tolist())

        quarter = np.arange(self.orientations) / self.orientations * np.pi / 2
        return FactorGrid(
            (
                Factor("shape", 3, "categorical"),
                Factor("scale", self.scales, "ordinal", spread(0.6, 1.0, self.scales)),
                Factor("orientation", self.orientations, "ordinal", tuple(quarter.tolist())),
                Factor("x", self.positions, "ordinal", spread(0.0, 1.0, self.positions)),
                Factor("y", self.positions, "ordinal", spread(0.0, 1.0, self.positions)),
            )
        )

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        return self._images[self.grid.to_index(factors)]

    @cached_property
    def _images(self) -> NDArray[np.uint8]:
        positions = self.grid.to_factors(np.arange(len(self.grid)))
        shape, *others = positions.T
        values = [np.asarray(factor.values)[at] for factor, at in zip(self.factors[1:], others, strict=True)]
        fine = Sprites(size=SUPERSAMPLING * self.size).render_continuous(shape, *values)
        side = (self.size, SUPERSAMPLING)
        return np.rint(fine.reshape(-1, 1, *side, *side).mean((3, 5))).astype(np.uint8)
