"""A bright spot that moves further in one direction than in the other: the smallest image world with two factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor
from polariscope.worlds.points.synthetic import POINTS, Law, PointWorld, draw_factors
from polariscope.worlds.world import worlds


@worlds.register("blobs")
@dataclass(frozen=True)
class Blobs(PointWorld):
    """Grey images of a Gaussian blob whose centre moves with two factors, over unequal ranges (spec 003, section 8).

    The centre is ``reach`` pixels times the factors, which are uniform in [−1, 1] (or Gaussian of the same variance),
    away from the middle. Moving factor j by δ changes the image by √(π/2) · reach_j · δ in norm wherever the blob lies
    inside, so the two directions differ by the ratio of the reaches; equal ones make them interchangeable, like x
    and y of the sprites.
    """

    count: int = 3200
    size: int = 16
    reach: tuple[float, float] = (5.0, 2.5)
    """Pixels the centre moves along x and y."""
    width: float = 2.0
    """Standard deviation of the blob in pixels."""
    law: Law = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 2 or min(self.reach) < 0 or not self.width > 0:
            raise ValueError(
                "blobs need size >= 2, reach >= 0 and width > 0; got "
                f"size={self.size}, reach={self.reach}, width={self.width}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor("x", 0), Factor("y", 0))

    def brightness(self, w: ArrayLike) -> NDArray[np.float64]:
        """Images ``(n, size, size)`` in [0, 1] of factors ``(n, 2)``, before they are rounded to 8 bits."""
        centre = (self.size - 1) / 2 + np.asarray(w, dtype=np.float64) * self.reach
        pixel = np.arange(self.size)
        along = np.exp(-((pixel - centre[:, :, None]) ** 2) / (2 * self.width**2))  # (n, 2, size)
        return np.einsum("ny,nx->nyx", along[:, 1], along[:, 0])

    def draw(self) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        w = 2 * draw_factors(self.law, self.count, 2, (self.seed, POINTS)) - 1
        images = np.rint(255 * self.brightness(w)).astype(np.uint8)
        return images[:, None], w.astype(np.float32)
