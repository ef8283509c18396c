"""Gradient boosting as scikit-learn defines it, some twenty times faster: the trees that DCI's importances come from.

Published DCI is that of scikit-learn's ``GradientBoostingClassifier``, which looks for every split among all values of
every latent and takes minutes. Quicker boosters are other probes: they choose splits by second-order gains, and by the
trees of scikit-learn's histogram-based one DCI came out 0.02 away, even with importances defined as here. So everything
that decides an importance is here as there: trees of depth 3 fitted by least squares to the negative gradient of the
log loss, leaves set by one Newton step, 100 rounds with a rate of 0.1, and as importance the squared error that the
splits on a latent take away, over all trees. The splits alone are found in another way: among the edges of 255 bins
first, and then among the values around the best edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from scipy.stats import rankdata

from polariscope.measures.information import FloatArray

IntArray = NDArray[np.int64]
Descent = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""From scores (trees of a round, training rows) to the negative gradient and the curvature of the loss there."""

ROUNDS, DEPTH, RATE = 100, 3, 0.1
BINS = 255
NOTHING = 1e-9
"""A gain this small is rounding."""
FLAT = 1e-30
"""A leaf with less curvature stays as it is: its rows are predicted with certainty, and single precision ends there."""


def boosted(
    codes: FloatArray, target: NDArray[Any], held: FloatArray, continuous: bool = False
) -> tuple[FloatArray, NDArray[Any]]:
    """Importance of each latent of ``codes`` for ``target`` (sum 1, or all 0), and the prediction from codes ``held``.

    Only the order of a latent's values counts. For factors of many values trees are grown for one value after another,
    each in a millisecond for 10,000 codes of 10 latents.

    >>> codes = np.random.default_rng(0).normal(size=(400, 3))
    >>> importance, prediction = boosted(codes[:300], codes[:300, 1] > 0.5, codes[300:])
    >>> importance.round(3).tolist(), float(np.mean(prediction == (codes[300:, 1] > 0.5)))
    ([0.0, 1.0, 0.0], 1.0)
    """
    latents = _latents(np.concatenate([codes, held]), len(codes))
    return _regressed(latents, target) if continuous else _classified(latents, target)


@dataclass(frozen=True, eq=False)
class _Latents:
    """Codes as ranks and bins. Rows to train on come first; the others fall through the trees and decide nothing."""

    ranks: NDArray[np.int32]
    """(latents, rows), from 1; equal codes have the same."""
    tops: NDArray[np.int32]
    """(latents, bins + 1): the highest rank below each bin."""
    cells: IntArray
    """(training rows, latents): bin of the row, numbered through all latents."""
    counts: FloatArray
    """(latents, bins): training rows in each."""

    def sums(self, gradient: NDArray[np.float32]) -> FloatArray:
        """(2, latents, bins): sum of the gradient in each bin, and number of training rows."""
        return np.stack([_in_cells(self.cells, gradient), self.counts])

    def sums_of(self, rows: IntArray, gradient: NDArray[np.float32]) -> FloatArray:
        cells = self.cells.take(rows, axis=0)
        return np.stack([_in_cells(cells, gradient.take(rows)), _in_cells(cells)])


def _in_cells(cells: IntArray, gradient: NDArray[np.float32] | None = None) -> FloatArray:
    latents = cells.shape[1]
    weights = None if gradient is None else gradient.repeat(latents)
    return np.bincount(cells.ravel(), weights, latents * BINS).reshape(latents, BINS)


def _latents(codes: FloatArray, train: int) -> _Latents:
    ranks = rankdata(codes, method="dense", axis=0).T.astype(np.int32, order="C")
    tops = np.empty((len(ranks), BINS + 1), dtype=np.int32)
    cells = np.empty((train, len(ranks)), dtype=np.int64)
    for i, row in enumerate(ranks):
        values, which, count = np.unique(row[:train], return_inverse=True, return_counts=True)
        bins = _bins(count)
        tops[i] = np.append(0, values)[np.searchsorted(bins, np.arange(BINS + 1))]
        cells[:, i] = BINS * i + bins[which]
    return _Latents(ranks, tops, cells, _in_cells(cells).astype(np.float64))


def _bins(count: IntArray) -> IntArray:
    """The bin of each distinct value in order, from how often it occurs: one each, or equal steps of log odds.

    What a split gains depends on the ratio of its sides, and many good splits cut off a handful of rows. In bins of
    equal shares these are lost, and informativeness comes out up to 0.01 higher than by a search of all values.
    """
    if len(count) <= BINS:
        return np.arange(len(count))
    below, total = count.cumsum() - count / 2, count.sum()
    odds = np.log(below / (total - below)) / np.log(2 * total)  # within (-1, 1)
    return np.asarray((BINS * (1 + odds) / 2).astype(np.int64))


