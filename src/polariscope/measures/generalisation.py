"""How well factors are predicted outside of the training data: scores, errors by factor, and simple reference
predictors.

All functions take predictions and targets ``(samples, factors)``; targets are scaled to [0, 1] by their whole range.
``out`` has, for each sample, the column of the one factor that is outside of the training range, or -1 if none is.
After Schott et al. 2022, sections 4.3 and 5 (Spec 001a, sections 8.4 and 10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import pearsonr, spearmanr

from polariscope.measures.information import FloatArray, as_array
from polariscope.measures.measure import Undefined
from polariscope.measures.similarity import SimilarityMatrix

AT_THE_MEAN = 1e-6
"""Targets nearer to the mean than this count as equal to it; targets are in single precision."""
TRUTH = "truth"


def r_squared(predictions: ArrayLike, targets: ArrayLike, variance: ArrayLike) -> FloatArray:
    """R² of each factor: 1 − mean squared error / variance, ``(factors,)``.

    ``variance`` is the variance of each factor over **all** data, training and held-out, so that scores of different
    parts are comparable. Range: (−∞, 1]. 1: exact. 0: the score of the mean of all data on all data. On a part with
    another distribution even the training mean scores below 0 (see :func:`reference_predictions`). Negative scores are
    averaged without clipping; only plots clip them. Source: Schott et al. 2022, section 4.3 (Spec 001a, section 10.1).

    >>> r_squared([[0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]], [0.25, 0.25]).tolist()
    [1.0, -1.0]
    """
    y, f = _alike(predictions, targets)
    spread = np.asarray(variance, dtype=np.float64)
    if spread.shape != (y.shape[1],) or not (spread > 0).all():
        raise ValueError(
            f"R² needs a positive variance for each of {y.shape[1]} factors; got {spread.tolist()}: leave out factors "
            "that do not vary"
        )
    return np.asarray(1 - ((f - y) ** 2).mean(0) / spread)


@dataclass(frozen=True, eq=False)
class Attribution:
    """R² on samples with exactly one new factor: a row for each new factor, a column for each predicted factor."""

    table: FloatArray
    """``(new factors, factors)``."""
    new: tuple[int, ...]
    """The columns of the factors that are new in the rows."""
    samples: tuple[int, ...]

    @property
    def out_of_distribution(self) -> FloatArray:
        """R² of each new factor itself."""
        return np.asarray(self.table[np.arange(len(self.new)), self.new])

    @property
    def in_distribution(self) -> FloatArray:
        """For each new factor, the mean R² of the other factors: how modular the model is."""
        rest = self.table.sum(1) - self.out_of_distribution
        return np.asarray(rest / (self.table.shape[1] - 1))


def attribute(predictions: ArrayLike, targets: ArrayLike, out: ArrayLike, variance: ArrayLike) -> Attribution:
    """R² of the new factor and of the other factors, for each new factor (Spec 001a, section 8.4).

    In a modular model the other factors score nearly as on a random split. Samples with ``out`` −1 are skipped.

    >>> y = np.array([[0.5, 0.0], [0.5, 1.0]])
    >>> attribution = attribute([[0.0, 0.0], [0.5, 1.0]], y, [0, 0], [0.25, 0.25])
    >>> attribution.out_of_distribution.tolist(), attribution.in_distribution.tolist()
    ([0.5], [1.0])
    """
    y, f = _alike(predictions, targets)
    columns = _columns(out, y.shape)
    if y.shape[1] < 2:
        raise Undefined("one new factor among others needs at least 2 factors, and there is 1")
    new = tuple(np.unique(columns[columns >= 0]).tolist())
    if not new:
        raise Undefined("no sample has exactly one new factor: compositions and random splits have none")
    rows = [columns == column for column in new]
    table = np.stack([r_squared(f[row], y[row], variance) for row in rows])
    return Attribution(table, new, tuple(int(row.sum()) for row in rows))


def mean_ratio(predictions: ArrayLike, targets: ArrayLike, out: ArrayLike, train_mean: ArrayLike) -> FloatArray:
    """Regression to the mean: r = |f − ȳ| / |y − ȳ| of the new factor of each sample, where ȳ is its training mean.

    Range: [0, ∞). 0: the prediction is the training mean; below 1: it is nearer to the mean than the truth is; 1: it is
    as far from the mean as the truth; above 1: it is farther. Samples whose target is the mean have no r and are left
    out; this happens in interpolation. Source: Schott et al. 2022, eq. 2 (Spec 001a, section 10.4).

    >>> mean_ratio([[0.6, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [0, 0], [0.4, 0.0]).round(3).tolist()
    [0.333, 1.0]
    """
    y, f = _alike(predictions, targets)
    columns = _columns(out, y.shape)
    mean = np.asarray(train_mean, dtype=np.float64)
    if mean.shape != (y.shape[1],):
        raise ValueError(f"train_mean needs a mean for each of {y.shape[1]} factors; got shape {mean.shape}")
    rows = np.flatnonzero(columns >= 0)
    column = columns[rows]
    far = np.abs(y[rows, column] - mean[column])
    near = np.abs(f[rows, column] - mean[column])
    away = far > AT_THE_MEAN
    if not away.any():
        raise Undefined("r needs samples whose new factor differs from its training mean, and there are none")
    return np.asarray(near[away] / far[away])


def prediction_similarity(
    predictions: Mapping[str, Sequence[ArrayLike]], targets: ArrayLike, out: ArrayLike
) -> SimilarityMatrix:
    """Do models make similar errors? Pearson's ρ between their predictions of the new factor. The truth is the last row
    and column.

    ``predictions`` has the runs (seeds) of each model. ρ is averaged over new factors and pairs of runs. A run is not
    compared with itself, so a model with one run has NaN on the diagonal. Factors for which either side is constant
    have no ρ and are left out; the notes list them. Range: [−1, 1]. Source: Schott et al. 2022, section 5.3
    (Spec 001a, section 10.3).

    >>> y = np.linspace([0, 0], [1, 0], 5)
    >>> prediction_similarity({"a": [1 - y], "b": [y, 2 * y]}, y, np.zeros(5, int)).values.round(3).tolist()
    [[nan, -1.0, -1.0], [-1.0, 1.0, 1.0], [-1.0, 1.0, nan]]
    """
    if TRUTH in predictions:
        raise ValueError(f"{TRUTH!r} is the name of the targets: give the model another name")
    runs = {name: [_alike(run, targets)[1] for run in several] for name, several in predictions.items()}
    y = _alike(targets, targets)[0]
    columns, names = _columns(out, y.shape), [*runs, TRUTH]
    runs[TRUTH] = [y]
    rows = {int(column): np.flatnonzero(columns == column) for column in np.unique(columns[columns >= 0])}
    standard = {
        name: [{c: _standardised(run[r, c]) for c, r in rows.items()} for run in several]
        for name, several in runs.items()
    }
    values = np.full((len(names), len(names)), np.nan)
    lacking = set()
    for i, j in product(range(len(names)), repeat=2):
        similarities = []
        for (a, first), (b, second) in product(enumerate(standard[names[i]]), enumerate(standard[names[j]])):
            if i == j and a == b:
                continue
            pairs = [(c, first[c], second[c]) for c in rows]
            lacking |= {(names[i], c) for c, x, _ in pairs if x is None}
            similarities += [[float(x @ z) for _, x, z in pairs if x is not None and z is not None]]
        defined = [np.mean(rho) for rho in similarities if rho]
        if defined:
            values[i, j] = np.mean(defined)
    notes = tuple(f"{name} is constant in factor {c} where it is new, so ρ is undefined" for name, c in sorted(lacking))
    return SimilarityMatrix(values, tuple(names), tuple(names), notes)


def reference_predictions(train: ArrayLike, targets: ArrayLike) -> dict[str, FloatArray]:
    """Predictions of three simple predictors that know the true targets, fitted to the targets ``train``.

    ``constant`` predicts the training mean of each factor; ``clip`` predicts the target, clipped to the training range;
    ``nearest`` predicts the training value nearest to the target. A model that extrapolates worse than ``clip`` is
    worse than one that is perfect inside the training range and constant outside (Spec 001a, O19 to O21).

    >>> references = reference_predictions([[0.0], [0.5]], [[0.2], [1.0]])
    >>> {name: values[:, 0].tolist() for name, values in references.items()}
    {'constant': [0.25, 0.25], 'clip': [0.2, 0.5], 'nearest': [0.0, 0.5]}
    """
    seen, y = (np.asarray(as_array(x), dtype=np.float64, order="F") for x in (train, targets))  # a factor at a time
    if seen.ndim != 2 or y.ndim != 2 or seen.shape[1] != y.shape[1] or not len(seen):
        raise ValueError(f"training and other targets need the same factors; got shapes {seen.shape} and {y.shape}")
    return {
        "constant": np.broadcast_to(seen.mean(0), y.shape),
        "clip": y.clip(seen.min(0), seen.max(0)),
        "nearest": np.stack([_nearest(np.unique(s), v) for s, v in zip(seen.T, y.T, strict=True)]).T,
    }


def ceiling(targets: ArrayLike, looks: ArrayLike) -> FloatArray:
    """The best R² of each factor that any predictor can reach if different targets look the same.

    ``looks`` has the same number for samples that look the same; the best prediction for them is the mean of their
    targets. The value is 1 − mean variance within looks / variance. For the orientation of squares and ellipses see
    Spec 001a, section 8.5.

    >>> ceiling([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).tolist()  # within 1/4, in all 5/4
    [0.8]
    """
    y, _ = _alike(targets, targets)
    _, label = np.unique(np.asarray(looks), return_inverse=True)
    if label.shape != (len(y),):
        raise ValueError(f"looks needs one number for each of {len(y)} targets; got shape {np.shape(looks)}")
    counts = np.bincount(label)
    means = np.column_stack([np.bincount(label, column) / counts for column in y.T])
    return r_squared(means[label], y, y.var(0))


def same_look(observations: ArrayLike) -> NDArray[np.int64]:
    """Numbers that are equal for equal observations: the ``looks`` of :func:`ceiling`.

    >>> same_look([[1, 2], [0, 5], [1, 2]]).tolist()
    [1, 0, 1]
    """
    x = as_array(observations)
    return np.unique(x.reshape(len(x), -1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class Correlation:
    """The correlations of two scores of the same models, with their p-values."""

    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    models: int


def correlation(first: ArrayLike, second: ArrayLike) -> Correlation:
    """How one score of models correlates with another, such as disentanglement with the R² of a readout (Spec 001a,
    10.5).

    >>> result = correlation([0.1, 0.2, 0.4, 0.3], [0.5, 0.6, 0.9, 0.7])
    >>> round(result.pearson, 3), result.spearman
    (0.983, 1.0)
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 3:
        raise ValueError(f"a correlation needs both scores of at least 3 models; got shapes {x.shape} and {y.shape}")
    if not np.ptp(x) or not np.ptp(y):
        raise Undefined("a score that is the same for all models has no correlation")
    linear, ranked = pearsonr(x, y), spearmanr(x, y)
    return Correlation(
        float(linear.statistic), float(linear.pvalue), float(ranked.statistic), float(ranked.pvalue), len(x)
    )


def _alike(predictions: ArrayLike, targets: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Targets and predictions as finite floats of the same shape."""
    f, y = (np.asarray(as_array(x), dtype=np.float64) for x in (predictions, targets))
    if y.ndim != 2 or f.shape != y.shape or not y.size:
        raise ValueError(
            f"predictions and targets need the same shape (samples, factors), with at least one sample; got {f.shape} "
            f"and {y.shape}"
        )
    if not np.isfinite(f).all() or not np.isfinite(y).all():
        raise ValueError("predictions or targets have NaN or infinite values: a model that diverged has no score")
    return y, f


def _columns(out: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    columns = np.asarray(out)
    if columns.shape != shape[:1] or columns.dtype.kind not in "iu" or columns.max(initial=-1) >= shape[1]:
        raise ValueError(
            f"out needs the column of the new factor, below {shape[1]}, or -1, for each of {shape[0]} samples; got "
            f"{columns.dtype} of shape {columns.shape}"
        )
    return columns.astype(np.int64)


def _nearest(seen: FloatArray, values: FloatArray) -> FloatArray:
    """For each of ``values``, the nearest of the sorted values ``seen``; ties go to the lower."""
    above = np.searchsorted(seen, values).clip(1, max(1, len(seen) - 1)).clip(max=len(seen) - 1)
    below = np.maximum(above - 1, 0)
    return np.asarray(np.where(values - seen[below] <= seen[above] - values, seen[below], seen[above]))


def _standardised(values: FloatArray) -> FloatArray | None:
    """The values, centred and divided by their norm; None if they are constant."""
    centred = values - values.mean() if len(values) else values
    norm = float(np.linalg.norm(centred))
    return centred / norm if norm > 1e-9 * max(1.0, float(np.abs(values).max(initial=0.0))) else None
