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
    """KL a variable pays once its prior variance is optimal, ½ log(1 + μ²/Σ): nothing for μ = 0, whatever Σ."""
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
    """Fixed point for a prior mean of 0, one row an example; ``active`` says where the prior variance stayed up."""

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
    tolerance: float = 1e-12,
    most_iterations: int = 20_000,
) -> LinearIVAE:
    """Posterior and prior variances that are each optimal given the other, for a decoder W and prior mean 0.

    ``groups`` names the u of each row; rows with the same u share one prior (by default each row has its own).
    Passive variances shrink towards 0 geometrically and are reported where the iteration stopped.

    >>> s = solve([[1.0]], [[3.0]], gamma=0.5)
    >>> s.mean.round(4).item(), s.var.round(5).item(), s.prior_var.round(4).item()
    (2.8333, 0.47222, 8.5)
    """
    if not gamma > 0:
        raise ValueError(f"gamma needs to be positive; got {gamma}")
    W = np.asarray(W, dtype=np.float64)
    centred = np.atleast_2d(x) - bias
    rows, latents = len(centred), W.shape[1]
    _, group = np.unique(np.arange(rows) if groups is None else np.asarray(groups), return_inverse=True)
    if group.shape != (rows,):
        raise ValueError(f"groups needs one entry a row of x ({rows}); got {group.shape}")
    group_mean = sparse.csr_array((1 / np.bincount(group)[group], (group, np.arange(rows))))
    gram, projected = W.T @ W, centred @ W
    squared_norms = np.diag(gram)

    def posterior_mean(prior_var: FloatArray) -> FloatArray:  # (Σ†WᵀW + γI)⁻¹ Σ†Wᵀ(x−b), sound where Σ† = 0 too
        system = prior_var[:, :, None] * gram + gamma * np.eye(latents)
        return np.asarray(np.linalg.solve(system, (prior_var * projected)[:, :, None])[:, :, 0])

    energy = group_mean @ np.sum(centred**2, axis=1)[:, None]
    prior = np.divide(energy, squared_norms, out=np.zeros((len(energy), latents)), where=squared_norms > 0)
    for _ in range(most_iterations):
        explained = squared_norms * prior / (gamma + squared_norms * prior)  # = 1 − Σ/Σ†, the share the data decide
        # Σ† = Σ + μ² rearranged to Σ† = μ²/(1 − Σ/Σ†): the same fixed points, but passive variances shrink
        # geometrically instead of like 1/iteration.
        second_moment = group_mean @ posterior_mean(prior[group]) ** 2
        update = np.divide(second_moment, explained, out=np.zeros_like(prior), where=explained > 0)
        update = np.maximum(update, PASSIVE)
        change = np.abs(update - prior).max()
        prior = update
        if change <= tolerance * max(1.0, prior.max()):
            break
    else:
        raise RuntimeError(f"no fixed point within {most_iterations} iterations (last change {change:.2g})")
    prior_var = prior[group]
    strength = squared_norms * prior_var / gamma
    return LinearIVAE(posterior_mean(prior_var), prior_var / (1 + strength), prior_var, strength > 1e-6)
