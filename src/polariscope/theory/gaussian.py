"""Gaussians and divergences: the closed forms that variational objectives consist of.

Covers Spec 002, section 3 (Bonheme 2023, chapters 2 and 3): KL of Gaussians, f-divergences of discrete distributions,
the two Gaussian fits of a mixture (forward and reverse KL), and the two gradient estimators of an expectation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp, xlogy

FloatArray = NDArray[np.float64]
Elementwise = Callable[[FloatArray], FloatArray]


def _cholesky(cov: ArrayLike, name: str) -> FloatArray:
    matrix = np.asarray(cov, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} needs a square matrix; got shape {matrix.shape}")
    try:
        return np.asarray(np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} is not positive definite: a Gaussian with a density needs it to be") from None


def _positive(var: ArrayLike, name: str) -> FloatArray:
    values = np.asarray(var, dtype=np.float64)
    if not np.all(values > 0):
        raise ValueError(f"{name} needs positive variances; got {values.min():.4g} (a log-variance? take its exp)")
    return values


def entropy(cov: ArrayLike) -> float:
    """Differential entropy of N(·, cov) in nats, ½ log det(2πe cov).

    >>> round(entropy([[1.0]]), 6)
    1.418939
    """
    factor = _cholesky(cov, "cov")
    return float(0.5 * len(factor) * np.log(2 * np.pi * np.e) + np.log(np.diag(factor)).sum())


def kl_full(mean: ArrayLike, cov: ArrayLike, prior_mean: ArrayLike, prior_cov: ArrayLike) -> float:
    """KL(N(mean, cov) ‖ N(prior_mean, prior_cov)) in nats, for full covariances.

    >>> round(kl_full([2, -1], np.eye(2), [0, 0], np.eye(2)), 12)
    2.5
    """
    factor, prior_factor = _cholesky(cov, "cov"), _cholesky(prior_cov, "prior_cov")
    shift = np.asarray(prior_mean, dtype=np.float64) - np.asarray(mean, dtype=np.float64)
    if shift.shape != (len(factor),) or factor.shape != prior_factor.shape:
        raise ValueError(
            f"means and covariances disagree: {shift.shape} mean, {factor.shape} and {prior_factor.shape} covariances"
        )
    whitened = solve_triangular(prior_factor, np.column_stack([factor, shift]), lower=True)
    log_ratio = np.log(np.diag(prior_factor)).sum() - np.log(np.diag(factor)).sum()
    return float(0.5 * (np.sum(whitened**2) - len(factor)) + log_ratio)


def kl_standard(mean: ArrayLike, cov: ArrayLike) -> float:
    """KL(N(mean, cov) ‖ N(0, I)) in nats: ½ [tr cov + ‖mean‖² − log det cov − n].

    >>> kl_standard([2, -1], np.eye(2))
    2.5
    """
    factor = _cholesky(cov, "cov")
    mean = np.asarray(mean, dtype=np.float64)
    return float(0.5 * (np.sum(factor**2) + mean @ mean - len(factor)) - np.log(np.diag(factor)).sum())


def kl_per_variable(
    mean: ArrayLike, var: ArrayLike, prior_mean: ArrayLike = 0.0, prior_var: ArrayLike = 1.0
) -> FloatArray:
    """The terms of the diagonal KL, one per variable: ½ [((μ−μ†)²+σ)/σ† − log(σ/σ†) − 1], in nats.

    All arguments broadcast, so a conditional prior is simply one prior per row.

    >>> kl_per_variable([2, -1], [1, 1]).tolist()
    [2.0, 0.5]
    """
    var, prior_var = _positive(var, "var"), _positive(prior_var, "prior_var")
    shift = np.asarray(mean, dtype=np.float64) - np.asarray(prior_mean, dtype=np.float64)
    ratio = var / prior_var
    return np.asarray(0.5 * (shift**2 / prior_var + ratio - np.log(ratio) - 1))


def kl_diagonal(mean: ArrayLike, var: ArrayLike, prior_mean: ArrayLike = 0.0, prior_var: ArrayLike = 1.0) -> FloatArray:
    """KL between diagonal Gaussians in nats, summed over the last axis; the prior may differ from row to row.

    >>> float(kl_diagonal([2, -1], [1, 1]))
    2.5
    """
    return np.asarray(kl_per_variable(mean, var, prior_mean, prior_var).sum(axis=-1))


# --- gradients of E[f(z)], z ~ N(mean, var), with respect to the mean ---------------------------------------------


def score_gradient(f: Elementwise, mean: float, var: float, noise: ArrayLike) -> FloatArray:
    """One estimate per noise draw by the score function, f(z) ∂ log q(z) / ∂mean. Needs no derivative of f."""
    noise = np.asarray(noise, dtype=np.float64)
    return f(mean + np.sqrt(var) * noise) * noise / np.sqrt(var)


def reparametrised_gradient(derivative: Elementwise, mean: float, var: float, noise: ArrayLike) -> FloatArray:
    """One estimate per noise draw by the pathwise derivative f'(mean + √var ε)."""
    return derivative(mean + np.sqrt(var) * np.asarray(noise, dtype=np.float64))


@dataclass(frozen=True)
class GradientVariances:
    """Per-sample variances of the two unbiased estimators, and the gradient both estimate."""

    gradient: float
    score: float
    reparametrised: float


