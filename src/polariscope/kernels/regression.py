"""Linear regression as a model of networks: ridge regression and its Bayesian interpretation, bias and variance, the
last layer as a regression on features, and the double descent of the least-squares solution of smallest norm.

(Spec 000, sections 2.1 to 2.7.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def least_squares(x: ArrayLike, y: ArrayLike) -> FloatArray:
    """The weights of smallest norm among those that minimise ‖Y − Xw‖²; with X of full column rank, (XᵀX)⁻¹XᵀY.

    >>> least_squares([[1.0], [2.0]], [2.0, 4.0]).round(9).tolist()
    [2.0]
    """
    return np.asarray(np.linalg.lstsq(np.asarray(x, np.float64), np.asarray(y, np.float64), rcond=None)[0])


def ridge_weights(x: ArrayLike, y: ArrayLike, ridge: float, mean_loss: bool = False) -> FloatArray:
    """(XᵀX + λ)⁻¹ XᵀY, solved in the smaller of feature and sample space.

    λ is ``ridge``, or N ``ridge`` for the objective ½/N ‖Y − Xw‖² + ½ ridge ‖w‖² (``mean_loss``).

    >>> ridge_weights([[1.0]], [4.0], ridge=1.0).tolist()
    [2.0]
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if not ridge > 0:
        raise ValueError(f"ridge regression needs a positive ridge; got {ridge} (least_squares() takes none)")
    samples, features = x.shape
    added = samples * ridge if mean_loss else ridge
    if features <= samples:
        return np.asarray(np.linalg.solve(x.T @ x + added * np.eye(features), x.T @ y))
    return np.asarray(x.T @ np.linalg.solve(x @ x.T + added * np.eye(samples), y))


def map_ridge(noise_var: float, weight_var: float) -> float:
    """The ridge that gives the most probable w if y ~ N(Xw, noise_var) and w ~ N(0, weight_var)."""
    if not (noise_var > 0 and weight_var > 0):
        raise ValueError(f"both variances need to be positive; got {noise_var} and {weight_var}")
    return noise_var / weight_var


def last_layer_refit(features: ArrayLike, y: ArrayLike, ridge: float) -> FloatArray:
    """The last layer w = Φᵀ α, α = (ΦΦᵀ + λ)⁻¹ Y for a network's current features Φ (Spec 000, section 2.6).

    It minimises ½‖Y − Φw‖² + ½ λ ‖w‖² over the last layer alone.
    """
    return ridge_weights(features, y, ridge)


@dataclass(frozen=True)
class BiasVariance:
    """Bias and variance of an estimator, summed over its coordinates; mse = bias² + variance holds exactly."""

    squared_bias: float
    variance: float
    mse: float
    repeats: int


def bias_variance(
    estimator: Callable[[FloatArray, FloatArray], FloatArray],
    draw: Callable[[np.random.Generator], tuple[FloatArray, FloatArray]],
    truth: ArrayLike,
    repeats: int,
    seed: int | np.random.Generator = 0,
) -> BiasVariance:
    """Bias, variance and mean squared error of an estimator on ``repeats`` data sets (x, y) from ``draw``."""
    if repeats < 2:
        raise ValueError(f"a variance needs at least 2 repeats; got {repeats}")
    rng = np.random.default_rng(seed)
    estimates = np.stack([estimator(*draw(rng)) for _ in range(repeats)])
    mean, truth = estimates.mean(0), np.asarray(truth, np.float64)
    return BiasVariance(
        float(((mean - truth) ** 2).sum()),
        float(((estimates - mean) ** 2).sum(axis=tuple(range(1, estimates.ndim))).mean()),
        float(((estimates - truth) ** 2).sum(axis=tuple(range(1, estimates.ndim))).mean()),
        repeats,
    )


def ridge_bias_variance(x: ArrayLike, truth: ArrayLike, ridge: float, noise_var: float) -> tuple[FloatArray, float]:
    """Bias vector −λ(XᵀX + λ)⁻¹w and total variance σ² tr[(XᵀX + λ)⁻¹ XᵀX (XᵀX + λ)⁻¹] of ridge on fixed inputs."""
    x = np.asarray(x, np.float64)
    gram = x.T @ x
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    return -ridge * inverse @ np.asarray(truth, np.float64), float(noise_var * np.trace(inverse @ gram @ inverse))


def double_descent_risk(samples: int, features: ArrayLike, signal: float = 1.0, noise_var: float = 0.25) -> FloatArray:
    """Expected excess risk of least squares of smallest norm on isotropic Gaussian features, ‖w‖² = ``signal``.

    σ² p/(n−p−1) below and r²(1−n/p) + σ² n/(p−n−1) above the interpolation threshold p = n, infinite within one of it.

    >>> double_descent_risk(40, [10, 40, 80]).round(4).tolist()
    [0.0862, inf, 0.7564]
    """
    p = np.asarray(features, np.float64)
    under, over = samples - p - 1, p - samples - 1
    below = noise_var * p / np.where(under > 0, under, np.nan)
    above = signal * (1 - samples / p) + noise_var * samples / np.where(over > 0, over, np.nan)
    return np.where(under > 0, below, np.where(over > 0, above, np.inf))


def double_descent_curve(
    samples: int,
    features: ArrayLike,
    signal: float = 1.0,
    noise_var: float = 0.25,
    repeats: int = 100,
    seed: int | np.random.Generator = 0,
) -> FloatArray:
    """The measured counterpart of :func:`double_descent_risk`: mean excess risk over ``repeats`` data sets, for each
    number of features."""
    rng = np.random.default_rng(seed)

    def risk(count: int) -> float:
        x = rng.standard_normal((repeats, samples, count))
        truth = rng.standard_normal((repeats, count, 1))
        truth *= np.sqrt(signal) / np.linalg.norm(truth, axis=1, keepdims=True)
        y = x @ truth + np.sqrt(noise_var) * rng.standard_normal((repeats, samples, 1))
        return float(((np.linalg.pinv(x) @ y - truth) ** 2).sum((1, 2)).mean())

    return np.array([risk(int(count)) for count in np.atleast_1d(features)])
