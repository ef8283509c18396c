"""Counts from which all scores of a map are computed: true class, most probable class, and its probability, by blocks.

A map follows from the most probable class besides the background and its probability, so counts of these over steps of
the probability hold the confusion at every threshold. Counts are stored for each block of ground, because pixels of a
block are not independent: intervals resample blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from polariscope.mapping.apply import BYTES, NODATA
from polariscope.mapping.harden import thresholds_of

STEPS = 50
"""Steps of the probability, 2 % each."""
EACH = BYTES // STEPS
LEVELS = np.arange(STEPS) / STEPS
DRAWS = 2000
CONFIDENCE = 0.95
FEW_MISSES = 5
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tally:
    """Pixels ``(blocks, true class, most probable class, step)``; the background is never the most probable."""

    counts: NDArray[np.int64]
    background: int
    names: tuple[str, ...]

    @property
    def blocks(self) -> int:
        return len(self.counts)

    @property
    def others(self) -> list[int]:
        """Classes besides the background."""
        return [c for c in range(len(self.names)) if c != self.background]

    def chosen(self, blocks: ArrayLike) -> Tally:
        return Tally(self.counts[np.asarray(blocks)], self.background, self.names)

    def confusions(self, threshold: float | Sequence[float]) -> NDArray[np.int64]:
        """Pixels ``(blocks, true class, mapped class)`` at one threshold, or one for each class: multiples of 2 %.

        At other thresholds the pixels of the map itself have to be counted (:func:`mapped_counts`).
        """
        limits = thresholds_of(threshold, len(self.names), self.background)
        steps = np.asarray(limits, float)[self.others] * STEPS
        if np.abs(steps - np.rint(steps)).max(initial=0.0) > 1e-6:
            raise ValueError(f"counts are known at thresholds that are multiples of {1 / STEPS:g}; got {threshold}")
        out = np.zeros((*self.counts.shape[:2], len(self.names)), np.int64)
        for c in self.others:
            first = round(float(limits[c]) * STEPS) + 1
            out[:, :, c] = self.counts[:, :, c, first:].sum(2)
            out[:, :, self.background] += self.counts[:, :, c, :first].sum(2)
        return out


def tally_of(blocks: Sequence[tuple[NDArray[Any], NDArray[Any]]], names: Sequence[str], background: int) -> Tally:
    """Counts of blocks, each of which has true classes ``(h, w)``, -1 unlabelled, and probabilities ``(classes, h, w)``
    in steps of 1/250, 255 without data."""
    counts = np.zeros((len(blocks), len(names), len(names), STEPS + 1), np.int64)
    for number, (truth, shares) in enumerate(blocks):
        counts[number] = block_counts(truth, shares, len(names), background)
    return Tally(counts, background, tuple(names))


def block_counts(truth: NDArray[Any], shares: NDArray[Any], classes: int, background: int) -> NDArray[np.int64]:
    """Pixels ``(true class, most probable class, step)`` of one block."""
    if truth.shape != shares.shape[1:] or len(shares) != classes:
        raise ValueError(f"a block has the same pixels in truth and map; got {truth.shape} and {shares.shape}")
    others = np.delete(np.arange(classes), background)
    best = others[shares[others].argmax(0)]
    share = np.take_along_axis(shares, best[None], 0)[0].astype(np.int64)
    known = (truth >= 0) & (shares[0] != NODATA)
    step = -(-share // EACH)
    place = (truth * classes + best) * (STEPS + 1) + step
    flat = np.bincount(place[known], minlength=classes * classes * (STEPS + 1))
    return flat.reshape(classes, classes, STEPS + 1)


def mapped_counts(truth: NDArray[Any], mapped: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Pixels ``(true class, mapped class)`` of one block: true classes ``(h, w)``, -1 unlabelled, and those of the map,
    255 without data."""
    known = (truth >= 0) & (mapped != NODATA)
    flat = np.bincount(truth[known] * classes + mapped[known].astype(np.int64), minlength=classes * classes)
    return flat.reshape(classes, classes)


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over blocks; NaN where it has none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class, or of all besides the background together."""

    name: str
    precision: Estimate
    recall: Estimate
    f1: Estimate
    iou: Estimate
    pixels: int
    """True pixels."""


def pixel_table(confusions: ArrayLike, names: Sequence[str], background: int, seed: int = 0) -> list[ClassScores]:
    """Scores by pixels ``(blocks, true class, mapped class)``: every class besides the background, and all of them
    against it."""
    confusion = np.asarray(confusions, float)
    k = len(names)
    others = [c for c in range(k) if c != background]
    sides = {names[c]: _sides(confusion, [c], [c], k) for c in others}
    sides["all classes"] = _sides(confusion, others, others, k)
    weights = block_draws(len(confusion), seed)
    rows = []
    for name, blocks in sides.items():
        total, drawn = blocks.sum(0), weights @ blocks
        values = [
            _interval(*pair)
            for pair in zip(_scores(total[None])[:, 0], _scores(drawn), strict=True)
        ]  # fmt: skip
        rows.append(ClassScores(name, values[0], values[1], values[2], values[3], int(total[0] + total[2])))
    return rows


def block_draws(blocks: int, seed: int, draws: int = DRAWS) -> Floats:
    """The count of each block in each of many bootstrap draws of blocks ``(draws, blocks)``."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(blocks, np.full(blocks, 1 / blocks), draws).astype(float)


