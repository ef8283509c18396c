"""The fast adaptive boundary attack (Croce and Hein 2020, Minimally distorted adversarial examples)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm, length, reach, to_plane
from polariscope.robustness.attacks.goals import Goal, class_gaps, rivals
from polariscope.robustness.attacks.line_search import search_segment
from polariscope.robustness.attacks.pgd import random_start
from polariscope.robustness.attacks.trial import Need, Trial

BIAS = 0.1
"""The largest share of a step that starts from the image instead of the current point."""
OVERSHOOT = 1.05
BACK = 0.9
"""After an adversarial, the search continues from this share of the way to it."""


@attacks.register("fab")
@dataclass(frozen=True)
class FAB(Attack):
    """Steps to the plane on which the linearised classifier is undecided between the label and another class, with a
    bias towards the image; after each adversarial, a step back towards the image.

    It targets ``classes`` classes in turn, those with the best scores. A restart begins at a random point at half of
    the smallest distance so far.
    """

    steps: int = 100
    classes: int = 9
    restarts: int = 1

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "steps", "classes", "restarts")

    def run(self, trial: Trial) -> None:
        rows = trial.rows
        if trial.goal.targets is None:
            ranked = rivals(trial.scores(trial.x, rows), trial.goal.labels, self.classes)
            goals = [Goal(trial.goal.labels, towards) for towards in ranked.T]
        else:
            goals = [trial.goal]
        for restart in range(self.restarts):
            for number, goal in enumerate(goals):
                points = trial.x if trial.starts is None else trial.starts
                if restart:
                    known = torch.minimum(trial.distance, reach(trial.x, trial.norm)) / 2
                    points = random_start(trial, rows, known, (restart, number))
                self._approach(trial, points, goal)
        search_segment(trial, trial.distance.isfinite().nonzero()[:, 0])

    def _approach(self, trial: Trial, points: Tensor, goal: Goal) -> None:
        rows, x, norm = trial.rows, trial.x, trial.norm
        for _ in range(self.steps):
            normal, scores = trial.gradient(points, rows, class_gaps(1), goal)
            gap = -class_gaps(1)(scores, goal)[:, 0]
            from_point = self._signed(points, normal, gap, norm)
            from_image = self._signed(x, normal, gap + (normal * (points - x)).sum(1), norm)
            lengths = [length(one, norm).to(x.dtype)[:, None] for one in (from_point, from_image)]
            share = (lengths[0] / (lengths[0] + lengths[1]).clamp(min=1e-12)).clamp(max=BIAS)
            ahead = (1 - share) * (points + OVERSHOOT * from_point) + share * (x + OVERSHOOT * from_image)
            points = ahead.clamp(0, 1)
            reached = trial.reached(points)[:, None]
            points = torch.where(reached, torch.lerp(x, points, BACK), points)

    @staticmethod
    def _signed(points: Tensor, normal: Tensor, gap: Tensor, norm: Norm) -> Tensor:
        """The smallest move to the plane from either side of it."""
        side = torch.where(gap >= 0, 1.0, -1.0).to(points.dtype)
        return to_plane(points, normal * side[:, None], gap.abs(), norm)
