"""The information bottleneck of jointly Gaussian variables, in closed form.

The bottleneck minimises I(X;Z) − λ I(Z;Y) over codes Z of X. For Gaussians the best code is linear, Z = A X + ξ with
ξ ~ N(0, I), and A is known: directions of X become active one after another as the compression parameter λ grows
(Chechik, Globerson, Tishby and Weiss, Information bottleneck for Gaussian variables, 2005; Spec 000, section 4.3). All
information is in nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, solve_triangular

FloatArray = NDArray[np.float64]
SYMMETRY = 1e-8
"""Largest difference of a covariance from its transpose that counts as rounding, as a share of its largest entry."""

ROUNDING = 1e-12
"""The share by which λ must exceed a critical value: eigenvalues are rounded, and the code at the value is 0 anyway."""


def log_det(matrix: ArrayLike) -> float:
    """log det of a positive definite matrix.

    >>> round(log_det([[2.0, 0.0], [0.0, 3.0]]), 6)
    1.791759
    """
    return float(2 * np.log(np.diag(_cholesky(matrix, "the matrix"))).sum())


def channel_information(projection: ArrayLike, cov: ArrayLike, noise: ArrayLike = 1.0) -> float:
    """I(X;Z) = ½ log det(A Σ Aᵀ + N) − ½ log det N for Z = A X + ξ, ξ ~ N(0, N), N diagonal.

    ``noise`` are the variances of ξ, one for each row of A or one for all.

    >>> round(channel_information([[np.sqrt(2)]], [[1.0]]), 6)
    0.549306
    """
    a = np.atleast_2d(np.asarray(projection, dtype=np.float64))
    sigma = _covariance(cov, "cov")
    if a.shape[1] != len(sigma):
        raise ValueError(f"the projection has {a.shape[1]} columns for a covariance of {len(sigma)} variables")
    variances = np.broadcast_to(np.asarray(noise, dtype=np.float64), (len(a),))
    if not np.all(variances > 0):
        raise ValueError(f"the noise of a channel needs positive variances; got {variances.min():g}")
    scaled = a / np.sqrt(variances)[:, None]
    return log_det(scaled @ sigma @ scaled.T + np.eye(len(a))) / 2


def mutual_information(cov: ArrayLike, first: int) -> float:
    """I(U;V) of jointly Gaussian variables, where U are the first ``first`` ones: ½ log(det Σ_U det Σ_V / det Σ).

    For two numbers of correlation ρ it is −½ log(1 − ρ²).

    >>> round(mutual_information([[1, 0.5], [0.5, 1]], 1), 6)
    0.143841
    """
    sigma = _covariance(cov, "cov")
    if not 0 < first < len(sigma):
        raise ValueError(f"both groups of variables need at least one of {len(sigma)}; the first has {first}")
    return (log_det(sigma[:first, :first]) + log_det(sigma[first:, first:]) - log_det(sigma)) / 2


def correlation_information(first: ArrayLike, second: ArrayLike) -> float:
    """MI_G = log(det C₁ det C₂ / det C₁₂) of samples ``(n, k)`` and ``(n, l)``, from their correlation matrices.

    This is the penalty of the adversarial bottleneck (Wieser, Parbhoo, Wieczorek and Roth, Inverse learning of
    symmetries, 2020; Spec 000, section 6.5). It is twice the Gaussian mutual information: −log(1 − ρ²) for two numbers
    of correlation ρ. Zero means uncorrelated; it is never negative.

    >>> x = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    >>> round(correlation_information(x, [[1.0], [-1.0], [-1.0], [1.0]]), 12)
    0.0
    """
    a, b = (np.atleast_2d(np.asarray(part, dtype=np.float64)) for part in (first, second))
    if len(a) != len(b):
        raise ValueError(f"both groups of variables need the same number of samples; got {len(a)} and {len(b)}")
    joint = np.column_stack([a, b])
    spread = joint.std(axis=0)
    if not np.all(spread > 0):
        raise ValueError("a correlation needs variables that vary, and one of these is constant")
    if len(joint) <= joint.shape[1]:
        raise ValueError(
            f"the information of {joint.shape[1]} variables needs more than {joint.shape[1]} samples; got {len(joint)}"
        )
    return 2 * mutual_information(np.corrcoef(joint.T), a.shape[1])


def prediction_bound(target_entropy: float, prediction_nll: float) -> float:
    """The lower bound h(Y) + E log p(y|z) on I(Z;Y), valid for every decoder p (Barber and Agakov 2003).

    ``prediction_nll`` is the mean negative log-likelihood of the target. The gap is the divergence of the decoder from
    the true p(y|z), and 0 for the best decoder.

    >>> round(prediction_bound(1.418939, 1.216206), 6)
    0.202733
    """
    return target_entropy - prediction_nll


@dataclass(frozen=True, eq=False)
class GaussianBottleneck:
    """The solved bottleneck of a pair of Gaussian variables, for every λ.

    >>> bottleneck = solve([[1.0]], [[np.sqrt(0.5)]], [[1.0]])
    >>> bottleneck.critical.round(9).tolist()
    [2.0]
    >>> a = bottleneck.projection(4.0)
    >>> float((a**2).round(9)[0, 0]), [round(value, 6) for value in bottleneck.information(4.0)]
    (2.0, [0.549306, 0.202733])
    """

    eigenvalues: FloatArray
    """λ_i of Σ_{X|Y} Σ_X^{-1}, ascending: the share of the variance of a direction that Y does not explain."""
    directions: FloatArray
    """Left eigenvectors v_i as rows, scaled to variance v_iᵀ Σ_X v_i = 1."""
    cov: FloatArray
    """Σ_X."""
    conditional: FloatArray
    """Σ_{X|Y}."""

    @property
    def critical(self) -> FloatArray:
        """λ_i^c = 1 / (1 − λ_i): the compression value above which a direction is used; infinite where Y explains none
        of its variance."""
        explained = 1 - self.eigenvalues
        return np.where(explained > 0, 1 / np.where(explained > 0, explained, 1), np.inf)

    def active(self, lam: float) -> NDArray[np.bool_]:
        """Which directions are used at λ."""
        return np.asarray(_checked_lambda(lam) > (1 + ROUNDING) * self.critical)

    def projection(self, lam: float) -> FloatArray:
        """A, a row for each direction in use: α_i v_i with α_i² = (λ(1 − λ_i) − 1) / λ_i."""
        used = self.active(lam)
        shares = self.eigenvalues[used]
        return np.asarray(np.sqrt((lam * (1 - shares) - 1) / shares)[:, None] * self.directions[used])

    def information(self, lam: float) -> tuple[float, float]:
        """(I(X;Z), I(Z;Y)) of the best code at λ."""
        used = self.active(lam)
        shares = self.eigenvalues[used]
        kept = 0.5 * float(np.log((lam - 1) * (1 - shares) / shares).sum())
        return kept, kept - 0.5 * float(np.log(lam * (1 - shares)).sum())

    def curve(self, lams: ArrayLike) -> FloatArray:
        """The information curve: a row (I(X;Z), I(Z;Y)) for each λ."""
        return np.array([self.information(lam) for lam in np.asarray(lams, dtype=np.float64).ravel()]).reshape(-1, 2)

    @property
    def limit(self) -> float:
        """I(X;Y), the limit of I(Z;Y) as λ grows."""
        return -0.5 * float(np.log(self.eigenvalues).sum())


def solve(cov_x: ArrayLike, cov_xy: ArrayLike, cov_y: ArrayLike) -> GaussianBottleneck:
    """The bottleneck of X about Y from their covariances Σ_X ``(n, n)``, Σ_XY ``(n, m)`` and Σ_Y ``(m, m)``.

    Y must not determine a direction of X: their mutual information would be infinite.
    """
    sigma_x, sigma_y = _covariance(cov_x, "cov_x"), _covariance(cov_y, "cov_y")
    cross = np.atleast_2d(np.asarray(cov_xy, dtype=np.float64))
    if cross.shape != (len(sigma_x), len(sigma_y)):
        raise ValueError(f"cov_xy needs shape {(len(sigma_x), len(sigma_y))}; got {cross.shape}")
    explained = solve_triangular(_cholesky(sigma_y, "cov_y"), cross.T, lower=True)
    conditional = sigma_x - explained.T @ explained
    _cholesky(sigma_x, "cov_x")
    shares, vectors = eigh(conditional, sigma_x)
    if shares[0] <= SYMMETRY:
        raise ValueError(
            f"Y determines a direction of X (it leaves {max(shares[0], 0):.2g} of its variance), so that their mutual "
            "information is infinite: add noise to Y"
        )
    return GaussianBottleneck(np.minimum(shares, 1.0), vectors.T, sigma_x, conditional)


def _checked_lambda(lam: float) -> float:
    if not lam > 0:
        raise ValueError(f"the compression parameter lambda is {lam}: it needs to be positive")
    return lam


def _covariance(cov: ArrayLike, name: str) -> FloatArray:
    matrix = np.atleast_2d(np.asarray(cov, dtype=np.float64))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} needs a square matrix; got shape {matrix.shape}")
    if not np.isfinite(matrix).all() or np.abs(matrix - matrix.T).max() > SYMMETRY * np.abs(matrix).max():
        raise ValueError(f"{name} needs a symmetric matrix of finite numbers")
    return matrix


def _cholesky(matrix: ArrayLike, name: str) -> FloatArray:
    try:
        return np.asarray(np.linalg.cholesky(_covariance(matrix, name)))
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} is not positive definite: a Gaussian with a density needs it to be") from None
