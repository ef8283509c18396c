"""A judge that is independent of the model it judges: ridge regression with a Laplacian kernel.

On bags of bonds of real isomers it predicts band gaps as well as the published networks do (Spec 000, section 9.3), and
it is fitted in seconds. It serves as a baseline of predictions and as an independent check of generated observations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve
from scipy.spatial.distance import cdist

FloatArray = NDArray[np.float64]
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Widths of the kernel that are tried, in medians of the distances between examples."""
RIDGES = (1e-6, 1e-3, 1e-2, 1e-1, 1.0)
"""Ridges that are tried."""
TUNED_ON = 1500
"""Largest number of examples that are used to choose width and ridge."""
SHARE = 0.25
"""Share of these examples that is held out."""


@dataclass(frozen=True, eq=False)
class Judge:
    """A fitted judge: f(x) = mean + Σ_i α_i exp(−‖x − x_i‖₁ / width), on standardised columns."""

    examples: FloatArray
    weights: FloatArray
    mean: FloatArray
    shift: FloatArray
    scale: FloatArray
    width: float
    ridge: float

    def __call__(self, x: ArrayLike) -> FloatArray:
        """Predictions ``(n, k)``."""
        rows = _rows(x)
        if rows.shape[1] != self.examples.shape[1]:
            raise ValueError(f"the judge takes observations of {self.examples.shape[1]} numbers; got {rows.shape[1]}")
        apart = cdist((rows - self.shift) / self.scale, self.examples, "cityblock")
        return np.asarray(self.mean + np.exp(-apart / self.width) @ self.weights)


def fit_judge(x: ArrayLike, y: ArrayLike, seed: int = 0) -> Judge:
    """Fit the judge to observations ``(n, ...)`` and their properties ``(n, k)``.

    Width and ridge are those with the least absolute error on a held-out part of these examples.

    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> judge = fit_judge(x, x**2)
    >>> bool(abs(judge([[0.5]])[0, 0] - 0.25) < 0.05)
    True
    """
    rows, values = _rows(x), np.asarray(y, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(rows):
        raise ValueError(f"the judge needs a row of properties for each of {len(rows)} examples; got {values.shape}")
    if len(rows) < 8:
        raise ValueError(f"the judge needs at least 8 examples to learn from; got {len(rows)}")
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise ValueError("the judge needs finite numbers")
    shift, scale = rows.mean(axis=0), usual_scale(rows)
    scaled = (rows - shift) / scale
    chosen = np.random.default_rng(seed).permutation(len(rows))[:TUNED_ON]
    unit, ridge = _tuned(scaled[chosen], values[chosen])
    mean = values.mean(axis=0)
    weights = _solved(cdist(scaled, scaled, "cityblock"), values - mean, unit, ridge)
    return Judge(scaled, weights, mean, shift, scale, unit, ridge)


def usual_scale(x: FloatArray) -> FloatArray:
    """The standard deviation of each column; of a constant one its size, and at least 1, so that a small relative
    deviation from it stays small.

    >>> usual_scale(np.array([[1.0, 0.0, -5e6], [3.0, 0.0, -5e6]])).tolist()
    [1.0, 1.0, 5000000.0]
    """
    spread, size = x.std(axis=0), np.maximum(np.abs(x).max(axis=0), 1.0)
    return np.where(spread > 1e-9 * size, spread, size)


def _tuned(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    kept = max(2, round(SHARE * len(x)))
    apart = cdist(x, x, "cityblock")
    positive = apart[apart > 0]
    median = float(np.median(positive)) if len(positive) else 1.0
    fitted, shown = apart[kept:, kept:], apart[:kept, kept:]
    mean = y[kept:].mean(axis=0)
    best = (np.inf, median, RIDGES[-1])
    for width in WIDTHS:
        for ridge in RIDGES:
            weights = _solved(fitted, y[kept:] - mean, width * median, ridge)
            missed = float(np.abs(mean + np.exp(-shown / (width * median)) @ weights - y[:kept]).mean())
            best = min(best, (missed, width * median, ridge))
    return best[1], best[2]


def _solved(apart: FloatArray, y: FloatArray, width: float, ridge: float) -> FloatArray:
    kernel = np.exp(-apart / width)
    kernel[np.diag_indices_from(kernel)] += ridge
    return np.asarray(solve(kernel, y, assume_a="pos"))


def explained(predictions: ArrayLike, truth: ArrayLike) -> float:
    """R² = 1 − Σ(p − t)² / Σ(t − mean)², over all columns: 1 is perfect, 0 no better than the mean, below 0 worse.

    >>> explained([[1.0], [3.0]], [[1.0], [3.0]]), explained([[2.0], [2.0]], [[1.0], [3.0]])
    (1.0, 0.0)
    """
    p, t = np.asarray(predictions, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    total = float(((t - t.mean(axis=0)) ** 2).sum())
    if not total:
        raise ValueError("R² needs a truth that varies")
    return 1 - float(((p - t) ** 2).sum()) / total


def _rows(x: ArrayLike) -> FloatArray:
    table = np.asarray(x, dtype=np.float64)
    if table.ndim < 2:
        raise ValueError(f"observations need a row each; got shape {table.shape}")
    return table.reshape(len(table), -1)
