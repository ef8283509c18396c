"""Additive Gaussian noise of rising strength."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.line_search import search_line
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("gaussian-noise")
@dataclass(frozen=True)
class GaussianNoise(Attack):
    """Several draws of Gaussian noise, each clipped with the image and made stronger until it misleads."""

    repeats: int = 10
    strongest: float = 4.0
    """The largest standard deviation that is tried: by then most pixels are at their bounds."""

    needs: ClassVar[Need] = "decision"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "repeats", "strongest")

    def run(self, trial: Trial) -> None:
        longest = torch.full_like(trial.distance, self.strongest)
        for repeat in range(self.repeats):
            noise = trial.draws.normal(trial.rows, trial.x.shape[1], (repeat,)).to(trial.x.dtype)
            search_line(trial, trial.rows, noise, longest)
