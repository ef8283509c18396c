"""Bounds compared with attacks: no adversarial may be nearer than a lower bound, and each one that is nearer is
counted.

A certificate with an attack below it is a bug. An estimated bound with an attack below it has missed a better code: it
is computed again with ten times the budget, and the adversarial is classified again with ten times the search, which
may have ended too early. Both results are reported. (Spec 001b, oracle O-B3.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polariscope.findings import Column, Findings, Records, Value, Values
from polariscope.robustness.bounds.known import bounds
from polariscope.robustness.bounds.result import SPOKEN, Bounds
from polariscope.robustness.bounds.settings import BoundSettings
from polariscope.subjects import as_subject

ROUNDING = 1e-5
"""Share of a bound by which rounding may put an adversarial below it."""
BUDGET = 10


@dataclass(frozen=True, eq=False)
class Confrontation:
    """Bounds and distances of adversarials of the same images."""

    bounds: Bounds
    distances: NDArray[np.float64]
    again: NDArray[np.float64] | None = None
    """Bounds of the violated images at ten times the budget, in the order of :attr:`violated`."""
    still_adversarial: NDArray[np.bool_] | None = None
    """Whether the adversarials of the violated images are ones at ten times the search, too."""

    @property
    def violated(self) -> NDArray[np.int64]:
        """Numbers of the images with an adversarial below their bound."""
        return np.flatnonzero(
            self.distances < self.bounds.lower * (1 - ROUNDING) - ROUNDING * (self.bounds.norm != "l0")
        )

    @property
    def violated_again(self) -> NDArray[np.int64]:
        """Numbers of the images that are violated at ten times the budget as well."""
        where = self.violated
        if self.again is None or self.still_adversarial is None:
            return where
        return where[(self.distances[where] < self.again * (1 - ROUNDING) - ROUNDING) & self.still_adversarial]

    @property
    def gap(self) -> NDArray[np.float64]:
        """Distance of the nearest adversarial minus the bound, of each image."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(self.distances - self.bounds.lower, posinf=np.inf)

    @property
    def headline(self) -> str:
        count, of = len(self.violated), len(self.bounds)
        if not count:
            return f"No attack is below the {self.bounds.kind} in {SPOKEN[self.bounds.norm]} on any of {of} images."
        if self.bounds.kind == "certificate":
            chance = (
                "" if self.bounds.confidence == 1 else f" (expected: {of * (1 - self.bounds.confidence):.2g} at most)"
            )
            bug = " This is a bug of the certificate." if self.bounds.confidence == 1 else ""
            return f"An attack is below the certificate on {count} of {of} images{chance}.{bug}"
        left = f", {len(self.violated_again)} at ten times the budget" if self.again is not None else ""
        return f"An attack is below the estimated bound on {count} of {of} images{left}."

    def findings(self, title: str = "bounds and attacks") -> Findings:
        rows = [
            {
                "image": int(number),
                "bound": float(self.bounds.lower[number]),
                "attack": float(self.distances[number]),
                "again": None if self.again is None else float(self.again[place]),
                "still": None if self.still_adversarial is None else bool(self.still_adversarial[place]),
            }
            for place, number in enumerate(self.violated)
        ]
        columns = [
            Column("image", "Image", "%d"),
            Column("bound", "Bound", "%.5g"),
            Column("attack", "Attack", "%.5g"),
            Column("again", "Bound at 10 x budget", "%.5g"),
            Column("still", "Adversarial at 10 x search"),
        ]
        reached = np.isfinite(self.distances)
        gaps = self.gap[reached]
        entries = [
            Value("violations", "Images with an attack below the bound", float(len(self.violated)), False),
            Value(
                "gap",
                "Median distance from bound to attack",
                float(np.median(gaps)) if len(gaps) else None,
                False,
                "" if len(gaps) else "no attack succeeded",
            ),
        ]
        parts = [
            Values(name="confrontation", title="Bounds and attacks", entries=entries),
            Records(name="violations", title="Violations", rows=rows, columns=columns),
        ]
        facts = {"violations": len(self.violated), "violations_again": len(self.violated_again)}
        arrays = {"lower": self.bounds.lower, "distances": self.distances}
        return Findings(title, self.headline, parts, self.bounds.notes, facts, arrays)


def confront(
    lower_bounds: Bounds,
    subject: Any,
    x: Any,
    y: Any,
    adversarials: Any,
    distances: Any,
    settings: BoundSettings | None = None,
) -> Confrontation:
    """Compare bounds with the nearest adversarials of the same images, and compute both again if an adversarial is
    below its bound.

    ``adversarials`` and ``distances`` come from an attack's result (``Attacked``), in the norm of the bounds.
    """
    distances = np.asarray(distances, np.float64)
    if distances.shape != lower_bounds.lower.shape:
        raise ValueError(f"expected a distance for each of {len(lower_bounds)} bounds; got {distances.shape}")
    first = Confrontation(lower_bounds, distances)
    rows = first.violated
    if lower_bounds.kind == "certificate" or not len(rows):
        return first
    subject = as_subject(subject)
    some = torch.as_tensor(rows)
    images, labels = torch.as_tensor(x)[some], torch.as_tensor(y).reshape(len(lower_bounds))[some]
    repeated = bounds(subject, images, labels, lower_bounds.norm, (settings or BoundSettings()).times(BUDGET))
    assert isinstance(repeated, Bounds), "what had bounds has them at a larger budget"
    return replace(first, again=repeated.lower, still_adversarial=_wrong(subject, adversarials, labels, some))


def _wrong(subject: Any, adversarials: Any, labels: torch.Tensor, rows: torch.Tensor) -> NDArray[np.bool_]:
    """Whether adversarials are classified wrongly at ten times the search."""
    model = subject.module
    points = subject.prepared(torch.as_tensor(adversarials)[rows.cpu()])
    own = model.search
    wider = replace(own, steps=BUDGET * own.steps, candidates=BUDGET * own.candidates)
    with subject.at_rest():
        scores = model.offsets - model.gamma * model.infer(points, search=wider).losses
    return np.asarray((scores.argmax(1).cpu() != labels.cpu()).numpy())
