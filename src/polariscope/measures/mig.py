"""Mutual information gap: is each factor encoded in one latent only? Also in polar coordinates of two latents.

Chen et al. 2018; Spec 001a, section 5.4; Spec 003, sections 3.3 and E4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.information import (
    Correction,
    FloatArray,
    discrete_entropy,
    discretise,
    mutual_information,
)
from polariscope.measures.measure import FactorMeasure, Invariance, measures
from polariscope.measures.score import IntArray, Score, as_labels, binned_words, codes_and_factors, paired, top_two_gap
from polariscope.representation import Representation


def mig(codes: ArrayLike, factors: ArrayLike, bins: int = 20, correction: Correction = "none") -> Score:
    """Mean over factors of [I(z_best; v) − I(z_second; v)] / H(v), latents cut into ``bins`` equal widths.

    Chen et al. 2018; Spec 001a, section 5.4. Continuous factors are cut into as many bins (the settings name them),
    since a differential entropy cannot normalise the gap.
    Range [0, 1]: 0 if no latent has information about a factor, or if two have equally much; 1 if each factor is
    determined by one latent and the others have no information about it. A factor with more values than bins cannot
    score 1: see :func:`mig_ceiling`. Bias: the estimated information of an unrelated latent about a factor of K values
    is (K−1)(bins−1)/(2 samples) nats, so scores of small samples differ; ``correction="miller_madow"`` removes most of
    it.

    >>> factors = np.stack(np.unravel_index(np.arange(60), (3, 4, 5)), axis=1)
    >>> mig(factors, factors).value, mig(factors[:, [0, 0, 1, 2]], factors).per_factor.tolist()
    (1.0, [0.0, 1.0, 1.0])
    """
    z, v = paired(codes, factors)
    labels = as_labels(v, bins)
    information = mutual_information(discretise(z, bins), labels.values, correction)
    gaps = top_two_gap(information) / discrete_entropy(labels.values)
    binned = np.flatnonzero(labels.continuous).tolist()
    settings = {"bins": bins, "correction": correction, "binned_factors": binned}
    protocol = binned_words(len(z), bins, correction, binned)
    return Score(float(gaps.mean()), gaps, information, len(z), settings, protocol)


def mig_ceiling(sizes: Sequence[int], bins: int = 20) -> FloatArray:
    """The MIG of the factors used as codes, for each factor, on the full grid of factors of these sizes.

    H(binned position)/H(position): 1 for at most ``bins`` positions, less if several positions fall into one bin.

    >>> mig_ceiling([3, 6, 40, 32, 32]).round(4).tolist()   # dSprites, 0.9024 in the mean
    [1.0, 1.0, 0.8121, 0.85, 0.85]
    """
    if not len(sizes) or min(sizes) < 2:
        raise ValueError(f"sizes needs factors of at least 2 values each; got {list(sizes)}")
    binned = [discretise(np.arange(size, dtype=float)[:, None], bins) for size in sizes]
    return np.array([float(discrete_entropy(b)[0] / np.log(len(b))) for b in binned])


@dataclass(frozen=True, eq=False)
class PolarCodes:
    """For every pair of latents, its MIG for two factors, in Cartesian and in polar coordinates."""

    pairs: IntArray
    """(pairs, 2) numbers of the latents."""
    factors: IntArray
    """(pairs, 2) numbers of the two factors of each pair."""
    cartesian: FloatArray
    polar: FloatArray
    margin: float
    samples: int

    @property
    def polar_pairs(self) -> IntArray:
        """The pairs of latents with a polar code: polar coordinates raise the MIG by more than ``margin``."""
        return self.pairs[self.polar - self.cartesian > self.margin]


def polar_mig(codes: ArrayLike, factors: ArrayLike, bins: int = 20, margin: float = 0.2) -> PolarCodes:
    """Search for factors that are encoded as angle and radius of two latents; axis-wise scores call these entangled.

    The MIG of each pair of latents is compared with the MIG of its radius and angle about a fitted centre
    (:func:`ring_centre`), both for the two factors about which radius and angle have most information. Angles start at
    their widest gap, so that no value of a factor lies at both ends. Spec 003, section E4.4, which reports such codes
    for hue and orientation. Range of either value [0, 1], as for :func:`mig`.

    >>> hue, radius = np.divmod(np.arange(150), 15)
    >>> angle, r = 2 * np.pi * hue / 10, 1 + radius / 14
    >>> code = np.column_stack([r * np.cos(angle), r * np.sin(angle)])
    >>> polar_mig(code, np.column_stack([hue, radius])).polar_pairs.tolist()
    [[0, 1]]
    """
    z, v = paired(codes, factors, least_factors=2)
    if z.shape[1] < 2:
        raise ValueError("polar coordinates need at least 2 latents; got 1")
    labels = as_labels(v, bins).values
    entropy = discrete_entropy(labels)
    a, b = np.triu_indices(z.shape[1], k=1)
    radius, angle = np.stack([_polar(z[:, pair], labels) for pair in zip(a, b, strict=True)], axis=-1)
    straight = mutual_information(discretise(z, bins), labels) / entropy
    around = np.stack([mutual_information(discretise(c, bins), labels) / entropy for c in (radius, angle)])
    known = np.argsort(around.max(axis=0), axis=1)[:, :-3:-1]
    cartesian = np.take_along_axis(np.abs(straight[a] - straight[b]), known, axis=1).mean(axis=1)
    polar = np.take_along_axis(np.abs(around[0] - around[1]), known, axis=1).mean(axis=1)
    return PolarCodes(np.column_stack([a, b]), known, cartesian, polar, margin, len(z))


def ring_centre(points: ArrayLike, labels: ArrayLike) -> FloatArray:
    """Common centre of circles through points (samples, 2), whose radius depends on a column of ``labels``.

    Labels (samples, columns) are numbers from 0, as :func:`~polariscope.measures.score.as_labels` gives them. The
    centre is the least-squares solution of |p|² = 2 c·p + const with one constant for each value of a column (Kåsa
    1976, for several circles), for the column with the least residual. Unlike the mean of the points it does not depend
    on their distribution along a circle; a wrong centre would blur the radius and mix it with the angle.

    >>> points = [[4.0, 1.0], [3.0, 2.0], [2.0, 1.0], [5.0, 1.0], [3.0, 3.0]]
    >>> ring_centre(points, [[0], [0], [0], [1], [1]]).round(6).tolist()
    [3.0, 1.0]
    """
    p, values = np.asarray(points, dtype=np.float64), np.asarray(labels)
    mean = p.mean(axis=0)
    table = np.column_stack([p - mean, np.square(p - mean).sum(axis=1)])
    fits = []
    for column in values.T:
        count = np.bincount(column)
        levels = np.stack([np.bincount(column, part) for part in table.T], axis=1) / count[:, None].clip(1)
        x, squares = np.split(table - levels[column], [2], axis=1)
        twice, *_ = np.linalg.lstsq(x, squares, rcond=None)
        fits.append((float(np.square(squares - x @ twice).sum()), mean + twice[:, 0] / 2))
    return np.asarray(min(fits, key=lambda fit: fit[0])[1])


def _polar(points: FloatArray, labels: IntArray) -> FloatArray:
    """Radius (relative to the greatest) and angle (from its widest gap) of points (samples, 2): (2, samples).

    Both are rounded, so that points of one circle do not fall into different bins.
    """
    x, y = (points - ring_centre(points, labels)).T
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    ordered = np.sort(angle)
    start = ordered[np.diff(ordered, prepend=ordered[-1] - 2 * np.pi).argmax()]
    return np.stack([radius / (radius.max() or 1.0), (angle - start) % (2 * np.pi)]).round(9)


def mutual_information_bias(values: int, bins: int, samples: int) -> float:
    """Bias of the mutual information of a latent with an unrelated factor of ``values`` values, in nats:
    (K−1)(B−1)/(2n).

    >>> round(mutual_information_bias(10, 20, 10_000), 5)
    0.00855
    """
    return (values - 1) * (bins - 1) / (2 * samples)


@measures.register("mig")
@dataclass(frozen=True)
class MIG(FactorMeasure):
    """How far the best latent for a factor is ahead of the second best, as a share of the factor's entropy.

    Continuous factors are binned like the latents.
    """

    bins: int = 20

    title: ClassVar[str] = "MIG"
    invariant_to: ClassVar[tuple[Invariance, ...]] = ("permutation", "sign", "scale", "isotropic_scale", "translation")

    def __call__(self, representation: Representation) -> Score:
        return mig(*codes_and_factors(representation), self.bins)
