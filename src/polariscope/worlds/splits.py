"""Parts of a world: disjoint, drawn by a seed, and worlds themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.world import World


@dataclass(frozen=True, eq=False)
class Split:
    """Numbers of the observations to train on, to choose by, and to report on."""

    train: NDArray[np.int64]
    evaluation: NDArray[np.int64]
    test: NDArray[np.int64]


def random_split(
    count: int, seed: int | np.random.Generator = 0, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> Split:
    """Disjoint random parts of ``count`` observations that together are all of them (Spec 003, sections 1.9 and 4.6).

    Sizes are the shares rounded; what rounding leaves goes to the training part.

    >>> parts = random_split(101, seed=0)
    >>> len(parts.train), len(parts.evaluation), len(parts.test)
    (81, 10, 10)
    """
    if min(shares) < 0 or not np.isclose(sum(shares), 1):
        raise ValueError(f"the shares of a split are at least 0 and add up to 1; got {shares}")
    _, evaluation, test = (round(share * count) for share in shares)
    for share, size in zip(shares, (count - evaluation - test, evaluation, test), strict=True):
        if share > 0 and size < 1:
            raise ValueError(f"{count} observations are too few to split by {shares}: one part would be empty")
    order = np.random.default_rng(seed).permutation(count)
    return Split(order[evaluation + test :], order[:evaluation], order[evaluation : evaluation + test])


@dataclass(frozen=True, eq=False)
class Part:
    """Some observations of a world, renumbered from 0; rendered when asked for, like the world's own.

    >>> from polariscope.worlds.mini_sprites import MiniSprites
    >>> world = MiniSprites()
    >>> part = Part(world, random_split(len(world)).test)
    >>> len(part), part.shape
    (130, (1, 12, 12))
    """

    world: World
    index: NDArray[np.int64]

    def __post_init__(self) -> None:
        index = np.asarray(self.index, dtype=np.int64)
        if index.ndim != 1 or not index.size or index.min() < 0 or index.max() >= len(self.world):
            raise ValueError(f"a part needs numbers of observations from 0 to {len(self.world) - 1}, at least one")
        object.__setattr__(self, "index", index)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.world.shape

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.world.factors

    def __len__(self) -> int:
        return len(self.index)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.observe(self.index[numbered(index, len(self))])

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.factors_of(self.index[numbered(index, len(self))])
