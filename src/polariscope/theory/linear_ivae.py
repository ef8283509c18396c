"""The linear identifiable VAE: what a learned conditional prior p(z|u) does to the polarised regime.

Decoder N(Wz+b, γI), diagonal posterior N(μ, Σ), diagonal prior N(μ†, Σ†) that depends on the observed u. With the
prior mean fixed at 0 the optimum is automatic relevance determination; with both learned there is no optimum
(Spec 002, section 7.2; Bonheme 2023, section 5.2). Objectives are the true ELBO in nats, constants included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from polariscope.theory.gaussian import kl_diagonal

FloatArray = NDArray[np.float64]
PASSIVE = 1e-300  # a passive prior variance tends to 0; kept above it so that densities and logarithms exist


def objective(
    x: ArrayLike,
    W: ArrayLike,
    gamma: float,
    mean: ArrayLike,
    var: ArrayLike,
    prior_mean: ArrayLike = 0.0,
    prior_var: ArrayLike = 1.0,
    bias: ArrayLike = 0.0,
) -> FloatArray:
    """ELBO of each row of x; ``mean``, ``var`` and the prior broadcast to (rows, latents).

    With the default prior it is the objective of the linear VAE with a diagonal posterior.
    """
    W = np.asarray(W, dtype=np.float64)
    mean, var = np.atleast_2d(mean), np.asarray(var, dtype=np.float64)
    return reconstruction(x, W, gamma, mean, var, bias) - kl_diagonal(mean, var, prior_mean, prior_var)


def reconstruction(
    x: ArrayLike, W: ArrayLike, gamma: float, mean: ArrayLike, var: ArrayLike, bias: ArrayLike = 0.0
) -> FloatArray:
    """E_q[log p(x|z)] of each row in nats."""
    if not gamma > 0:
        raise ValueError(f"gamma needs to be positive; got {gamma}")
    W = np.asarray(W, dtype=np.float64)
    mean, x = np.atleast_2d(mean), np.atleast_2d(x)
    error = np.sum((x - bias - mean @ W.T) ** 2, axis=-1) + np.asarray(var) @ np.sum(W**2, axis=0)
    return np.asarray(-0.5 * (len(W) * np.log(2 * np.pi * gamma) + error / gamma))


def both_learned_objective(
    x: ArrayLike, W: ArrayLike, gamma: float, mean: ArrayLike, var: ArrayLike, bias: ArrayLike = 0.0
) -> FloatArray:
    """The objective when u determines x and both prior moments are learned: the prior copies the posterior, KL = 0.

    What remains is the reconstruction, which only rises as ``var`` falls to 0: no posterior is optimal, and with
    exact reconstruction (‖x−Wμ−b‖ = 0, γ falling with the variance) the objective has no upper bound.
    """
    return objective(x, W, gamma, mean, var, prior_mean=mean, prior_var=var, bias=bias)


def optimal_prior_var(mean: ArrayLike, var: ArrayLike) -> FloatArray:
    """Best prior variance for a prior mean of 0: Σ† = Σ + μ²."""
    return np.asarray(var, dtype=np.float64) + np.asarray(mean, dtype=np.float64) ** 2


def kl_at_optimal_prior(mean: ArrayLike, var: ArrayLike) -> FloatArray:
    """KL of a variable whose prior variance is optimal, ½ log(1 + μ²/Σ): 0 for μ = 0, whatever Σ."""
    return np.asarray(0.5 * np.log1p(np.asarray(mean, dtype=np.float64) ** 2 / np.asarray(var, dtype=np.float64)))


def optimal_var(mean: ArrayLike, column_norm: ArrayLike, gamma: float) -> FloatArray:
    """Posterior variance that agrees with the prior it induces, Σ = 1/(A/γ + 1/(Σ+μ²)), solved for Σ.

    With v = μ² and c = A/γ, A = ‖w_i‖² (``column_norm`` squared): Σ = (v/2)(√(1 + 4/(cv)) − 1). It tends to γ/A as
    γ → 0 and to 0 as μ → 0.

    >>> round(float(optimal_var(0.45, 2.0, gamma=0.1)), 6)
    0.0225
    """
    v = np.asarray(mean, dtype=np.float64) ** 2
    cv = np.asarray(column_norm, dtype=np.float64) ** 2 / gamma * v
    # the conjugate form: no cancellation for large cv, no 0/0 for v = 0 once the denominator is written with √cv
    return np.asarray(2 * v / np.where(cv > 0, cv + np.sqrt(cv * (cv + 4)), 1.0))


def activity_cost(mean: ArrayLike, column_norm: ArrayLike, gamma: float) -> FloatArray:
    """Nats a variable costs at its own optimum, reconstruction of the mean aside: ½ [v/(v+Σ) + log(A(Σ+v)/γ + 1)].

    Zero exactly for μ = 0 and positive otherwise, so of two codes with the same reconstruction the one with an extra
    active variable is strictly worse: k variables that suffice leave the other n − k passive (Theorem 5.2.2).
    """
    v, var = np.asarray(mean, dtype=np.float64) ** 2, optimal_var(mean, column_norm, gamma)
    prior = v + var
    share = np.divide(v, prior, out=np.zeros_like(prior), where=prior > 0)
    return np.asarray(0.5 * (share + np.log1p(np.asarray(column_norm, dtype=np.float64) ** 2 * prior / gamma)))


@dataclass(frozen=True)
class ScalarSolution:
    """Optimum of the model with one input and one latent, elementwise over its arguments."""

    mean: FloatArray
    var: FloatArray
    prior_var: FloatArray


def scalar_solution(w: ArrayLike, x: ArrayLike, gamma: ArrayLike) -> ScalarSolution:
    """μ = (x²−γ)/(wx), Σ = γ(x²−γ)/(w²x²), Σ† = (x²−γ)/w² where x² > γ; otherwise passive, the limit 0 of all three.

    >>> s = scalar_solution(2.0, 1.0, 0.1)
    >>> round(float(s.mean), 6), round(float(s.var), 6), round(float(s.prior_var), 6)
    (0.45, 0.0225, 0.225)
    """
    w, x, gamma = (np.asarray(value, dtype=np.float64) for value in (w, x, gamma))
    if not (np.all(gamma > 0) and np.all(w != 0)):
        raise ValueError("the scalar model needs a positive gamma and a decoder weight that is not 0")
    surplus = np.maximum(x**2 - gamma, 0)
    safe = np.where(surplus > 0, x, 1.0)
    return ScalarSolution(surplus / (w * safe), gamma * surplus / (w * safe) ** 2, surplus / w**2)


@dataclass(frozen=True)
class LinearIVAE:
    """Fixed point for a prior mean of 0, one row per example; ``active`` is true where the prior variance is not 0."""

    mean: FloatArray
    var: FloatArray
    prior_var: FloatArray
    active: NDArray[np.bool_]


def solve(
    W: ArrayLike,
    x: ArrayLike,
    gamma: float,
    bias: ArrayLike = 0.0,
    groups: ArrayLike | None = None,
    tolerance: float = 1e-9,
    most_iterations: int = 20_000,
) -> LinearIVAE:
    """Posterior and prior variances that are each optimal given the other, for a decoder W and prior mean 0.

    ``groups`` names the u of each row; rows with the same u share one prior (by default each row has its own). With
    all else at its optimum, −2 ELBO is J(s) = E[xᵀ(γI + W diag(s) Wᵀ)⁻¹x] + Σ log(1 + A s/γ) plus a constant, where s
    are the prior variances and A = ‖w_i‖². Each latent in turn is set to its minimum given the others, in closed form,
    so J only falls, until no latent alone can lower it. (There may be several such points.) An iteration is one round
    of all latents; the last changes no log(1 + A s/γ) by more than ``tolerance``. Passive variances are 0, reported as
    ``PASSIVE``.

    >>> s = solve([[1.0]], [[3.0]], gamma=0.5)
    >>> s.mean.round(4).item(), s.var.round(5).item(), s.prior_var.round(4).item()
    (2.8333, 0.47222, 8.5)
    """
    if not gamma > 0:
        raise ValueError(f"gamma needs to be positive; got {gamma}")
    # The part of x orthogonal to the decoder has no effect: in the decoder's basis x has at most one input per latent.
    basis, W = np.linalg.qr(np.asarray(W, dtype=np.float64))
    inputs = (np.atleast_2d(x) - bias) @ basis
    rows, latents = len(inputs), W.shape[1]
    _, group = np.unique(np.arange(rows) if groups is None else np.asarray(groups), return_inverse=True)
    if group.shape != (rows,):
        raise ValueError(f"groups needs one entry per row of x ({rows}); got {group.shape}")
    group_mean = sparse.csr_array((1 / np.bincount(group)[group], (group, np.arange(rows))))
    squared_norms = np.sum(W**2, axis=0)
    energy = group_mean @ np.sum(inputs**2, axis=1)[:, None]
    prior = np.divide(energy, squared_norms, out=np.zeros((len(energy), latents)), where=squared_norms > 0)
    noise = np.broadcast_to(np.sqrt(gamma) * np.eye(len(W)), (len(prior), len(W), len(W)))
    for _ in range(most_iterations):
        before = np.log1p(squared_norms * prior / gamma)
        for i in np.flatnonzero(squared_norms):
            prior[:, i] = 0
            # C = γI + W diag(s) Wᵀ = RᵀR without the squares, which lose half the digits where γ is small.
            R = np.linalg.qr(np.concatenate([noise, np.sqrt(prior)[:, :, None] * W.T], axis=1)).R
            half = np.linalg.solve(R.mT, W[:, i, None])
            filtered = np.linalg.solve(R, half)[:, :, 0]
            evidence = (group_mean @ np.sum(filtered[group] * inputs, axis=1)[:, None] ** 2)[:, 0]
            prior[:, i] = _lone_prior_var(squared_norms[i] / gamma, np.sum(half**2, axis=(1, 2)), evidence)
        change = np.abs(np.log1p(squared_norms * prior / gamma) - before).max()
        if change <= tolerance:
            break
    else:
        raise RuntimeError(
            f"no fixed point within {most_iterations} iterations (last change {change:.2g}); allow more, or a larger "
            "tolerance"
        )
    # μ is ridge regression on WΣ†^½, by QR for the same reason.
    scale, ridge = np.sqrt(prior), np.broadcast_to(np.sqrt(gamma) * np.eye(latents), (len(prior), latents, latents))
    Q, R = np.linalg.qr(np.concatenate([W * scale[:, None], ridge], axis=1))
    weights = scale[:, :, None] * np.linalg.solve(R, Q[:, : len(W)].mT)
    mean = (weights[group] @ inputs[:, :, None])[:, :, 0]
    prior_var = np.maximum(prior, PASSIVE)
    var = prior_var / (1 + squared_norms * prior_var / gamma)
    return LinearIVAE(mean, var[group], prior_var[group], (prior > 0)[group])


def _lone_prior_var(precision: float, seen: FloatArray, evidence: FloatArray) -> FloatArray:
    """The s ≥ 0 that minimises log(1 + p s) − q² s/(1 + t s): J as a function of the prior variance of one latent.

    p = A/γ is its ``precision``. With C the covariance of x under the other latents, t = wᵀC⁻¹w (``seen``, t ≤ p) is
    the part of its column w that they leave unexplained, and q² = E(wᵀC⁻¹x)² the ``evidence`` for it. The derivative
    vanishes where p(1 + t s)² = q²(1 + p s); the larger of the two roots is the minimum, unless J is lower at 0.
    """
    root = evidence * np.maximum(evidence - 4 * seen * (1 - seen / precision), 0)
    variance = np.maximum(evidence - 2 * seen + np.sqrt(root), 0) / (2 * seen**2)
    gain = evidence * variance / (1 + seen * variance) - np.log1p(precision * variance)
    return np.where(gain > 0, variance, 0.0)
