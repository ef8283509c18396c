"""The momentum iterative method (Dong et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from polariscope.robustness.attacks.attack import attacks, check_positive
from polariscope.robustness.attacks.fixed_epsilon import FixedEpsilonAttack
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.pgd import ascend, given_start
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("mim")
@dataclass(frozen=True)
class MIM(FixedEpsilonAttack):
    """PGD along a running sum of gradients, each divided by its L1 norm: g ← momentum · g + ∇ / ‖∇‖₁."""

    steps: int = 40
    step: float = 0.1
    """The length of a step as a share of epsilon."""
    momentum: float = 1.0

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "steps", "step")

    def attempt(self, trial: Trial, rows: Tensor, epsilon: Tensor, key: int) -> None:
        points = given_start(trial, rows, epsilon)
        ascend(trial, rows, epsilon, points, self.steps, self.step, self.momentum)
