"""The result of a bound: for each image a distance below which no change can change the predicted class, and how
certain that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Column, Findings, Part, Records, Text, Value, Values
from polariscope.theory.halfspaces import Norm

Kind = Literal["certificate", "estimated bound"]
SPOKEN: dict[str, str] = {"l0": "L0", "l1": "L1", "l2": "L2", "linf": "L∞"}
MEANING: dict[str, str] = {
    "certificate": "no change below the bound changes the decision",
    "estimated bound": "it holds if inference found the best code of every class, which is not proven",
}


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bounds on the adversarial distance of images, in one norm."""

    norm: Norm
    kind: Kind
    method: str
    """The method of the bound; of several methods, the one that most of the bounds come from."""
    lower: NDArray[np.float64]
    """One bound for each image: the largest over the methods; 0 for a misclassified image."""
    by_method: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """The bounds of each method, ``(seeds, n)``, or ``(1, n)`` if nothing is drawn."""
    seeds: tuple[int, ...] = ()
    """Seeds of the searches; the smallest result counts for each image."""
    confidence: float = 1.0
    """The probability with which the bound of an image holds, over draws of the method."""
    abstained: NDArray[np.bool_] | None = None
    """Images about which the classifier does not decide; their bound is 0."""
    space: Literal["raw", "binarised"] = "raw"
    """Where distances are measured: in the image, or in the image after its pixels are binarised."""
    binarised: Bounds | None = None
    """The same bound in binarised space, for a classifier that binarises."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def mean(self) -> float:
        return float(self.lower.mean())

    @property
    def median(self) -> float:
        return float(np.median(self.lower))

    def accuracy(self, epsilon: float) -> float:
        """The share of images whose decision is right and bound to stay so for every change of at most epsilon."""
        return float((self.lower > epsilon).mean())

    def sd_over_seeds(self, method: str | None = None) -> float | None:
        """Standard deviation over seeds of the mean bound by one method (ddof 1); None if nothing is drawn."""
        values = self.by_method.get(method or self.method)
        return None if values is None or len(values) < 2 else float(values.mean(1).std(ddof=1))

    @property
    def title(self) -> str:
        """The kind of the bound with its confidence."""
        return self.kind if self.confidence == 1 else f"{self.kind} at {100 * self.confidence:g} % confidence"

    @property
    def headline(self) -> str:
        where = " in binarised space" if self.space == "binarised" else ""
        middle = _number(self.median, self.norm)
        return (
            f"{self.title.capitalize()} in {SPOKEN[self.norm]}{where} by {self.method}: half of {len(self)} images "
            f"keep their class below {middle}; {MEANING[self.kind]}."
        )

    def records(self) -> list[dict[str, Any]]:
        """A row for each method."""
        rows = []
        for name, values in self.by_method.items():
            least = values.min(0)
            rows.append(
                {
                    "method": name,
                    "norm": SPOKEN[self.norm],
                    "space": self.space,
                    "mean": _finite(least.mean()),
                    "median": _finite(np.median(least)),
                    "positive": float((least > 0).mean()),
                    "sd": self.sd_over_seeds(name),
                    "seeds": len(values) if len(values) > 1 else None,
                }
            )
        return rows + ([] if self.binarised is None else self.binarised.records())

    def findings(self, title: str = "bounds") -> Findings:
        columns = [
            Column("method", "Method"),
            Column("norm", "Norm"),
            Column("space", "Measured in"),
            Column("mean", "Mean", "%.4g"),
            Column("sd", "sd over seeds", "%.2g"),
            Column("median", "Median", "%.4g"),
            Column("positive", "Above 0", "percent"),
            Column("seeds", "Seeds", "%d"),
        ]
        entries = [
            Value("median", "Median bound", _finite(self.median), True, "" if np.isfinite(self.median) else "infinite"),
            Value("right", "Images with a bound above 0", float((self.lower > 0).mean()), True),
        ]
        if self.abstained is not None:
            entries.append(Value("abstained", "Images without a decision", float(self.abstained.mean()), False))
        parts: list[Part] = [
            Values(name="bounds", title=f"{self.title.capitalize()} in {SPOKEN[self.norm]}", entries=entries),
            Records(name="methods", title="Methods", rows=self.records(), columns=columns),
        ]
        arrays = {"lower": self.lower} | {_key(name): values for name, values in self.by_method.items()}
        if self.binarised is not None:
            arrays["lower_binarised"] = self.binarised.lower
        facts = {"kind": self.kind, "norm": self.norm, "confidence": self.confidence, "method": self.method}
        return Findings(title, self.headline, parts, self.notes, facts, arrays, {"seeds": list(self.seeds)})


@dataclass(frozen=True)
class NoBound:
    """There is no known bound, for the given reason."""

    norm: Norm
    reason: str

    @property
    def headline(self) -> str:
        return f"No bound is known in {SPOKEN[self.norm]}: {self.reason}."

    def findings(self, title: str = "bounds") -> Findings:
        return Findings(title, self.headline, [Text(name="bounds", title="Bounds", lines=[self.headline])])


def combined(
    norm: Norm, kind: Kind, by_method: Mapping[str, NDArray[np.float64]], right: NDArray[np.bool_], **rest: Any
) -> Bounds:
    """The bound of several methods together: the largest over methods for each image, after the smallest over the seeds
    of each method; 0 for misclassified images."""
    known = {name: np.where(right, np.atleast_2d(values), 0.0) for name, values in by_method.items()}
    least = np.stack([values.min(0) for values in known.values()])
    counts = np.bincount(least.argmax(0), minlength=len(known))
    return Bounds(norm, kind, list(known)[int(counts.argmax())], least.max(0), known, **rest)


def _finite(value: float) -> float | None:
    """JSON-ready: infinite numbers become None."""
    return float(value) if np.isfinite(value) else None


def _number(value: float, norm: Norm) -> str:
    return f"{value:g} changed pixels" if norm == "l0" else f"a norm of {value:.4g}"


def _key(name: str) -> str:
    return name.replace(" ", "_").replace("∞", "inf").replace("-", "_")
