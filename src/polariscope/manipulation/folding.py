"""Add a small change to observations and stay in their range.

Grey values outside [0, 1] are reflected at its ends. This moves no value further than the change itself (Spec 003,
section 4.7). Images are stored in 8 bits, so the change is rounded to whole grey levels, at most the largest level that
the bound allows.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

A = TypeVar("A", NDArray[Any], Tensor)


def fold(x: A) -> A:
    """x − 2 max(x − 1, 0) + 2 max(−x, 0): values in [−1, 2] reflected into [0, 1]; arrays and tensors alike.

    >>> fold(np.array([1.1, -0.1, 0.4])).round(12).tolist()
    [0.9, 0.1, 0.4]
    """
    return x - 2 * (x - 1).clip(min=0) + 2 * (-x).clip(min=0)


def check_bound(epsilon: float, of_bytes: bool) -> None:
    """Refuse a bound that is not positive and finite, or, for images of bytes, one outside 1/255 to 1."""
    if not epsilon > 0 or not math.isfinite(epsilon):
        raise ValueError(f"epsilon is {epsilon}: a change needs a positive bound")
    if of_bytes and not 1 / 255 <= epsilon <= 1:
        raise ValueError(f"epsilon is {epsilon}: for images it is a share of the grey range, from 1/255 to 1")


def shifted(observations: NDArray[Any], change: NDArray[np.floating], epsilon: float) -> NDArray[Any]:
    """Add a change of at most ``epsilon`` to observations. Bytes are folded and rounded, floats are not.

    >>> shifted(np.array([[250, 0, 100]], np.uint8), np.array([[0.1, -0.1, 0.1]]), 0.1).tolist()
    [[235, 25, 125]]
    """
    if observations.dtype != np.uint8:
        return (observations + change).astype(np.float32)
    x = observations / np.float32(255)
    most = math.floor(255 * epsilon + 1e-6)
    levels = np.rint(255 * (fold(x + change.astype(np.float32)) - x)).clip(-most, most)
    return (observations + levels).clip(0, 255).astype(np.uint8)
