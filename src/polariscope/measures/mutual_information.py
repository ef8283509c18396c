"""Mutual information between a continuous variable and a discrete label, from nearest neighbours of each label.

Studies of compression ask how much information a principal component of a kernel has about the class (Paccolat et al.
2021, appendix D; Spec 004, section 5.6). The density of each class at a sample is estimated from the distance to the
k-th neighbour in that class. With a finite k, the estimate for independent variables is not 0 but a known floor.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma, entr, logsumexp

from polariscope.measures.information import as_array, observations

FloatArray = NDArray[np.float64]
Debias = Literal["none", "formula", "permutation"]
DEBIAS = ("none", "formula", "permutation")
TIE = 1e-12
"""Smallest distance, as a share of the spread; smaller ones are set to it, since ties have no ratio of distances."""


def label_information(
    x: ArrayLike,
    labels: ArrayLike,
    k: int = 5,
    debias: Debias = "none",
    *,
    permutations: int = 10,
    seed: int | np.random.Generator = 0,
) -> float:
    """I(x; y) = H(y) − E H(y|x) in bits, with p(y|x) ∝ r_y(x)^−d, r_y the distance to the k-th neighbour labelled y.

    ``x`` is ``(samples,)`` or ``(samples, d)``. A sample is not its own neighbour. Class sizes enter through the
    neighbours, so labels need not be balanced. Paccolat et al. 2021, appendix D (two balanced classes, k = 5);
    Spec 004, section 5.6.

    Range: up to H(y) if x determines y, which is one bit for two balanced classes. Near the floor (0.069 for two
    classes and k = 5, see :func:`information_floor`) x has no information about y. ``debias`` subtracts the floor: by
    its ``"formula"`` (two classes), or as the mean over ``permutations`` of the labels, for any classes and samples;
    the result can then be slightly below 0. Bias besides the floor: too low by O(k / samples) if x determines y. In
    many dimensions all distances become similar; if the data has fewer dimensions than x has columns, p(y|x) is too
    extreme. Invariant to shifts, scales and renamed labels, and nearly invariant to monotone maps.

    >>> x = np.linspace(-1, 1, 2000)
    >>> round(label_information(x, x > 0), 2)
    0.91
    """
    if debias not in DEBIAS:
        raise ValueError(f"debias is one of {', '.join(DEBIAS)}; got {debias!r}")
    points, classes = _checked(x, labels, k)
    value = _information(points, classes, k)
    if debias == "formula":
        if classes.max() != 1:
            raise ValueError(f"the formula of the floor is for two classes; got {classes.max() + 1}: use 'permutation'")
        return value - information_floor(k)
    if debias == "permutation":
        return value - _permuted(points, classes, k, permutations, seed)
    return value


def information_floor(k: int = 5) -> float:
    """The value of the estimator in bits, for many samples, if x and two balanced classes are independent.

    The estimated p(y|x) then follows Beta(k, k), whose mean entropy is (ψ(2k+1) − ψ(k+1)) / ln 2. Spec 004, 5.6.

    >>> round(information_floor(5), 6)
    0.068546
    """
    if k < 1:
        raise ValueError(f"k is {k}: at least 1 neighbour is needed")
    return float(1 - (digamma(2 * k + 1) - digamma(k + 1)) / np.log(2))


def permutation_floor(
    x: ArrayLike, labels: ArrayLike, k: int = 5, permutations: int = 10, seed: int | np.random.Generator = 0
) -> float:
    """The floor for this sample, for any number and size of classes: the mean over shuffled labels, in bits."""
    return _permuted(*_checked(x, labels, k), k, permutations, seed)


def _permuted(
    points: FloatArray, classes: NDArray[np.int64], k: int, permutations: int, seed: int | np.random.Generator
) -> float:
    if permutations < 1:
        raise ValueError(f"permutations is {permutations}: at least 1 is needed")
    rng = np.random.default_rng(seed)
    return float(np.mean([_information(points, rng.permutation(classes), k) for _ in range(permutations)]))


def _information(points: FloatArray, classes: NDArray[np.int64], k: int) -> float:
    counts = np.bincount(classes)
    logits = np.empty((len(points), len(counts)))
    tied = np.zeros_like(logits, dtype=bool)
    for label in range(len(counts)):
        # One neighbour more, because a sample finds itself (or a twin, which is as near) first among its own class.
        distances = cKDTree(points[classes == label]).query(points, k=[k, k + 1])[0]
        nearest = np.where(classes == label, distances[:, 1], distances[:, 0])
        logits[:, label], tied[:, label] = -points.shape[1] * np.log(nearest + TIE), nearest == 0
    some = tied.any(axis=1)
    if some.any():  # k samples that are equal say by their numbers, and not by their distances, which class is likely
        _, number = np.unique(points, axis=0, return_inverse=True)
        equal = np.zeros((number.max() + 1, len(counts)))
        np.add.at(equal, (number.ravel(), classes), 1)
        logits[some] = np.log(np.where(tied[some], equal[number.ravel()[some]], TIE))
    posterior = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    nats = entr(counts / len(points)).sum() - entr(posterior).sum(axis=1).mean()
    return float(nats / np.log(2))


def _checked(x: ArrayLike, labels: ArrayLike, k: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Points of spread 1 and classes 0, 1, ... with enough members."""
    values = as_array(x)
    points = observations(values[:, None] if values.ndim == 1 else values)
    names, classes = np.unique(as_array(labels), return_inverse=True)
    if classes.shape != (len(points),):
        raise ValueError(f"{len(points)} samples need as many labels, in one column; got shape {classes.shape}")
    if k < 1:
        raise ValueError(f"k is {k}: at least 1 neighbour is needed")
    if len(names) < 2:
        raise ValueError(f"the labels are all {names[0]}: information about them needs at least 2 classes")
    fewest = int(np.bincount(classes).min())
    if fewest <= k:
        raise ValueError(f"the smallest class has {fewest} samples; {k} neighbours need more than {k} in each")
    centred = points - points.mean(axis=0)
    spread = float(np.sqrt(np.square(centred).sum(axis=1).mean()))
    if spread <= 1e-13 * np.abs(points).max():
        raise ValueError("the information of a constant variable has no estimate: all samples are equal")
    return centred / spread, classes.astype(np.int64)