def _classified(latents: _Latents, target: NDArray[Any]) -> tuple[FloatArray, NDArray[Any]]:
    """One tree for each class in a round, or one for both of two."""
    classes, label = np.unique(target, return_inverse=True)
    if len(classes) == 1:
        return np.zeros(len(latents.ranks)), classes.repeat(latents.ranks.shape[1] - len(target))
    truth = (label == np.arange(len(classes))[:, None]).astype(np.float32)
    start, rate = np.log(truth.mean(axis=1)), RATE * (len(classes) - 1) / len(classes)
    if len(classes) == 2:
        truth, start, rate = truth[1:], start[1:] - start[:1], RATE

    def descent(scores: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        chance = expit(scores) if len(truth) == 1 else softmax(scores, axis=0)
        return truth - chance, chance * (1 - chance)

    importance, scores = _boost(latents, start, descent, rate)
    return importance, classes[scores.argmax(axis=0) if len(truth) > 1 else (scores[0] > 0).astype(np.int64)]


def _regressed(latents: _Latents, target: NDArray[Any]) -> tuple[FloatArray, NDArray[Any]]:
    """Squared error: the leaves are means."""
    centre, spread = target.mean(), target.std() or 1.0
    truth = ((target - centre) / spread)[None].astype(np.float32)
    importance, scores = _boost(latents, np.zeros(1), lambda s: (truth - s, np.ones_like(truth)), RATE)
    return importance, centre + spread * scores[0]


def _boost(
    latents: _Latents, start: FloatArray, descent: Descent, rate: float
) -> tuple[FloatArray, NDArray[np.float32]]:
    """Importances, and the scores (trees of a round, rows) of the rows that were not trained on."""
    train, rows = len(latents.cells), latents.ranks.shape[1]
    scores = start.astype(np.float32)[:, None].repeat(rows, axis=1)
    importance = np.zeros(len(latents.ranks))
    for _ in range(ROUNDS):
        gradient, curvature = descent(scores[:, :train])
        for k in range(len(scores)):
            importance += _add_tree(latents, gradient[k], curvature[k], scores[k], rate)
    return importance / (importance.sum() or 1.0), scores[:, train:]


def _add_tree(
    latents: _Latents,
    gradient: NDArray[np.float32],
    curvature: NDArray[np.float32],
    scores: NDArray[np.float32],
    rate: float,
) -> FloatArray:
    """Grow a tree, add its leaves to ``scores`` in place, and return the squared error each latent took away."""
    train = len(latents.cells)
    importance = np.zeros(len(latents.ranks))

    def grow(rows: IntArray, size: int, sums: FloatArray | None, levels: int) -> None:
        """``rows`` are in order, ``size`` of them to train on; ``sums`` are theirs, needed where levels are left."""
        split = None if sums is None or size < 2 else _best_split(latents, gradient, rows, size, sums)
        if split is None:
            own = rows[:size]
            bend = float(curvature.take(own).sum())
            if bend > FLAT:
                scores[rows] += rate * float(gradient.take(own).sum()) / bend
            return
        importance[split.latent] += split.gain
        sides = rows.compress(~split.right), rows.compress(split.right)
        sizes = [int(side.searchsorted(train)) for side in sides]
        parts: list[FloatArray | None] = [None, None]
        if levels > 1:  # only the smaller side is summed: the other is the rest
            smaller = int(sizes[1] < sizes[0])
            part = latents.sums_of(sides[smaller][: sizes[smaller]], gradient)
            parts[smaller], parts[1 - smaller] = part, sums - part
        for i in (0, 1):
            grow(sides[i], sizes[i], parts[i], levels - 1)

    grow(np.arange(latents.ranks.shape[1]), train, latents.sums(gradient), DEPTH)
    return importance


@dataclass(frozen=True, eq=False)
class _Split:
    latent: int
    gain: float
    right: NDArray[np.bool_]
    """Which rows lie above."""


def _best_split(
    latents: _Latents, gradient: NDArray[np.float32], rows: IntArray, size: int, sums: FloatArray
) -> _Split | None:
    """The best edge of all bins, moved to the best place within the two bins at it; None if nothing is gained."""
    left, below = sums.cumsum(axis=-1)
    total = left[0, -1]
    gain = _gain(left, below, total, size)
    latent, best = divmod(int(gain.argmax()), BINS)
    if gain[latent, best] <= NOTHING:
        return None
    first, second = (int(below[latent].searchsorted(below[latent, best], side)) for side in ("left", "right"))
    ranks = latents.ranks[latent].take(rows)
    own = ranks[:size]
    near = np.flatnonzero((own > latents.tops[latent, first]) & (own <= latents.tops[latent, second + 1]))
    near = near.take(own.take(near).argsort())
    place, (share, count) = own.take(near), sums[:, latent, first]
    before = left[latent, first] - share + gradient.take(rows.take(near)).cumsum(dtype=np.float64)[:-1]
    gain = _gain(before, below[latent, first] - count + np.arange(1, len(near)), total, size)
    gain *= place[1:] > place[:-1]  # equal values stay together
    best = int(gain.argmax())
    return _Split(latent, float(gain[best]), ranks > (place[best] + place[best + 1]) // 2)


def _gain(left: FloatArray, below: FloatArray, total: float, size: int) -> FloatArray:
    """Squared error that a split takes away whose left side has ``below`` of the ``size`` rows; 0 for an empty side."""
    lean = left - below * (total / size)
    return lean * lean * size / np.maximum(below * (size - below), 1)
