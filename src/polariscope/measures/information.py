"""Dependence between the variables of a representation, and their effective number.

Mean and sampled representations are compared by three numbers: total correlation, averaged mutual information and
effective rank (Spec 002, section 9; Bonheme 2023, section 6.4.2). Disentanglement scores use the same matrix of
discrete mutual information. Entropies are in nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import xlogy

from polariscope.measures.measure import Measure, measures
from polariscope.representation import Representation

FloatArray = NDArray[np.float64]
Correction = Literal["none", "miller_madow"]


def as_array(x: Any) -> NDArray[Any]:
    """A NumPy view of an array or of a torch tensor, wherever the tensor lives and whether or not it has a gradient."""
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)


def observations(x: ArrayLike, name: str = "x") -> FloatArray:
    """``x`` as finite (samples, variables) floats with at least two samples; anything else is refused."""
    values = as_array(x)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"{name} needs shape (samples, variables); got {values.shape}")
    if len(values) < 2:
        raise ValueError(f"{name} needs at least 2 samples; got {len(values)}")
    values = values.astype(np.float64, copy=False)
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values).all(axis=0)).tolist()
        raise ValueError(f"{name} has NaN or infinite values in columns {bad}: remove those samples or columns")
    return values


def constant_columns(x: FloatArray) -> NDArray[np.intp]:
    """Columns that do not vary (up to rounding)."""
    return np.flatnonzero(np.ptp(x, axis=0) <= 1e-13 * np.abs(x).max(axis=0))


def _refuse_constant(x: FloatArray, measure: str) -> None:
    constant = constant_columns(x)
    if constant.size:
        raise ValueError(f"{measure} is undefined for constant columns: drop columns {constant.tolist()}")


def total_correlation(x: ArrayLike) -> float:
    """Gaussian total correlation, −½ log det R with R the correlation matrix of the columns, in nats.

    It equals ½ [Σ_j log C_jj − log det C] with the covariance C, so it does not depend on the scale of each column: a
    passive variable of tiny variance counts as much as any other. Bonheme 2023, section 6.4.2 (eq. 6.3); Spec 002,
    section 9.1.

    Range [0, ∞): 0 if no column is linearly related to the others; it has no maximum and grows without bound as
    columns become collinear. Two columns with correlation ρ give −½ log(1−ρ²).
    Bias: about + d(d−1)/(4h) for d independent columns and h samples.

    >>> x = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> total_correlation(x)
    0.0
    >>> round(total_correlation(x @ [[1.0, 0.6], [0.0, 0.8]]), 4)   # correlation 0.6
    0.2231
    """
    x = observations(x)
    _refuse_constant(x, "total correlation")
    if x.shape[1] == 1:
        return 0.0
    unit = x - x.mean(axis=0)
    unit /= np.linalg.norm(unit, axis=0)
    # det R is the squared product of these lengths: each column's part that the ones before it do not explain.
    unexplained = np.abs(np.diag(np.linalg.qr(unit, mode="r")))
    if len(x) <= x.shape[1] or unexplained.min() < 1e-13:
        raise ValueError(
            f"total correlation is infinite: the {x.shape[1]} columns are linearly dependent over {len(x)} samples"
        )
    return float(max(-np.log(unexplained).sum(), 0.0)) + 0.0


def discretise(x: ArrayLike, bins: int = 20) -> NDArray[np.int64]:
    """Each column cut into ``bins`` equal widths between its least and greatest value; a constant column is all 0.

    >>> discretise([[0.0], [0.4], [0.5], [1.0]], bins=2).ravel().tolist()
    [0, 0, 1, 1]
    """
    if bins < 2:
        raise ValueError(f"bins needs at least 2; got {bins}")
    x = observations(x)
    low, width = x.min(axis=0), np.ptp(x, axis=0)
    scaled = (x - low) * (bins / np.where(width > 0, width, np.inf))
    return np.minimum(scaled.astype(np.int64), bins - 1)


def _one_hot(labels: ArrayLike, name: str) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Indicator matrix (samples, all values of all columns), and where each column's values begin."""
    values = as_array(labels)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] == 0 or len(values) < 2:
        raise ValueError(f"{name} needs shape (samples, columns) with at least 2 samples; got {values.shape}")
    if values.dtype.kind not in "iub":
        raise ValueError(f"{name} needs integer labels, got {values.dtype}: discretise continuous columns first")
    codes, sizes = np.empty(values.shape, dtype=np.int64), []
    for column in range(values.shape[1]):
        seen, codes[:, column] = np.unique(values[:, column], return_inverse=True)
        sizes.append(len(seen))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    rows, columns = values.shape
    where = np.arange(0, rows * columns + 1, columns)
    return sparse.csr_array((np.ones(rows * columns), (codes + starts).ravel(), where), (rows, sum(sizes))), starts


