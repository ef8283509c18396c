"""Bounds in binarised space converted to the image: each flipped pixel must cross one half, which needs a change of
some size.

(Spec 001b, section B5.4.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.theory.halfspaces import Norm

FloatArray = NDArray[np.float64]


def cheapest_flips(x: ArrayLike, count: ArrayLike, norm: Norm, threshold: float = 0.5, channels: int = 1) -> FloatArray:
    """The least norm of a change of images ``(n, N)`` by which ``count`` pixels of each cross the threshold.

    With several channels, a pixel is crossed at the price of its cheapest channel.

    >>> cheapest_flips([[0.0, 0.4, 0.9]], [2], "l2").round(4).tolist()
    [0.4123]
    >>> cheapest_flips([[0.0, 0.4, 0.9]], [2], "linf").round(4).tolist()
    [0.4]
    """
    flat = np.asarray(x, np.float64).reshape(len(np.asarray(x)), -1)
    needed = np.asarray(count, np.float64)
    if norm == "l0":
        return needed
    prices = np.abs(flat - threshold).reshape(len(flat), channels, -1).min(1)
    prices = np.sort(prices, axis=1)
    most = prices.shape[1]
    last = np.clip(needed, 0, most).astype(np.int64)
    rows = np.arange(len(flat))
    if norm == "linf":
        cost = np.where(last > 0, prices[rows, np.maximum(last - 1, 0)], 0.0)
    else:
        order = 2 if norm == "l2" else 1
        sums = np.concatenate([np.zeros((len(flat), 1)), np.cumsum(prices**order, 1)], 1)
        cost = sums[rows, last] ** (1 / order)
    return np.where(needed > most, np.inf, cost)


def in_binarised_space(count: ArrayLike, norm: Norm) -> FloatArray:
    """The norm of a change of this many pixels from 0 to 1 or back."""
    needed = np.asarray(count, np.float64)
    return {
        "l0": needed,
        "l1": needed,
        "l2": np.sqrt(needed),
        "linf": (needed > 0) * np.where(np.isinf(needed), np.inf, 1),
    }[norm]
