"""Where the neurons of a one-hidden-layer ReLU network move before it fits: fixed points, growth and amplification.

Gaussian inputs carry a label that depends on few directions: layers along e₁ (the stripe) or a distance from an axis
(the cylinder). While no point is fitted the neurons f = (1/h) Σ β √2 relu(ω·x/√d + b) move independently, and once
ω aligns with the informative direction the place ζ = −√d b/ω₁ where a neuron switches on obeys one equation,
dζ/dt = −(β/ω₁)(d C_b + ζ C₁). Its stable zeros attract all neurons; their growth and alignment there have closed
forms (Spec 004, sections 6.3 to 6.6; Paccolat, Petrini, Geiger, Tyloo and Wyart 2021). Times are in
units of τ = h √(d/2); ``side`` is the sign of ω₁: +1 if a neuron is active where x₁ > ζ, −1 where x₁ < ζ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erf, gammainc, gammaincinv, ndtr, ndtri

FloatArray = NDArray[np.float64]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)
"""Quadrature over the inside of the cylinder, where the integrand is smooth in the angle."""
BEYOND = 10.0
"""Half-line averages no longer change in double precision past this many standard deviations."""


class Marginal(Protocol):
    """A label as a function of x₁, averaged over all other directions."""

    @property
    def kinks(self) -> tuple[float, ...]:
        """Where the label is not smooth, in increasing order."""

    def __call__(self, x1: ArrayLike) -> FloatArray:
        """The mean label ȳ at x₁, from −1 to 1."""

    def half_line(self, zeta: ArrayLike, side: int) -> tuple[FloatArray, FloatArray]:
        """C_b = ⟨ȳ⟩ and C₁ = ⟨x₁ ȳ⟩ over the half line on which a neuron with intercept ζ is active."""


def density(x: ArrayLike) -> FloatArray:
    """The standard normal density."""
    return np.asarray(np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi))


def balanced_stripe(x_min: float = -0.3) -> tuple[float, float]:
    """The two interfaces of the stripe that starts at ``x_min`` and holds half of the standard normal distribution.

    >>> tuple(round(t, 7) for t in balanced_stripe())
    (-0.3, 1.1854923)
    """
    if not x_min < 0:
        raise ValueError(f"a stripe that holds half of the points starts below 0; got x_min = {x_min}")
    return x_min, float(ndtri(0.5 + ndtr(x_min)))


def balanced_radius(informative: int) -> float:
    """The distance within which half of the standard normal points in ``informative`` dimensions lie.

    >>> round(balanced_radius(2), 6)
    1.17741
    """
    if informative < 1:
        raise ValueError(f"a radius needs at least 1 informative direction; got {informative}")
    return math.sqrt(2 * gammaincinv(informative / 2, 0.5))


@dataclass(frozen=True)
class Layers:
    """The label of parallel layers along e₁: +1 up to the first interface, then alternating.

    The default is the single balanced stripe, −1 within (−0.3, 1.18549…).

    >>> Layers((-1.0, 0.0, 1.0))([-2, -0.5, 0.5, 2]).tolist()
    [1.0, -1.0, 1.0, -1.0]
    """

    interfaces: tuple[float, ...] = balanced_stripe()

    def __post_init__(self) -> None:
        places = np.asarray(self.interfaces, dtype=np.float64)
        if places.ndim != 1 or not places.size or not np.isfinite(places).all() or (np.diff(places) <= 0).any():
            raise ValueError(f"interfaces need to be a rising list of at least one number; got {self.interfaces}")

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.interfaces

    @cached_property
    def jumps(self) -> FloatArray:
        """The change of the label at each interface: −2, 2, −2, …"""
        return np.asarray(2.0 * (-1.0) ** np.arange(1, len(self.interfaces) + 1), dtype=np.float64)

    @property
    def mean(self) -> float:
        """⟨y⟩: 0 if the two labels are equally likely."""
        return float(self.half_line(-np.inf, 1)[0])

    @property
    def correlation(self) -> float:
        """⟨x₁ y⟩, the only signal of a linear classifier."""
        return float(self.half_line(-np.inf, 1)[1])

    def __call__(self, x1: ArrayLike) -> FloatArray:
        return np.asarray(1.0 - 2.0 * (np.searchsorted(self.interfaces, np.asarray(x1)) % 2))

    def half_line(self, zeta: ArrayLike, side: int) -> tuple[FloatArray, FloatArray]:
        # The label is a sum of steps, each with closed-form averages. The outermost layer on the active side is the
        # unbounded step, so that the averages keep their relative precision far out.
        zeta = np.asarray(zeta, dtype=np.float64)
        places = np.asarray(self.interfaces)
        end, steps = (1.0, self.jumps) if side > 0 else (1.0 + self.jumps.sum(), -self.jumps)
        last = np.maximum(places, zeta[..., None]) if side > 0 else np.minimum(places, zeta[..., None])
        c_b = end * ndtr(-side * zeta) + ndtr(-side * last) @ steps
        c_1 = side * (end * density(zeta) + density(last) @ steps)
        return np.asarray(c_b), np.asarray(c_1)


@dataclass(frozen=True)
class Radial:
    """The label of the balanced cylinder along any informative direction: +1 where ‖x_∥‖ > R, −1 within.

    ȳ = 1 − 2 P(χ²_{k−1} < R² − x₁²) for k informative directions; for k = 2 that is 1 − 2 erf √((R² − x₁²)/2).

    >>> round(float(Radial(informative=2)(0.0)), 3)
    -0.522
    """

    informative: int = 2

    def __post_init__(self) -> None:
        if self.informative < 2:
            raise ValueError(f"a cylinder has at least 2 informative directions; got {self.informative}")

    @cached_property
    def radius(self) -> float:
        return balanced_radius(self.informative)

    @property
    def kinks(self) -> tuple[float, ...]:
        return -self.radius, self.radius

    def __call__(self, x1: ArrayLike) -> FloatArray:
        room = np.maximum(self.radius**2 - np.square(np.asarray(x1, dtype=np.float64)), 0)
        return np.asarray(1 - 2 * self._inside(np.sqrt(room)))

    def half_line(self, zeta: ArrayLike, side: int) -> tuple[FloatArray, FloatArray]:
        zeta = side * np.asarray(zeta, dtype=np.float64)  # the marginal is even: x < ζ is −x > −ζ
        start = np.arcsin(np.clip(zeta / self.radius, -1, 1))[..., None]
        half = (np.pi / 2 - start) / 2
        angle = start + half * (1 + NODES)
        x1, room = self.radius * np.sin(angle), self.radius * np.cos(angle)
        mass = 2 * half * WEIGHTS * room * density(x1) * self._inside(room)
        return np.asarray(ndtr(-zeta) - mass.sum(-1)), side * (density(zeta) - (mass * x1).sum(-1))

    def _inside(self, room: FloatArray) -> FloatArray:
        """The probability that the other informative directions stay within the distance ``room``."""
        if self.informative == 2:
            return np.asarray(erf(room / math.sqrt(2)))
        return np.asarray(gammainc((self.informative - 1) / 2, room**2 / 2))


@dataclass(frozen=True)
class FixedPoint:
    """A fixed point ζ = z* of aligned neurons, and the growth of their weights there."""

    dimension: int
    side: int
    """The sign of ω₁."""
    position: float
    """z*, where the neurons switch on."""
    label: float
    """ȳ(z*)."""
    c_b: float
    c_1: float

    @property
    def active(self) -> float:
        """D = P(±x₁ > ±z*), the part of the data that activates the neurons; the variance of y x_i over it."""
        return float(ndtr(-self.side * self.position))

    @property
    def stable(self) -> bool:
        """Whether neurons return to the fixed point along e₁: sign(C₁) (d C_b + ζ C₁)' > 0."""
        slope = self.c_1 - self.side * (self.dimension + self.position**2) * self.label * density(self.position)
        return bool(math.copysign(1, self.c_1) * slope > 0)

    @property
    def output_ratio(self) -> float:
        """β/ω₁ once the neurons have grown."""
        return math.copysign(self._stretch, self.c_1)

    @property
    def growth_rate(self) -> float:
        """τ/τ* = |C₁| √(1 + z*²/d): ω₁, b and β grow as exp(t/τ*)."""
        return abs(self.c_1) * self._stretch

    @property
    def perpendicular_rate(self) -> float:
        """τ/τ_⊥ = sign(C₁ ω₁) ȳ(z*) √(1 + z*²/d) φ(z*): without noise ω_⊥ grows as exp(t/τ_⊥), or shrinks."""
        return float(self.output_ratio * self.side * self.label * density(self.position))

    @property
    def amplification_rate(self) -> float:
        """Rate, per τ, at which ω₁/ω_⊥ grows until the noise of a finite data set stops it."""
        return self.growth_rate - self.perpendicular_rate

    @property
    def amplifies(self) -> bool:
        """Whether ω₁/ω_⊥ diverges in the population; if not, z* is not a fixed point of the neurons."""
        return self.amplification_rate > 0

    @property
    def saturation(self) -> float:
        """c in ω₁/ω_⊥ → c √p/‖N‖, with N the standard normal noise of p points in the uninformative directions."""
        return self.amplification_rate / self._stretch / math.sqrt(self.active)

    @property
    def onset_slope(self) -> float:
        """dt*/d ln(1/α) in τ: the output is quadratic in the weights, so half of τ*/τ per e-fold of its scale."""
        return 1 / (2 * self.growth_rate)

    @property
    def _stretch(self) -> float:
        return math.sqrt(1 + self.position**2 / self.dimension)


