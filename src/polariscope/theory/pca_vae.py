"""Why a VAE with a diagonal posterior finds the principal axes: the theorems as functions one can compute with.

Latent noise is cheapest where the decoder's columns are orthogonal, and with the columns scaled to the data's variance
that is PCA (Spec 003, sections 0 to 2; Rolinek, Zietlow and Martius 2019; Zietlow, Rolinek and Martius 2021). The
solved linear VAE itself lives in :mod:`polariscope.theory.linear_vae`; a scale of the loss is a decoder variance there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment, minimize

from polariscope.theory import linear_vae
from polariscope.theory.gaussian import kl_diagonal
from polariscope.theory.linear_vae import LinearVAE, PosteriorKind
from polariscope.theory.pca import principal_directions

FloatArray = NDArray[np.float64]
Convention = Literal["summed", "mean", "halved"]
Criterion = Literal["mean", "variance"]

# --- the scale of the loss ----------------------------------------------------------------------------------------


def decoder_variance(convention: Convention = "summed", m: int | None = None) -> float:
    """The γ for which reconstruction + β KL is the negative β-ELBO of a decoder N(·, γI), up to a constant.

    ``"summed"`` is the squared error summed over the m data dimensions (γ = ½), ``"mean"`` its mean over them
    (γ = m/2), ``"halved"`` half the sum (γ = 1).

    >>> decoder_variance("summed"), decoder_variance("mean", m=3), decoder_variance("halved")
    (0.5, 1.5, 1.0)
    """
    if convention == "mean":
        if m is None or m < 1:
            raise ValueError(f"the mean over data dimensions needs their number: pass m=, at least 1; got {m}")
        return m / 2
    if convention not in ("summed", "halved"):
        raise ValueError(f"convention is 'summed', 'mean' or 'halved'; got {convention!r}")
    return 0.5 if convention == "summed" else 1.0


def effective_noise_variance(beta: float, convention: Convention = "summed", m: int | None = None) -> float:
    """s² = βγ, the noise level below which the β-VAE does not care: β/2 summed, βm/2 mean, β halved.

    >>> effective_noise_variance(0.1), effective_noise_variance(0.1, "mean", m=64)
    (0.05, 3.2)
    """
    if not beta > 0:
        raise ValueError(f"beta needs to be positive; got {beta}")
    return beta * decoder_variance(convention, m)


def collapse_betas(spectrum: ArrayLike, convention: Convention = "summed", m: int | None = None) -> FloatArray:
    """The β at which each principal component is given up, that is where s² reaches its variance λ_j.

    >>> collapse_betas([1 / 3, 1 / 12]).round(4).tolist()
    [0.6667, 0.1667]
    """
    return np.asarray(spectrum, dtype=np.float64) / decoder_variance(convention, m)


# --- the linear VAE in the loss scale of the work -----------------------------------------------------------------


def optimum(
    data: ArrayLike,
    latents: int,
    beta: float,
    convention: Convention = "summed",
    posterior: PosteriorKind = "diagonal",
) -> LinearVAE:
    """Global optimum of reconstruction + β KL, from the covariance of the data or its eigenvalues (section 2.6).

    >>> best = optimum([1 / 3, 1 / 12, 0], latents=2, beta=0.01)
    >>> best.var.round(4).tolist(), round(best.rate, 6), round(minimum_loss(best), 8)
    ([0.015, 0.06], 3.506558, 0.04506558)
    """
    gamma = decoder_variance(convention, np.asarray(data).shape[0])
    return linear_vae.solve(data, latents, gamma, beta, posterior)


def minimum_loss(best: LinearVAE) -> float:
    """Reconstruction + β KL at an optimum, in the scale it was solved in."""
    return best.distortion / (2 * best.gamma) + best.beta * best.rate


def encoder_of(best: LinearVAE) -> FloatArray:
    """The encoder matrix (latents, m) that goes with an optimal decoder: rows √(λ_j−s²)/λ_j u_jᵀ."""
    return np.asarray((best.W * best.var / (best.beta * best.gamma)).T)


@dataclass(frozen=True)
class LinearLoss:
    """The expected loss of a linear VAE in its parts, and its gradients."""

    deterministic: float
    """Error of decoding the means."""
    stochastic: float
    """What the latent noise adds to it."""
    kl: float
    beta: float
    decoder: FloatArray
    encoder: FloatArray
    noise: FloatArray
    """Gradient with respect to the variances, or to the covariance if one was given."""

    @property
    def value(self) -> float:
        return self.deterministic + self.stochastic + self.beta * self.kl


def linear_vae_loss(
    decoder: ArrayLike,
    encoder: ArrayLike,
    noise: ArrayLike,
    covariance: ArrayLike,
    beta: float,
    convention: Convention = "summed",
) -> LinearLoss:
    """Expected loss of x ↦ D(Ex + ε) on centred data of covariance C, without sampling (section 1.5).

    tr[(I−DE)C(I−DE)ᵀ] + tr(D S Dᵀ) + β/2 (tr(ECEᵀ) + tr S − log det S − d), the first two divided by 2γ in other
    conventions. ``noise`` is the covariance S of ε, or the vector of its variances if the posterior is diagonal.

    >>> best = optimum([1 / 3, 1 / 12, 0], latents=2, beta=0.01)
    >>> loss = linear_vae_loss(best.W, encoder_of(best), best.var, np.diag([1 / 3, 1 / 12, 0]), beta=0.01)
    >>> round(loss.value, 8), bool(np.allclose(loss.decoder, 0))
    (0.04506558, True)
    """
    D, E, C = (np.asarray(a, dtype=np.float64) for a in (decoder, encoder, covariance))
    S = np.asarray(noise, dtype=np.float64)
    m, d = D.shape
    if E.shape != (d, m) or C.shape != (m, m) or S.shape not in ((d,), (d, d)):
        raise ValueError(
            f"a decoder {D.shape} goes with an encoder {(d, m)}, a covariance {(m, m)} and noise {(d,)} or {(d, d)}; "
            f"got {E.shape}, {C.shape} and {S.shape}"
        )
    full = np.diag(S) if S.ndim == 1 else S
    sign, logdet = np.linalg.slogdet(full)
    if sign <= 0:
        raise ValueError("the noise is not positive definite: its KL is infinite")
    scale, gram = 1 / (2 * decoder_variance(convention, m)), D.T @ D
    residual = (np.eye(m) - D @ E) @ C
    by_noise = scale * gram + beta / 2 * (np.eye(d) - np.linalg.inv(full))
    return LinearLoss(
        deterministic=float(scale * (np.trace(residual) - np.sum((residual @ E.T) * D))),
        stochastic=float(scale * np.sum(gram * full)),
        kl=float(0.5 * (np.sum((E @ C) * E) + np.trace(full) - logdet - d)),
        beta=beta,
        decoder=2 * scale * (D @ full - residual @ E.T),
        encoder=beta * E @ C - 2 * scale * D.T @ residual,
        noise=np.diag(by_noise).copy() if S.ndim == 1 else by_noise,
    )


@dataclass(frozen=True)
class FittedLinearVAE:
    """What an optimiser found; ``noise`` holds variances, or a covariance if the posterior is full."""

    decoder: FloatArray
    encoder: FloatArray
    noise: FloatArray
    loss: float


def fit_linear_vae(
    covariance: ArrayLike,
    latents: int,
    beta: float,
    posterior: PosteriorKind = "diagonal",
    convention: Convention = "summed",
    seed: int | np.random.Generator = 0,
) -> FittedLinearVAE:
    """Minimise :func:`linear_vae_loss` from a random decoder by L-BFGS, with the best posterior for it at every step.

    The reward for alignment is tiny (β times :func:`rotation_penalty`), so a short run tests the optimiser rather than
    the theorem: this one goes on until the loss falls no more.

    >>> fit = fit_linear_vae(np.diag([1 / 3, 1 / 12, 0]), latents=2, beta=0.01)
    >>> round(fit.loss, 8)
    0.04506558
    """
    C = np.asarray(covariance, dtype=np.float64)
    m, gamma = len(C), decoder_variance(convention, len(C))

    def at(flat: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, LinearLoss]:
        D = flat.reshape(m, latents)
        best = linear_vae.optimal_posterior(D, np.eye(m), gamma, beta=beta, posterior=posterior)
        E, noise = best.mean.T, best.var if posterior == "diagonal" else best.cov
        return D, E, noise, linear_vae_loss(D, E, noise, C, beta, convention)

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        loss = at(flat)[-1]  # at the best posterior the loss changes with the decoder alone
        return loss.value / beta, loss.decoder.ravel() / beta

    start = np.random.default_rng(seed).normal(scale=np.sqrt(np.trace(C) / m), size=m * latents)
    options = {"maxiter": 10_000, "maxfun": 50_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30}
    D, E, noise, loss = at(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)
    return FittedLinearVAE(D, E, noise, loss.value)


def linear_autoencoder(covariance: ArrayLike, rotation: ArrayLike, scale: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """One of the many optimal linear autoencoders: decoder PᵀΣQ and encoder QᵀΣ⁻¹P, P the first d principal directions.

    All of them reconstruct alike; only a rotation Q that permutes keeps the principal axes (section 1.1).
    """
    Q, sizes = np.asarray(rotation, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    P = principal_directions(covariance)[1][:, : len(Q)]
    return np.asarray(P * sizes @ Q), np.asarray(Q.T @ (P / sizes).T)


@dataclass(frozen=True)
class Alignment:
    """Which principal component each latent in use decodes to, and by which angle (radians) it misses it."""

    latents: NDArray[np.intp]
    components: NDArray[np.intp]
    angles: FloatArray


def pca_alignment(decoder: ArrayLike, covariance: ArrayLike) -> Alignment:
    """Decoder columns against principal directions, up to signed permutation and scale (section 2.7).

    Columns shorter than 10⁻⁴ of the longest belong to latents that are not in use and are left out.

    >>> pca_alignment([[0.0, 2.0], [-1.0, 0.0]], np.diag([3.0, 1.0])).components.tolist()
    [1, 0]
    """
    D = np.asarray(decoder, dtype=np.float64)
    norms = np.linalg.norm(D, axis=0)
    used = np.flatnonzero(norms > 1e-4 * norms.max())
    directions = principal_directions(covariance)[1]
    cosines = directions.T @ (D[:, used] / norms[used])
    columns, components = linear_sum_assignment(np.abs(cosines).T, maximize=True)
    # By half the chord: the arc cosine loses half of the digits where the angle is small.
    chords = D[:, used] / norms[used] - directions[:, components] * np.sign(cosines[components, columns])
    return Alignment(used, components, 2 * np.arcsin(np.linalg.norm(chords, axis=0) / 2))


# --- orthogonality in nats ------------------------------------------------------------------------------------------


def gram_gap(gram: ArrayLike) -> FloatArray:
    """½ [Σ_j log M_jj − log det M] for positive definite M (..., d, d): 0 exactly where M is diagonal (Hadamard)."""
    M = np.asarray(gram, dtype=np.float64)
    diagonal = np.diagonal(M, axis1=-2, axis2=-1)
    if not np.all(diagonal > 0):
        raise ValueError("a column is zero, so the gap has no value: drop that latent, or pass a positive noise_var")
    # Of the correlations rather than of M: their determinant stays near 1 however unequal the columns are.
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
    """Nats lost by turning the latents of the optimal linear VAE: the gap of RᵀΛR. The loss rises by β times that.

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
        """What the diagonal posterior loses, in nats."""
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


