"""Modularity (each latent encodes at most one factor) and explicitness (each value of a factor can be predicted
linearly).

Ridgeway and Mozer 2018; Spec 001a, section 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression

from polariscope.measures.information import Correction, FloatArray, discretise, mutual_information
from polariscope.measures.measure import FactorMeasure, Invariance, measures
from polariscope.measures.score import (
    TEST,
    TRAIN,
    IntArray,
    Score,
    Seed,
    as_labels,
    binned_words,
    codes_and_factors,
    paired,
    split,
    split_words,
)
from polariscope.representation import Representation

Readout = Literal["discriminant", "logistic"]


def modularity_of(information: ArrayLike) -> FloatArray:
    """Each latent's modularity from a (latents, factors) table of mutual information.

    1 − Σ_{k≠best} m_k² / (m_best² (factors−1)); 0 for a latent without information.

    >>> modularity_of([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]]).tolist()
    [1.0, 0.0, 0.0, 0.875]
    """
    m = np.asarray(information, dtype=np.float64)
    if m.ndim != 2 or m.shape[1] < 2 or not np.all(m >= 0):
        raise ValueError(f"information needs non-negative values (latents, at least 2 factors); got shape {m.shape}")
    best = m.max(axis=1)
    known = best > 0
    share = m[known] / best[known, None]
    out = np.zeros(len(m))
    out[known] = 1 - (np.sum(share**2, axis=1) - 1) / (m.shape[1] - 1)
    return out


def modularity(codes: ArrayLike, factors: ArrayLike, bins: int = 20, correction: Correction = "none") -> Score:
    """Mean over latents of 1 − Σ_{k≠best} m_k²/(m_best² (K−1)), m the mutual information with each of K factors.

    Ridgeway and Mozer 2018; Spec 001a, section 5.5, with latents (and continuous factors) cut into ``bins``
    equal widths. Range [0, 1]: 1 if every latent has information about one factor only, 0 if all latents have equal
    information about all factors. Constant latents count 0. All other latents have equal weight, even pure noise, whose
    estimated information is never exactly 0: the score means little for models with passive latents, and rotation
    hardly lowers it. ``per_factor`` is the mean over the latents whose best factor this is (0 if there are
    none).

    >>> factors = np.stack(np.unravel_index(np.arange(60), (3, 4, 5)), axis=1)
    >>> modularity(factors, factors).value
    1.0
    """
    z, v = paired(codes, factors, least_factors=2)
    labels = as_labels(v, bins)
    information = np.maximum(mutual_information(discretise(z, bins), labels.values, correction), 0.0)
    per_latent = modularity_of(information)
    best = information.argmax(axis=1)
    members = np.bincount(best, minlength=v.shape[1])
    per_factor = np.bincount(best, per_latent, v.shape[1]) / np.maximum(members, 1)
    binned = np.flatnonzero(labels.continuous).tolist()
    settings = {"bins": bins, "correction": correction, "binned_factors": binned, "per_latent": per_latent}
    protocol = binned_words(len(z), bins, correction, binned)
    return Score(float(per_latent.mean()), per_factor, information, len(z), settings, protocol)


def explicitness(
    codes: ArrayLike,
    factors: ArrayLike,
    readout: Readout = "discriminant",
    seed: Seed = 0,
    bins: int = 20,
    train: int = TRAIN,
    test: int = TEST,
) -> Score:
    """Mean over factors of the area under the ROC curve of a linear read-out, averaged over the factor's values.

    Ridgeway and Mozer 2018. ``"logistic"`` is the published multinomial regression; ``"discriminant"`` is a linear
    classifier in closed form (Gaussian classes that share a covariance), tens of times faster. The two differ by 0.01
    to 0.05, more with fewer samples of each value. Scores are computed on held-out samples; values that are missing in
    either part are skipped. Range [0, 1]: 0.5 is chance, 1 if every value of every factor can be predicted. Rotation
    does not lower it, since it uses all latents together. The table has the share of each latent's variance that lies
    between the values of the factor.

    >>> factors = np.stack(np.unravel_index(np.arange(3000) % 60, (3, 4, 5)), axis=1)
    >>> explicitness(factors, factors).value
    1.0
    """
    z, v = paired(codes, factors)
    if readout not in ("discriminant", "logistic"):
        raise ValueError(f"readout is 'discriminant' or 'logistic'; got {readout!r}")
    labels = as_labels(v, bins)
    rows, held = split(len(z), seed, train, test)
    scale = z[rows].std(axis=0)
    unit = (z - z[rows].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    table = np.empty((z.shape[1], v.shape[1]))
    per_factor = np.empty(v.shape[1])
    for k, (column, size) in enumerate(zip(labels.values.T, labels.sizes, strict=True)):
        means, _ = _class_means(unit, column, int(size))
        spread = unit.var(axis=0)
        table[:, k] = means[column].var(axis=0) / np.where(spread > 0, spread, 1.0)
        # Values that the read-out never saw have no score: a factor may have thousands, and few samples of each.
        values, known = np.unique(column[rows], return_inverse=True)
        if readout == "discriminant":
            together = _log_posteriors(unit[rows], known, unit[held], len(values))
        else:
            together = _logistic(z[rows], known, z[held], len(values))
        per_factor[k] = _area_under_curve(together, values, column[held])
    settings = {
        "readout": readout,
        "seed": seed,
        "train": len(rows),
        "test": len(held),
        "binned_factors": np.flatnonzero(labels.continuous).tolist(),
    }
    probe = "logistic regression" if readout == "logistic" else "linear discriminants (published: logistic regression)"
    protocol = f"{probe}, {split_words(len(rows), len(held))}"
    return Score(float(per_factor.mean()), per_factor, table, len(rows) + len(held), settings, protocol)


def _class_means(unit: FloatArray, labels: IntArray, size: int) -> tuple[FloatArray, FloatArray]:
    counts = np.bincount(labels, minlength=size).astype(np.float64)
    sums = np.stack([np.bincount(labels, column, size) for column in unit.T], axis=1)
    return sums / np.maximum(counts, 1)[:, None], counts


def _log_softmax(scores: FloatArray) -> FloatArray:
    """Over the last axis; the order between samples, which the ROC curve reads, depends on this normalisation."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _log_posteriors(unit: FloatArray, labels: IntArray, queries: FloatArray, size: int) -> FloatArray:
    """Log-probabilities (queries, classes) of Gaussian classes with one covariance. The small ridge is for codes that
    leave no variance within a class."""
    means, counts = _class_means(unit, labels, size)
    within = unit - means[labels]
    precision = np.linalg.inv(within.T @ within / len(unit) + 1e-3 * np.eye(unit.shape[1]))
    weights = means @ precision
    with np.errstate(divide="ignore"):
        offset = np.log(counts / len(unit)) - 0.5 * np.sum(weights * means, axis=1)
    return _log_softmax(queries @ weights.T + offset)


