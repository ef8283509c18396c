"""The boundary attack (Brendel et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm, steepest
from polariscope.robustness.attacks.starts import adversarial_starts
from polariscope.robustness.attacks.trial import Need, Trial

FACTOR = 1.5
"""By which a step grows or shrinks."""
EVERY = 10
"""Steps between two queries at points that moved only along the sphere."""
CONVERGED = 1e-7
"""An image is done when its steps towards the image are this small, relative to the distance."""


@attacks.register("boundary")
@dataclass(frozen=True)
class Boundary(Attack):
    """A random walk along the decision boundary, by decisions alone.

    A step goes along the sphere around the image and then towards the image, and is taken if it stays adversarial.
    Steps along the sphere grow if more than half of the points after them are adversarial, and shrink if less than a
    fifth are; steps towards the image grow above a quarter and shrink below a tenth of all steps.
    """

    steps: int = 5000
    along: float = 0.01
    """The first step along the sphere, relative to the distance."""
    towards: float = 0.01
    """The first step towards the image, relative to the distance."""

    needs: ClassVar[Need] = "decision"
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)

    def __post_init__(self) -> None:
        check_positive(self, "steps", "along", "towards")

    def run(self, trial: Trial) -> None:
        rows = adversarial_starts(trial)
        x, points = trial.x[rows], trial.best[rows]
        along, towards = torch.full_like(x[:, :1], self.along), torch.full_like(x[:, :1], self.towards)
        spheres, steps = _Rate(along, 10, 0.2, 0.5), _Rate(along, 30, 0.1, 0.25)
        for step in range(self.steps):
            if not len(rows):
                break
            noise = trial.draws.normal(rows, x.shape[1], (step,)).to(x.dtype)
            sphere, moved = _candidates(x, points, noise, along, towards)
            if step % EVERY == 0:
                factor = spheres.factor(trial.reached(sphere, rows))
                along, towards = along * factor, towards * factor
            reached = trial.reached(moved, rows)
            points = torch.where(reached[:, None], moved, points)
            towards = towards * steps.factor(reached)
            left = towards[:, 0] > CONVERGED
            if not left.all():
                rows, x, points, along, towards = (one[left] for one in (rows, x, points, along, towards))
                spheres, steps = spheres.at(left), steps.at(left)


def _candidates(x: Tensor, points: Tensor, noise: Tensor, along: Tensor, towards: Tensor) -> tuple[Tensor, Tensor]:
    """Points moved along the sphere around the image, and then towards the image."""
    back = x - points
    distance = back.norm(dim=1, keepdim=True)
    unit = steepest(back, "l2")
    noise = steepest(noise - (noise * unit).sum(1, keepdim=True) * unit, "l2")
    # On the sphere again after a step of relative size s along its tangent: divide by √(1 + s²).
    tangent = (points + along * distance * noise - x) / (1 + along.square()).sqrt()
    sphere = (x + tangent).clamp(0, 1)
    change = x - sphere
    length = change.norm(dim=1, keepdim=True)
    # Towards the image by a share of the distance, and the rounding of the first step undone.
    ahead = (towards * distance + length - distance).clamp(min=0)
    return sphere, (sphere + ahead * steepest(change, "l2")).clamp(0, 1)


class _Rate:
    """How often points were adversarial, for each row, since its step was last changed."""

    def __init__(self, like: Tensor, window: int, low: float, high: float) -> None:
        self.count, self.hits = torch.zeros_like(like), torch.zeros_like(like)
        self.window, self.low, self.high = window, low, high

    def factor(self, reached: Tensor) -> Tensor:
        """Count a success or failure, and return the factor by which the step changes."""
        self.count, self.hits = self.count + 1, self.hits + reached[:, None]
        share = self.hits / self.count
        full = self.count >= self.window
        grows, shrinks = full & (share > self.high), full & (share < self.low)
        factor = torch.where(grows, FACTOR, torch.where(shrinks, 1 / FACTOR, torch.ones_like(share)))
        self.count, self.hits = self.count * ~full, self.hits * ~full
        return factor

    def at(self, rows: Tensor) -> _Rate:
        other = _Rate(self.count[rows], self.window, self.low, self.high)
        other.count, other.hits = self.count[rows], self.hits[rows]
        return other
