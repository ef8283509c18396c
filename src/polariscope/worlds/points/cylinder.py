"""A world whose label is the distance from an axis: the simplest one with a curved interface in several directions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polariscope.theory.stripe import balanced_radius
from polariscope.worlds.factors import Factor
from polariscope.worlds.points.stripes import FloatArray, LinearInvariant, random_directions
from polariscope.worlds.points.synthetic import PointWorld
from polariscope.worlds.world import worlds


@worlds.register("cylinder")
@dataclass(frozen=True)
class Cylinder(PointWorld):
    """Gaussian points labelled by a cylinder: +1 outside the radius that holds half of the points (spec 004).

    The distance is that of the first ``informative`` of ``dimension`` coordinates; ``compression`` divides the others,
    ``rotate`` turns the points by a matrix that depends on the world's seed and not on the sample.

    >>> round(Cylinder().radius, 6)
    1.17741
    """

    count: int = 10_000
    dimension: int = 3
    informative: int = 2
    compression: float = 1.0
    rotate: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.informative < self.dimension:
            raise ValueError(
                f"a cylinder has 2 to dimension - 1 informative directions; got {self.informative} of {self.dimension}"
            )
        _ = self.source  # whose checks are these fields' checks

    @cached_property
    def radius(self) -> float:
        return balanced_radius(self.informative)

    @cached_property
    def source(self) -> LinearInvariant:
        directions = random_directions(self.dimension, self.seed) if self.rotate else None
        return LinearInvariant(
            self.dimension,
            self.informative,
            lambda x: np.where(np.linalg.norm(x, axis=1) > self.radius, 1.0, -1.0),
            self.compression,
            directions,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.source.factors

    def sample(self, count: int, seed: int | np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Fresh points ``float64 (count, dimension)`` and labels −1 and +1 ``(count,)``."""
        return self.source.sample(count, seed)

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.source.draw(self.count, self.seed)