# --- noise under a budget: Theorem 1 --------------------------------------------------------------------------------


def hands_on_example() -> tuple[FloatArray, FloatArray]:
    """The decoder of the work's hands-on example, and the same with its latents turned by 45° (section 2.8).

    >>> [round(float(minimal_stochastic_loss(decoder, budget=0.0)), 4) for decoder in hands_on_example()]
    [24.4949, 52.3927]
    """
    mixed = np.array([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]])
    return mixed, mixed @ np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)


def stochastic_loss(jacobian: ArrayLike, var: ArrayLike) -> FloatArray:
    """E‖Jε‖² = Σ_j ‖c_j‖² σ_j for noise of variances ``var`` (..., d): what noise costs a locally linear decoder."""
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
    """log det† J, the sum of the logarithms of the singular values: what no rotation of the latents changes."""
    values = np.linalg.svd(np.asarray(jacobian, dtype=np.float64), compute_uv=False)
    if not np.all(values > 0):
        raise ValueError("a singular value is zero, so the volume is: drop latents the decoder does not tell apart")
    return np.asarray(np.log(values).sum(axis=-1))


def noise_objective(jacobians: ArrayLike, var: ArrayLike) -> float:
    """Σ_i log E‖J_i ε_i‖² over samples (n, m, d): what Theorem 1 minimises over rotations and variances."""
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
    """Jacobians J_i V_i with orthogonal columns, the rotations V_i, and the objective on the way there."""

    jacobians: FloatArray
    rotations: FloatArray
    objective: FloatArray


