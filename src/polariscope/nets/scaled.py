"""Networks whose output is scaled: large scales train lazily, small ones learn features."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, models
from polariscope.nets.predictors import Perceptron


@models.register("scaled")
@dataclass(frozen=True)
class ScaledConfig:
    """Any predicting model with its output scaled: alpha (f - f0)."""

    of: Model = field(default_factory=Perceptron)
    alpha: float = 1.0
    """Scale of the output."""

    def build(self, brief: Brief) -> Scaled:
        return Scaled(self.of.build(brief), self.alpha)


class Scaled(nn.Module):
    """α (f(x) − f₀(x)) with f₀ the network as it is now: large α trains lazily, small α learns features.

    (Chizat, Oyallon and Bach 2019, "On lazy training"; Spec 004, section 3.2.)
    """

    def __init__(self, network: nn.Module, alpha: float) -> None:
        super().__init__()
        if not alpha > 0:
            raise ValueError(f"the output scale is {alpha}: it needs to be positive")
        self.network, self.alpha = network, alpha
        self.start = copy.deepcopy(network).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.alpha * (self.network(x) - self.start(x))
        return scaled


def loss_scale(alpha: float) -> float:
    """The divisor of the loss that makes outputs change equally fast at all scales."""
    return alpha * max(alpha, 1.0)
