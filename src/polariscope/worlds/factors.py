"""Factors of variation, and the grid that all their combinations form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Kind = Literal["ordinal", "categorical", "periodic"]


@dataclass(frozen=True)
class Factor:
    """One cause of the data.

    ``size`` is the number of values on the grid; 0 means that the factor is continuous. ``values`` are the meanings of
    the positions on the grid (angles, lengths); by default a position is its own value. A periodic factor returns to
    its start.
    """

    name: str
    size: int
    kind: Kind = "ordinal"
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(
                f"factor {self.name!r} has size {self.size}: a size must be positive, or 0 for a continuous factor"
            )
        if self.values and len(self.values) != self.size:
            raise ValueError(f"factor {self.name!r} has {self.size} positions but {len(self.values)} values")


def numbered(index: ArrayLike, count: int) -> NDArray[np.int64]:
    """Numbers of observations as an array; numbers outside of 0 to ``count`` - 1 are refused.

    >>> numbered([0, 2], 3).tolist()
    [0, 2]
    """
    given = np.asarray(index)
    if given.dtype.kind not in "iu" and given.size:
        raise TypeError(f"observations are numbered with whole numbers from 0; got {given.dtype}")
    given = given.astype(np.int64, copy=False)
    # Seen as unsigned, what is negative is larger than any count: one look instead of two.
    if given.size and given.view(np.uint64).max() >= count:
        outside = given[(given < 0) | (given >= count)].flat[0]
        raise ValueError(f"index out of range: there are {count} observations, 0 to {count - 1}; got {outside}")
    return given


@dataclass(frozen=True)
class FactorGrid:
    """All combinations of discrete factors in row-major order, the last factor fastest.

    >>> grid = FactorGrid((Factor("shape", 3, "categorical"), Factor("x", 4)))
    >>> len(grid), grid.to_factors([0, 5, 11]).tolist()
    (12, [[0, 0], [1, 1], [2, 3]])
    >>> grid.to_index([[1, 1]]).tolist()
    [5]
    """

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        if not self.factors:
            raise ValueError("a factor grid needs at least one factor")
        for factor in self.factors:
            if factor.size < 1:
                raise ValueError(f"factor {factor.name!r} has no positions: a grid needs at least 1")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.factors)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(f.size for f in self.factors)

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def to_factors(self, index: ArrayLike) -> NDArray[np.int64]:
        """Positions ``(n, k)`` of the combinations numbered ``index`` ``(n,)``."""
        index = numbered(index, len(self))
        return np.stack(np.unravel_index(index, self.sizes), axis=-1).astype(np.int64)

    def to_index(self, factors: ArrayLike) -> NDArray[np.int64]:
        """Numbers ``(n,)`` of the combinations at positions ``factors`` ``(n, k)``."""
        factors = self.check(factors)
        return np.ravel_multi_index(tuple(factors.T), self.sizes).astype(np.int64)

    def check(self, factors: ArrayLike) -> NDArray[np.int64]:
        """The positions as an ``(n, k)`` integer array; positions off the grid are refused."""
        factors = np.asarray(factors)
        if factors.ndim != 2 or factors.shape[1] != len(self.factors):
            raise ValueError(
                f"factors need shape (n, {len(self.factors)}) for {', '.join(self.names)}; got {factors.shape}"
            )
        if factors.dtype.kind not in "iu":
            raise ValueError(f"factors must be integer positions on the grid; got {factors.dtype}")
        outside = (factors < 0) | (factors >= np.asarray(self.sizes))
        if outside.any():
            row, column = np.argwhere(outside)[0]
            factor = self.factors[column]
            raise ValueError(
                f"factor {factor.name!r} has positions 0 to {factor.size - 1}; row {row} has {factors[row, column]}"
            )
        return factors.astype(np.int64, copy=False)

    def sample(self, count: int, seed: int | np.random.Generator) -> NDArray[np.int64]:
        """``count`` positions drawn uniformly and independently."""
        return np.random.default_rng(seed).integers(0, self.sizes, size=(count, len(self.factors)))
