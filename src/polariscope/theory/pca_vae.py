"""The linear VAE in the loss scale of the works on PCA, its expected loss without sampling, and its axes beside PCA's.

Latent noise is cheapest where the decoder's columns are orthogonal (:mod:`polariscope.theory.orthogonal_noise`), and
with the columns scaled to the data's variance that is PCA (Spec 003, sections 0 to 2; Rolinek, Zietlow and Martius
2019; Zietlow, Rolinek and Martius 2021). :mod:`polariscope.theory.linear_vae` solves the linear VAE itself; a scale of
the loss is a decoder variance there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment, minimize

from polariscope.theory import linear_vae
from polariscope.theory.linear_vae import LinearVAE, PosteriorKind
from polariscope.theory.pca import principal_directions

FloatArray = NDArray[np.float64]
Convention = Literal["summed", "mean", "halved"]

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
    """s² = βγ, the variance below which the β-VAE prunes a component: β/2 summed, βm/2 mean, β halved.

    >>> effective_noise_variance(0.1), effective_noise_variance(0.1, "mean", m=64)
    (0.05, 3.2)
    """
    if not beta > 0:
        raise ValueError(f"beta needs to be positive; got {beta}")
    return beta * decoder_variance(convention, m)


def collapse_betas(spectrum: ArrayLike, convention: Convention = "summed", m: int | None = None) -> FloatArray:
    """The β at which each principal component is pruned, that is where s² reaches its variance λ_j.

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
    """Error that the latent noise adds."""
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
    """The result of an optimiser; ``noise`` holds variances, or a covariance if the posterior is full."""

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
    the theorem: this one continues until the loss stops falling.

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

    All of them reconstruct equally well; only a rotation Q that permutes keeps the principal axes (section 1.1).
    """
    Q, sizes = np.asarray(rotation, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    P = principal_directions(covariance)[1][:, : len(Q)]
    return np.asarray(P * sizes @ Q), np.asarray(Q.T @ (P / sizes).T)


@dataclass(frozen=True)
class Alignment:
    """The principal component that each latent in use decodes to, and the angle (radians) between the two."""

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
    # The angle from half the chord: the arc cosine loses half of the digits where the angle is small.
    chords = D[:, used] / norms[used] - directions[:, components] * np.sign(cosines[components, columns])
    return Alignment(used, components, 2 * np.arcsin(np.linalg.norm(chords, axis=0) / 2))