def intercept_drift(label: Marginal, dimension: int, zeta: ArrayLike, side: int) -> FloatArray:
    """G(ζ) = d C_b + ζ C₁, whose zeros are the fixed points.

    >>> float(abs(intercept_drift(Layers(), 5, 0.57049, side=-1)).round(4))
    0.0
    """
    c_b, c_1 = label.half_line(zeta, side)
    return np.asarray(dimension * c_b + np.asarray(zeta) * c_1)


def fixed_points(label: Marginal, dimension: int) -> tuple[FixedPoint, ...]:
    """All zeros of G, stable or not, those of ω₁ > 0 first and each side from left to right.

    >>> [(p.side, round(p.position, 3)) for p in fixed_points(Layers(), 2) if p.stable and p.amplifies]
    [(1, -1.226), (1, 0.647), (-1, 0.45)]
    """
    if dimension < 1:
        raise ValueError(f"the dimension of the data needs to be at least 1; got {dimension}")
    return tuple(point for side in (1, -1) for point in _zeros(label, dimension, side))


def attractors(label: Marginal, dimension: int) -> tuple[FixedPoint, ...]:
    """The fixed points at which neurons gather and align, the fastest first: it dominates the network at the onset.

    >>> [round(p.growth_rate, 3) for p in attractors(Layers(), 10)]
    [0.445, 0.308, 0.085]
    """
    stay = [point for point in fixed_points(label, dimension) if point.stable and point.amplifies]
    return tuple(sorted(stay, key=lambda point: -point.growth_rate))