def _sides(confusion: Floats, mine: list[int], theirs: list[int], classes: int) -> Floats:
    """Hits, false alarms and misses of each block ``(blocks, 3)``."""
    rest = [c for c in range(classes) if c not in theirs]
    hits = confusion[:, theirs][:, :, mine].sum((1, 2))
    return np.stack([hits, confusion[:, rest][:, :, mine].sum((1, 2)),
                     confusion[:, theirs].sum((1, 2)) - hits], 1)  # fmt: skip


def _scores(sums: Floats) -> Floats:
    """Precision, recall, F1 and IoU ``(4, n)`` from sums ``(n, 3)``."""
    hits, false, misses = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([hits / (hits + false), hits / (hits + misses), 2 * hits / (2 * hits + false + misses),
                         hits / (hits + false + misses)])  # fmt: skip


def _interval(value: float, drawn: Floats) -> Estimate:
    known = drawn[np.isfinite(drawn)]
    if not len(known) or len(known) < 0.9 * len(drawn):
        return Estimate(float(value), float("nan"), float("nan"))
    low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(value), float(low), float(high))


@dataclass(frozen=True)
class ChosenThresholds:
    """Thresholds chosen on held-out labels, each with its range over bootstrapped blocks."""

    matching: Estimate
    """One threshold for all classes, at which the mapped area equals that of the labels."""
    by_class: tuple[Estimate, ...]
    """One for each class, the best by F1; that of the background is not used."""

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(one.value for one in self.by_class)


def choose_thresholds(tally: Tally, seed: int = 0, draws: int = 200) -> ChosenThresholds:
    """Thresholds from labels: one for all classes that matches the area, and the best one of each class by F1. Their
    ranges are over bootstrapped blocks."""
    weights = np.concatenate([np.ones((1, tally.blocks)), block_draws(tally.blocks, seed, draws)])
    counts = tally.counts.astype(float)
    above = counts[..., ::-1].cumsum(-1)[..., ::-1][..., 1:]  # pixels beyond each level
    truth = counts.sum((2, 3))
    matching = []
    total = above[:, :, tally.others].sum((1, 2))
    eroded = truth[:, tally.others].sum(1)
    for weight in weights:
        matching.append(LEVELS[np.abs(weight @ total - weight @ eroded).argmin()])
    by_class = []
    for c in range(len(tally.names)):
        if c == tally.background:
            by_class.append(Estimate(0.5, 0.5, 0.5))
            continue
        hits, mapped, own = weights @ above[:, c, c], weights @ above[:, :, c].sum(1), weights @ truth[:, c]
        with np.errstate(invalid="ignore", divide="ignore"):
            f1 = np.nan_to_num(2 * hits / (mapped + own[:, None]))
        best = LEVELS[_middle_of_best(f1)]
        by_class.append(Estimate(float(best[0]), *map(float, np.quantile(best[1:], [0.025, 0.975]))))
    low, high = np.quantile(matching[1:], [0.025, 0.975])
    return ChosenThresholds(Estimate(float(matching[0]), float(low), float(high)), tuple(by_class))


