"""Separated attribute predictability: how much better the best latent predicts a factor than the second best.

Kumar, Sattigeri and Balakrishnan 2018; Spec 001a, section 5.7. The published score trains a linear support vector
machine for every latent, factor and value, each on one number per sample. Such a machine has two parameters, and the
samples inside its margin are consecutive in the sorted codes. Cumulative sums therefore give its gradient and Hessian
without a pass over the samples, and all machines of a factor are solved to the exact optimum together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.information import FloatArray
from polariscope.measures.measure import FactorMeasure, Invariance, measures
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
    split_words,
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
    correlation instead, as published. The machines minimise LIBLINEAR's objective, to the exact optimum; LIBLINEAR may
    stop early. Range [0, 1], but far below 1 even for a perfect code: a threshold cannot separate a middle value of an
    ordered factor from the others, and the regularisation makes the score depend on the scale of the latents. Used as
    codes, the factors of dSprites score about 0.21 to 0.24, and binary factors 0.5.

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
    weights = "balanced" if balanced else "unbalanced"
    protocol = f"linear SVMs (C = {penalty:g}, {weights}), {split_words(len(rows), len(held))}"
    return Score(float(gaps.mean()), gaps, table, len(rows) + len(held), settings, protocol)


def _squared_correlation(z: FloatArray, v: FloatArray) -> FloatArray:
    centred, target = z - z.mean(axis=0), v - v.mean()
    norms = np.linalg.norm(centred, axis=0) * np.linalg.norm(target)
    return np.asarray((target @ centred / np.where(norms > 0, norms, 1.0)) ** 2)


def linear_svms(
    z: FloatArray, labels: IntArray, classes: int, penalty: float, balanced: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Slopes and offsets (latents, classes) of the one-against-rest linear SVMs on each latent by itself.

    Minimises ½(w² + b²) + C Σ_i c_i max(0, 1 − y_i (w x_i + b))², the objective of LIBLINEAR's L2-loss machine, whose
    balanced weights c = n/(classes · n_class) apply to the positive side (to both sides if there are two classes).
    Classes without samples get the offset −inf. Newton's method with step halving, all machines side by side.
    """
    counts = np.bincount(labels, minlength=classes)
    present = counts > 0
    weight = len(z) / (present.sum() * np.maximum(counts, 1)) if balanced else np.ones(classes)
    against = weight[::-1] if classes == 2 else np.ones(classes)
    ends = np.cumsum(counts)
    by_class = np.lexsort((z.T, np.broadcast_to(labels, z.T.shape)), axis=1)
    own = _RunningSums(np.take_along_axis(z.T, by_class, axis=1), ends - counts, ends)
    whole = _RunningSums(np.sort(z.T, axis=1), np.zeros_like(counts), np.full_like(counts, len(z)))

    def evaluate(w: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The objective, and Σ1, Σx, Σx² over the positive and negative samples not beyond their margin."""
        with np.errstate(divide="ignore", invalid="ignore"):
            upper = np.where(w == 0, np.where(b < 1, np.inf, -np.inf), (1 - b) / w)
            lower = np.where(w == 0, np.where(b > -1, -np.inf, np.inf), (-1 - b) / w)
        positive, negative = own.below(upper), whole.below(lower) - own.below(lower)
        positive = np.where(w >= 0, positive, own.total - positive)
        negative = np.where(w >= 0, whole.total - own.total - negative, negative)
        value = (w**2 + b**2) / 2
        for moments, share, sign in ((positive, weight, -1), (negative, against, 1)):
            s0, s1, s2 = moments
            value = value + penalty * share * (
                s0 * (1 + b**2) + s2 * w**2 + 2 * w * b * s1 + 2 * sign * (w * s1 + b * s0)
            )
        return np.asarray(value), positive, negative

    w, b = np.zeros((z.shape[1], classes)), np.zeros((z.shape[1], classes))
    value, positive, negative = evaluate(w, b)
    for _ in range(100):
        step_w, step_b, fall = _newton_step(w, b, positive, negative, weight, against, penalty)
        if fall.max() <= 1e-12 * value.max():
            break
        length = np.ones_like(w)
        for _ in range(30):
            trial = evaluate(w - length * step_w, b - length * step_b)
            worse = trial[0] > value * (1 + 1e-12)
            if not worse.any():
                break
            length[worse] /= 2
        w, b = w - length * step_w, b - length * step_b
        value, positive, negative = trial
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
    """The Newton direction of every machine, and the slope of the objective along it."""
    s0, s1, s2 = 2 * penalty * (weight * positive + against * negative)
    pull0, pull1 = 2 * penalty * (weight * positive - against * negative)[:2]
    gradient_w = w + w * s2 + b * s1 - pull1
    gradient_b = b + w * s1 + b * s0 - pull0
    a, d = 1 + s2, 1 + s0
    determinant = a * d - s1**2
    step_w = (d * gradient_w - s1 * gradient_b) / determinant
    step_b = (a * gradient_b - s1 * gradient_w) / determinant
    return step_w, step_b, gradient_w * step_w + gradient_b * step_b


class _RunningSums:
    """Σ1, Σx, Σx² over the smallest codes of each class; codes (latents, samples) are sorted within each class."""

    def __init__(self, x: FloatArray, start: IntArray, stop: IntArray) -> None:
        self.x, self.start, self.stop = x, start, stop
        self._row = np.arange(len(x))[:, None]
        powers = np.stack([np.ones_like(x), x, x**2])
        self._sums = np.concatenate([np.zeros((3, len(x), 1)), np.cumsum(powers, axis=2)], axis=2)
        self.total = self._sums[:, :, stop] - self._sums[:, :, start]

    def below(self, threshold: FloatArray) -> FloatArray:
        """(3, latents, classes): the sums over x < threshold (latents, classes), by bisection."""
        low = np.broadcast_to(self.start, threshold.shape)
        high = np.broadcast_to(self.stop, threshold.shape)
        for _ in range(int((self.stop - self.start).max()).bit_length()):
            middle = (low + high) // 2
            # Once low meets high, x[middle] may belong to the next stretch and must not move them.
            before = (self.x[self._row, np.minimum(middle, self.x.shape[1] - 1)] < threshold) & (low < high)
            low, high = np.where(before, middle + 1, low), np.where(before, high, middle)
        return np.asarray(self._sums[:, self._row, low] - self._sums[:, :, self.start])


@measures.register("sap")
@dataclass(frozen=True)
class SAP(FactorMeasure):
    """How much better the best single latent predicts a factor linearly than the second best, from 0 to 1."""

    seed: int = 0

    title: ClassVar[str] = "SAP"
    invariant_to: ClassVar[tuple[Invariance, ...]] = ("permutation", "sign")

    def __call__(self, representation: Representation) -> Score:
        return sap(*codes_and_factors(representation), seed=self.seed)
