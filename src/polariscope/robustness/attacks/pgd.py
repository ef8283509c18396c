"""Projected gradient descent, also called the basic iterative method (Kurakin et al. 2017; Madry et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import attacks, check_positive
from polariscope.robustness.attacks.fixed_epsilon import FixedEpsilonAttack
from polariscope.robustness.attacks.geometry import Norm, clipped, steepest
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("pgd")
@dataclass(frozen=True)
class PGD(FixedEpsilonAttack):
    """Steps along the gradient of the cross-entropy, each followed by a projection onto the ball of radius epsilon.

    Without a random start this is the basic iterative method (BIM).
    """

    steps: int = 40
    step: float = 0.1
    """The length of a step as a share of epsilon."""
    random_start: bool = True
    restarts: int = 1

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "steps", "step", "restarts")

    def attempt(self, trial: Trial, rows: Tensor, epsilon: Tensor, key: int) -> None:
        for restart in range(self.restarts):
            epsilon, rows = trial.left(epsilon, rows)
            if not len(rows):
                return
            if self.random_start:
                points = random_start(trial, rows, epsilon, (key, restart))
            else:
                points = given_start(trial, rows, epsilon)
            ascend(trial, rows, epsilon, points, self.steps, self.step)


def ascend(
    trial: Trial, rows: Tensor, epsilon: Tensor, points: Tensor, steps: int, step: float, momentum: float = 0.0
) -> None:
    """Follow the gradient of the cross-entropy until an adversarial is found within epsilon."""
    velocity = torch.zeros_like(points)
    for _ in range(steps):
        gradient, _ = trial.gradient(points, rows)
        epsilon, rows, points, gradient, velocity = trial.left(epsilon, rows, points, gradient, velocity)
        if not len(rows):
            return
        if momentum:
            size = gradient.abs().sum(1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
            gradient = velocity = momentum * velocity + gradient / size
        move = steepest(gradient, trial.norm) * (step * epsilon).to(points.dtype)[:, None]
        points = clipped(points + move, trial.x[rows], epsilon, trial.norm)
    trial.reached(points, rows)


def given_start(trial: Trial, rows: Tensor, epsilon: Tensor) -> Tensor:
    """The caller's starting points, moved into the ball, or the images themselves."""
    start = trial.x[rows] if trial.starts is None else trial.starts[rows]
    return clipped(start, trial.x[rows], epsilon, trial.norm)


def random_start(trial: Trial, rows: Tensor, epsilon: Tensor, key: tuple[int, ...]) -> Tensor:
    """Points drawn uniformly from the ball of radius epsilon around where the search would start without them."""
    x = given_start(trial, rows, epsilon)
    radius = epsilon.to(x.dtype)[:, None]
    if trial.norm == "linf":
        noise = 2 * trial.draws.uniform(rows, x.shape[1], key).to(x.dtype) - 1
    else:
        direction = trial.draws.normal(rows, x.shape[1], (*key, 0)).to(x.dtype)
        size = trial.draws.uniform(rows, 1, (*key, 1)).to(x.dtype) ** (1 / x.shape[1])
        noise = size * steepest(direction, "l2")
    return clipped(x + radius * noise, trial.x[rows], epsilon, trial.norm)
