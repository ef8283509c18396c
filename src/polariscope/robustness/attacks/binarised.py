"""Perturbations of models that binarise their input, made as small as the threshold allows (Schott et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("binarised")
@dataclass(frozen=True)
class Binarised(Attack):
    """Another attack, whose adversarials then lose every change that a model with a threshold cannot see."""

    of: Attack = field(default_factory=DeepFool)
    threshold: float = 0.5

    @property
    def needs(self) -> Need:
        return self.of.needs

    @property
    def norms(self) -> tuple[Norm, ...]:
        return self.of.norms

    def run(self, trial: Trial) -> None:
        self.of.run(trial)
        trial.reached(at_threshold(trial.best, trial.x, self.threshold), trial.rows)


def at_threshold(points: Tensor, x: Tensor, threshold: float = 0.5) -> Tensor:
    """Each pixel at its clean value if it is on the same side of the threshold, else just on the other side of it: at
    the threshold (which counts as bright) or at the next smaller number.

    >>> x, points = torch.tensor([[0.0, 0.1, 0.9]]), torch.tensor([[0.4, 0.8, 0.2]])
    >>> at_threshold(points, x)
    tensor([[0.0000, 0.5000, 0.5000]])
    >>> (at_threshold(points, x) >= 0.5).tolist() == (points >= 0.5).tolist()
    True
    """
    bright = torch.full_like(x, threshold)
    dark = torch.nextafter(bright, torch.zeros_like(x))
    was, is_now = x >= threshold, points >= threshold
    return torch.where(was == is_now, x, torch.where(is_now, bright, dark))
