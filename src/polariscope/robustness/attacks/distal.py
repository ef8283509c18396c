"""Distal adversarials: noise that is changed until a classifier is confident of a class. They show what the classifier
uses as evidence.

They need not stay near an image, so this is a function with its own result, not an :class:`Attack`. (Schott et al.
2019, section 7; Spec 001b, section B6.9.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polariscope.findings import Column, Findings, Pictures, Records, Strip
from polariscope.robustness.attacks.draws import Draws
from polariscope.robustness.attacks.geometry import steepest
from polariscope.robustness.attacks.trial import finite, needing_gradients, no_gradient
from polariscope.robustness.probabilities import log_probabilities
from polariscope.robustness.synthesis.graded_softmax import GradedSoftmax
from polariscope.subjects import Subject, as_subject

CONFIDENCE = 0.9


@dataclass(frozen=True, eq=False)
class Distal:
    """Images that began as noise, one for each label."""

    images: Tensor
    labels: NDArray[np.int64]
    confidences: NDArray[np.float64]
    """The probability of the label."""
    steps: NDArray[np.int64]
    asked: float
    """The confidence at which an image was done."""
    distances: NDArray[np.float64] | None = None
    """L2 distance to the nearest of the images that were given, if any were."""
    classifier: str = "classifier"
    seed: int = 0

    @property
    def reached(self) -> NDArray[np.bool_]:
        return self.confidences >= self.asked

    def findings(self) -> Findings:
        rows = [
            {"label": int(label), "confidence": float(p), "steps": int(steps)}
            | ({} if self.distances is None else {"distance": float(self.distances[number])})
            for number, (label, p, steps) in enumerate(zip(self.labels, self.confidences, self.steps, strict=True))
        ]
        columns = [
            Column("label", "Class", "%d"),
            Column("confidence", "Confidence", "percent"),
            Column("steps", "Steps", "%d"),
            Column("distance", "Distance to the nearest image", "%.2f"),
        ]
        count = int(self.reached.sum())
        headline = (
            f"{count} of {len(rows)} images that began as noise reach a confidence of {self.asked:.0%} in "
            f"{self.classifier}."
        )
        strips = [
            Strip(
                self.images[number][None, None].cpu().numpy(),
                f"class {row['label']}",
                note=f"{row['confidence']:.0%}",
                says=f"a distal image of class {row['label']}",
            )
            for number, row in enumerate(rows)
        ]
        parts = [
            Records(name="distal", title="Distal adversarials", rows=rows, columns=columns),
            Pictures(name="images", title="Images that began as noise", strips=strips, limits=(0.0, 1.0)),
        ]
        arrays = {"distal_images": self.images.cpu().numpy(), "distal_confidences": self.confidences}
        settings = {"confidence": self.asked, "seed": self.seed}
        return Findings(self.classifier, headline, parts, arrays=arrays, settings=settings)


def distal(
    model: Any,
    labels: Sequence[int] | NDArray[np.int64] | Tensor,
    shape: tuple[int, ...],
    *,
    confidence: float = CONFIDENCE,
    softmax: GradedSoftmax | None = None,
    steps: int = 200,
    rate: float = 0.2,
    momentum: float = 0.9,
    near: Tensor | None = None,
    seed: int = 0,
) -> Distal:
    """Start from uniform noise of a ``shape`` and raise the probability of each label until it reaches ``confidence``.

    Probabilities come from the graded ``softmax``; by default they are those of
    :func:`~polariscope.robustness.probabilities.log_probabilities`. A step has length ``rate`` along the gradient of
    the label's score (minus the score of the class that is ahead), plus ``momentum`` times the last step. With images
    ``near`` the result has the distance to the nearest of them.
    """
    subject = as_subject(model)
    targets = torch.as_tensor(labels, device=subject.device).long()
    if targets.ndim != 1 or not len(targets):
        raise ValueError(f"distal images need a list of at least one label; got {labels!r}")
    if not 0 < confidence < 1 or steps < 1 or not rate > 0 or not 0 <= momentum < 1:
        raise ValueError(
            "distal images need a confidence between 0 and 1, at least one step, a positive rate and a momentum below "
            f"1; got {confidence}, {steps}, {rate} and {momentum}"
        )
    numbers = torch.arange(len(targets), device=subject.device)
    noise = Draws(seed, numbers).uniform(numbers, torch.Size(shape).numel(), (0,)).to(subject.device)
    points = noise.reshape(-1, *shape)
    velocity = torch.zeros_like(points)
    taken = torch.full((len(targets),), steps, device=subject.device)
    best = torch.zeros(len(targets), dtype=torch.float64, device=subject.device)
    final = points.clone()
    rows = numbers
    with subject.at_rest(gradients=True):
        for step in range(steps + 1):
            p, direction = _ascent(subject, points, targets[rows], softmax, steps=step < steps)
            better = p > best[rows]
            final[rows[better]], best[rows[better]] = points[better], p[better]
            done = p >= confidence
            taken[rows[done]] = step
            rows, points, velocity = rows[~done], points[~done], velocity[~done]
            if not len(rows) or direction is None:
                break
            velocity = momentum * velocity + rate * steepest(direction[~done].flatten(1), "l2").reshape(points.shape)
            points = (points + velocity).clamp(0, 1)
    return Distal(
        final.cpu(),
        targets.cpu().numpy(),
        best.cpu().numpy(),
        taken.cpu().numpy(),
        confidence,
        None if near is None else torch.cdist(final.flatten(1), near.to(final).flatten(1)).amin(1).cpu().numpy(),
        subject.name,
        seed,
    )


def _ascent(
    subject: Subject, points: Tensor, labels: Tensor, softmax: GradedSoftmax | None, *, steps: bool
) -> tuple[Tensor, Tensor | None]:
    """The probability of each label, and a direction in which it grows: up the score of the label and, as long as
    another class is ahead, down the score of that class.

    Far from any evidence the gradient of the probability itself vanishes, or leads away from the class that is ahead
    and nowhere else.
    """
    x = points.detach().requires_grad_(steps)
    with needing_gradients(subject):
        scores = finite(subject.scores(x), subject)
    classes = scores.shape[1]
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ValueError(
            f"the classifier has {classes} classes, so labels are 0 to {classes - 1}; got {int(labels.min())} to "
            f"{int(labels.max())}"
        )
    values = scores.detach().double()
    logs = log_probabilities(subject, values, softmax)
    p = logs.gather(1, labels[:, None])[:, 0].exp()
    if not steps:
        return p, None
    if not scores.requires_grad:
        raise no_gradient(subject)
    own = functional.one_hot(labels, classes)
    ahead = functional.one_hot(values.argmax(1), classes)
    weights = torch.where(labels[:, None] == values.argmax(1, keepdim=True), own, own - ahead)
    (gradient,) = torch.autograd.grad(scores, x, weights.to(scores), allow_unused=True)
    if gradient is None:
        raise no_gradient(subject)
    return p, gradient
