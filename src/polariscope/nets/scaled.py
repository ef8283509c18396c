"""Networks whose output is scaled: networks with a large scale train lazily, with a small scale they learn features."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, models
from polariscope.nets.predictors import Perceptron


@models.register("scaled")
@dataclass(frozen=True)
class ScaledConfig:
    """Any model that predicts, with its output scaled: alpha (f - f0), where f0 is the untrained network."""

    of: Model = field(default_factory=Perceptron)
    alpha: float = 1.0
    """Scale of the output."""

    def build(self, brief: Brief) -> Scaled:
        return Scaled(self.of.build(brief), self.alpha)


class Scaled(nn.Module):
    """α (f(x) − f₀(x)), where f₀ is a copy of the given network: large α trains lazily, small α learns features.

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