def descend_to_orthogonality(jacobians: ArrayLike, budget: float, sweeps: int = 50) -> Descent:
    """Theorem 1 as an algorithm: turn pairs of columns where that makes noise cheaper, with the best variances always.

    No start is a trap: every local minimum is global, so the objective falls to :func:`noise_objective_bound`. The best
    turn of a pair makes it orthogonal, hence this is the Jacobi way to the singular value decomposition; disjoint
    pairs are turned at once, and so are all samples (n, m, d).
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
    """Every pair of d columns once, in rounds of disjoint pairs: the tournament in which one player sits still."""
    players = d + d % 2
    ring = np.arange(1, players)
    rounds = []
    for turn in range(players - 1):
        order = np.concatenate([[0], np.roll(ring, turn)])
        # A turn puts the longer column left. Were left not always the lower number, columns would change places round
        # after round, and some pairs might never meet.
        left, right = np.sort([order[: players // 2], order[players // 2 :][::-1]], axis=0)
        rounds.append((left[right < d], right[right < d]))
    return rounds


def _column_squares(jacobian: ArrayLike) -> FloatArray:
    return np.asarray(np.sum(np.asarray(jacobian, dtype=np.float64) ** 2, axis=-2))


def noise_cost(directions: ArrayLike, covariance: ArrayLike, var: ArrayLike) -> float:
    """Σ_j n_j (UᵀCU)_jj: what latents with noise n_j cost when latent j decodes along column j of U (section 2.7)."""
    U = np.asarray(directions, dtype=np.float64)
    return float(np.sum(np.asarray(var) * np.sum(U * (np.asarray(covariance) @ U), axis=0)))


def minimal_noise_cost(covariance: ArrayLike, var: ArrayLike) -> float:
    """The least :func:`noise_cost` (Schur and Horn): principal axes, the least noise on the largest variance.

    This is Theorem 2, that linear VAEs do PCA, for noise that is given: it is unequal noise that picks the axes.

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
    """0 if noise does not shift the mean of what is decoded, as for every linear decoder."""

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


