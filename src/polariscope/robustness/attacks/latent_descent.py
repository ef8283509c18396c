"""Latent Descent: an image is moved towards how a classifier by synthesis explains it as another class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.line_search import search_segment
from polariscope.robustness.attacks.trial import Need, Trial
from polariscope.robustness.synthesis.classifier import ABSClassifier, classifier_of
from polariscope.robustness.synthesis.inference import Inference
from polariscope.robustness.synthesis.pursuit import Pursuit
from polariscope.subjects import Subject

CHECK = 20
"""Steps after which a point is classified in full, whatever the result of the quick inference."""


@attacks.register("latent-descent")
@dataclass(frozen=True)
class LatentDescent(Attack):
    """Steps towards the synthesis of the best wrong class, which is inferred again after each; or bisection of the
    segment to it (Schott et al. 2019, equation 9).

    Only classifiers by synthesis have this attack. Between steps, codes are inferred from those of the last position;
    every adversarial that counts was inferred in full. An attack on a binary classifier moves the raw image: put it
    into ``binarised`` to undo the changes that the threshold hides.
    """

    form: Literal["iterative", "segment"] = "iterative"
    """Infer the other class after every step, or once."""
    step: float = 0.01
    """Share of the way to the other class that a step covers."""
    steps: int = 300
    """Most steps."""
    bisections: int = 10
    """Bisections of the last step."""
    inner: int = 10
    """Gradient steps by which codes follow an image from one position to the next."""

    needs: ClassVar[Need] = "score"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        if not 0 < self.step <= 1 or min(self.steps, self.bisections, self.inner) < 1:
            raise ValueError(f"latent descent needs a step from 0 to 1 and at least one of everything else; got {self}")

    def applies(self, subject: Subject) -> bool:
        return isinstance(subject.module, ABSClassifier)

    def run(self, trial: Trial) -> None:
        pursuit = Pursuit(classifier_of(trial.subject, "latent-descent"), len(trial.x), self.inner)
        if self.form == "segment":
            towards, _ = self._other_class(trial, pursuit, trial.x, trial.rows)
            trial.reached(towards.clamp(0, 1), trial.rows)
        else:
            self._descend(trial, pursuit)
        search_segment(trial, trial.distance.isfinite().nonzero()[:, 0])

    def _descend(self, trial: Trial, pursuit: Pursuit) -> None:
        rows, points, before = trial.rows, trial.x, trial.x
        for number in range(1, self.steps + 1):
            towards, seems_reached = self._other_class(trial, pursuit, points, rows)
            asked = seems_reached | (number % CHECK == 0)
            reached = torch.zeros_like(asked)
            if asked.any():
                reached[asked] = trial.reached(points[asked], rows[asked])
            if reached.any():
                self._bisect(trial, rows[reached], before[reached], points[reached])
                rows, points, towards = rows[~reached], points[~reached], towards[~reached]
                if not len(rows):
                    return
            before, points = points, torch.lerp(points, towards, self.step).clamp(0, 1)
        trial.reached(points, rows)

    def _bisect(self, trial: Trial, rows: Tensor, low: Tensor, high: Tensor) -> None:
        """The place in the last step from which on it is adversarial."""
        for _ in range(self.bisections):
            middle = (low + high) / 2
            reached = trial.reached(middle, rows)[:, None]
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)

    @staticmethod
    def _other_class(trial: Trial, pursuit: Pursuit, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The synthesis ``(n, d)`` of the best wrong class (or the target), and whether the goal seems reached."""
        images = trial.subject.prepared(points.reshape(-1, *trial.shape))
        inference: Inference = pursuit.infer(images, rows)
        trial.queries[rows] += 1
        scores = pursuit.classifier.scores_of(inference.losses)
        goal = trial.goal.at(rows)
        other = scores.scatter(1, goal.named, -torch.inf).argmax(1)
        number = other if goal.targets is None else goal.targets
        chosen = inference.reconstructions[torch.arange(len(rows), device=rows.device), number]
        return chosen.flatten(1).to(points), goal.reached(scores)
