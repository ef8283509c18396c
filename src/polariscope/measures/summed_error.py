"""Absolute errors in the sum convention: summed over the numbers of an observation, averaged over observations.

The published tables on conditional invariance call this MAE, although it is not a mean over coordinates (Spec 000,
section 6.4 and A1). It is compared with the error of the mean model, which predicts the mean of all observations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def summed_absolute_error(predictions: ArrayLike, truth: ArrayLike) -> float:
    """(1/n) Σ_i Σ_j |p_ij − t_ij|: 0 for perfect predictions, without an upper bound.

    >>> summed_absolute_error([[1.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]])
    2.0
    """
    a, b = _rows(predictions, "predictions"), _rows(truth, "truth")
    if a.shape != b.shape:
        raise ValueError(f"predictions and truth need the same shape; got {a.shape} and {b.shape}")
    return float(np.abs(a - b).sum(axis=1).mean())


def mean_model_error(values: ArrayLike) -> float:
    """The summed absolute error of always predicting the mean, which a model has to beat.

    >>> mean_model_error(np.arange(32)[:, None] / 31) == 8 / 31  # a position of sprites
    True
    """
    rows = _rows(values, "values")
    return float(np.abs(rows - rows.mean(axis=0)).sum(axis=1).mean())


def binary_mean_model_error(share: ArrayLike) -> float:
    """:func:`mean_model_error` of numbers that are 0 or 1, from the share p of ones in each place: Σ 2p(1 − p).

    The shares can be accumulated image by image, so the images need not fit in memory.

    >>> binary_mean_model_error([0.5, 0.25, 0.0])
    0.875
    """
    p = np.asarray(share, dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("shares of ones lie between 0 and 1")
    return float((2 * p * (1 - p)).sum())


def _rows(values: ArrayLike, name: str) -> FloatArray:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim < 2 or not len(table):
        raise ValueError(f"{name} need a row for each observation; got shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError(f"{name} need finite numbers")
    return table.reshape(len(table), -1)