# --- the polarised regime, the premise of it all --------------------------------------------------------------------


def active_units(mean: ArrayLike, var: ArrayLike, criterion: Criterion = "mean") -> NDArray[np.bool_]:
    """Latents in use: standard deviation of the means above 0.5 (``"mean"``), or mean variance below 0.8.

    At the linear optimum Var μ_j = 1 − σ_j, so the first rule is σ_j < 0.75 and the two nearly agree (section 2.1).

    >>> active_units([[1.0, 0.1], [-1.0, -0.1]], [[0.1, 0.9], [0.1, 0.9]]).tolist()
    [True, False]
    """
    if criterion == "mean":
        return np.asarray(np.std(np.asarray(mean, dtype=np.float64), axis=0) > 0.5)
    if criterion != "variance":
        raise ValueError(f"criterion is 'mean' or 'variance'; got {criterion!r}")
    return np.asarray(np.mean(np.asarray(var, dtype=np.float64), axis=0) < 0.8)


def polarised_kl(mean: ArrayLike, var: ArrayLike, active: ArrayLike) -> FloatArray:
    """The KL of each example as the polarised regime simplifies it, ½ Σ_active (μ_j² − log σ_j − 1), in nats.

    It leaves out ½σ_j of active latents, which is small, and all that passive ones pay: never more than the KL.
    """
    used = np.asarray(active, dtype=bool)
    mean, var = np.asarray(mean, dtype=np.float64)[:, used], np.asarray(var, dtype=np.float64)[:, used]
    return np.asarray(0.5 * np.sum(mean**2 - np.log(var) - 1, axis=1))


