"""Conformal intervals: bounds of the error of a prediction, from errors on held-out examples.

Split conformal prediction (Vovk, Gammerman and Shafer, Algorithmic learning in a random world, 2005; Lei, G'Sell,
Rinaldo, Tibshirani and Wasserman, Distribution-free predictive inference for regression, 2018): the ⌈(n + 1)c⌉-th
smallest of n absolute errors on held-out examples is a radius. The error of a new example is within this radius with
probability at least c, for any model, if the example comes from the same distribution as the held-out ones. Generated
observations come from another distribution, so their coverage has to be measured.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def conformal_radius(errors: ArrayLike, coverage: float = 0.9) -> FloatArray:
    """The radius of each column of absolute errors ``(n, k)`` on held-out examples.

    The range is from 0 (a perfect predictor) to infinity: too few examples for the coverage give an infinite radius.

    >>> conformal_radius(np.arange(1, 20)[:, None], 0.9).tolist(), conformal_radius([[1.0], [2.0]], 0.9).tolist()
    ([18.0], [inf])
    """
    if not 0 < coverage < 1:
        raise ValueError(f"the coverage of an interval is {coverage}: it needs to lie between 0 and 1")
    table = np.abs(np.asarray(errors, dtype=np.float64))
    if table.ndim != 2 or not len(table):
        raise ValueError(f"errors need a row for each held-out example; got shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("errors of held-out examples need to be finite numbers")
    place = math.ceil((len(table) + 1) * coverage)
    if place > len(table):
        return np.full(table.shape[1], np.inf)
    return np.asarray(np.sort(table, axis=0)[place - 1])


def covered_share(values: ArrayLike, low: ArrayLike, high: ArrayLike) -> FloatArray:
    """The share of values ``(n, k)`` that lie within their intervals, for each column.

    >>> covered_share([[0.5], [2.0]], [[0.0], [0.0]], [[1.0], [1.0]]).tolist()
    [0.5]
    """
    v, lower, upper = (np.asarray(part, dtype=np.float64) for part in (values, low, high))
    return np.asarray(((v >= lower) & (v <= upper)).mean(axis=0))
