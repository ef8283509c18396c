"""The L2 attack of Carlini and Wagner (2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.goals import margin
from polariscope.robustness.attacks.line_search import search_segment
from polariscope.robustness.attacks.trial import Need, Trial

EDGE = 1 - 1e-4
"""Values nearer to 0 or 1 have almost no derivative in the space of the search."""
DECAY = (0.9, 0.999)


@attacks.register("carlini-wagner")
@dataclass(frozen=True)
class CarliniWagner(Attack):
    """Adam on ‖δ‖² + c · max(0, −margin) in a space without bounds, x + δ = (1 + tanh w) / 2, with a search for c.

    An image whose search has succeeded continues with a smaller c, any other with a larger one.
    """

    searches: int = 6
    """Values of c that are tried."""
    steps: int = 100
    learning_rate: float = 0.2
    """Of the first step; it falls to zero, evenly."""
    first: float = 1.0
    """The first c: how much of a squared distance one unit of the scores is worth."""

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2",)

    def __post_init__(self) -> None:
        check_positive(self, "searches", "steps", "learning_rate", "first")

    def run(self, trial: Trial) -> None:
        low = torch.zeros_like(trial.x[:, :1])
        high = torch.full_like(low, torch.inf)
        weight = torch.full_like(low, self.first)
        for _ in range(self.searches):
            reached = self._descend(trial, weight)[:, None]
            high = torch.where(reached, weight, high)
            low = torch.where(reached, low, weight)
            weight = torch.where(high.isinf(), weight * 10, (low + high) / 2)
        search_segment(trial, trial.distance.isfinite().nonzero()[:, 0])

    def _descend(self, trial: Trial, weight: Tensor) -> Tensor:
        """Minimise for one c; returns for which images an adversarial was found."""
        x, rows = trial.x, trial.rows
        w = torch.atanh((2 * (x if trial.starts is None else trial.starts) - 1) * EDGE)
        first, second = torch.zeros_like(w), torch.zeros_like(w)
        adversarial = torch.zeros_like(rows, dtype=torch.bool)
        for step in range(1, self.steps + 1):
            points = (1 + w.tanh()) / 2
            gradient, scores = trial.gradient(points, rows, margin)
            reached = trial.goal.reached(scores)
            adversarial |= reached
            slope = 2 * (points - x) - weight * gradient * ~reached[:, None]
            slope = slope * 2 * points * (1 - points)
            first = DECAY[0] * first + (1 - DECAY[0]) * slope
            second = DECAY[1] * second + (1 - DECAY[1]) * slope.square()
            spread = (second / (1 - DECAY[1] ** step)).sqrt() + 1e-8
            rate = self.learning_rate * (1 - (step - 1) / self.steps)
            w = w - rate * first / (1 - DECAY[0] ** step) / spread
        return adversarial | trial.reached((1 + w.tanh()) / 2)
