"""Randomised smoothing: a classifier that predicts the majority vote over noisy copies of an image.

Its prediction is constant within a radius that follows from the size of the majority, for any network (see
:mod:`polariscope.robustness.bounds.smoothing`). (Cohen, Rosenfeld and Kolter 2019.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.model import Brief, Model, models
from polariscope.nets.predictors import DigitNet

AT_ONCE = 4096
"""Noisy copies per batch."""
BLOCK = 32
"""Draws of noise that are made together, so that draw number i does not depend on the number of draws."""


@models.register("smoothed")
@dataclass(frozen=True)
class SmoothedConfig:
    """Any classifier under Gaussian noise: one noisy copy per image in training, a vote over many copies afterwards."""

    of: Model = field(default_factory=DigitNet)
    sd: float = 0.25
    """Standard deviation of the noise."""
    draws: int = 100
    """Number of votes that classify an image. A certificate uses more."""
    clip: bool = True
    """Whether noisy pixels are clipped to [0, 1] before the network sees them."""

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise ValueError(f"the standard deviation of the noise is {self.sd}: it needs to be positive")
        if self.draws < 1:
            raise ValueError(f"the number of votes is {self.draws}: it needs to be at least 1")

    def build(self, brief: Brief) -> Smoothed:
        return Smoothed(self.of.build(brief), self.sd, self.draws, self.clip)


class Smoothed(nn.Module):
    """In training mode, returns the scores of one noisy copy. In evaluation mode, returns the logarithms of the shares
    of votes, with gradients as if votes were probabilities; all images get the same noise, so that a prediction depends
    neither on its batch nor on earlier predictions."""

    def __init__(self, network: nn.Module, sd: float, draws: int = 100, clip: bool = True) -> None:
        super().__init__()
        self.network, self.sd, self.draws, self.clip = network, sd, draws, clip

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            scores: Tensor = self.network(self._clipped(x + self.sd * torch.randn_like(x)))
            return scores
        hard: Tensor = x.new_zeros(())
        soft: Tensor = x.new_zeros(())
        for scores in self._answers(x, self.draws, 0):
            hard = hard + _votes(scores).sum(0)
            soft = soft + scores.softmax(2).sum(0)
        # One more vote is spread over all classes, so that none has a share of 0.
        return ((hard + soft - soft.detach() + 1 / hard.shape[1]) / (self.draws + 1)).log()

    @torch.no_grad()
    def votes(self, x: Tensor, draws: int, seed: int = 0) -> Tensor:
        """How many of ``draws`` noisy copies the network assigns to each class, ``(n, classes)``."""
        total: Tensor = x.new_zeros((), dtype=torch.int64)
        for scores in self._answers(x, draws, seed):
            total = total + _votes(scores).long().sum(0)
        return total

    def _answers(self, x: Tensor, draws: int, seed: int) -> Iterator[Tensor]:
        """Scores ``(draws, n, classes)`` in parts."""
        for block in range(-(-draws // BLOCK)):
            generator = np.random.default_rng((seed, block))
            drawn = generator.standard_normal((BLOCK, *x.shape[1:]), np.float32)[: draws - block * BLOCK]
            for some in torch.from_numpy(drawn).to(x).split(max(1, AT_ONCE // len(x))):
                copies = self._clipped(x + self.sd * some[:, None])
                scores: Tensor = self.network(copies.flatten(0, 1))
                yield scores.reshape(len(some), len(x), -1)

    def _clipped(self, x: Tensor) -> Tensor:
        return x.clamp(0, 1) if self.clip else x


def _votes(scores: Tensor) -> Tensor:
    """A 1 for the class with the largest score; if two classes share one score, its sign decides."""
    if scores.shape[-1] == 1:
        scores = functional.pad(scores, (1, 0))
    return functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores)
