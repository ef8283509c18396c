"""The likelihood that a diagonal posterior costs a non-linear decoder, integrated numerically over one or two latents.

The decoder is N(f(z), I/γ²) with a standard normal prior. The likelihood is an integral over the plane of latents, and
the best diagonal posterior is found by descent. As γ grows the gap between likelihood and bound tends to the
orthogonality gap of the Jacobian (Spec 003, section 7.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

FloatArray = NDArray[np.float64]
Decoder = Callable[[FloatArray], FloatArray]
"""Latents ``(n, d)`` to observations ``(n, m)``."""
REACH = 12.0  # standard deviations of the posterior that the grid spans to either side
LARGEST = 2  # most latents that a grid can cover


@dataclass(frozen=True)
class Bound:
    """Log-likelihood of an observation and the best bound of a diagonal posterior, in nats."""

    log_likelihood: float
    elbo: float

    @property
    def gap(self) -> float:
        return self.log_likelihood - self.elbo


def diagonal_bound(decode: Decoder, z: ArrayLike, precision: float, grid: int = 161, nodes: int = 12) -> Bound:
    """Log-likelihood and best bound for the observation f(z) of a decoder of ``precision`` γ².

    The likelihood is summed over ``grid`` points per latent, the bound over ``nodes`` Gauss-Hermite points. The
    posterior must have one peak near z: true for large γ and a decoder that is one to one.
    """
    at = np.asarray(z, dtype=np.float64)
    if at.ndim != 1 or not 1 <= len(at) <= LARGEST:
        raise ValueError(f"numerical integration needs one code of 1 or {LARGEST} latents; got shape {at.shape}")
    if not precision > 0:
        raise ValueError(f"the precision of a decoder is positive; got {precision}")
    x = decode(at[None])[0]

    def log_joint(points: FloatArray) -> FloatArray:
        error = ((decode(points) - x) ** 2).sum(axis=1)
        noise = -0.5 * precision * error + 0.5 * len(x) * np.log(precision / (2 * np.pi))
        prior = -0.5 * (points**2).sum(axis=1) - 0.5 * len(at) * np.log(2 * np.pi)
        return np.asarray(noise + prior)

    mean, elbo = _best_diagonal(log_joint, at, jacobian_of(decode, at), precision, nodes)
    widest = np.sqrt(_posterior_covariance(jacobian_of(decode, mean), precision).diagonal())
    steps = np.linspace(-REACH, REACH, grid)
    axes = [centre + width * steps for centre, width in zip(mean, widest, strict=True)]
    plane = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(at))
    cell = float(np.log(np.prod(widest * (steps[1] - steps[0]))))
    return Bound(float(logsumexp(log_joint(plane))) + cell, elbo)


def jacobian_of(decode: Decoder, z: ArrayLike, step: float = 1e-5) -> FloatArray:
    """The Jacobian ``(m, d)`` of a decoder at one code, by central differences."""
    at = np.asarray(z, dtype=np.float64)
    moves = step * np.eye(len(at))
    return np.asarray(((decode(at + moves) - decode(at - moves)) / (2 * step)).T)


def _posterior_covariance(jacobian: FloatArray, precision: float) -> FloatArray:
    """Posterior covariance of the decoder linearised at a code."""
    return np.asarray(np.linalg.inv(np.eye(jacobian.shape[1]) + precision * jacobian.T @ jacobian))


def _best_diagonal(
    log_joint: Callable[[FloatArray], FloatArray], start: FloatArray, jacobian: FloatArray, precision: float, nodes: int
) -> tuple[FloatArray, float]:
    """Mean of the diagonal Gaussian with the largest bound, and the bound."""
    d = len(start)
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    noise = np.stack(np.meshgrid(*[points] * d, indexing="ij"), axis=-1).reshape(-1, d)
    mass = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * d, indexing="ij")), axis=0).ravel()
    # Units of the linearised posterior keep the descent well scaled at any precision.
    unit = 1 / np.sqrt(1 + precision * (jacobian**2).sum(axis=0))

    def negative(flat: FloatArray) -> float:
        mean, std = start + unit * flat[:d], unit * np.exp(flat[d:])
        entropy = 0.5 * d * (1 + np.log(2 * np.pi)) + np.log(std).sum()
        return float(-(mass @ log_joint(mean + noise * std)) - entropy)

    optimum = minimize(negative, np.zeros(2 * d), method="BFGS", options={"gtol": 1e-7})
    return start + unit * optimum.x[:d], -float(optimum.fun)
