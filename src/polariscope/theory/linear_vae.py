"""The linear VAE solved: the main oracle of the polarised regime.

Decoder N(Wz+b, γI), prior N(0, I), Gaussian posterior. With θ = βγ every quantity has a closed form, so anything
trained or measured elsewhere can be compared with it (Spec 002, section 5; Bonheme 2023, sections 4.2 and 4.3).
All objectives are in nats, halved and with their constants: they are the true (β-)ELBO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
PosteriorKind = Literal["diagonal", "full"]


def _matrix(W: ArrayLike) -> FloatArray:
    W = np.asarray(W, dtype=np.float64)
    if W.ndim != 2:
        raise ValueError(f"W needs shape (inputs, latents); got {W.shape}")
    return W


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} needs to be positive; got {value}")


@dataclass(frozen=True)
class Posterior:
    """N(mean_i, cov): one mean per row, one covariance for all of them (it does not depend on x in a linear model)."""

    mean: FloatArray
    cov: FloatArray

    @property
    def var(self) -> FloatArray:
        return np.diag(self.cov)


def optimal_posterior(
    W: ArrayLike,
    x: ArrayLike,
    gamma: float,
    bias: ArrayLike = 0.0,
    beta: float = 1.0,
    posterior: PosteriorKind = "full",
) -> Posterior:
    """Best posterior for a given decoder: Σ = (WᵀW/θ + I)⁻¹, μ = (WᵀW + θI)⁻¹Wᵀ(x−b), θ = βγ.

    The diagonal constraint keeps μ and replaces Σ by σ_j = 1/(‖w_j‖²/θ + 1).

    >>> optimal_posterior(np.diag([2.0, 1.0]), [1.0, 1.0], gamma=0.1, posterior="diagonal").var.round(5).tolist()
    [0.02439, 0.09091]
    """
    _check_positive(gamma=gamma, beta=beta)
    W, theta = _matrix(W), beta * gamma
    gram, identity = W.T @ W, np.eye(W.shape[1])
    mean: FloatArray = np.asarray(np.linalg.solve(gram + theta * identity, W.T @ (np.atleast_2d(x) - bias).T).T)
    if posterior == "diagonal":
        return Posterior(mean, np.diag(1 / (np.diag(gram) / theta + 1)))
    return Posterior(mean, np.asarray(np.linalg.inv(gram / theta + identity)))


def elbo(
    x: ArrayLike,
    W: ArrayLike,
    gamma: float,
    mean: ArrayLike,
    cov: ArrayLike,
    bias: ArrayLike = 0.0,
    beta: float = 1.0,
) -> FloatArray:
    """β-ELBO of each row of x, E_q[log p(x|z)] − β KL(q‖N(0,I)); ``cov`` is a matrix, or a vector of variances."""
    _check_positive(gamma=gamma, beta=beta)
    W, x, mean, cov = _matrix(W), np.atleast_2d(x), np.atleast_2d(mean), np.asarray(cov, dtype=np.float64)
    cov = np.diag(cov) if cov.ndim == 1 else cov
    sign, logdet = np.linalg.slogdet(cov)
    if sign <= 0:
        raise ValueError("cov is not positive definite: the KL of a degenerate posterior is infinite")
    inputs, latents = W.shape
    residual = np.sum((x - bias - mean @ W.T) ** 2, axis=1) + np.sum(cov * (W.T @ W))
    likelihood = -0.5 * (inputs * np.log(2 * np.pi * gamma) + residual / gamma)
    kl = 0.5 * (np.trace(cov) + np.sum(mean**2, axis=1) - logdet - latents)
    return np.asarray(likelihood - beta * kl)


def log_likelihood(x: ArrayLike, W: ArrayLike, gamma: float, bias: ArrayLike = 0.0) -> FloatArray:
    """log N(x; b, WWᵀ+γI) of each row: the ELBO at its best full posterior equals it (probabilistic PCA)."""
    _check_positive(gamma=gamma)
    W = _matrix(W)
    cov = W @ W.T + gamma * np.eye(len(W))
    centred = np.atleast_2d(x) - bias
    mahalanobis = np.sum(centred * np.linalg.solve(cov, centred.T).T, axis=1)
    return np.asarray(-0.5 * (mahalanobis + np.linalg.slogdet(2 * np.pi * cov)[1]))


def rotation_gap(W: ArrayLike, gamma: float, beta: float = 1.0) -> float:
    """Nats lost by a diagonal posterior because the columns of W are not orthogonal (Hadamard's inequality).

    β/2 [Σ_j log(A_jj/θ + 1) − log det(A/θ + I)] with A = WᵀW and θ = βγ; zero exactly when A is diagonal.

    >>> turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    >>> round(rotation_gap(np.diag([2.0, 1.0]) @ turn, gamma=1.0), 4)
    0.1015
    """
    _check_positive(gamma=gamma, beta=beta)
    W = _matrix(W)
    scaled = W.T @ W / (beta * gamma) + np.eye(W.shape[1])
    return float(0.5 * beta * (np.log(np.diag(scaled)).sum() - np.linalg.slogdet(scaled)[1]))


def local_var(jacobian: ArrayLike, gamma: float, beta: float = 1.0) -> FloatArray:
    """Posterior variances a non-linear decoder implies where its Jacobian is J: σ_j = 1/(1 + ‖J_:j‖²/(βγ)).

    ``jacobian`` has shape (..., inputs, latents); the first-order version of :func:`optimal_posterior`.

    >>> local_var([[2.0, 0.0], [0.0, 1.0]], gamma=0.1).round(5).tolist()
    [0.02439, 0.09091]
    """
    _check_positive(gamma=gamma, beta=beta)
    return np.asarray(1 / (1 + np.sum(np.asarray(jacobian, dtype=np.float64) ** 2, axis=-2) / (beta * gamma)))


@dataclass(frozen=True)
class LinearVAE:
    """Global optimum of the β-ELBO over a dataset; entry j of each vector belongs to latent j, strongest first."""

    W: FloatArray
    var: FloatArray
    gain: FloatArray
    active: NDArray[np.bool_]
    rate: float
    distortion: float
    trace_gap: float
    gamma: float
    beta: float
    posterior: PosteriorKind

    @property
    def active_count(self) -> int:
        return int(self.active.sum())

    @property
    def elbo(self) -> float:
        """The attained β-ELBO, averaged over the data."""
        inputs = len(self.W)
        return -0.5 * (inputs * np.log(2 * np.pi * self.gamma) + self.distortion / self.gamma) - self.beta * self.rate

    @property
    def freedom(self) -> str:
        """The transformations of the latents that leave the optimum unchanged."""
        return "signed permutation" if self.posterior == "diagonal" else "rotation"


def solve(
    data: ArrayLike,
    latents: int,
    gamma: float | None,
    beta: float = 1.0,
    posterior: PosteriorKind = "diagonal",
) -> LinearVAE:
    """The optimum over decoder and posterior, from the covariance of the data (or just its eigenvalues).

    With eigenvalues λ_1 ≥ λ_2 ≥ … and θ = βγ, latent i ≤ n is active if and only if λ_i > θ; then w_i = u_i √(λ_i−θ)
    and σ_i = θ/λ_i, otherwise w_i = 0 and σ_i = 1. ``gamma=None`` learns γ too: γ = Σ_{i>a} λ_i / (m − aβ) for the
    number a of active latents that is consistent with it and has the best objective. A full posterior attains the
    same optimum, but then every rotation W → WR does as well.

    >>> best = solve([5, 3, 1.5, 0.8, 0.3, 0.1], latents=5, gamma=0.5)
    >>> best.active_count, best.var.round(4).tolist(), round(best.rate, 4), round(best.distortion, 4)
    (4, [0.1, 0.1667, 0.3333, 0.625, 1.0], 2.8315, 2.4)
    """
    _check_positive(latents=latents, beta=beta)
    if posterior not in ("diagonal", "full"):
        raise ValueError(f"posterior is 'diagonal' or 'full'; got {posterior!r}")
    spectrum, directions = _eigen(data)
    if gamma is None:
        gammas = _stationary_gammas(spectrum, latents, beta)
        return max((_at(spectrum, directions, latents, g, beta, posterior) for g in gammas), key=lambda s: s.elbo)
    _check_positive(gamma=gamma)
    return _at(spectrum, directions, latents, gamma, beta, posterior)


def _eigen(data: ArrayLike) -> tuple[FloatArray, FloatArray]:
    values = np.asarray(data, dtype=np.float64)
    if values.ndim == 1:
        order = np.argsort(-values, kind="stable")
        spectrum, directions = values[order], np.eye(len(values))[:, order]
    elif values.ndim == 2 and values.shape[0] == values.shape[1] and np.allclose(values, values.T):
        ascending, vectors = np.linalg.eigh(values)
        spectrum, directions = ascending[::-1], vectors[:, ::-1]
    else:
        raise ValueError(f"data needs eigenvalues (m,) or a symmetric covariance (m, m); got shape {values.shape}")
    if not np.isfinite(spectrum).all() or not spectrum.max(initial=0) > 0:
        raise ValueError("data needs finite eigenvalues of which at least one is positive")
    if spectrum[-1] < -1e-9 * spectrum[0]:
        raise ValueError(f"a covariance has no negative eigenvalue; the smallest here is {spectrum[-1]:.4g}")
    return np.maximum(spectrum, 0), directions


def _at(
    spectrum: FloatArray, directions: FloatArray, latents: int, gamma: float, beta: float, posterior: PosteriorKind
) -> LinearVAE:
    theta, inputs = beta * gamma, len(spectrum)
    kept = np.zeros(latents)  # latents beyond the input dimension have no variance to carry
    kept[: min(latents, inputs)] = spectrum[:latents]
    active = kept > theta
    safe = np.where(active, kept, theta)
    W = np.zeros((inputs, latents))
    W[:, : min(latents, inputs)] = directions[:, :latents]
    var = theta / safe
    return LinearVAE(
        W=W * np.sqrt(safe - theta),
        var=var,
        gain=np.sqrt(safe - theta) / safe,
        active=active,
        rate=float(0.5 * np.log(safe / theta).sum()),
        distortion=float(theta * active.sum() + spectrum[int(active.sum()) :].sum()),
        trace_gap=float(var.sum()),
        gamma=gamma,
        beta=beta,
        posterior=posterior,
    )


def _stationary_gammas(spectrum: FloatArray, latents: int, beta: float) -> list[float]:
    """Every γ at which the profiled objective is flat and the count of active latents is consistent with γ."""
    inputs = len(spectrum)
    counts = np.arange(min(latents, inputs) + 1)
    tails = np.append(np.cumsum(spectrum[::-1])[::-1], 0.0)[counts]
    tails[tails <= 1e-12 * spectrum.sum()] = 0
    most = min(int((spectrum > 0).sum()), latents)
    if tails[most] == 0 and inputs > most * beta:
        raise ValueError(
            f"{latents} latents reproduce the data exactly, so the learned gamma falls to 0: fix gamma or use fewer"
        )
    freedom = inputs - counts * beta
    gammas = np.divide(tails, freedom, out=np.zeros(len(counts)), where=freedom > 0)
    above = np.concatenate([[np.inf], spectrum])[counts] > beta * gammas
    next_best = np.where(counts < latents, np.append(spectrum, 0.0)[counts], 0.0)
    below = next_best <= beta * gammas * (1 + 1e-12)  # equality happens: there the objective is flat
    return [float(g) for g in gammas[(gammas > 0) & above & below]]


@dataclass(frozen=True)
class RateDistortion:
    """Points of the optimal rate-distortion curve, one per β: rate in nats, distortion in squared error."""

    beta: FloatArray
    rate: FloatArray
    distortion: FloatArray
    gamma: float

    def slope(self) -> FloatArray:
        """d(distortion/2γ)/d rate between neighbouring points; in theory it lies between the −β of the two."""
        return np.asarray(np.diff(self.distortion) / (2 * self.gamma) / np.diff(self.rate))


def rate_distortion(data: ArrayLike, latents: int, gamma: float, betas: ArrayLike) -> RateDistortion:
    """The curve along which β moves the optimum: Gaussian reverse water-filling with water level θ = βγ.

    >>> curve = rate_distortion([5, 3, 1.5, 0.8, 0.3, 0.1], 5, gamma=0.5, betas=[1, 2])
    >>> curve.rate.round(4).tolist(), curve.distortion.round(4).tolist()
    ([2.8315, 1.5568], [2.4, 4.2])
    """
    _check_positive(gamma=gamma, latents=latents)
    spectrum, _ = _eigen(data)
    beta = np.atleast_1d(np.asarray(betas, dtype=np.float64))
    _check_positive(beta=float(beta.min()))
    theta, kept = gamma * beta[:, None], spectrum[:latents]
    rate = 0.5 * np.log(np.maximum(kept, theta) / theta).sum(axis=1)
    distortion = np.minimum(kept, theta).sum(axis=1) + spectrum[latents:].sum()
    return RateDistortion(beta, rate, distortion, gamma)


def trace_gaps(data: ArrayLike, most: int, gamma: float, beta: float = 1.0) -> FloatArray:
    """Tr Var Z − Tr Var M at the optimum with n = 1, …, ``most`` latents: FONDUE compares it with its threshold.

    >>> trace_gaps([5, 3, 1.5, 0.8, 0.3, 0.1], most=6, gamma=0.5).round(4).tolist()
    [0.1, 0.2667, 0.6, 1.225, 2.225, 3.225]
    """
    return np.cumsum(solve(data, most, gamma, beta).var)
