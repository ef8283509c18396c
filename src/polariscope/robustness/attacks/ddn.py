"""Decoupled direction and norm (Rony et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm, steepest
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("ddn")
@dataclass(frozen=True)
class DDN(Attack):
    """Steps along the gradient of the cross-entropy, on a sphere that shrinks after an adversarial and else grows."""

    steps: int = 100
    gamma: float = 0.05
    """The sphere's radius changes by this share in each step."""
    radius: float = 1.0
    """The first radius."""
    levels: int = 0
    """Brightnesses of a pixel, such as 256, to which perturbed images are rounded; 0: they are not."""

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)

    def __post_init__(self) -> None:
        check_positive(self, "steps", "gamma", "radius")
        if self.levels and self.levels < 2:
            raise ValueError(f"levels of DDN are {self.levels}: 0 for none, or at least 2 brightnesses")

    def run(self, trial: Trial) -> None:
        rows, x = trial.rows, trial.x
        change = torch.zeros_like(x) if trial.starts is None else trial.starts - x
        radius = torch.full_like(x[:, :1], self.radius)
        for step in range(self.steps):
            gradient, scores = trial.gradient(self._rounded(x + change), rows)
            flat = (gradient == 0).all(1)
            if flat.any():
                gradient[flat] = trial.draws.normal(rows[flat], x.shape[1], (step,)).to(x.dtype)
            share = 0.01 + 0.99 * (1 + math.cos(math.pi * step / self.steps)) / 2
            change = change + share * steepest(gradient, "l2")
            shrinks = trial.goal.reached(scores)[:, None]
            radius = radius * torch.where(shrinks, 1 - self.gamma, 1 + self.gamma)
            change = (x + radius * steepest(change, "l2")).clamp(0, 1) - x
        trial.reached(self._rounded(x + change))

    def _rounded(self, points: torch.Tensor) -> torch.Tensor:
        points = points.clamp(0, 1)
        return (points * (self.levels - 1)).round() / (self.levels - 1) if self.levels else points
