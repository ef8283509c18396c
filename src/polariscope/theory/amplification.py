"""How far the weights of a network align with the informative directions, given a finite data set.

In the population the ratio Λ of informative to uninformative weights diverges at an attractor. With p points the
average of y x_⊥ over the active points is noise of order 1/√p, not zero, and stops Λ at Λ* ~ √p. The median of Λ* over
data sets, and Λ* of a given data set, have closed forms (Spec 004, section 6.4; Paccolat, Petrini, Geiger, Tyloo and
Wyart 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from polariscope.theory.stripe import FixedPoint, Layers, attractors

FloatArray = NDArray[np.float64]


def median_amplification(point: FixedPoint, count: int, informative: int = 1) -> float:
    """Median over data sets of the global amplification Λ* that ``count`` points allow at the attractor ``point``.

    Λ² = (d_⊥/d_∥) Σ‖ω_∥‖²/Σ‖ω_⊥‖², so Λ* = c √(p d_⊥/(d_∥ ‖N‖²)) with ‖N‖² chi-squared of d_⊥ degrees of freedom.

    >>> round(median_amplification(attractors(Layers(), 5)[0], count=1000) / 1000**0.5, 3)
    0.984
    """
    irrelevant = point.dimension - informative
    if irrelevant < 1 or informative < 1:
        raise ValueError(
            f"amplification needs informative and uninformative directions; got {informative} of {point.dimension}"
        )
    noise = 2 * gammaincinv(irrelevant / 2, 0.5)
    return point.saturation * math.sqrt(count * irrelevant / (informative * noise))


def saturation_time(point: FixedPoint, count: int) -> float:
    """Time, in τ, until the noise of ``count`` points stops the amplification; the onset t* must be later.

    >>> round(saturation_time(attractors(Layers(), 5)[0], count=1000), 1)
    4.3
    """
    return math.log(point.saturation * math.sqrt(count)) / point.amplification_rate


def perpendicular_drift(x: ArrayLike, y: ArrayLike, point: FixedPoint) -> FloatArray:
    """S_⊥ = (1/p) Σ y x_⊥ over the points ``x`` ``(p, d)`` active at ``point``; e₁ is the informative direction.

    √p S_⊥/√D is the noise N: standard normal over data sets.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != point.dimension or y.shape != x.shape[:1]:
        raise ValueError(
            f"the data needs points (p, {point.dimension}) and one label a point; got {x.shape} and {y.shape}"
        )
    seen = point.side * (x[:, 0] - point.position) > 0
    return np.asarray((y * seen) @ x[:, 1:] / len(x))


@dataclass(frozen=True, eq=False)
class Sampled:
    """The label along e₁ with the half-line averages of a data set in place of the population's.

    ``attractors(Sampled(x[:, 0], y), d)`` are the attractors of the neurons on this data set. The outer attractors move
    far: that of the default stripe shifts by several tenths when the two labels differ in number by a few percent.
    """

    x1: FloatArray
    y: FloatArray
    layers: Layers = field(default_factory=Layers)

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.layers.kinks

    def __call__(self, x1: ArrayLike) -> FloatArray:
        return self.layers(x1)

    def half_line(self, zeta: ArrayLike, side: int) -> tuple[FloatArray, FloatArray]:
        place, below = self._below
        sums = below[:, np.searchsorted(place, zeta)]
        c_b, c_1 = sums if side < 0 else below[:, -1].reshape(2, *[1] * (sums.ndim - 1)) - sums
        return np.asarray(c_b), np.asarray(c_1)

    @cached_property
    def _below(self) -> tuple[FloatArray, FloatArray]:
        """Sorted x₁, and the sums of y and x₁ y over the points below each x₁."""
        order = np.argsort(self.x1)
        place, y = self.x1[order], self.y[order]
        return place, np.cumsum(np.insert([y, place * y], 0, 0, axis=1), axis=1) / len(y)


def dataset_amplification(x: ArrayLike, y: ArrayLike, layers: Layers | None = None, time: float | None = None) -> float:
    """Λ* that gradient flow from a vanishing output scale reaches on this data set, without a free parameter.

    √(d−1) (|C₁| − s φ(z*))/‖S_⊥‖ at the fastest attractor of the layers (default: the balanced stripe), which are
    orthogonal to e₁; holds for an output scale far below 1/p. From 500 points on the formula is within 15 % for the
    median data set, but was off by a factor of 2 to 4 for the worst of 24: where the drawn labels are unbalanced,
    another attractor competes. Pass the onset ``time`` t* in τ to use the data set's own attractors, each weighted by
    the growth exp(2 t*/τ*) of its squared weights: the formula was then off by 1.7 for the worst of the same 24.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] < 2:
        raise ValueError(f"amplification needs points (p, d) with d of at least 2; got {x.shape}")
    dimension, layers = x.shape[1], layers or Layers()
    points = attractors(layers, dimension)[:1] if time is None else attractors(Sampled(x[:, 0], y, layers), dimension)
    if not points:
        raise ValueError("these layers have no attractor at which neurons align, so there is no amplification")
    across = [
        np.linalg.norm(perpendicular_drift(x, y, point)) / (point.saturation * math.sqrt(point.active))
        for point in points
    ]
    rates = np.array([point.growth_rate for point in points])
    share = np.exp(2 * (time or 0.0) * (rates - rates.max()))
    return math.sqrt((dimension - 1) * share.sum() / (share @ np.square(across)))