def gradient_variances(
    f: Elementwise, derivative: Elementwise, mean: float, var: float, nodes: int = 64
) -> GradientVariances:
    """Variances of both estimators by Gauss–Hermite quadrature: exact for polynomials of degree below ``nodes``.

    >>> v = gradient_variances(lambda z: z**2, lambda z: 2 * z, mean=1.0, var=1.0)
    >>> round(v.gradient, 9), round(v.score, 9), round(v.reparametrised, 9)
    (2.0, 30.0, 4.0)
    """
    noise, weights = _hermite(nodes)
    score = score_gradient(f, mean, var, noise)
    path = reparametrised_gradient(derivative, mean, var, noise)
    gradient = float(weights @ path)
    return GradientVariances(
        gradient, float(weights @ score**2 - (weights @ score) ** 2), float(weights @ path**2 - gradient**2)
    )


def _hermite(nodes: int) -> tuple[FloatArray, FloatArray]:
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return points, weights / np.sqrt(2 * np.pi)


# --- one Gaussian for a mixture: forward KL covers all modes, reverse KL chooses one -------------------------------


@dataclass(frozen=True)
class Mixture:
    """A one-dimensional Gaussian mixture."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    vars: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.weights) == len(self.means) == len(self.vars):
            raise ValueError("a mixture needs as many weights as means and variances")
        if min(self.weights) <= 0 or abs(sum(self.weights) - 1) > 1e-9 or min(self.vars) <= 0:
            raise ValueError("a mixture needs positive weights that sum to 1 and positive variances")

    def log_density(self, z: FloatArray) -> FloatArray:
        var = np.asarray(self.vars)
        terms = -0.5 * ((z[..., None] - np.asarray(self.means)) ** 2 / var + np.log(2 * np.pi * var))
        return np.asarray(logsumexp(terms, b=self.weights, axis=-1))


@dataclass(frozen=True)
class GaussianFit:
    mean: float
    var: float


def forward_kl_fit(target: Mixture) -> GaussianFit:
    """The Gaussian q of smallest KL(target ‖ q): it matches the first two moments, so it covers every mode.

    >>> forward_kl_fit(Mixture((0.5, 0.5), (-3.0, 3.0), (1.0, 1.0)))
    GaussianFit(mean=0.0, var=10.0)
    """
    weights, means = np.asarray(target.weights), np.asarray(target.means)
    mean = float(weights @ means)
    return GaussianFit(mean, float(weights @ (np.asarray(target.vars) + (means - mean) ** 2)))


def reverse_kl(fit: GaussianFit, target: Mixture, nodes: int = 64) -> float:
    """KL(fit ‖ target) in nats by Gauss–Hermite quadrature."""
    noise, weights = _hermite(nodes)
    return float(
        -0.5 * np.log(2 * np.pi * np.e * fit.var) - weights @ target.log_density(fit.mean + np.sqrt(fit.var) * noise)
    )


def reverse_kl_fit(target: Mixture, start: float) -> GaussianFit:
    """A local optimum of KL(q ‖ target), found from the mean ``start``: q settles on one mode."""
    result = minimize(lambda p: reverse_kl(GaussianFit(p[0], float(np.exp(p[1]))), target), [start, 0.0], method="BFGS")
    return GaussianFit(float(result.x[0]), float(np.exp(result.x[1])))


# --- f-divergences of discrete distributions -----------------------------------------------------------------------


@dataclass(frozen=True)
class FDivergence:
    """D_f(P‖Q) = Σ q f(p/q) for a convex f with f(1) = 0.

    The two limits are the cost of mass where the other distribution has none: ``at_zero`` = f(0+), ``slope`` =
    lim f(t)/t for t → ∞. Duality g(t) = t f(1/t) exchanges them.
    """

    f: Elementwise
    at_zero: float
    slope: float

    def __call__(self, p: ArrayLike, q: ArrayLike) -> float:
        p, q = _distribution(p, "p"), _distribution(q, "q")
        if p.shape != q.shape:
            raise ValueError(f"p and q need the same outcomes; got {p.size} and {q.size}")
        both, only_p, only_q = (p > 0) & (q > 0), (p > 0) & (q == 0), (p == 0) & (q > 0)
        total = float(np.sum(q[both] * self.f(p[both] / q[both])))
        total += float(p[only_p].sum()) * self.slope if only_p.any() else 0.0
        return total + (float(q[only_q].sum()) * self.at_zero if only_q.any() else 0.0)

    def dual(self) -> FDivergence:
        """The divergence with its arguments exchanged: D_g(P‖Q) = D_f(Q‖P)."""
        return FDivergence(lambda t: t * self.f(1 / t), self.slope, self.at_zero)

    def symmetrised(self) -> FDivergence:
        """½ (D_f(P‖Q) + D_f(Q‖P))."""
        limit = 0.5 * (self.at_zero + self.slope)
        return FDivergence(lambda t: 0.5 * (self.f(t) + t * self.f(1 / t)), limit, limit)


def _distribution(p: ArrayLike, name: str) -> FloatArray:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or not np.all(values >= 0) or abs(values.sum() - 1) > 1e-9:
        raise ValueError(f"{name} needs non-negative probabilities that sum to 1")
    return values


KL = FDivergence(lambda t: xlogy(t, t), at_zero=0.0, slope=np.inf)
REVERSE_KL = FDivergence(lambda t: -np.log(t), at_zero=np.inf, slope=0.0)
JEFFREYS = FDivergence(lambda t: (t - 1) * np.log(t), at_zero=np.inf, slope=np.inf)
SQUARED_HELLINGER = FDivergence(lambda t: (np.sqrt(t) - 1) ** 2, at_zero=1.0, slope=1.0)
JENSEN_SHANNON = FDivergence(
    lambda t: 0.5 * (xlogy(t, t) - xlogy(1 + t, (1 + t) / 2)), at_zero=0.5 * np.log(2), slope=0.5 * np.log(2)
)
