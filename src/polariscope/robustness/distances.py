"""Adversarial distances of a set of images, read as a whole: their distribution, their quarters, and where the curves
of two classifiers cross.

Distances follow the conventions of :class:`~polariscope.robustness.attacks.Attacked`: 0 for an image that is
misclassified without an attack, infinite for one without a known adversarial. (Schott et al. 2019, section 6 and
figures 2, 5 to 8; Spec 001b, section B7.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Chart, Column, Findings, Records
from polariscope.robustness.attacks.attacked import accuracy_at, accuracy_curve, median_distance

Floats = NDArray[np.float64]
QUARTERS = ("0 to 25 %", "25 to 50 %", "50 to 75 %", "75 to 100 %")


@dataclass(frozen=True, eq=False)
class Distribution:
    """How many images have their nearest adversarial in each interval of distances."""

    edges: Floats
    counts: NDArray[np.int64]
    """Images with a distance above an edge and up to the next one."""
    zero: int
    """Images that are misclassified without an attack."""
    infinite: int
    """Images without a known adversarial."""

    @property
    def total(self) -> int:
        return int(self.counts.sum()) + self.zero + self.infinite


def distribution(distances: Floats, bins: int = 20) -> Distribution:
    """A histogram of adversarial distances from 0 to the largest finite one. Every image is counted once.

    >>> found = distribution(np.array([0.0, 0.5, 1.0, np.inf]), bins=2)
    >>> found.counts.tolist(), found.zero, found.infinite, found.total
    ([1, 1], 1, 1, 4)
    """
    values = _checked(distances)
    between = values[np.isfinite(values) & (values > 0)]
    edges = np.linspace(0.0, float(between.max(initial=0.0)) or 1.0, bins + 1)
    place = np.searchsorted(edges, between, side="left").clip(1, bins) - 1
    counts = np.bincount(place, minlength=bins)
    return Distribution(edges, counts, int((values == 0).sum()), int(np.isinf(values).sum()))


def quarters(distances: Floats) -> NDArray[np.int64]:
    """The quarter of each image by the rank of its distance among those with a known adversarial: 0 for the nearest
    quarter to 3 for the farthest; -1 for images with distance 0 or infinity. Equal distances keep the order of the
    images.

    >>> quarters(np.array([4.0, 0.0, 1.0, 3.0, np.inf, 2.0])).tolist()
    [3, -1, 0, 2, -1, 1]
    """
    values = _checked(distances)
    known = np.flatnonzero(np.isfinite(values) & (values > 0))
    out = np.full(len(values), -1, np.int64)
    order = known[np.argsort(values[known], kind="stable")]
    out[order] = 4 * np.arange(len(order)) // max(1, len(order))
    return out


def crossings(first: Floats, second: Floats) -> list[float]:
    """The epsilons at which the accuracy-distortion curve of one classifier falls below that of another which was below
    it before. Where the curves are equal, neither leads.

    >>> crossings(np.array([0.32, 0.32, 0.32]), np.array([0.1, 0.45, 0.45]))
    [0.32]
    """
    epsilons = np.union1d(accuracy_curve(_checked(first))[0], accuracy_curve(_checked(second))[0])
    lead = np.sign(accuracy_at(first, epsilons) - accuracy_at(second, epsilons))
    decided = lead != 0
    epsilons, lead = epsilons[decided], lead[decided]
    return [float(one) for one in epsilons[1:][lead[1:] != lead[:-1]]]


@dataclass(frozen=True, eq=False)
class CurveComparison:
    """Accuracy-distortion curves of several classifiers in one norm, and their accuracies at single thresholds."""

    distances: Mapping[str, Floats]
    thresholds: tuple[float, ...]
    norm: str

    def ranking(self, epsilon: float) -> list[str]:
        """The classifiers by their accuracy under perturbations of at most epsilon, best first."""
        accuracy = {name: float(accuracy_at(values, [epsilon])[0]) for name, values in self.distances.items()}
        return sorted(accuracy, key=lambda name: -accuracy[name])

    def changes(self) -> list[tuple[str, str, float]]:
        """Pairs of classifiers whose order changes, with the epsilon at which it does."""
        names = list(self.distances)
        return [
            (one, other, at)
            for place, one in enumerate(names)
            for other in names[place + 1 :]
            for at in crossings(self.distances[one], self.distances[other])
        ]

    @property
    def headline(self) -> str:
        best = [(epsilon, self.ranking(epsilon)[0]) for epsilon in self.thresholds]
        named = ", ".join(f"{name} at {epsilon:g}" for epsilon, name in best)
        if len({name for _, name in best}) > 1:
            return f"The most robust classifier depends on the threshold in {self.norm}: {named}."
        return f"The most robust classifier is the same at every threshold in {self.norm}: {named}."

    def findings(self, title: str = "robustness side by side") -> Findings:
        from polariscope.report.robustness_figures import accuracy_curves

        rows = []
        for name, values in self.distances.items():
            median = median_distance(values)
            row = {"classifier": name, "median": median if np.isfinite(median) else None}
            at = accuracy_at(values, self.thresholds)
            rows.append(
                row | {f"accuracy {one:g}": float(share) for one, share in zip(self.thresholds, at, strict=True)}
            )
        columns = [Column("classifier", "Classifier"), Column("median", "Median distance", "%.4g")]
        columns += [Column(f"accuracy {one:g}", f"Accuracy at {one:g}", "percent") for one in self.thresholds]
        crossed = [{"first": one, "second": other, "epsilon": at} for one, other, at in self.changes()]
        return Findings(
            title,
            self.headline,
            [
                Records(name="classifiers", title="Classifiers", rows=rows, columns=columns),
                Chart(
                    name="curves",
                    title="Accuracy over the size of the perturbation",
                    draw=lambda: accuracy_curves(self.distances, self.thresholds, self.norm),
                ),
                Records(
                    name="crossings",
                    title="Where the order changes",
                    rows=crossed,
                    columns=[
                        Column("first", "Classifier"),
                        Column("second", "and"),
                        Column("epsilon", "at epsilon", "%.4g"),
                    ],
                ),
            ],
            arrays=dict(self.distances),
        )


def compare_curves(distances: Mapping[str, Floats], thresholds: Sequence[float], norm: str = "linf") -> CurveComparison:
    """Hold the distances of several classifiers on the same images side by side."""
    checked = {name: _checked(values) for name, values in distances.items()}
    if len(checked) < 2 or len({len(values) for values in checked.values()}) > 1:
        sizes = {name: len(values) for name, values in checked.items()}
        raise ValueError(f"curves are compared of two or more classifiers on the same images; got {sizes}")
    if not thresholds or min(thresholds) <= 0:
        raise ValueError(f"thresholds are one or more positive distances; got {tuple(thresholds)}")
    return CurveComparison(checked, tuple(float(one) for one in thresholds), norm)


def _checked(distances: Floats) -> Floats:
    values = np.asarray(distances, np.float64)
    if values.ndim != 1 or not len(values) or np.isnan(values).any() or (values < 0).any():
        raise ValueError(
            "adversarial distances are one number from 0 to infinity for each image; got "
            f"{values.shape} with {int(np.isnan(values).sum())} NaN and {int((values < 0).sum())} below 0"
        )
    return values
