"""Accuracy of a classifier, and its error under corruptions, alone or relative to a reference classifier.

Errors are ``(corruptions, severities)``, all as shares or all in percent. Definitions are those of ImageNet-C
(Hendrycks and Dietterich 2019) as Rusak, Schott et al. 2020 report them (Spec 001b, section A9.3).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.information import FloatArray, as_array
from polariscope.measures.measure import Undefined
from polariscope.registry import nearest


def top_accuracy(scores: ArrayLike, labels: ArrayLike, k: int = 1) -> float:
    """Share of the samples whose label has one of the ``k`` highest scores ``(samples, classes)``.

    Ties go to the lower class, as in ``argmax``: a classifier with equal scores predicts class 0. Range: [0, 1];
    1: always right; guessing gives k / classes. It does not decrease with ``k`` and is 1 if ``k`` is the number of
    classes; a larger ``k`` is refused. Known bias: none. The standard error is at most 1 / (2 √samples).

    >>> scores = [[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]
    >>> top_accuracy(scores, [1, 2]), top_accuracy(scores, [1, 2], k=2), top_accuracy(scores, [1, 2], k=3)
    (0.5, 0.5, 1.0)
    """
    values, label = np.asarray(as_array(scores), dtype=np.float64), as_array(labels)
    if values.ndim != 2 or not values.size or label.shape != values.shape[:1] or label.dtype.kind not in "iu":
        raise ValueError(
            f"accuracy needs scores (samples, classes) and a whole number for each sample; got scores of shape "
            f"{values.shape} and labels of {label.dtype} {label.shape}"
        )
    classes = values.shape[1]
    if np.isnan(values).any():  # a logarithm of a probability may be infinite
        raise ValueError("scores contain NaN: a model that diverged has no accuracy")
    if label.min() < 0 or label.max() >= classes:
        raise ValueError(f"labels go from {label.min()} to {label.max()}, but there are scores of {classes} classes")
    if not 1 <= k <= classes:
        raise ValueError(f"k is {k}, and needs to be from 1 to the number of classes, {classes}")
    own = np.take_along_axis(values, label[:, None].astype(np.int64), axis=1)
    earlier = np.arange(classes) < label[:, None]
    better = (values > own) | ((values == own) & earlier)
    return float((better.sum(1) < k).mean())


def corruption_error(errors: ArrayLike, reference: ArrayLike) -> FloatArray:
    """Corruption error of each corruption c, in percent: CE_c = 100 Σ_s E_sc / Σ_s E'_sc over the severities s.

    ``errors`` E and the errors E' of a reference are ``(corruptions, severities)``, or ``(corruptions,)`` if they are
    means over severities, which gives the same CE. Range: [0, ∞). 0: no error; 100: as many errors as the reference.
    Published figures are relative to AlexNet (``published("inductive_biases/alexnet-errors")``). Undefined if the
    reference makes no error. Source: Rusak, Schott et al. 2020, appendix D, eq. 1. Known bias: if the reference is
    robust to a corruption, the denominator is small and the CE is noisy.

    >>> corruption_error([[0.1, 0.3], [0.5, 0.5]], [[0.2, 0.6], [0.5, 0.5]]).tolist()
    [50.0, 100.0]
    """
    own, other = (_errors(errors, "errors"), _errors(reference, "errors of the reference"))
    if own.shape != other.shape:
        raise ValueError(
            f"errors and those of the reference need the same corruptions and severities; got shapes {own.shape} and "
            f"{other.shape}"
        )
    whole = other.sum(1)
    if not whole.all():
        raise Undefined(
            f"the reference makes no error under corruptions {np.flatnonzero(whole == 0).tolist()}, so their error "
            "is undefined: leave these corruptions out"
        )
    return np.asarray(100 * (own.sum(1) / whole))


def mean_corruption_error(errors: ArrayLike, reference: ArrayLike) -> float:
    """mCE: the mean of :func:`corruption_error` over the corruptions, in percent.

    Range: [0, ∞); 100 for the reference itself. It is a mean of ratios, so every corruption counts the same, however
    robust the reference is to it. Source: as above.

    >>> mean_corruption_error([[0.1, 0.3], [0.5, 0.5]], [[0.2, 0.6], [0.5, 0.5]])
    75.0
    """
    return float(corruption_error(errors, reference).mean())


def group_means(values: Mapping[str, float], groups: Mapping[str, str]) -> dict[str, float]:
    """Mean over the corruptions of each group, in the order of the groups.

    >>> groups = {"gaussian": "noise", "shot": "noise", "fog": "weather"}
    >>> group_means({"gaussian": 0.5, "shot": 0.7, "fog": 0.9}, groups)
    {'noise': 0.6, 'weather': 0.9}
    """
    by_group: dict[str, list[float]] = {}
    for kind, value in values.items():
        if kind not in groups:
            raise ValueError(f"corruption {kind!r} is in no group: {nearest(kind, groups)}")
        by_group.setdefault(groups[kind], []).append(value)
    return {group: float(np.mean(members)) for group, members in by_group.items()}


def mean_without(values: Mapping[str, float], groups: Mapping[str, str], group: str = "noise") -> float:
    """Mean over the corruptions that are not in a group: noise training is judged by the mean without noise.

    >>> groups = {"gaussian": "noise", "fog": "weather", "snow": "weather"}
    >>> mean_without({"gaussian": 0.5, "fog": 0.9, "snow": 0.7}, groups)
    0.8
    """
    strange = [kind for kind in values if kind not in groups]
    if strange:
        raise ValueError(f"corruption {strange[0]!r} is in no group: {nearest(strange[0], groups)}")
    left = [value for kind, value in values.items() if groups[kind] != group]
    if not left:
        raise Undefined(f"all of these corruptions are {group}: without it nothing is left to average")
    return float(np.mean(left))


def _errors(errors: ArrayLike, what: str) -> FloatArray:
    table = np.asarray(as_array(errors), dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or not table.size or not np.isfinite(table).all() or table.min() < 0:
        raise ValueError(
            f"{what} need shape (corruptions, severities), finite and not negative; got shape {np.shape(errors)}"
        )
    return table
