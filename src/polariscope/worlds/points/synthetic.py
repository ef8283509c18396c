"""Synthetic point worlds: data whose covariance, manifold or classes are known in closed form.

They serve as oracles: what a linear VAE, an estimator of intrinsic dimension or a kernel must find on
them can be written down. Points are drawn once, when first asked for; apart from ``Gaussian(exact=True)`` point ``i``
depends on the seed and on ``i``, so that a longer world starts with the shorter one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from polariscope.registry import Settings
from polariscope.worlds.capacity import check_count
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.world import worlds

# Streams of random numbers that one seed gives: what makes the world, and what makes its points.
WORLD, POINTS = 0, 1
Law = Literal["uniform", "gaussian"]
"""How factors are distributed. Uniform ones hold a VAE to their axes, because only there the aggregate posterior
factorises; Gaussian ones leave the orientation to the data's structure alone (spec 003, section 4.8)."""


def draw_factors(law: Law, count: int, size: int, seed: tuple[int, ...]) -> NDArray[np.float64]:
    """Independent factors ``(count, size)``, uniform on [0, 1], or normal with the mean and variance of that."""
    generator = np.random.default_rng(seed)
    if law == "uniform":
        return generator.random((count, size))
    if law == "gaussian":
        return 0.5 + generator.standard_normal((count, size)) / np.sqrt(12)
    raise ValueError(f"factors are 'uniform' or 'gaussian'; got {law!r}")


