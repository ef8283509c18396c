"""The Disentanglement Score by nearest neighbours: how much better the best latent predicts a factor than the second.

Rolinek, Zietlow and Martius 2019; Spec 003, section 3.2. It belongs to the family of the mutual information gap, but
predicts by the five nearest neighbours on one coordinate, so continuous factors need no bins. On a line the neighbours
of a point lie next to its place in the sorted codes, so they are found exactly without any search structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.information import FloatArray
from polariscope.measures.measure import FactorMeasure, Invariance, measures
from polariscope.measures.score import IntArray, Score, Seed, as_labels, codes_and_factors, paired, split, top_two_gap
from polariscope.representation import Representation

Norm = Literal["headroom", "paper"]


def neighbour_score(
    codes: ArrayLike,
    factors: ArrayLike,
    k: int = 5,
    norm: Norm = "headroom",
    clip: bool = True,
    categorical: ArrayLike | None = None,
    seed: Seed = 0,
) -> Score:
    """Mean over factors of (A_best − A_second)/M, where A rates predictions by the k nearest neighbours on a latent.

    Spec 003, section 3.2. A continuous factor is regressed: A = std(v) − √mse, M = std(v). A categorical factor is
    classified: with ``norm="paper"``, A is the accuracy and M the accuracy of the best constant guess, as printed,
    which gives up to 2 for 3 equally frequent classes; with ``norm="headroom"`` the accuracy of the guess is subtracted
    from A, and M = 1 − guess. ``categorical`` has a truth value for each factor; by default floats of many values are
    continuous and all other factors categorical. Neighbours come from 80 % of the samples; the other 20 % are scored.

    Range [0, 1] with ``clip`` and headroom: 0 if no latent predicts, or two do equally well; 1 if one predicts
    perfectly and the others not at all. Without ``clip`` an uninformative latent has A = std(v)(1 − √(1+1/k)) < 0, and
    a perfect code scores 1.095 for k = 5 (eq. as printed). Bias: predictions from few samples are poor, so the score of
    a perfect continuous code rises to 1 as 1/samples.

    >>> rng = np.random.default_rng(0)
    >>> square = rng.uniform(size=(2000, 2))
    >>> turned = square @ [[0.7071, 0.7071], [-0.7071, 0.7071]]
    >>> bool(neighbour_score(square, square).value > 0.99), bool(neighbour_score(turned, square).value < 0.05)
    (True, True)
    """
    z, v = paired(codes, factors)
    if norm not in ("headroom", "paper"):
        raise ValueError(f"norm is 'headroom' or 'paper'; got {norm!r}")
    labels = as_labels(v)
    classes = ~labels.continuous if categorical is None else np.asarray(categorical, dtype=bool)
    if classes.shape != (v.shape[1],):
        raise ValueError(f"categorical needs one truth value for each of {v.shape[1]} factors; got {classes.shape}")
    rows, held = split(len(z), seed, train=max(1, int(0.8 * len(z))), test=max(1, len(z) - int(0.8 * len(z))))
    if not 1 <= k <= len(rows):
        raise ValueError(f"k needs to lie between 1 and the {len(rows)} training samples; got {k}")
    neighbours = rows[nearest_on_each_axis(z[rows], z[held], k)]
    advantage, scale = np.empty((z.shape[1], v.shape[1])), np.empty(v.shape[1])
    for column in range(v.shape[1]):
        if classes[column]:
            guess = labels.values[:, column] if not labels.continuous[column] else _numbered(v[:, column])
            accuracy = (_majority(guess[neighbours]) == guess[held, None]).mean(axis=0)
            constant = float(np.mean(guess[held] == np.bincount(guess[rows]).argmax()))
            scale[column] = 1 - constant if norm == "headroom" else constant
            advantage[:, column] = accuracy - constant if norm == "headroom" else accuracy
        else:
            target = v[:, column].astype(np.float64)
            scale[column] = target[held].std()
            error = target[neighbours].mean(axis=2) - target[held, None]
            advantage[:, column] = scale[column] - np.sqrt(np.mean(error**2, axis=0))
    if not np.all(scale > 0):
        raise ValueError(f"factors {np.flatnonzero(scale <= 0).tolist()} do not vary among the scored samples")
    table = np.maximum(advantage, 0.0) if clip else advantage
    gaps = top_two_gap(table) / scale
    settings = {
        "probe": f"{k} nearest neighbours",
        "norm": norm,
        "clip": clip,
        "seed": seed,
        "train": len(rows),
        "test": len(held),
        "regressed_factors": np.flatnonzero(~classes).tolist(),
    }
    protocol = f"{k} nearest neighbours, trained on {len(rows):,} examples and tested on {len(held):,}"
    return Score(float(gaps.mean()), gaps, table / scale, len(z), settings, protocol)


def _numbered(column: ArrayLike) -> IntArray:
    return np.asarray(np.unique(column, return_inverse=True)[1])


def nearest_on_each_axis(train: FloatArray, queries: FloatArray, k: int) -> IntArray:
    """Numbers (queries, latents, k) of the training rows nearest to each query on each coordinate by itself.

    Ties go to the row that comes first.
    """
    out = np.empty((len(queries), train.shape[1], k), dtype=np.int64)
    reach = np.arange(-k, k)
    for axis in range(train.shape[1]):
        order = np.argsort(train[:, axis], kind="stable")
        line = train[order, axis]
        place = np.searchsorted(line, queries[:, axis])[:, None] + reach
        inside = (place >= 0) & (place < len(line))
        place = np.clip(place, 0, len(line) - 1)
        distance = np.where(inside, np.abs(line[place] - queries[:, axis, None]), np.inf)
        picked = np.lexsort((order[place], distance), axis=1)[:, :k]
        out[:, axis] = order[np.take_along_axis(place, picked, axis=1)]
    return out


def _majority(labels: IntArray) -> IntArray:
    """The most frequent label along the last axis; ties go to the smallest."""
    labels = np.sort(labels, axis=-1)
    counts = (labels[..., :, None] == labels[..., None, :]).sum(axis=-1)
    return np.asarray(np.take_along_axis(labels, counts.argmax(axis=-1)[..., None], axis=-1)[..., 0])


@measures.register("neighbour-score")
@dataclass(frozen=True)
class NeighbourScore(FactorMeasure):
    """How much better nearest neighbours in the best single latent predict a factor than in the second best.

    Integer factors are classified, continuous ones regressed.
    """

    k: int = 5
    seed: int = 0

    title: ClassVar[str] = "Disentanglement Score (kNN)"
    invariant_to: ClassVar[tuple[Invariance, ...]] = ("permutation", "scale", "isotropic_scale", "translation")

    def __call__(self, representation: Representation) -> Score:
        codes, factors = codes_and_factors(representation)
        return neighbour_score(codes, factors, self.k, seed=self.seed)
