"""Scores of maps: by pixels, strictly, and by objects, leniently (Spec 000, section 5.7). The two are never mixed:
object scores hide that objects are drawn too large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.mapping.objects import regions


@dataclass(frozen=True)
class Agreement:
    """True and false positives and false negatives as areas, and what follows from them. Shares are NaN where they have
    no denominator."""

    hits: float
    false_positives: float
    misses: float

    @property
    def precision(self) -> float:
        return _share(self.hits, self.hits + self.false_positives)

    @property
    def recall(self) -> float:
        return _share(self.hits, self.hits + self.misses)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _share(2 * self.hits, 2 * self.hits + self.false_positives + self.misses)

    @property
    def iou(self) -> float:
        return _share(self.hits, self.hits + self.false_positives + self.misses)


def pixel_scores(
    predicted: ArrayLike, reference: ArrayLike, background: int, *, of: int | None = None, unlabelled: int = -1
) -> Agreement:
    """Pixels in both maps, only in the prediction, only in the reference: of every class besides the background taken
    together, or ``of`` one class. Pixels that are unlabelled in the reference do not count.

    >>> scores = pixel_scores([[0, 1, 1, 2]], [[0, 1, 2, 2]], background=2)
    >>> scores.precision, scores.recall, scores.iou
    (0.6666666666666666, 1.0, 0.6666666666666666)
    """
    mine, truth, labelled = _masks(predicted, reference, background, of, unlabelled)
    hits = float((mine & truth).sum())
    return Agreement(hits, float((mine & ~truth & labelled).sum()), float((truth & ~mine).sum()))


def object_scores(
    predicted: ArrayLike, reference: ArrayLike, background: int, *, of: int | None = None, unlabelled: int = -1
) -> Agreement:
    """The same by connected objects: objects that overlap in any pixel match. The matched area is the mean of the
    matched areas of prediction and reference; objects without a match are false positives and misses.

    >>> scores = object_scores([[0, 0, 9, 9, 0]], [[0, 9, 9, 9, 9]], background=9)
    >>> scores.hits, scores.false_positives, scores.misses
    (1.5, 1.0, 0.0)
    """
    mine, truth, labelled = _masks(predicted, reference, background, of, unlabelled)
    first = regions(np.where(mine & labelled, np.asarray(predicted), background), background)
    second = regions(np.where(truth, np.asarray(reference), background), background)
    both = (first > 0) & (second > 0)
    sizes = [np.bincount(labels.ravel()).astype(float) for labels in (first, second)]
    matched = []
    for labels, size in zip((first, second), sizes, strict=True):
        match = np.zeros(len(size), bool)
        match[np.unique(labels[both])] = True
        match[0] = False
        size[0] = 0
        matched.append(match)
    return Agreement(
        float(sizes[0][matched[0]].sum() + sizes[1][matched[1]].sum()) / 2,
        float(sizes[0][~matched[0]].sum()),
        float(sizes[1][~matched[1]].sum()),
    )


def retention(first: ArrayLike, second: ArrayLike, background: int) -> float:
    """Share of the pixels with a class in the first map that also have one in the second.

    >>> retention([[0, 0, 5]], [[1, 5, 5]], background=5)
    0.5
    """
    a, b = np.asarray(first) != background, np.asarray(second) != background
    if a.shape != b.shape:
        raise ValueError(f"two maps of the same pixels are compared; got {a.shape} and {b.shape}")
    return _share(float((a & b).sum()), float(a.sum()))


def _masks(
    predicted: ArrayLike, reference: ArrayLike, background: int, of: int | None, unlabelled: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    mine, truth = np.asarray(predicted), np.asarray(reference)
    if mine.shape != truth.shape or mine.ndim != 2:
        raise ValueError(f"a map is scored against one of the same pixels (h, w); got {mine.shape} and {truth.shape}")
    labelled = truth != unlabelled
    if of is not None:
        return (mine == of) & labelled, truth == of, labelled
    return (mine != background) & labelled, (truth != background) & labelled, labelled


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
