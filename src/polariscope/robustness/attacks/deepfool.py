"""DeepFool (Moosavi-Dezfooli et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm, to_plane
from polariscope.robustness.attacks.goals import class_gaps
from polariscope.robustness.attacks.line_search import search_segment
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("deepfool")
@dataclass(frozen=True)
class DeepFool(Attack):
    """Steps to the nearest plane at which the classifier, taken as linear, would decide for another class.

    A step stays inside of the box, so that it is the smallest one also for pixels at their bounds.
    """

    steps: int = 50
    classes: int = 9
    """Number of other classes whose planes are considered, those with the best scores."""
    overshoot: float = 0.02
    """A step goes this much further than to the plane, relative to its length."""

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "steps", "classes")

    def run(self, trial: Trial) -> None:
        rows, points = trial.rows, trial.x
        gaps = class_gaps(self.classes)
        dual = 2 if trial.norm == "l2" else 1
        for _ in range(self.steps):
            jacobian, scores = trial.jacobian(points, rows, gaps)
            missing = -gaps(scores, trial.goal.at(rows))
            size = jacobian.norm(p=dual, dim=2).clamp(min=torch.finfo(points.dtype).tiny)
            nearest = (missing / size).argmin(1, keepdim=True)
            normal = jacobian.gather(1, nearest[..., None].expand(-1, -1, points.shape[1]))[:, 0]
            left = ~trial.goal.at(rows).reached(scores)
            if not left.any():
                break
            rows, points, normal = rows[left], points[left], normal[left]
            gap = missing.gather(1, nearest)[left, 0].clamp(min=0)
            points = (points + (1 + self.overshoot) * to_plane(points, normal, gap, trial.norm)).clamp(0, 1)
        else:
            trial.reached(points, rows)
        search_segment(trial, trial.distance.isfinite().nonzero()[:, 0])