def _middle_of_best(values: Floats) -> NDArray[np.int64]:
    """Where each row is largest; the middle of several equal places."""
    best = values >= values.max(1, keepdims=True) - 1e-12
    return np.array([np.flatnonzero(row)[(row.sum() - 1) // 2] for row in best])


@dataclass(frozen=True, eq=False)
class AdjustedAreas:
    """Square metres of each class, corrected for the errors of the map, with 95 % intervals."""

    mapped: Floats
    area: Floats
    low: Floats
    high: Floats
    blocks: int
    unknown: tuple[str, ...] = ()
    """Mapped classes without a labelled pixel, which were taken as they are mapped."""
    doubtful: tuple[str, ...] = ()
    """Classes that the map misses in fewer than five labelled blocks (or in none): so rare an error may be missing from
    the labels altogether, and the interval of the class is too narrow."""


def adjusted_areas(
    confusions: ArrayLike, pixels: ArrayLike, pixel_area: float, names: Sequence[str] = (), *, seed: int = 0,
    draws: int = DRAWS,
) -> AdjustedAreas:  # fmt: skip
    """Corrected areas: the stratified estimator (Olofsson et al. 2014, Good practices for estimating area
    and assessing accuracy of land change). Mapped classes are the strata; the share of each that is really of a class
    comes from labelled blocks, ``confusions`` being ``(blocks, true class, mapped class)``, and ``pixels`` are those
    of each mapped class in all of the map. Intervals draw whole blocks, since neighbouring pixels err together, with
    Student\'s quantile for as many blocks.

    >>> confusions = np.array([[[8, 0], [2, 10]], [[8, 0], [2, 10]]])
    >>> adjusted_areas(confusions, [100, 900], 1.0).area.tolist()
    [80.0, 920.0]
    """
    n, mapped = np.asarray(confusions, float), np.asarray(pixels, float)
    if n.ndim != 3 or n.shape[1] != n.shape[2] or mapped.shape != n.shape[2:]:
        raise ValueError(f"expected confusions (blocks, classes, classes) and pixels of each; got {n.shape}")
    if len(n) < 2:
        raise ValueError(f"an interval needs at least 2 labelled blocks; got {len(n)}")
    weights = np.concatenate([np.ones((1, len(n))), block_draws(len(n), seed, draws)])
    sums = np.tensordot(weights, n, 1)
    strata = sums.sum(1, keepdims=True)
    own = np.broadcast_to(np.eye(len(mapped)), sums.shape)
    shares = np.where(strata > 0, sums / np.maximum(strata, 1), own)
    areas = shares @ mapped * pixel_area
    width = stats.t.ppf((1 + CONFIDENCE) / 2, len(n) - 1) * areas[1:].std(0, ddof=1)
    missing = tuple(name for name, seen, there in zip(names, strata[0, 0], mapped, strict=False) if not seen and there)
    misses = np.array([((n[:, c].sum(1) - n[:, c, c]) > 0).sum() for c in range(len(mapped))])
    doubtful = tuple(name for name, blocks in zip(names, misses, strict=False) if blocks < FEW_MISSES)
    return AdjustedAreas(
        mapped * pixel_area, areas[0], np.maximum(areas[0] - width, 0), areas[0] + width, len(n), missing, doubtful
    )
