"""Classifiers with a reject option: does confidence separate images that a classifier should reject?

A generative classifier measures how well its best class explains an image, and can reject images that no class
explains; a discriminative one only measures how much better one class is than the others. Two kinds of confidence are
measured: the probability of the predicted class, and for a classifier by synthesis the evidence (its best score).
(Thesis section 3.2; Spec 001b, row B-47. Risk and coverage: El-Yaniv and Wiener 2010, On the foundations of noise-free
selective classification.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from polariscope.findings import Column, Findings, Part, Records
from polariscope.robustness.probabilities import log_probabilities
from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax
from polariscope.subjects import Subject, as_subject
from polariscope.subjects.labelled import labelled_examples
from polariscope.worlds.targets import Examples

Confidence = Literal["probability", "evidence"]
COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, eq=False)
class Answers:
    """The confidence of a classifier in its predictions for some images, and which predictions are right."""

    confidence: Mapping[str, NDArray[np.float64]]
    """By kind: probability, and of a classifier by synthesis evidence."""
    right: NDArray[np.bool_] | None = None
    """None for images without a class, such as noise."""


@dataclass(frozen=True, eq=False)
class Rejection:
    """Confidence on clean images beside that on others."""

    classifier: str
    clean: Answers
    others: Mapping[str, Answers]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.clean.confidence)

    def auroc(self, other: str, kind: Confidence = "probability") -> float:
        """The probability that a clean image gets more confidence than one of the others: 1 if a threshold separates
        them, 1/2 if confidence is uninformative."""
        clean, odd = self.clean.confidence[kind], self.others[other].confidence[kind]
        labels = np.concatenate([np.ones(len(clean)), np.zeros(len(odd))])
        return float(roc_auc_score(labels, np.concatenate([clean, odd])))

    def risk(self, kind: Confidence = "probability") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coverage and risk over all images that have a class: the share of wrong answers among the share of images
        with the highest confidence. Among equal confidences the order is random: their mean risk counts."""
        several = [one for one in (self.clean, *self.others.values()) if one.right is not None]
        confidence = np.concatenate([one.confidence[kind] for one in several])
        right = np.concatenate([one.right for one in several if one.right is not None])
        return risk_coverage(confidence, right)

    @property
    def headline(self) -> str:
        if not self.others:
            return f"There are no images that {self.classifier} should reject."
        kind: Any = self.kinds[-1]
        named = ", ".join(f"{name} {self.auroc(name, kind):.3f}" for name in self.others)
        return f"AUROC of the {kind} of {self.classifier}, clean images against others: {named}."

    def records(self) -> list[dict[str, Any]]:
        """A row for each kind of images."""
        rows = []
        for name, one in {"clean": self.clean, **self.others}.items():
            row: dict[str, Any] = {"images": name, "count": len(next(iter(one.confidence.values())))}
            row["accuracy"] = None if one.right is None else float(one.right.mean())
            row["confidence"] = float(np.median(one.confidence["probability"]))
            for kind in self.kinds:
                row[f"auroc {kind}"] = None if name == "clean" else self.auroc(name, kind)  # type: ignore[arg-type]
            rows.append(row)
        return rows

    def findings(self, title: str = "rejection") -> Findings:
        columns = [
            Column("images", "Images"),
            Column("count", "Count", "%d"),
            Column("accuracy", "Accuracy", "percent"),
            Column("confidence", "Median probability", "%.3f"),
            *(Column(f"auroc {kind}", f"AUROC by {kind}", "%.3f") for kind in self.kinds),
        ]
        parts: list[Part] = [
            Records(name="confidence", title="Does confidence show what to reject?", hint=HINT, rows=self.records(),
                    columns=columns),
        ]  # fmt: skip
        risks = []
        for kind in self.kinds:
            coverage, risk = self.risk(kind)  # type: ignore[arg-type]
            at = np.searchsorted(coverage, np.array(COVERAGES) - 1e-9).clip(max=len(risk) - 1)
            row = {f"risk {share:g}": float(risk[place]) for share, place in zip(COVERAGES, at, strict=True)}
            risks.append({"by": kind, **row, "area": float(risk.mean())})
        parts.append(
            Records(
                name="risk",
                title="Errors among the answers it is most sure of",
                hint="Over the clean and the corrupted images together: the share of wrong predictions at each "
                "coverage.",
                rows=risks,
                columns=[
                    Column("by", "Confidence", short="by"),
                    *(
                        Column(f"risk {share:g}", f"{share:.0%} answered", "percent", f"{share:.0%}")
                        for share in COVERAGES
                    ),
                    Column("area", "Mean over coverage", "percent", "mean"),
                ],
            )
        )
        return Findings(title, self.headline, parts)


HINT = (
    "AUROC: the probability that a clean image gets more confidence than one of these. 1: a threshold rejects all of "
    "these and no clean image; 0.5: confidence is uninformative."
)


def risk_coverage(
    confidence: NDArray[np.float64], right: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coverage and the share of wrong answers among the most confident images up to it, in expectation over the order
    of images with equal confidence.

    >>> coverage, risk = risk_coverage(np.array([0.9, 0.2, 0.8, 0.4]), np.array([True, False, True, True]))
    >>> coverage.tolist(), risk.tolist()
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.0, 0.25])
    """
    confidence, right = np.asarray(confidence, np.float64), np.asarray(right, bool)
    if confidence.ndim != 1 or confidence.shape != right.shape or not len(right) or np.isnan(confidence).any():
        raise ValueError(
            "risk needs a confidence that is a number, and whether the answer is right, for each image; got shapes "
            f"{confidence.shape} and {right.shape}"
        )
    order = np.argsort(-confidence, kind="stable")
    _, tied, many = np.unique(confidence[order], return_inverse=True, return_counts=True)
    wrong = (np.bincount(tied, ~right[order]) / many)[tied]
    count = np.arange(1, len(right) + 1)
    return count / len(right), np.cumsum(wrong) / count


def rejection(
    model: Any, x: Any, y: Any, others: Mapping[str, Any], *, softmax: GradedSoftmax | None = None
) -> Rejection:
    """Measure how well a classifier's confidence separates clean images ``x`` of the classes ``y`` from ``others``:
    images by name, alone (noise) or as labelled examples (corrupted images).

    Probabilities come from the graded ``softmax``; by default from the calibrated softmax of a classifier by synthesis,
    and from the plain softmax of any other. Scores that are probabilities already are taken as they are.
    """
    subject = as_subject(model)
    x, y = labelled_examples(subject, x, y)
    answered: dict[str, Answers] = {}
    for name, images in others.items():
        odd, classes = (images.x, images.y) if isinstance(images, Examples) else (images, None)
        answered[name] = _answers(subject, odd, classes, softmax)
    return Rejection(subject.name, _answers(subject, x, y, softmax), answered)


def _answers(subject: Subject, x: Any, y: Any, softmax: GradedSoftmax | None) -> Answers:
    images = torch.as_tensor(x)
    synthesis = isinstance(subject.module, ABSClassifier)
    with subject.at_rest():
        scores = torch.cat([subject.scores(part) for part in images.split(250)]).double()
        logs = log_probabilities(subject, scores, softmax)
    confidence = {"probability": logs.amax(1).exp().cpu().numpy()}
    if synthesis:
        confidence["evidence"] = scores.amax(1).cpu().numpy()
    right = None if y is None else (scores.argmax(1).cpu() == Tensor.cpu(torch.as_tensor(y))).numpy()
    return Answers(confidence, right)