def kl_approximation_error(mean: ArrayLike, var: ArrayLike, active: ArrayLike | None = None) -> float:
    """Share of the KL that the polarised regime leaves out, (KL − polarised KL) / KL, from averages over the examples.

    Range [0, ∞): near 0 in the polarised regime, 1 if no latent is in use. Published runs are below 3 % for more than
    nine tenths of the training (section 3.8).

    >>> round(kl_approximation_error([[1.0, 0.0], [-1.0, 0.0]], [[1e-4, 1.0], [1e-4, 1.0]]), 7)
    1.09e-05
    """
    whole = float(kl_diagonal(mean, var).mean())
    if not whole > 0:
        raise ValueError("the posterior is the prior everywhere, so there is no KL to approximate")
    used = active_units(mean, var) if active is None else active
    return (whole - float(polarised_kl(mean, var, used).mean())) / whole


def polarised_share(errors: ArrayLike, threshold: float = 0.03) -> float:
    """Share of a run, given its errors at equal intervals, from which on they stay below ``threshold`` to the end.

    >>> polarised_share([0.9, 0.01, 0.2, 0.02, 0.01])
    0.4
    """
    above = np.flatnonzero(~(np.asarray(errors, dtype=np.float64) < threshold))
    count = np.size(errors)
    if not count:
        raise ValueError("a run without a single error has no share: record at least one")
    return float(1 - (above[-1] + 1) / count) if above.size else 1.0


def precision_bits(var: ArrayLike) -> FloatArray:
    """−log₂ of the standard deviation: binary digits the code spends on a latent (section 2.9).

    At the linear optimum they sum to the KL (in bits), and so they do wherever μ² + σ averages to 1.

    >>> precision_bits([0.25, 1.0]).tolist()
    [1.0, 0.0]
    """
    values = np.asarray(var, dtype=np.float64)
    if not np.all(values > 0):
        raise ValueError(f"precision needs positive variances; got {values.min():.4g} (a log-variance? take its exp)")
    return np.asarray(-0.5 * np.log2(values)) + 0.0


def best_scale(mean: ArrayLike) -> float:
    """The factor √(n / Σμ²) by which means of one latent are cheapest: their mean square becomes 1 (Lemma 7).

    It minimises Σ (c²μ_i² − log c²σ_i) whatever the variances, when the decoder undoes the scale.

    >>> best_scale([2.0, -2.0])
    0.5
    """
    values = np.asarray(mean, dtype=np.float64)
    if not np.any(values):
        raise ValueError("means that are all zero have no best scale")
    return float(np.sqrt(values.size / np.sum(values**2)))


def principal_order(var: ArrayLike) -> NDArray[np.intp]:
    """Latents from the most to the least precise, by mean variance: the non-linear principal components (section 3.8).

    >>> principal_order([[0.9, 0.1, 0.4]]).tolist()
    [1, 2, 0]
    """
    return np.argsort(np.mean(np.asarray(var, dtype=np.float64), axis=0), kind="stable")
