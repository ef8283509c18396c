"""How a classifier by synthesis decides: the image, and its reconstruction by each class.

(Schott et al. 2019, figure 1; Spec 001b, row B-50.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.findings import Column, Findings, Pictures, Records, Strip
from polariscope.robustness.synthesis.classifier import classifier_of
from polariscope.subjects import as_subject


@dataclass(frozen=True, eq=False)
class Explanation:
    """What each class makes of some images, and how well it explains them."""

    images: NDArray[np.float32]
    """``(n, *shape)``, as they were given."""
    syntheses: NDArray[np.float32]
    """``(n, K, *shape)``."""
    codes: NDArray[np.float32]
    """``(n, K, L)``."""
    scores: NDArray[np.float64]
    """``(n, K)``, those of the classifier."""
    probabilities: NDArray[np.float64]
    """``(n, K)``, by the calibrated softmax."""
    labels: NDArray[np.int64] | None = None
    """The true classes, if they are known."""
    names: tuple[str, ...] = ()
    """Names of the classes."""
    classifier: str = "classifier"

    @property
    def predicted(self) -> NDArray[np.int64]:
        return self.scores.argmax(1)

    def findings(self) -> Findings:
        """The page: a table of answers, and for each image a strip with the image and its syntheses."""
        rows = [self._row(number) for number in range(len(self.images))]
        columns = [
            Column("image", "Image", "%d"),
            Column("label", "Class"),
            Column("predicted", "Predicted"),
            Column("probability", "Probability", "percent"),
            Column("score", "Score", "%.2f"),
            Column("second", "Second"),
            Column("margin", "Margin", "%.2f"),
        ]
        every = ", ".join(self._name(number) for number in range(self.scores.shape[1]))
        strips = [self._strip(number, row) for number, row in enumerate(rows)]
        parts = [
            Records(
                name="answers",
                title="Answers",
                hint="A score is minus the loss of the best synthesis; the margin is that to the second class.",
                rows=rows,
                columns=columns,
            ),
            Records(
                name="scores",
                title="Scores of all classes",
                rows=[
                    {"image": number} | {self._name(c): float(score) for c, score in enumerate(scores)}
                    for number, scores in enumerate(self.scores)
                ],
                columns=[
                    Column("image", "Image", "%d"),
                    *(Column(self._name(c), self._name(c), "%.1f") for c in range(self.scores.shape[1])),
                ],
            ),
            Pictures(
                name="syntheses",
                title="The image and its synthesis by each class",
                hint=f"First the image, then the syntheses by the classes {every}.",
                strips=strips,
                limits=(0.0, 1.0),
            ),
        ]
        sure = int((self.probabilities.max(1) >= 0.5).sum())
        headline = f"{self.classifier} explains {sure} of {len(rows)} images with a probability of at least 50 %."
        if self.labels is not None:
            right = int((self.predicted == self.labels).sum())
            headline = f"{self.classifier} explains {right} of {len(rows)} images best by their own class."
        arrays: dict[str, NDArray[Any]] = {
            "syntheses": self.syntheses,
            "scores": self.scores,
            "probabilities": self.probabilities,
        }
        return Findings(self.classifier, headline, parts, arrays=arrays)

    def _name(self, number: int) -> str:
        return self.names[number] if self.names else str(number)

    def _row(self, number: int) -> dict[str, Any]:
        best, second = np.argsort(-self.scores[number], kind="stable")[:2]
        row = {
            "image": number,
            "predicted": self._name(best),
            "probability": float(self.probabilities[number, best]),
            "score": float(self.scores[number, best]),
            "second": self._name(second),
            "margin": float(self.scores[number, best] - self.scores[number, second]),
        }
        return row if self.labels is None else row | {"label": self._name(int(self.labels[number]))}

    def _strip(self, number: int, row: dict[str, Any]) -> Strip:
        pictures = np.concatenate([self.images[number][None], self.syntheses[number]])[None]
        answer = f"{row['predicted']} ({row['probability']:.0%})"
        return Strip(
            pictures, f"image {number}", note=answer, says=f"image {number} and its syntheses; answer {answer}"
        )


def explain(
    model: Any,
    x: Tensor,
    labels: Sequence[int] | NDArray[np.int64] | Tensor | None = None,
    names: Sequence[str] = (),
) -> Explanation:
    """The reconstructions of images ``(n, *shape)`` in [0, 1] by each class of a classifier by synthesis.

    ``model`` is a classifier, a subject, or a run by its name. ``names`` are the names of the classes.
    """
    subject = as_subject(model)
    classifier = classifier_of(subject, "an explanation by synthesis")
    known = None if labels is None else np.asarray(torch.as_tensor(labels)).reshape(-1).astype(np.int64)
    if known is not None and len(known) != len(x):
        raise ValueError(f"{len(x)} images have as many labels; got {len(known)}")
    if names and len(names) != classifier.classes:
        raise ValueError(f"{classifier.classes} classes have as many names; got {len(names)}")
    with subject.at_rest():
        inference = classifier.infer(subject.prepared(x))
        scores = classifier.scores_of(inference.losses)
        probabilities = classifier.log_probabilities(scores).exp()
    return Explanation(
        x.detach().float().cpu().numpy(),
        inference.reconstructions.float().cpu().numpy(),
        inference.codes.float().cpu().numpy(),
        scores.double().cpu().numpy(),
        probabilities.double().cpu().numpy(),
        known,
        tuple(names),
        subject.name,
    )
