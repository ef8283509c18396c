"""A world whose label is the distance from an axis: the simplest one with a curved interface in several directions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polariscope.theory.stripe import balanced_radius
from polariscope.worlds.points.stripes import InvariantWorld, LinearInvariant
from polariscope.worlds.world import worlds


@worlds.register("cylinder")
@dataclass(frozen=True)
class Cylinder(InvariantWorld):
    """Gaussian points labelled by a cylinder: +1 outside the radius that holds half of the points (spec 004).

    The distance is that of the first ``informative`` of ``dimension`` coordinates; ``compression`` divides the others,
    ``rotate`` rotates the points by a matrix that depends on the world's seed and not on the sample.

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
        return self._invariant(self.informative, lambda x: np.where(np.linalg.norm(x, axis=1) > self.radius, 1.0, -1.0))