def _logistic(z: FloatArray, labels: IntArray, queries: FloatArray, size: int) -> FloatArray:
    model = LogisticRegression(solver="newton-cholesky", max_iter=1000).fit(z, labels)
    out = np.full((len(queries), size), -np.inf)
    out[:, model.classes_] = model.predict_log_proba(queries)
    return out


def _area_under_curve(scores: FloatArray, values: IntArray, labels: IntArray) -> float:
    """One-against-rest area under the ROC curve of scores (samples, classes), averaged over the classes, whose
    ``values`` ascend. Samples with other labels are negatives for every class."""
    samples = len(scores)
    areas = []
    for value, score in zip(values, scores.T, strict=True):
        own = labels == value
        n = int(own.sum())
        if 0 < n < samples and np.isfinite(score).all():
            areas.append((rankdata(score)[own].sum() - n * (n + 1) / 2) / (n * (samples - n)))
    if not areas:
        raise ValueError("a factor has no value that both parts of the split contain: use more samples")
    return float(np.mean(areas))


_BINNED: tuple[Invariance, ...] = ("permutation", "sign", "scale", "isotropic_scale", "translation")


@measures.register("modularity")
@dataclass(frozen=True)
class Modularity(FactorMeasure):
    """Does each latent encode at most one factor? From 0 to 1.

    Continuous factors are binned like the latents.
    """

    bins: int = 20

    title: ClassVar[str] = "Modularity"
    invariant_to: ClassVar[tuple[Invariance, ...]] = _BINNED

    def __call__(self, representation: Representation) -> Score:
        return modularity(*codes_and_factors(representation), self.bins)


@measures.register("explicitness")
@dataclass(frozen=True)
class Explicitness(FactorMeasure):
    """How well a linear classifier on all latents predicts the factors, from 0 to 1."""

    seed: int = 0
    readout: Readout = "discriminant"
    train: int = 4000
    test: int = 2000

    title: ClassVar[str] = "Explicitness"
    invariant_to: ClassVar[tuple[Invariance, ...]] = _BINNED

    def __call__(self, representation: Representation) -> Score:
        codes, factors = codes_and_factors(representation)
        return explicitness(codes, factors, self.readout, self.seed, train=self.train, test=self.test)

    def quick(self) -> Explicitness:
        return Explicitness(self.seed)

    def published(self) -> Explicitness:
        return Explicitness(self.seed, "logistic", TRAIN, TEST)
