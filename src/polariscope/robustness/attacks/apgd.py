"""Auto-PGD (Croce and Hein 2020), two parts of AutoAttack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import attacks, check_positive
from polariscope.robustness.attacks.fixed_epsilon import FixedEpsilonAttack
from polariscope.robustness.attacks.geometry import Norm, clipped, steepest, within
from polariscope.robustness.attacks.goals import Goal, Loss, cross_entropy, dlr, rivals
from polariscope.robustness.attacks.pgd import random_start
from polariscope.robustness.attacks.trial import Need, Trial

LOSSES: dict[str, Loss] = {"ce": cross_entropy, "dlr": dlr}
MOMENTUM = 0.75
ENOUGH = 0.75
"""A step is halved if the loss rose in a smaller share of the steps since the last look."""


@attacks.register("apgd")
@dataclass(frozen=True)
class APGD(FixedEpsilonAttack):
    """PGD with momentum that halves its step when the loss no longer rises, and then returns to the best point.

    With ``classes`` it targets this many classes in turn, those with the best scores.
    """

    loss: Literal["ce", "dlr"] = "ce"
    steps: int = 100
    restarts: int = 1
    classes: int = 0

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "steps", "restarts")

    def refuses(self, classes: int) -> str:
        least = 4 if self.classes else 3
        if self.loss == "dlr" and classes < least:
            return f"compares the {least} best scores, and the classifier has {classes} classes: use the loss 'ce'"
        return ""

    def attempt(self, trial: Trial, rows: Tensor, epsilon: Tensor, key: int) -> None:
        goals: list[Goal] = [trial.goal]
        if self.classes and trial.goal.targets is None:
            ranked = rivals(trial.scores(trial.x[rows], rows), trial.goal.labels[rows], self.classes)
            goals = [Goal(trial.goal.labels, trial.goal.labels.index_put((rows,), towards)) for towards in ranked.T]
        for number, goal in enumerate(goals):
            for restart in range(self.restarts):
                epsilon, rows = trial.left(epsilon, rows)
                if not len(rows):
                    return
                points = random_start(trial, rows, epsilon, (key, restart, number))
                self._ascend(trial, rows, epsilon, points, goal)

    def _ascend(self, trial: Trial, rows: Tensor, epsilon: Tensor, points: Tensor, goal: Goal) -> None:
        loss, checkpoints, last = LOSSES[self.loss], _checkpoints(self.steps), 0
        gradient, scores = trial.gradient(points, rows, loss, goal.at(rows))
        climb = _Climb(rows, epsilon, points, gradient, loss(scores, goal.at(rows)))
        for step in range(1, self.steps + 1):
            climb.keep(~within(trial.distance[climb.rows], climb.epsilon))
            if not len(climb.rows):
                return
            climb.ahead(trial.x[climb.rows], trial.norm, MOMENTUM if step > 1 else 1.0)
            gradient, scores = trial.gradient(climb.points, climb.rows, loss, goal.at(climb.rows))
            climb.arrive(gradient, loss(scores, goal.at(climb.rows)))
            if step in checkpoints:
                climb.look_back(step - last)
                last = step


class _Climb:
    """Where each row is, where it was best, and how its loss has risen since the last look back."""

    def __init__(self, rows: Tensor, epsilon: Tensor, points: Tensor, gradient: Tensor, value: Tensor) -> None:
        self.rows, self.epsilon, self.size = rows, epsilon, 2 * epsilon.to(points.dtype)[:, None]
        self.points, self.gradient, self.value, self.before = points, gradient, value, points
        self.best, self.best_gradient, self.best_value = points, gradient, value
        self.risen, self.halved = torch.zeros_like(value), torch.ones_like(rows, dtype=torch.bool)
        self.last_best = value

    def keep(self, which: Tensor) -> None:
        if not which.all():
            for name, tensor in vars(self).items():
                setattr(self, name, tensor[which])

    def ahead(self, x: Tensor, norm: Norm, share: float) -> None:
        """One step along the gradient, and the rest of it along the step before."""
        step = clipped(self.points + self.size * steepest(self.gradient, norm), x, self.epsilon, norm) - self.points
        moved = self.points + share * step + (1 - share) * (self.points - self.before)
        self.before, self.points = self.points, clipped(moved, x, self.epsilon, norm)

    def arrive(self, gradient: Tensor, value: Tensor) -> None:
        self.risen = self.risen + (value > self.value)
        self.gradient, self.value = gradient, value
        better = value > self.best_value
        self.best = torch.where(better[:, None], self.points, self.best)
        self.best_gradient = torch.where(better[:, None], gradient, self.best_gradient)
        self.best_value = torch.where(better, value, self.best_value)

    def look_back(self, steps: int) -> None:
        """Halve the step and return to the best point where the loss rose too seldom, or where neither the step nor the
        best loss has changed since the last look back."""
        stuck = (self.risen < ENOUGH * steps) | (~self.halved & (self.last_best >= self.best_value))
        self.size = torch.where(stuck[:, None], self.size / 2, self.size)
        self.points = torch.where(stuck[:, None], self.best, self.points)
        self.gradient = torch.where(stuck[:, None], self.best_gradient, self.gradient)
        self.value = torch.where(stuck, self.best_value, self.value)
        self.last_best, self.halved, self.risen = self.best_value, stuck, torch.zeros_like(self.risen)


def _checkpoints(steps: int) -> set[int]:
    """The steps at which the step size is checked, at decreasing intervals.

    >>> sorted(_checkpoints(100))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    shares, gap = [0.0, 0.22], 0.22
    while shares[-1] <= 1:
        gap = max(gap - 0.03, 0.06)
        shares.append(shares[-1] + gap)
    return {round(share * steps) for share in shares[1:-1]}
