"""Separated attribute predictability: how much better the best latent predicts a factor than the second best.

Kumar, Sattigeri and Balakrishnan 2018; Spec 001a, section 5.7. The published score trains a linear support vector
machine for every latent, factor and value, each on one number per sample. Such a machine has two parameters, and the
samples inside its margin are a stretch of the sorted codes, so running sums give its gradient and Hessian without
touching the samples: all machines of a factor are solved to the exact optimum at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.information import FloatArray
from polariscope.measures.measure import Invariance, Measure, Need, measures
from polariscope.measures.score import (
    TEST,
    TRAIN,
    IntArray,
    Score,
    Seed,
    as_labels,
    codes_and_factors,
    paired,
    split,
    top_two_gap,
)
from polariscope.representation import Representation


def sap(
    codes: ArrayLike,
    factors: ArrayLike,
    penalty: float = 0.01,
    balanced: bool = True,
    seed: Seed = 0,
    train: int = TRAIN,
    test: int = TEST,
) -> Score:
    """Mean over factors of best − second best latent's accuracy in predicting the factor by a linear SVM.

    Kumar et al. 2018; Spec 001a, section 5.7: one machine against the rest for each value (squared hinge, ``penalty``
    C = 0.01, balanced weights), accuracy on held-out samples. For a continuous factor the table holds the squared
    correlation instead, as published. The machines are those of LIBLINEAR, to the exact optimum where it stops early.
    Range [0, 1], but far from 1 even for a perfect code: a line per value cannot single out the middle of an ordered
    factor, and the regularisation makes the score depend on the latents' scale. The factors themselves score about 0.21
    to 0.24 on dSprites, 0.5 if all factors are binary.

    >>> factors = np.stack(np.unravel_index(np.arange(4000) % 8, (2, 2, 2)), axis=1)
    >>> round(sap(2.0 * factors - 1, factors).value, 1)
    0.5
    """
    z, v = paired(codes, factors)
    if not penalty > 0:
        raise ValueError(f"penalty is C of the support vector machine and needs to be positive; got {penalty}")
    labels = as_labels(v)
    rows, held = split(len(z), seed, train, test)
    table = np.empty((z.shape[1], v.shape[1]))
    for k in range(v.shape[1]):
        if labels.continuous[k]:
            table[:, k] = _squared_correlation(z, v[:, k].astype(np.float64))
            continue
        slope, offset = linear_svms(z[rows], labels.values[rows, k], int(labels.sizes[k]), penalty, balanced)
        guess = np.argmax(z[held][:, :, None] * slope + offset, axis=2)
        table[:, k] = (guess == labels.values[held, k, None]).mean(axis=0)
    gaps = top_two_gap(table)
    settings = {
        "probe": "linear SVM, exact",
        "penalty": penalty,
        "balanced": balanced,
        "seed": seed,
        "train": len(rows),
        "test": len(held),
        "correlated_factors": np.flatnonzero(labels.continuous).tolist(),
    }
    return Score(float(gaps.mean()), gaps, table, len(rows) + len(held), settings)


def _squared_correlation(z: FloatArray, v: FloatArray) -> FloatArray:
    centred, target = z - z.mean(axis=0), v - v.mean()
    norms = np.linalg.norm(centred, axis=0) * np.linalg.norm(target)
    return np.asarray((target @ centred / np.where(norms > 0, norms, 1.0)) ** 2)


def linear_svms(
    z: FloatArray, labels: IntArray, classes: int, penalty: float, balanced: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Slopes and offsets (latents, classes) of the one-against-rest linear SVMs on each latent by itself.

    Minimises ½(w² + b²) + C Σ_i c_i max(0, 1 − y_i (w x_i + b))², the objective of LIBLINEAR's L2-loss machine, whose
    balanced weights c = n/(classes · n_class) fall on the positive side (on both, where there are two classes).
    Classes without samples get the offset −inf. Newton's method with step halving, all machines side by side.
    """
    samples, counts = len(z), np.bincount(labels, minlength=classes)
    present = counts > 0
    weight = samples / (present.sum() * np.maximum(counts, 1)) if balanced else np.ones(classes)
    against = weight[::-1] if classes == 2 else np.ones(classes)
    ends = np.cumsum(counts)
    inside, everywhere = _RunningSums(z, np.lexsort((z.T, np.broadcast_to(labels, z.T.shape)), axis=1)), _RunningSums(z)

    def margin_moments(w: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Σ1, Σx, Σx² over the positive and the negative samples that are not beyond their margin."""
        with np.errstate(divide="ignore", invalid="ignore"):
            upper = np.where(w == 0, np.where(b < 1, np.inf, -np.inf), (1 - b) / w)
            lower = np.where(w == 0, np.where(b > -1, -np.inf, np.inf), (-1 - b) / w)
        rising = w >= 0
        positive = inside.below(upper, ends - counts, ends)
        positive = np.where(rising, positive, inside.below(np.full_like(w, np.inf), ends - counts, ends) - positive)
        start, stop = np.zeros(classes, dtype=np.int64), np.full(classes, samples)
        negative = everywhere.below(lower, start, stop) - inside.below(lower, ends - counts, ends)
        total = everywhere.total[:, :, None] - inside.below(np.full_like(w, np.inf), ends - counts, ends)
        return positive, np.where(rising, total - negative, negative)

    def objective(w: FloatArray, b: FloatArray) -> FloatArray:
        p, n = margin_moments(w, b)
        squares = [
            m[0] + w**2 * m[2] + b**2 * m[0] + 2 * w * b * m[1] + sign * 2 * (w * m[1] + b * m[0])
            for m, sign in ((p, -1), (n, 1))
        ]
        return np.asarray((w**2 + b**2) / 2 + penalty * (weight * squares[0] + against * squares[1]))

    w, b = np.zeros((z.shape[1], classes)), np.zeros((z.shape[1], classes))
    value = objective(w, b)
    for _ in range(100):
        step_w, step_b, slope = _newton_step(w, b, *margin_moments(w, b), weight, against, penalty)
        if slope.max() <= 1e-10 * max(1.0, float(value.max())):
            break
        value = _descend(objective, w, b, step_w, step_b, value)
    return w, np.where(present, b, -np.inf)


def _newton_step(
    w: FloatArray,
    b: FloatArray,
    positive: FloatArray,
    negative: FloatArray,
    weight: FloatArray,
    against: FloatArray,
    penalty: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The Newton direction of every machine, and how steeply the objective falls along it."""
    s0, s1, s2 = 2 * penalty * (weight * positive + against * negative)
    pull0, pull1 = 2 * penalty * (weight * positive - against * negative)[:2]
    gradient_w = w + w * s2 + b * s1 - pull1
    gradient_b = b + w * s1 + b * s0 - pull0
    a, d = 1 + s2, 1 + s0
    determinant = a * d - s1**2
    step_w = (d * gradient_w - s1 * gradient_b) / determinant
    step_b = (a * gradient_b - s1 * gradient_w) / determinant
    return step_w, step_b, gradient_w * step_w + gradient_b * step_b


def _descend(
    objective: Callable[[FloatArray, FloatArray], FloatArray],
    w: FloatArray,
    b: FloatArray,
    step_w: FloatArray,
    step_b: FloatArray,
    value: FloatArray,
) -> FloatArray:
    """Go along the steps, halved until no objective rises; changes ``w`` and ``b`` in place."""
    length = np.ones_like(w)
    for _ in range(30):
        reached = objective(w - length * step_w, b - length * step_b)
        worse = reached > value
        if not worse.any():
            break
        length[worse] /= 2
    length[worse] = 0.0
    w -= length * step_w
    b -= length * step_b
    return np.where(worse, value, reached)


class _RunningSums:
    """Σ1, Σx, Σx² over the leading part of stretches of codes sorted within each stretch."""

    def __init__(self, z: FloatArray, order: IntArray | None = None) -> None:
        self.x = np.sort(z.T, axis=1) if order is None else np.take_along_axis(z.T, order, axis=1)
        powers = np.stack([np.ones_like(self.x), self.x, self.x**2])
        self.sums = np.concatenate([np.zeros((3, len(self.x), 1)), np.cumsum(powers, axis=2)], axis=2)
        self.total = self.sums[:, :, -1]
        self._row = np.arange(len(self.x))[:, None]

    def below(self, threshold: FloatArray, start: IntArray, stop: IntArray) -> FloatArray:
        """(3, latents, classes): sums over x < threshold within ``start`` to ``stop``, found by bisection."""
        low = np.broadcast_to(start, threshold.shape).copy()
        high = np.broadcast_to(stop, threshold.shape).copy()
        for _ in range(int(self.x.shape[1]).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            before = open_ & (self.x[self._row, np.minimum(middle, self.x.shape[1] - 1)] < threshold)
            low = np.where(before, middle + 1, low)
            high = np.where(open_ & ~before, middle, high)
        return np.asarray(self.sums[:, self._row, low] - self.sums[:, self._row, start])


@measures.register("sap")
@dataclass(frozen=True)
class SAP(Measure):
    """:func:`sap` of the means."""

    seed: int = 0

    title: ClassVar[str] = "SAP"
    needs: ClassVar[tuple[Need, ...]] = ("factors",)
    high: ClassVar[float] = 1.0
    higher_is_better: ClassVar[bool | None] = True
    invariant_to: ClassVar[tuple[Invariance, ...]] = ("permutation", "sign")

    def __call__(self, representation: Representation) -> float:
        return sap(*codes_and_factors(representation), seed=self.seed).value
