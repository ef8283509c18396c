"""Worlds of Gaussian data whose label depends on a few directions only.

They are where the compression of invariant manifolds can be watched and computed (Spec 004, section 2; Paccolat,
Petrini, Geiger, Tyloo and Wyart 2021): a network that learns features shrinks the directions that the label ignores, a
frozen kernel cannot. ``sample(count, seed)`` gives fresh float64 points with labels −1 and +1, as gradient flow wants
them; as registered worlds the same points are numbered observations, with all coordinates and the label as factors.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory.stripe import Layers, balanced_stripe
from polariscope.worlds.factors import Factor
from polariscope.worlds.points.synthetic import POINTS, Gaussian, PointWorld
from polariscope.worlds.world import worlds

FloatArray = NDArray[np.float64]
LabelRule = Callable[[FloatArray], ArrayLike]


def compress(x: ArrayLike, informative: int, factor: float) -> FloatArray:
    """Points ``(p, d)`` with all but the first ``informative`` coordinates divided by ``factor``.

    >>> compress([[1.0, 2.0, 4.0]], informative=1, factor=2).tolist()
    [[1.0, 1.0, 2.0]]
    """
    if not 0 < factor < np.inf:
        raise ValueError(f"a compression factor needs to be positive; got {factor}")
    x = np.array(x, dtype=np.float64)
    x[:, informative:] /= factor
    return x


def random_directions(dimension: int, seed: int) -> FloatArray:
    """An orthogonal matrix, uniform over the group: the principal directions of a turned Gaussian world."""
    return Gaussian(spectrum=(1.0,) * dimension, seed=seed).directions


@dataclass(frozen=True, eq=False)
class LinearInvariant:
    """Standard normal points whose label is any function of their first ``informative`` coordinates.

    After labelling, the other coordinates are divided by ``compression`` and the points turned by the orthogonal
    matrix ``directions``, whose first columns then are the informative directions.

    >>> exclusive = LinearInvariant(5, 2, lambda x: np.sign(x[:, 0] * x[:, 1]))
    >>> x, y = exclusive.sample(100, seed=0)
    >>> x.shape, x.dtype.name, sorted(set(y.tolist()))
    ((100, 5), 'float64', [-1.0, 1.0])
    """

    dimension: int
    informative: int
    label: LabelRule
    compression: float = 1.0
    directions: FloatArray | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.informative <= self.dimension:
            raise ValueError(
                "an invariant world needs 1 to dimension informative directions; got "
                f"{self.informative} of dimension {self.dimension}"
            )
        if not 0 < self.compression < np.inf:
            raise ValueError(f"a compression factor needs to be positive; got {self.compression}")
        if self.directions is not None:
            directions = np.asarray(self.directions, dtype=np.float64)
            square = directions.shape == (self.dimension, self.dimension)
            if not square or not np.allclose(directions.T @ directions, np.eye(self.dimension)):
                raise ValueError(f"directions need to be an orthogonal matrix of side {self.dimension}")

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The coordinates before compression and turn, informative ones first, and the label."""
        names = [f"informative_{j}" for j in range(self.informative)]
        names += [f"ignored_{j}" for j in range(self.dimension - self.informative)]
        return (*(Factor(name, 0) for name in names), Factor("label", 2, "categorical"))

    def labels(self, coordinates: FloatArray) -> FloatArray:
        """Labels −1 and +1 ``(p,)`` of coordinates ``(p, d)`` (or of the informative ones only) before the turn."""
        y = np.asarray(self.label(coordinates[:, : self.informative]), dtype=np.float64)
        if y.shape != coordinates.shape[:1] or not np.isin(y, (-1, 1)).all():
            raise ValueError(
                f"a label rule must return -1 or +1 for each of {len(coordinates)} points; got shape {y.shape}"
            )
        return y

    def observed(self, coordinates: FloatArray) -> FloatArray:
        """The points ``(p, d)`` as they are seen: compressed, then turned."""
        x = compress(coordinates, self.informative, self.compression)
        return x if self.directions is None else x @ self.directions.T

    def sample(self, count: int, seed: int | np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Fresh points ``float64 (count, d)`` and labels −1 and +1 ``(count,)``; more points begin with fewer."""
        coordinates = np.random.default_rng(seed).standard_normal((count, self.dimension))
        return self.observed(coordinates), self.labels(coordinates)

    def draw(self, count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Observations and factors of a world of ``count`` points."""
        coordinates = np.random.default_rng((seed, POINTS)).standard_normal((count, self.dimension))
        factors = np.column_stack([coordinates, self.labels(coordinates) > 0])
        return self.observed(coordinates).astype(np.float32), factors.astype(np.float32)


class InvariantWorld(PointWorld):
    """A registered form of :class:`LinearInvariant`. A new one defines ``source``."""

    dimension: int
    compression: float
    rotate: bool

    @property
    @abstractmethod
    def source(self) -> LinearInvariant: ...

    def _invariant(self, informative: int, label: LabelRule) -> LinearInvariant:
        directions = random_directions(self.dimension, self.seed) if self.rotate else None
        return LinearInvariant(self.dimension, informative, label, self.compression, directions)

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


@worlds.register("stripe")
@dataclass(frozen=True)
class Stripe(InvariantWorld):
    """Gaussian points labelled by parallel layers: the label flips at each interface along one direction (spec 004).

    The label is +1 below the first interface. The default two make one stripe of −1 that holds half of the points;
    ``balanced_stripe(x_min)`` gives others that do, any rising list makes more layers. ``compression`` divides the
    other directions, ``rotate`` rotates the points by a matrix that depends on the world's seed and not on the sample.

    >>> x, y = Stripe(dimension=5).sample(1000, seed=0)
    >>> bool(((y < 0) == ((x[:, 0] > -0.3) & (x[:, 0] < 1.18549))).all())
    True
    """

    count: int = 10_000
    dimension: int = 10
    interfaces: tuple[float, ...] = balanced_stripe()
    compression: float = 1.0
    rotate: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.layers, self.source  # whose checks are these fields' checks

    @cached_property
    def layers(self) -> Layers:
        """The label along the informative direction, which determines all theoretical values."""
        return Layers(self.interfaces)

    @cached_property
    def source(self) -> LinearInvariant:
        return self._invariant(1, lambda x: self.layers(x[:, 0]))
