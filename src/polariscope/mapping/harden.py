"""From probabilities to a map of classes (Samarin 2022, section 4.4.2; Spec 000, section 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def harden(probabilities: ArrayLike, threshold: float | Sequence[float], background: int) -> NDArray[np.uint8]:
    """The class of every pixel: the most probable one besides the background, where its probability exceeds the
    threshold, and the background elsewhere.

    ``probabilities`` are ``(classes, ...)``; ``threshold`` is one number, or one for each class (that of the background
    is ignored). The background is excluded before the maximum is taken: with a threshold below 0.5 a pixel can get a
    class although the background is more probable.

    >>> p = np.array([0.55, 0.1, 0.2, 0.05, 0.1])
    >>> int(harden(p, 0.5, background=4)), int(harden(p, 0.6, background=4))
    (0, 4)
    """
    p = as_probabilities(probabilities)
    limits = thresholds_of(threshold, len(p), background)
    others = np.delete(np.arange(len(p)), background)
    if not len(others):
        return np.full(p.shape[1:], background, np.uint8)
    best = others[p[others].argmax(0)]
    largest = np.take_along_axis(p, best[None], 0)[0]
    return np.where(largest > limits[best], best, background).astype(np.uint8)


def without_weights(probabilities: ArrayLike, weights: Sequence[float]) -> NDArray[Any]:
    """Probabilities of a network that was trained with class weights, with the weights undone: p_c / w_c, scaled to
    add up to 1. The optimum of the weighted cross-entropy is p_c ∝ w_c · P(c | x).

    >>> without_weights(np.array([0.3, 0.7]), [0.75, 0.25]).round(3).tolist()
    [0.125, 0.875]
    """
    p = as_probabilities(probabilities)
    w = np.asarray(weights, float)
    if w.shape != (len(p),) or not (w > 0).all():
        raise ValueError(f"{len(p)} classes need a weight above 0 each to undo; got {list(weights)}")
    shares = p / w.reshape(-1, *[1] * (p.ndim - 1))
    return np.asarray(shares / shares.sum(0))


def as_probabilities(probabilities: ArrayLike) -> NDArray[Any]:
    """Probabilities ``(classes, ...)``; other arrays are refused."""
    p = np.asarray(probabilities)
    if p.ndim < 1 or not np.issubdtype(p.dtype, np.floating) or not p.size:
        raise ValueError(f"expected probabilities (classes, ...) as floats; got {p.dtype} of shape {p.shape}")
    if not (p.min() >= 0 and p.max() <= 1 + 1e-6):
        raise ValueError(f"probabilities are from 0 to 1; got {p.min():.4g} to {p.max():.4g}: apply a softmax first")
    return p


def thresholds_of(threshold: float | Sequence[float], classes: int, background: int) -> NDArray[np.float64]:
    """A threshold for each class."""
    limits = np.broadcast_to(np.asarray(threshold, float), (classes,)) if np.ndim(threshold) == 0 else np.asarray(
        threshold, float
    )  # fmt: skip
    if limits.shape != (classes,) or not ((limits >= 0) & (limits < 1)).all():
        raise ValueError(
            f"expected one threshold from 0 to below 1, or one for each of {classes} classes; got {threshold}"
        )
    if not 0 <= background < classes:
        raise ValueError(f"the background is class {background}, and there are classes 0 to {classes - 1}")
    return limits