class PointWorld(ABC):
    """A world that draws its points once. A new one defines ``shape`` and ``draw``, and ``factors`` unless they are
    two positions."""

    count: int
    seed: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a point world needs at least 1 point; count is {self.count}")
        check_count(self.count, type(self).__name__)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor("w_0", 0), Factor("w_1", 0))

    @abstractmethod
    def draw(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """All observations ``(count, *shape)`` and all factors ``(count, k)``."""

    @cached_property
    def _drawn(self) -> tuple[NDArray[Any], NDArray[Any]]:
        observations, factors = self.draw()
        observations.flags.writeable = factors.flags.writeable = False
        return observations, factors

    def __len__(self) -> int:
        return self.count

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self._drawn[0][numbered(index, self.count)]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self._drawn[1][numbered(index, self.count)]


@worlds.register("gaussian")
@dataclass(frozen=True)
class Gaussian(PointWorld):
    """Linear Gaussian data x = Q diag(spectrum)^(1/2) z with z standard normal (spec 002, section 5.5).

    The factors are z, one a direction; Q is a random rotation (the identity if ``rotate`` is off). ``exact`` whitens
    the drawn z, so that the points have mean 0 and their covariance (divided by ``count``, as in a likelihood) has the
    eigenvalues ``spectrum`` to rounding, not only in expectation.

    >>> x = Gaussian(count=50, spectrum=(4.0, 1.0), exact=True).observe(range(50))
    >>> np.linalg.eigvalsh(np.cov(x.T, bias=True)).round(5).tolist()
    [1.0, 4.0]
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"count": 500}, {"count": 500, "exact": True, "rotate": False})

    count: int = 10_000
    spectrum: tuple[float, ...] = (5.0, 3.0, 1.5, 0.8, 0.3, 0.1)
    rotate: bool = True
    exact: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.spectrum or not np.isfinite(self.spectrum).all() or min(self.spectrum) < 0:
            raise ValueError(f"a Gaussian world needs a spectrum of variances >= 0; got {self.spectrum}")
        if self.exact and self.count <= len(self.spectrum):
            raise ValueError(
                f"an exact spectrum of {len(self.spectrum)} variances needs more points than that; got {self.count}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.spectrum),)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(Factor(f"z_{j}", 0) for j in range(len(self.spectrum)))

    @cached_property
    def directions(self) -> NDArray[np.float64]:
        """The orthogonal matrix Q; column j is the principal direction of variance ``spectrum[j]``."""
        size = len(self.spectrum)
        if not self.rotate:
            return np.eye(size)
        # The signs make the QR factor uniform over the orthogonal group.
        q, r = np.linalg.qr(np.random.default_rng((self.seed, WORLD)).standard_normal((size, size)))
        return q * np.sign(np.diag(r))

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        z = np.random.default_rng((self.seed, POINTS)).standard_normal((self.count, len(self.spectrum)))
        if self.exact:
            z -= z.mean(0)
            variance, axes = np.linalg.eigh(z.T @ z / self.count)
            z = z @ (axes / np.sqrt(variance)) @ axes.T  # symmetric whitening moves the points least
        x = z @ (self.directions * np.sqrt(self.spectrum)).T
        return x.astype(np.float32), z.astype(np.float32)


@worlds.register("square-linear")
@dataclass(frozen=True)
class SquareLinear(PointWorld):
    """The unit square, stretched along its first side and rotated in space (spec 003, section 4.1).

    x = R [diag(stretch, 1); 0] w with w uniform on the square and R a rotation by 45 degrees about (1, -1, 1). The
    covariance has eigenvalues stretch^2/12, 1/12 and 0; ``stretch=1`` makes the two directions interchangeable.
    ``law="gaussian"`` draws w from the normal distribution of the same mean and variance. ``centred`` moves the points
    so that their mean is 0, which spares a linear encoder the search for its bias.
    """

    count: int = 50_000
    stretch: float = 2.0
    seed: int = 0
    law: Law = "uniform"
    centred: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stretch > 0:
            raise ValueError(f"the stretch of the square needs to be positive; got {self.stretch}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (3,)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The map ``(3, 2)`` from the square to the points."""
        turn = Rotation.from_rotvec(np.pi / 4 * np.array([1, -1, 1]) / np.sqrt(3)).as_matrix()
        return turn[:, :2] * np.array([self.stretch, 1.0])

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        w = draw_factors(self.law, self.count, 2, (self.seed, POINTS))
        centre = w.mean(axis=0) if self.centred else 0.0
        return ((w - centre) @ self.matrix.T).astype(np.float32), w.astype(np.float32)


@worlds.register("square-nonlinear")
@dataclass(frozen=True)
class SquareNonlinear(PointWorld):
    """The unit square bent into R^6 by a random tanh network with 10 hidden units (spec 003, section 4.2).

    The first layer is scaled to pre-activations of standard deviation 2 and the linear output to mean 0 and total
    variance 1, both over the square itself rather than over the drawn points. ``law="gaussian"`` draws the factors
    from the normal distribution of the same mean and variance, part of which lies outside the square.
    """

    count: int = 50_000
    seed: int = 0
    law: Law = "uniform"

    @property
    def shape(self) -> tuple[int, ...]:
        return (6,)

    @cached_property
    def layers(self) -> tuple[NDArray[np.float64], ...]:
        """Weights and bias of the hidden layer, weights and bias of the output."""
        generator = np.random.default_rng((self.seed, WORLD))
        inner, bias, outer = (generator.standard_normal(shape) for shape in ((2, 10), (10,), (10, 6)))
        middle = (np.arange(64) + 0.5) / 64
        square = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
        gain = 2 / (square @ inner + bias).std()
        inner, bias = inner * gain, bias * gain
        x = np.tanh(square @ inner + bias) @ outer
        scale = 1 / np.sqrt(x.var(0).sum())
        return inner, bias, outer * scale, -x.mean(0) * scale

    def decode(self, w: ArrayLike) -> NDArray[np.float64]:
        """Points ``(n, 6)`` of positions ``(n, 2)`` on the square."""
        inner, bias, outer, shift = self.layers
        return np.tanh(np.asarray(w) @ inner + bias) @ outer + shift

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        w = draw_factors(self.law, self.count, 2, (self.seed, POINTS))
        return self.decode(w).astype(np.float32), w.astype(np.float32)


@worlds.register("plane")
@dataclass(frozen=True)
class Plane(PointWorld):
    """Two factors on two axes, x = (w_0, ratio w_1, 0, ..., 0): the test case of local manipulations.

    The factors are standard normal (or uniform of the same variance); the ``idle`` coordinates are
    constant, so that a manipulation can use them (spec 003, section 4.8).
    """

    count: int = 5000
    ratio: float = 0.8
    """Standard deviation of the second coordinate."""
    idle: int = 2
    law: Law = "gaussian"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ratio > 0 or self.idle < 0:
            raise ValueError(f"a plane needs ratio > 0 and idle >= 0; got ratio={self.ratio}, idle={self.idle}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (2 + self.idle,)

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        w = np.sqrt(12) * (draw_factors(self.law, self.count, 2, (self.seed, POINTS)) - 0.5)
        x = np.pad(w * np.array([1, self.ratio]), ((0, 0), (0, self.idle)))
        return x.astype(np.float32), w.astype(np.float32)


@worlds.register("random-decoder")
@dataclass(frozen=True)
class RandomDecoder(PointWorld):
    """Data of known intrinsic dimension with binary attributes, in place of photos of faces (spec 002, section 15).

    A random smooth decoder (random Fourier features, so a draw of a stationary Gaussian process) takes ``dimension``
    standard normal factors to points in R^``ambient``, or, if ``size`` is given, to grey images of that side whose
    patterns are smooth over the image as well. ``length`` is the distance, in units of the factors' norm
    sqrt(dimension), over which the decoder changes: smaller bends more. The factors are followed by ``labels`` binary
    attributes, the signs of random projections of the factors.

    At 5000 points and ``length`` 1, nearest-neighbour estimates find the dimension within a tenth up to 10; above,
    they fall short of it, as they do for the factors themselves. With 1 or 2 factors, images are so dense that
    rounding to 8 bits makes some of them equal: use points.
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"count": 500}, {"count": 500, "size": 16, "dimension": 3})

    count: int = 10_000
    dimension: int = 20
    ambient: int = 64
    size: int = 0
    length: float = 1.0
    labels: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        target = self.size**2 if self.size else self.ambient
        if self.dimension < 1 or self.labels < 0 or self.size < 0 or not self.length > 0:
            raise ValueError(
                "a random decoder needs dimension >= 1, labels >= 0, size >= 0 and length > 0; got "
                f"dimension={self.dimension}, labels={self.labels}, size={self.size}, length={self.length}"
            )
        if target <= 2 * self.dimension:
            # A generic smooth map into fewer coordinates crosses itself (Whitney), and the dimension is then not d.
            raise ValueError(
                f"a random decoder of {self.dimension} factors needs at least {2 * self.dimension + 1} coordinates or "
                f"pixels to be one to one; got {target}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size) if self.size else (self.ambient,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        causes = tuple(Factor(f"z_{j}", 0) for j in range(self.dimension))
        return causes + tuple(Factor(f"label_{j}", 2, "categorical") for j in range(self.labels))

    @cached_property
    def features(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Frequencies ``(d, f)`` and phases ``(f,)`` of the Fourier features, and their loadings ``(2 f, m)``."""
        generator = np.random.default_rng((self.seed, WORLD))
        count = 16 * self.dimension
        frequencies = generator.standard_normal((self.dimension, count)) / (self.length * np.sqrt(self.dimension))
        phases = generator.uniform(0, 2 * np.pi, count)
        if not self.size:
            return frequencies, phases, generator.standard_normal((2 * count, self.ambient)) / np.sqrt(count)
        # cos(a + b) = cos a cos b - sin a sin b: the same wave runs through the factors (a) and over the image (b).
        middle = (np.arange(self.size) + 0.5) / self.size
        pixels = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
        waves = pixels @ generator.normal(scale=2 * np.pi, size=(2, count))
        loadings = np.concatenate([np.cos(waves).T, -np.sin(waves).T]) * np.sqrt(2 / count)
        return frequencies, phases, loadings

    @cached_property
    def projections(self) -> NDArray[np.float64]:
        """Directions ``(d, labels)`` whose sign is the label."""
        return np.random.default_rng((self.seed, WORLD, 1)).standard_normal((self.dimension, self.labels))

    def decode(self, z: ArrayLike) -> NDArray[Any]:
        """Points ``float32 (n, ambient)`` or images ``uint8 (n, 1, size, size)`` of factors ``(n, dimension)``."""
        frequencies, phases, loadings = self.features
        angle = np.asarray(z, dtype=np.float64) @ frequencies + phases
        x = np.concatenate([np.cos(angle), np.sin(angle)], axis=1) @ loadings
        if not self.size:
            return x.astype(np.float32)
        # A field of unit variance through a sigmoid stays within 0..255 and keeps its order.
        return np.rint(255 / (1 + np.exp(-1.5 * x))).astype(np.uint8).reshape(-1, *self.shape)

    def draw(self) -> tuple[NDArray[Any], NDArray[np.float32]]:
        z = np.random.default_rng((self.seed, POINTS)).standard_normal((self.count, self.dimension))
        blocks = np.array_split(z, -(-self.count // 4096))  # the features of a block, not of all points, are held
        x = np.concatenate([self.decode(block) for block in blocks])
        return x, np.concatenate([z, z @ self.projections > 0], axis=1).astype(np.float32)


@worlds.register("two-gaussians")
@dataclass(frozen=True)
class TwoGaussians(PointWorld):
    """Two isotropic Gaussian blobs of equal weight, apart along the first axis; the factor is the blob.

    The best classifier errs with probability Phi(-distance / (2 sqrt(var))).
    """

    count: int = 10_000
    dimension: int = 2
    distance: float = 4.0
    var: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension < 1 or not self.distance >= 0 or not self.var > 0:
            raise ValueError(
                "two Gaussians need dimension >= 1, distance >= 0 and var > 0; got "
                f"dimension={self.dimension}, distance={self.distance}, var={self.var}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (Factor("label", 2, "categorical"),)

    def draw(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        label = np.random.default_rng((self.seed, WORLD)).integers(0, 2, self.count)
        x = np.random.default_rng((self.seed, POINTS)).standard_normal((self.count, self.dimension)) * np.sqrt(self.var)
        x[:, 0] += (label - 0.5) * self.distance
        return x.astype(np.float32), label[:, None]
