"""σ-zero, an attack by gradient on few pixels (Cinà et al. 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.goals import Goal, margin
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("sigma-zero")
@dataclass(frozen=True)
class SigmaZero(Attack):
    """Steps that raise the margin and lower a smooth count of changed pixels, Σ δ² / (δ² + σ); after each step changes
    below a threshold are undone. The threshold rises after an adversarial and falls otherwise.

    A pixel of several channels changes as a whole.
    """

    steps: int = 200
    step: float = 1.0
    """The first step, as the largest change of a pixel; it falls to zero along a cosine."""
    threshold: float = 0.3
    """The first threshold."""
    adapt: float = 0.01
    """How much the threshold changes, times the step."""
    sigma: float = 1e-3

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l0",)

    def __post_init__(self) -> None:
        check_positive(self, "steps", "step", "sigma")

    def run(self, trial: Trial) -> None:
        rows, x = trial.rows, trial.x
        change = torch.zeros_like(x) if trial.starts is None else trial.starts - x
        threshold = torch.full_like(x[:, :1], self.threshold)
        for number in range(self.steps):
            gradient, scores = trial.gradient(x + change, rows, _capped_margin)
            step = self.step * (1 + math.cos(math.pi * number / self.steps)) / 2
            square = self._pixelwise(change.square(), trial.channels)
            count = 2 * self.sigma * change / (square + self.sigma).square() / x.shape[1]
            slope = gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12) - count
            slope = slope / slope.abs().amax(1, keepdim=True).clamp(min=1e-12)
            change = (x + change + step * slope).clamp(0, 1) - x
            small = self._pixelwise(change.square(), trial.channels) < threshold.square()
            change = change.masked_fill(small, 0)
            reached = trial.goal.reached(scores)[:, None]
            threshold = (threshold + self.adapt * step * torch.where(reached, 1.0, -1.0)).clamp(0, 1)
        trial.reached(x + change)

    @staticmethod
    def _pixelwise(squares: Tensor, channels: int) -> Tensor:
        """The largest value over the channels of a pixel, for each of them."""
        return squares.unflatten(1, (channels, -1)).amax(1).repeat(1, channels)


def _capped_margin(scores: Tensor, goal: Goal) -> Tensor:
    """The margin, of no interest where it is positive."""
    return margin(scores, goal).clamp(max=0)
