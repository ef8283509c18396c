"""Dual activations: what a nonlinearity does to the covariance of two jointly Gaussian pre-activations.

For (u, v) ~ N(0, [[a, c], [c, b]]) the dual of φ is E[φ(u) φ(v)], and the dual of φ' is E[φ'(u) φ'(v)]. They are all
that the infinite-width recursions need (Spec 000, sections 3.2 and 3.3): the first moves the covariance of a Gaussian
process one layer up (NNGP), the second the tangent kernel. ReLU, erf and GELU have closed forms (for GELU they follow
from two integrations by parts); any other activation goes through Gauss–Hermite quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Elementwise = Callable[[FloatArray], FloatArray]


class Dual(NamedTuple):
    """E[φ(u) φ(v)] and E[φ'(u) φ'(v)]."""

    value: FloatArray
    derivative: FloatArray


DualActivation = Callable[[ArrayLike, ArrayLike, ArrayLike], Dual]


class Kernels(NamedTuple):
    """The two kernels of an infinitely wide network."""

    nngp: FloatArray
    ntk: FloatArray


def relu_dual(cov: ArrayLike, var1: ArrayLike, var2: ArrayLike) -> Dual:
    """φ = max(0, ·), the arc-cosine kernels: with n = √(ab), θ = arccos(c/n), value n/2π (sin θ + (π−θ) cos θ) and
    derivative (π−θ)/2π. A variance of zero counts as a right angle.

    >>> value, derivative = relu_dual(0.5, 1, 1)
    >>> round(float(value), 6), round(float(derivative), 6)
    (0.304499, 0.333333)
    """
    cov, var1, var2 = _checked(cov, var1, var2)
    norm = np.sqrt(var1 * var2)
    cosine = np.clip(np.divide(cov, norm, out=np.zeros(np.broadcast(cov, norm).shape), where=norm > 0), -1, 1)
    derivative = np.arccos(-cosine) / (2 * np.pi)  # arccos(−c) = π − arccos(c), without the cancellation near θ = π
    return Dual(norm * np.sqrt(1 - cosine**2) / (2 * np.pi) + cov * derivative, derivative)


def erf_dual(cov: ArrayLike, var1: ArrayLike, var2: ArrayLike) -> Dual:
    """φ = erf: value 2/π arcsin(2c/√((1+2a)(1+2b))), derivative 4/π / √((1+2a)(1+2b) − 4c²) (Williams 1997).

    >>> round(float(erf_dual(1, 1, 1).value), 6)
    0.464559
    """
    cov, var1, var2 = _checked(cov, var1, var2)
    product = (1 + 2 * var1) * (1 + 2 * var2)
    return Dual(
        2 / np.pi * np.arcsin(np.clip(2 * cov / np.sqrt(product), -1, 1)), 4 / np.pi / np.sqrt(product - 4 * cov**2)
    )


def gelu_dual(cov: ArrayLike, var1: ArrayLike, var2: ArrayLike) -> Dual:
    """φ(u) = u Φ(u), Φ the normal distribution function.

    With D = (1+a)(1+b) − c², q = 1/4 + arcsin(c/√((1+a)(1+b)))/2π = E[Φ(u)Φ(v)] and e = 1/(2π√D) = E[Φ'(u)Φ'(v)]:
    value c q + e (ab + c² (1/(1+a) + 1/(1+b) − 1)), derivative q + e c (1/(1+a) + 1/(1+b) + 1/D).

    >>> round(float(gelu_dual(1, 1, 1).value), 6)
    0.425221
    """
    cov, var1, var2 = _checked(cov, var1, var2)
    product = (1 + var1) * (1 + var2)
    inverses = 1 / (1 + var1) + 1 / (1 + var2)
    determinant = product - cov**2
    density = 1 / (2 * np.pi * np.sqrt(determinant))
    quadrant = 0.25 + np.arcsin(np.clip(cov / np.sqrt(product), -1, 1)) / (2 * np.pi)
    return Dual(
        cov * quadrant + density * (var1 * var2 + cov**2 * (inverses - 1)),
        quadrant + density * cov * (inverses + 1 / determinant),
    )


def quadrature_dual(activation: Elementwise, derivative: Elementwise, nodes: int = 96) -> DualActivation:
    """The dual of any activation by Gauss–Hermite quadrature: exact for polynomials of degree below ``nodes``, fast to
    converge for smooth functions, about 1e-3 for one with a kink at 96 nodes.

    >>> square = quadrature_dual(lambda u: u**2, lambda u: 2 * u, nodes=8)
    >>> round(float(square(0.5, 1, 1).value), 9)  # 1 + 2 c² by Isserlis' theorem
    1.5
    """
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()

    def dual(cov: ArrayLike, var1: ArrayLike, var2: ArrayLike) -> Dual:
        cov, var1, var2 = (np.asarray(m)[..., None, None] for m in _checked(cov, var1, var2))
        sd1, sd2 = np.sqrt(var1), np.sqrt(var2)
        norm = sd1 * sd2
        cosine = np.clip(np.divide(cov, norm, out=np.zeros(np.broadcast(cov, norm).shape), where=norm > 0), -1, 1)
        u = sd1 * points[:, None]
        v = sd2 * (cosine * points[:, None] + np.sqrt(1 - cosine**2) * points)
        joint = weights[:, None] * weights

        def mean(f: Elementwise) -> FloatArray:
            return np.asarray((f(u) * f(v) * joint).sum(axis=(-2, -1)))

        return Dual(mean(activation), mean(derivative))

    return dual


def dense_kernels(
    cov: ArrayLike,
    var1: ArrayLike,
    var2: ArrayLike,
    depth: int,
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    dual: DualActivation = relu_dual,
) -> Kernels:
    """NNGP and NTK of a fully connected network with ``depth`` layers of weights, given κ¹ of the first layer.

    κ^{l+1} = σ_w² E[φφ] + σ_b² and Θ^{l+1} = Θ^l σ_w² E[φ'φ'] + κ^{l+1}, from Θ¹ = κ¹ (Spec 000, section 3.3).

    >>> nngp, ntk = dense_kernels(0.0, 1.0, 1.0, depth=3)
    >>> round(float(nngp), 6), round(float(ntk), 6)
    (0.493731, 0.685709)
    """
    if depth < 1:
        raise ValueError(f"depth counts the layers of weights and needs to be at least 1; got {depth}")
    cov, var1, var2 = _checked(cov, var1, var2)
    ntk = cov
    for _ in range(depth - 1):
        value, derivative = dual(cov, var1, var2)
        var1, var2 = (weight_var * dual(var, var, var).value + bias_var for var in (var1, var2))
        cov = weight_var * value + bias_var
        ntk = ntk * weight_var * derivative + cov
    return Kernels(cov, ntk)


def _checked(cov: ArrayLike, var1: ArrayLike, var2: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    cov, var1, var2 = (np.asarray(moment, dtype=np.float64) for moment in (cov, var1, var2))
    if not (np.all(var1 >= 0) and np.all(var2 >= 0)):
        raise ValueError("variances need to be non-negative numbers; one is negative or NaN")
    if not np.all(cov**2 <= var1 * var2 * (1 + 1e-9) + 1e-300):
        raise ValueError("a covariance exceeds the product of its standard deviations (or is NaN): no Gaussian has it")
    return cov, var1, var2