def _zeros(label: Marginal, dimension: int, side: int) -> Iterator[FixedPoint]:
    c_b, c_1 = (float(c) for c in label.half_line(-side * np.inf, side))
    # With all points active G is linear, which can put a zero arbitrarily far out if the labels are not balanced.
    far = abs(dimension * c_b / c_1) if abs(c_1) > 1e-9 else 0.0
    bound = max(BEYOND, *(1 + abs(kink) for kink in label.kinks))
    edges = np.unique([-bound, bound, *label.kinks, *([-2 * far, 2 * far] if far > bound / 2 else [])])
    zeta = np.unique(np.concatenate([np.linspace(a, b, 1001) for a, b in pairwise(edges)]))
    drift = intercept_drift(label, dimension, zeta, side)
    crossings = np.flatnonzero(np.sign(drift[:-1]) * np.sign(drift[1:]) < 0)
    roots = [
        brentq(lambda z: float(intercept_drift(label, dimension, z, side)), zeta[i], zeta[i + 1], xtol=1e-13)
        for i in crossings
    ]
    for root in sorted([*roots, *zeta[drift == 0]]):
        c_b, c_1 = (float(c) for c in label.half_line(root, side))
        if abs(c_1) > 1e-10:  # beyond the data there is no drift, and G is rounding error
            yield FixedPoint(dimension, side, float(root), float(label(root)), c_b, c_1)


def ring(dimension: int, informative: int = 2) -> FixedPoint:
    """The one attractor of the cylinder, for ω along any informative direction: hyperplanes through the origin.

    >>> point = ring(dimension=3)
    >>> round(point.c_1, 4), round(point.perpendicular_rate, 4), round(point.saturation, 3)
    (0.1666, -0.2082, 0.53)
    """
    if not 2 <= informative < dimension:
        raise ValueError(f"a cylinder has 2 to dimension - 1 informative directions; got {informative} of {dimension}")
    label = Radial(informative)
    c_b, c_1 = label.half_line(0.0, 1)
    return FixedPoint(dimension, 1, 0.0, float(label(0.0)), float(c_b), float(c_1))
