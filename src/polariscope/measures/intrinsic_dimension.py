"""Intrinsic dimension of a cloud of points, from the distances of nearest neighbours.

Near a point of a d-dimensional cloud, the number of neighbours grows as the d-th power of the distance; all estimates
here infer d from that growth. They need the same neighbours, so :func:`dimension_profile` searches once and estimates
many times. Spec 002, section 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.measures.neighbours import Array, Duplicates, Neighbours, nearest_neighbours

Average = Literal["mg", "lb"]
KS = (3, 5, 10, 20)


@dataclass(frozen=True)
class DimensionEstimate:
    """An intrinsic dimension and what it was computed on.

    ``samples`` is the number of samples without ``duplicates``; ``spread`` is the standard deviation over runs (0 for a
    single run). If k was chosen by a plateau, ``plateau`` lists the k with nearly the same estimate.
    """

    value: float
    method: Literal["mle", "twonn"]
    k: int
    samples: int
    duplicates: int
    spread: float = 0.0
    plateau: tuple[int, ...] = ()


@dataclass(frozen=True)
class DimensionProfile:
    """All estimates of one neighbour search: MLE at each k, MLE on the plateau, and TwoNN."""

    mle: tuple[DimensionEstimate, ...]
    stable: DimensionEstimate
    twonn: DimensionEstimate


def mle(
    x: Array,
    k: int = 20,
    average: Average = "mg",
    ddof: Literal[1, 2] = 1,
    anchor: float = 1.0,
    runs: int = 1,
    seed: int | np.random.Generator = 0,
    duplicates: Duplicates = "remove",
) -> DimensionEstimate:
    """Maximum-likelihood intrinsic dimension (Levina and Bickel, 2004) of samples ``x``.

    With T_j the distance of a sample to its j-th neighbour and S = Σ_{j<k} log(T_k / T_j), the estimate is
    ``average="mg"``: 1 / mean[S / (k - ddof)] (MacKay and Ghahramani, 2005), or
    ``average="lb"``: mean[(k - ddof) / S] (Levina and Bickel).

    ===========  ==========================================  ======================
    variant      used by                                     bias factor
    ===========  ==========================================  ======================
    mg, ddof 1   the default                                 1
    lb, ddof 2   the unbiased form of Levina and Bickel      1
    lb, ddof 1   Levina and Bickel as printed                (k - 1) / (k - 2)
    mg, ddof 2   the code behind Bonheme's results (2023)    (k - 2) / (k - 1)
    ===========  ==========================================  ======================

    ``anchor`` is the fraction of samples whose neighbourhoods are averaged in each of ``runs`` random draws (their
    neighbours are searched among all samples); the value is the mean over runs. Bonheme's setting is ``anchor=0.8,
    runs=5``. Source: spec 002, sections 11.1 and 11.2.

    Range: (0, ∞). Values near 0 mean that the samples lie in tight clusters. There is no maximum; on a finite sample
    the number of features is not a bound. Known bias: above about five dimensions the boundary of the cloud makes the
    estimate too small (14.6 for 5 000 samples of a uniform 20-cube), besides the bias factor in the table.

    >>> line = np.random.default_rng(0).uniform(size=(2000, 1)) @ np.ones((1, 30))
    >>> round(mle(line, k=20).value, 1)
    1.0
    """
    _check_variant([k], average, ddof)
    neighbours = nearest_neighbours(x, k, duplicates)
    return _mle_at(neighbours, k, average, ddof, _draws(neighbours.samples, anchor, runs, seed))


def mle_from_distances(distances: ArrayLike, average: Average = "mg", ddof: Literal[1, 2] = 1) -> float:
    """:func:`mle` from sorted neighbour distances ``(samples, k)``.

    >>> round(mle_from_distances([[1.0, 1.0, 2.0]]), 4)
    1.4427
    """
    distances = np.asarray(distances, dtype=np.float64)
    if distances.ndim != 2:
        raise ValueError(f"distances need shape (samples, k); got {distances.shape}")
    if not (np.isfinite(distances).all() and (distances > 0).all() and (np.diff(distances, axis=1) >= 0).all()):
        raise ValueError("distances need to be positive, finite and ascending along each row")
    _check_variant([distances.shape[1]], average, ddof)
    return _mean_dimension(_log_ratios(distances), distances.shape[1], average, ddof)


def twonn(x: Array, anchor: float = 0.9, duplicates: Duplicates = "remove") -> DimensionEstimate:
    """Intrinsic dimension from the two nearest neighbours alone (TwoNN: Facco, d'Errico, Rodriguez and Laio, 2017).

    The ratios r = T_2 / T_1 follow a Pareto law with exponent d, so -log(1 - F(r)) = d log r. The line through the
    origin is fitted to the smallest ``anchor`` of the ratios, with F the rank (from 0) over the number of samples:
    d = Σ xy / Σ x². Source: spec 002, section 11.3.

    Range: (0, ∞). Near 0, the second neighbour is often much farther than the first (clusters of two); there is no
    maximum. Known bias: from five dimensions on, the boundary of the cloud makes the estimate too small (8.8 for 5 000
    samples of a uniform 10-cube); outliers and high dimensions of real data make it too large, so use :func:`mle` for
    such data.

    >>> plane = np.random.default_rng(0).uniform(size=(2000, 2))
    >>> round(twonn(plane).value, 1)
    2.0
    """
    return _twonn_of(nearest_neighbours(x, 2, duplicates), anchor)


def stable_mle(
    x: Array,
    ks: Sequence[int] = KS,
    tolerance: float = 0.1,
    average: Average = "mg",
    ddof: Literal[1, 2] = 1,
    duplicates: Duplicates = "remove",
) -> DimensionEstimate:
    """The :func:`mle` on its plateau, where it does not depend on the number of neighbours.

    The plateau is the longest run of consecutive ``ks`` whose estimates differ by at most ``tolerance`` times the
    largest (of equally long runs, the one with larger k); the value is the estimate at its largest k. If no two
    consecutive k agree, ``plateau`` has a single k: the dimension depends on the scale, and one number does not
    describe it. Formula, range and bias are those of :func:`mle`. Source: spec 002, section 11.1.

    >>> plane = np.random.default_rng(0).uniform(size=(2000, 2))
    >>> estimate = stable_mle(plane)
    >>> estimate.plateau, round(estimate.value)
    ((3, 5, 10, 20), 2)
    """
    return dimension_profile(x, ks, tolerance=tolerance, average=average, ddof=ddof, duplicates=duplicates).stable


def dimension_profile(
    x: Array,
    ks: Sequence[int] = KS,
    average: Average = "mg",
    ddof: Literal[1, 2] = 1,
    anchor: float = 1.0,
    runs: int = 1,
    tolerance: float = 0.1,
    twonn_anchor: float = 0.9,
    seed: int | np.random.Generator = 0,
    duplicates: Duplicates = "remove",
) -> DimensionProfile:
    """:func:`mle` at every k, :func:`stable_mle` and :func:`twonn` from a single neighbour search.

    Formulas, ranges and biases are those of the three functions. If the estimates disagree, the dimension depends on
    the scale. Source: spec 002, section 11.

    >>> profile = dimension_profile(np.random.default_rng(0).normal(size=(2000, 3)) @ np.eye(3, 20))
    >>> [round(e.value) for e in profile.mle], round(profile.twonn.value)
    ([3, 3, 3, 3], 3)
    """
    ks = sorted(set(ks))
    if not ks:
        raise ValueError("ks is empty: name at least one number of neighbours")
    _check_variant(ks, average, ddof)
    neighbours = nearest_neighbours(x, max(ks[-1], 2), duplicates)
    draws = _draws(neighbours.samples, anchor, runs, seed)
    estimates = tuple(_mle_at(neighbours, k, average, ddof, draws) for k in ks)
    return DimensionProfile(estimates, _on_plateau(estimates, tolerance), _twonn_of(neighbours, twonn_anchor))


def plateau(values: Sequence[float], tolerance: float = 0.1) -> slice:
    """The longest stretch of ``values`` within ``tolerance`` of its largest value; the later of equally long ones.

    >>> plateau([9.0, 5.1, 5.0, 4.9])
    slice(1, 4, None)
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is a fraction from 0 up to 1; got {tolerance}")
    stretches = [
        (stop - start, stop)
        for stop in range(1, len(values) + 1)
        for start in range(stop)
        if max(values[start:stop]) - min(values[start:stop]) <= tolerance * max(values[start:stop])
    ]
    length, stop = max(stretches)
    return slice(stop - length, stop)


def _on_plateau(estimates: tuple[DimensionEstimate, ...], tolerance: float) -> DimensionEstimate:
    flat = estimates[plateau([e.value for e in estimates], tolerance)]
    last = flat[-1]
    agreeing = tuple(e.k for e in flat)
    return DimensionEstimate(last.value, "mle", last.k, last.samples, last.duplicates, last.spread, agreeing)


def _mle_at(
    neighbours: Neighbours, k: int, average: Average, ddof: Literal[1, 2], draws: Sequence[NDArray[np.int64] | slice]
) -> DimensionEstimate:
    ratios = _log_ratios(neighbours.distances[:, :k])
    values = [_mean_dimension(ratios[draw], k, average, ddof) for draw in draws]
    return DimensionEstimate(
        float(np.mean(values)), "mle", k, neighbours.samples, neighbours.duplicates, spread=float(np.std(values))
    )


def _twonn_of(neighbours: Neighbours, anchor: float) -> DimensionEstimate:
    if not 0 < anchor < 1:
        raise ValueError(f"the anchor of TwoNN is a fraction between 0 and 1, both excluded; got {anchor}")
    ratios = np.sort(np.log(neighbours.distances[:, 1] / neighbours.distances[:, 0]))
    # The largest ratios are the least certain and weigh most in Σx²: they are left out.
    x = ratios[: max(2, int(anchor * len(ratios)))]
    y = -np.log1p(-np.arange(len(x)) / len(ratios))
    squares = float(x @ x)
    if squares == 0.0:
        raise ValueError(
            "TwoNN is undefined: first and second neighbours are equally far for every sample kept, as on a regular "
            "grid; use mle with a larger k"
        )
    return DimensionEstimate(float(x @ y) / squares, "twonn", 2, neighbours.samples, neighbours.duplicates)


def _log_ratios(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ_{j<k} log(T_k / T_j) for every sample."""
    logs = np.log(distances)
    total: NDArray[np.float64] = (logs[:, -1:] - logs[:, :-1]).sum(axis=1)
    return total


def _mean_dimension(ratios: NDArray[np.float64], k: int, average: Average, ddof: int) -> float:
    if average == "mg":
        if not ratios.any():
            raise ValueError(f"the dimension is undefined: all {k} neighbours of every sample are equally far")
        return float((k - ddof) / ratios.mean())
    tied = int((ratios == 0).sum())
    if tied:
        raise ValueError(
            f"the Levina-Bickel average is infinite: {tied} samples have all {k} neighbours at the same distance; use "
            "average='mg' or a larger k"
        )
    return float(((k - ddof) / ratios).mean())


def _draws(
    samples: int, anchor: float, runs: int, seed: int | np.random.Generator
) -> Sequence[NDArray[np.int64] | slice]:
    if not 0 < anchor <= 1 or runs < 1:
        raise ValueError(f"anchor is a fraction in (0, 1] and runs at least 1; got anchor {anchor} and {runs} runs")
    if anchor == 1:
        return [slice(None)]  # every run would see the same samples
    rng = np.random.default_rng(seed)
    return [rng.choice(samples, max(1, int(anchor * samples)), replace=False) for _ in range(runs)]


def _check_variant(ks: Sequence[int], average: str, ddof: int) -> None:
    if average not in ("mg", "lb") or ddof not in (1, 2):
        raise ValueError(f"average is 'mg' or 'lb' and ddof 1 or 2; got {average!r} and {ddof}")
    if min(ks) <= ddof:
        raise ValueError(f"ddof {ddof} needs k of at least {ddof + 1}; got {min(ks)}")
