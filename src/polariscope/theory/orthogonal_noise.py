"""Latent noise is cheapest where a decoder's columns are orthogonal: Theorem 1, in nats (Spec 003, section 2).

Rolinek, Zietlow and Martius 2019; the bound of the likelihood is that of independent mechanism analysis (section 7.6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory import linear_vae
from polariscope.theory.pca import principal_directions

FloatArray = NDArray[np.float64]


def gram_gap(gram: ArrayLike) -> FloatArray:
    """½ [Σ_j log M_jj − log det M] for positive definite M (..., d, d): 0 exactly where M is diagonal (Hadamard)."""
    M = np.asarray(gram, dtype=np.float64)
    diagonal = np.diagonal(M, axis1=-2, axis2=-1)
    if not np.all(diagonal > 0):
        raise ValueError("a column is zero, so the gap has no value: drop that latent, or pass a positive noise_var")
    # The determinant of the correlations, not of M: it stays near 1 however unequal the columns are.
    size = np.sqrt(diagonal)
    sign, logdet = np.linalg.slogdet(M / (size[..., :, None] * size[..., None, :]))
    return np.asarray(np.where(sign > 0, np.maximum(-0.5 * logdet, 0), np.inf))


def orthogonality_gap(jacobian: ArrayLike, noise_var: float = 0.0) -> FloatArray:
    """Nats a diagonal posterior loses because the columns of J (..., m, d) are not orthogonal (section 2.5).

    ½ [Σ_j log M_jj − log det M] with M = JᵀJ + s²I. Without noise it is the contrast of independent mechanism
    analysis, Σ_j log‖c_j‖ − ½ log det JᵀJ (section 7.6); unlike the distance to orthogonality it is well defined where
    singular values coincide. Range [0, ∞]: 0 exactly for orthogonal columns, ∞ for dependent ones without noise.

    >>> mixed, turned = hands_on_example()
    >>> round(float(orthogonality_gap(mixed)), 4), round(float(orthogonality_gap(turned)), 4)
    (0.0564, 0.8167)
    """
    if not noise_var >= 0:
        raise ValueError(f"noise_var needs to be at least 0; got {noise_var}")
    J = np.asarray(jacobian, dtype=np.float64)
    return gram_gap(np.swapaxes(J, -1, -2) @ J + noise_var * np.eye(J.shape[-1]))


def rotation_penalty(spectrum: ArrayLike, rotation: ArrayLike) -> FloatArray:
    """Nats lost by rotating the latents of the optimal linear VAE: the gap of RᵀΛR. The loss rises by β times that.

    In two dimensions ½ log[1 + (λ₁−λ₂)²/(4λ₁λ₂) sin²2θ] for an angle θ (section 2.6).

    >>> half = np.sqrt(0.5)
    >>> round(float(rotation_penalty([4.0, 1.0], [[half, -half], [half, half]])), 6)   # ln(5/4)
    0.223144
    """
    R, values = np.asarray(rotation, dtype=np.float64), np.asarray(spectrum, dtype=np.float64)
    return gram_gap(np.swapaxes(R, -1, -2) * values @ R)


@dataclass(frozen=True)
class LikelihoodBounds:
    """Log-likelihood, its self-consistent bound, and the regularised likelihood the bound tends to, by precision."""

    precision: FloatArray
    log_likelihood: FloatArray
    elbo: FloatArray
    regularised: FloatArray

    @property
    def gap(self) -> FloatArray:
        """The likelihood that the diagonal posterior loses, in nats."""
        return self.log_likelihood - self.elbo


def likelihood_bounds(decoder: ArrayLike, x: ArrayLike, precisions: ArrayLike) -> LikelihoodBounds:
    """Averages over the rows of x for linear decoders N(Dz, I/γ²) with the best diagonal posterior (section 7.6).

    >>> bounds = likelihood_bounds(hands_on_example()[1], [[1.0, 0.0, 2.0]], [1.0, 1000.0])
    >>> bounds.gap.round(5).tolist()
    [0.68527, 0.81654]
    """
    precision = np.atleast_1d(np.asarray(precisions, dtype=np.float64))
    likelihoods, bounds = [], []
    for gamma in 1 / precision:
        best = linear_vae.optimal_posterior(decoder, x, gamma, posterior="diagonal")
        likelihoods.append(linear_vae.log_likelihood(x, decoder, gamma).mean())
        bounds.append(linear_vae.elbo(x, decoder, gamma, best.mean, best.var).mean())
    likelihood = np.array(likelihoods)
    return LikelihoodBounds(precision, likelihood, np.array(bounds), likelihood - orthogonality_gap(decoder))


def hands_on_example() -> tuple[FloatArray, FloatArray]:
    """The decoder of the work's hands-on example, and the same with its latents rotated by 45° (section 2.8).

    >>> [round(float(minimal_stochastic_loss(decoder, budget=0.0)), 4) for decoder in hands_on_example()]
    [24.4949, 52.3927]
    """
    mixed = np.array([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]])
    return mixed, mixed @ np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)


def stochastic_loss(jacobian: ArrayLike, var: ArrayLike) -> FloatArray:
    """E‖Jε‖² = Σ_j ‖c_j‖² σ_j, the error that noise of variances ``var`` (..., d) adds to a locally linear decoder."""
    return np.asarray(np.sum(_column_squares(jacobian) * np.asarray(var, dtype=np.float64), axis=-1))


def optimal_var(jacobian: ArrayLike, budget: ArrayLike) -> FloatArray:
    """Variances of least :func:`stochastic_loss` under Σ_j −log σ_j = budget: each column then costs the same.

    σ_j = κ/‖c_j‖² with κ = (Π_j ‖c_j‖² e^(−budget))^(1/d) (section 2.5).

    >>> var = optimal_var(hands_on_example()[0], budget=0.0)
    >>> round(float(var[0] / var[1]), 9)
    0.06
    """
    squares = _column_squares(jacobian)
    if not np.all(squares > 0):
        raise ValueError("a column is zero, so its noise is free and the budget has no optimum: drop that latent")
    log_kappa = (np.log(squares).sum(axis=-1) - np.asarray(budget, dtype=np.float64)) / squares.shape[-1]
    return np.asarray(np.exp(log_kappa)[..., None] / squares)


def minimal_stochastic_loss(jacobian: ArrayLike, budget: ArrayLike) -> FloatArray:
    """The least E‖Jε‖² a budget allows for these columns: d (Π‖c_j‖²)^(1/d) e^(−budget/d)."""
    return stochastic_loss(jacobian, optimal_var(jacobian, budget))


def log_volume(jacobian: ArrayLike) -> FloatArray:
    """log det† J, the sum of the logarithms of the singular values: no rotation of the latents changes it."""
    values = np.linalg.svd(np.asarray(jacobian, dtype=np.float64), compute_uv=False)
    if not np.all(values > 0):
        raise ValueError("a singular value is zero, so the volume is: drop latents the decoder does not distinguish")
    return np.asarray(np.log(values).sum(axis=-1))


def noise_objective(jacobians: ArrayLike, var: ArrayLike) -> float:
    """Σ_i log E‖J_i ε_i‖² over samples (n, m, d): Theorem 1 minimises it over rotations and variances."""
    return float(np.log(stochastic_loss(jacobians, var)).sum())


def noise_objective_bound(jacobians: ArrayLike, budget: float) -> float:
    """The global minimum of :func:`noise_objective` with Σ_ij −log σ_ij = budget, at orthogonal columns (Theorem 1).

    N log d − budget/d + (2/d) Σ_i log det† J_i.
    """
    J = np.asarray(jacobians, dtype=np.float64)
    n, d = J.shape[0], J.shape[-1]
    return float(n * np.log(d) - budget / d + 2 / d * log_volume(J).sum())


@dataclass(frozen=True)
class Descent:
    """Jacobians J_i V_i with orthogonal columns, the rotations V_i, and the objective before and after each sweep."""

    jacobians: FloatArray
    rotations: FloatArray
    objective: FloatArray


def descend_to_orthogonality(jacobians: ArrayLike, budget: float, sweeps: int = 50) -> Descent:
    """Theorem 1 as an algorithm: rotate pairs of columns to make noise cheaper, always with the best variances.

    Every local minimum is global, so the objective falls to :func:`noise_objective_bound` from every start. The best
    rotation of a pair makes it orthogonal, so this is the Jacobi algorithm for the singular value decomposition.
    Disjoint pairs, and all samples (n, m, d), are rotated at once.
    """
    J = np.array(jacobians, dtype=np.float64)
    n, d = J.shape[0], J.shape[-1]
    V = np.broadcast_to(np.eye(d), (n, d, d)).copy()
    share = np.full(n, budget / n)  # how the budget is shared between samples makes no difference
    trace = [float(np.log(minimal_stochastic_loss(J, share)).sum())]
    for _ in range(sweeps):
        for left, right in _rounds(d):
            p, q = J[..., left], J[..., right]
            twice = 2 * np.sum(p * q, axis=-2)
            angle = 0.5 * np.arctan2(twice, np.sum(p * p, axis=-2) - np.sum(q * q, axis=-2))
            cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
            for matrix in (J, V):
                a, b = matrix[..., left], matrix[..., right]
                matrix[..., left], matrix[..., right] = cos * a + sin * b, cos * b - sin * a
        trace.append(float(np.log(minimal_stochastic_loss(J, share)).sum()))
        if trace[-2] - trace[-1] <= 1e-13 * n * d:
            break
    return Descent(J, V, np.array(trace))


def _rounds(d: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Every pair of d columns once, in rounds of disjoint pairs: a round-robin tournament with one player fixed."""
    players = d + d % 2
    ring = np.arange(1, players)
    rounds = []
    for turn in range(players - 1):
        order = np.concatenate([[0], np.roll(ring, turn)])
        # A rotation puts the longer column left. If left were not always the lower number, columns would change places
        # every round, and some pairs might never meet.
        left, right = np.sort([order[: players // 2], order[players // 2 :][::-1]], axis=0)
        rounds.append((left[right < d], right[right < d]))
    return rounds


def _column_squares(jacobian: ArrayLike) -> FloatArray:
    return np.asarray(np.sum(np.asarray(jacobian, dtype=np.float64) ** 2, axis=-2))


def noise_cost(directions: ArrayLike, covariance: ArrayLike, var: ArrayLike) -> float:
    """Σ_j n_j (UᵀCU)_jj: the cost of latents with noise n_j if latent j decodes along column j of U (section 2.7)."""
    U = np.asarray(directions, dtype=np.float64)
    return float(np.sum(np.asarray(var) * np.sum(U * (np.asarray(covariance) @ U), axis=0)))


def minimal_noise_cost(covariance: ArrayLike, var: ArrayLike) -> float:
    """The least :func:`noise_cost` (Schur and Horn): principal axes, the least noise on the largest variance.

    This is Theorem 2 (linear VAEs do PCA) for given noise: unequal noise selects the axes.

    >>> round(minimal_noise_cost(np.diag([1 / 12, 1 / 3]), [6e-4, 1.5e-4]), 12)
    0.0001
    """
    noise = np.sort(np.asarray(var, dtype=np.float64))
    return float(noise @ principal_directions(covariance)[0][: len(noise)])


@dataclass(frozen=True)
class ReconstructionSplit:
    """Squared error = deterministic + stochastic + cross, per example (Proposition 4)."""

    deterministic: FloatArray
    stochastic: FloatArray
    cross: FloatArray
    """0 if noise does not shift the mean of the decoded samples, as for every linear decoder."""

    @property
    def total(self) -> FloatArray:
        return self.deterministic + self.stochastic + self.cross


def reconstruction_split(x: ArrayLike, at_mean: ArrayLike, at_samples: ArrayLike) -> ReconstructionSplit:
    """Split the error of observations x (n, m), decoded at their means (n, m) and at draws of the latents (k, n, m)."""
    x, centre, draws = (np.asarray(a, dtype=np.float64) for a in (x, at_mean, at_samples))
    if x.shape != centre.shape or draws.shape[1:] != x.shape:
        raise ValueError(
            f"x and at_mean need shape (n, m), at_samples (k, n, m); got {x.shape}, {centre.shape}, {draws.shape}"
        )
    return ReconstructionSplit(
        deterministic=np.sum((centre - x) ** 2, axis=1),
        stochastic=np.sum((draws - centre) ** 2, axis=2).mean(axis=0),
        cross=2 * np.sum((draws.mean(axis=0) - centre) * (centre - x), axis=1),
    )