def discrete_entropy(labels: ArrayLike, correction: Correction = "none") -> FloatArray:
    """Entropy of each column of integer labels in nats, H = −Σ p log p (Shannon 1948).

    Range [0, log K]: 0 for a constant column, log K if its K values are equally frequent.
    Bias: the plug-in value is too low by about (K−1)/(2h); ``correction="miller_madow"`` adds that.

    >>> discrete_entropy([[0, 5], [1, 5], [0, 5], [1, 5]]).round(6).tolist()
    [0.693147, 0.0]
    """
    hot, starts = _one_hot(labels, "labels")
    counts, samples = hot.sum(axis=0), hot.shape[0]
    entropy = np.log(samples) - np.add.reduceat(xlogy(counts, counts), starts) / samples
    if _corrected(correction):
        entropy = entropy + (np.add.reduceat(counts > 0, starts, dtype=np.int64) - 1) / (2 * samples)
    return np.maximum(entropy, 0.0)


def _corrected(correction: str) -> bool:
    if correction not in ("none", "miller_madow"):
        raise ValueError(f"correction is 'none' or 'miller_madow'; got {correction!r}")
    return correction == "miller_madow"


def mutual_information(
    codes: ArrayLike, factors: ArrayLike | None = None, correction: Correction = "none"
) -> FloatArray:
    """Mutual information in nats of every column of ``codes`` with every column of ``factors`` (default: ``codes``).

    I(a;b) = H(a) + H(b) − H(a,b), by counting; both arguments are integer labels (see :func:`discretise`), and the
    result has shape (codes, factors). All pairs come from one sparse product of indicator matrices.

    Range [0, min(H(a), H(b))]: 0 for independent columns, the maximum if one determines the other.
    Bias: the plug-in value is too high by about (K_ab − K_a − K_b + 1)/(2h), K counting the values that occur;
    ``correction="miller_madow"`` subtracts that, after which small values may be slightly negative.

    >>> mutual_information([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 1, 1]).round(6).tolist()
    [[0.693147], [0.0]]
    """
    first, first_starts = _one_hot(codes, "codes")
    second, second_starts = (first, first_starts) if factors is None else _one_hot(factors, "factors")
    samples = first.shape[0]
    if second.shape[0] != samples:
        raise ValueError(f"codes and factors need the same samples; got {samples} and {second.shape[0]}")
    joint = (first.T @ second).toarray()
    # Σ n log n over each block and its two margins; the logs of the sample size cancel but for one.
    blocks = _blockwise(xlogy(joint, joint), first_starts, second_starts)
    a, b = first.sum(axis=0), second.sum(axis=0)
    margins = np.add.outer(np.add.reduceat(xlogy(a, a), first_starts), np.add.reduceat(xlogy(b, b), second_starts))
    information = np.maximum(np.log(samples) + (blocks - margins) / samples, 0.0)
    if _corrected(correction):
        occupied = _blockwise((joint > 0).astype(np.float64), first_starts, second_starts)
        sizes = np.add.outer(
            np.diff(np.append(first_starts, first.shape[1])), np.diff(np.append(second_starts, second.shape[1]))
        )
        information = information - (occupied - sizes + 1) / (2 * samples)
    return np.asarray(information)


def _blockwise(table: FloatArray, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> FloatArray:
    return np.asarray(np.add.reduceat(np.add.reduceat(table, rows, axis=0), columns, axis=1))


def averaged_mutual_information(x: ArrayLike, bins: int = 20, correction: Correction = "none") -> float:
    """Mean mutual information in nats over ordered pairs of different columns, each cut into ``bins`` equal widths.

    1/(k²−k) Σ_{i≠j} I(x_i; x_j). Bonheme 2023, section 6.4.2 (eq. 6.9-6.10); Spec 002, section 9.2.

    Range [0, log bins]: 0 for independent columns, log ``bins`` if all are copies of one uniform column. Independent
    columns dilute it: one dependent pair of information c among n columns gives 2c/(n²−n).
    Bias: too high by at most about (bins−1)²/(2h) per pair (0.015 for Gaussian columns, 20 bins, 10 000 samples);
    ``correction="miller_madow"`` removes more than half. Strong dependence is underestimated (ρ = 0.99: 1.6 for 1.96).

    >>> x = np.repeat(np.arange(4.0), 4), np.tile(np.arange(4.0), 4)
    >>> averaged_mutual_information(np.column_stack(x), bins=4)
    0.0
    >>> round(averaged_mutual_information(np.column_stack([x[0], x[0]]), bins=4), 6)   # log 4
    1.386294
    """
    x = observations(x)
    _refuse_constant(x, "averaged mutual information")
    columns = x.shape[1]
    if columns < 2:
        raise ValueError("averaged mutual information needs at least 2 columns; got 1")
    information = mutual_information(discretise(x, bins), correction=correction)
    return float((information.sum() - np.trace(information)) / (columns**2 - columns))


def spectral_rank(singular_values: ArrayLike) -> float:
    """Effective rank of a matrix from its singular values: exp(H(p)), p_k = s_k / Σ s (Roy and Vetterli 2007).

    >>> round(spectral_rank([3, 1]), 5)
    1.75477
    """
    values = np.asarray(singular_values, dtype=np.float64)
    if values.ndim != 1 or not np.all(values >= 0) or not values.sum() > 0:
        raise ValueError("an effective rank needs non-negative singular values of which at least one is positive")
    share = values / values.sum()
    return float(np.exp(-xlogy(share, share).sum()))


def effective_rank(x: ArrayLike, of: Literal["covariance", "data"] = "covariance") -> float:
    """How many directions a representation effectively spans: exp of the entropy of its normalised spectrum.

    ``of="covariance"`` takes the eigenvalues of the covariance, ``of="data"`` the singular values of the centred data
    (their square roots, hence a larger rank). Roy and Vetterli 2007; Spec 002, section 9.3. Meant for a whole
    representation, not for a subset of its variables.

    Range [1, columns]: 1 if all variance lies in one direction, the number of columns if it is spread evenly.
    Undefined (refused) if nothing varies. Bias: slightly low, as sampling spreads the eigenvalues.

    >>> round(effective_rank([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]), 6)
    2.0
    """
    x = observations(x)
    if of not in ("covariance", "data"):
        raise ValueError(f"of is 'covariance' or 'data'; got {of!r}")
    if constant_columns(x).size == x.shape[1]:
        raise ValueError("effective rank is undefined: every column is constant")
    singular = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    return spectral_rank(singular**2 if of == "covariance" else singular)


def gaussian_wasserstein_correlation(x: ArrayLike, normalised: bool = False) -> float:
    """Squared 2-Wasserstein distance of N(0, C) from N(0, diag C): 2 tr C − 2 tr (D^½ C D^½)^½, D = diag C.

    Unlike total correlation it weighs columns by their variance, so tiny passive variables hardly count.
    Spec 002, section 9.4. ``normalised=True`` divides by tr C.

    Range [0, 2 tr C) (normalised [0, 2)): 0 for uncorrelated columns; it grows with correlation.
    Bias: slightly positive for independent columns, of order columns/samples.

    >>> gaussian_wasserstein_correlation([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    0.0
    """
    x = observations(x)
    if constant_columns(x).size == x.shape[1]:
        raise ValueError("Wasserstein correlation is undefined: every column is constant")
    cov = np.atleast_2d(np.cov(x, rowvar=False))
    scale = np.sqrt(np.diag(cov))
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(scale[:, None] * cov * scale), 0.0))
    total = float(np.trace(cov))
    distance = max(2 * total - 2 * float(roots.sum()), 0.0)
    return distance / total if normalised else distance


@measures.register("total-correlation")
@dataclass(frozen=True)
class TotalCorrelation(Measure):
    """Total correlation of the means in nats; 0 for uncorrelated latents. Passive latents count fully."""

    title = "Total correlation of the means"
    invariant_to = ("permutation", "sign", "scale", "translation")

    def __call__(self, representation: Representation) -> float:
        return total_correlation(representation.mean)


@measures.register("averaged-mutual-information")
@dataclass(frozen=True)
class AveragedMutualInformation(Measure):
    """Mean mutual information in nats between the means of two different latents, in 20 bins each, bias-corrected."""

    title = "Averaged mutual information of the means"
    low = -0.1  # the bias correction can overshoot a little
    invariant_to = ("permutation", "scale", "translation")
    bins: int = 20

    def __call__(self, representation: Representation) -> float:
        return averaged_mutual_information(representation.mean, self.bins, "miller_madow")


@measures.register("effective-rank")
@dataclass(frozen=True)
class EffectiveRank(Measure):
    """Effective number of directions of the means, from 1 to the number of latents; about as many as are in use."""

    title = "Effective rank of the means"
    low = 1.0
    invariant_to = ("permutation", "sign", "isotropic_scale", "rotation", "translation")

    def __call__(self, representation: Representation) -> float:
        return effective_rank(representation.mean)
