"""Networks on binarised images: each pixel becomes 0 or 1. (Schott et al. 2019, section 6; Spec 001b, part B4.)"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from polariscope.nets.elu_cnn import EluCNN
from polariscope.nets.model import Brief, Model, models


def binarise(x: Tensor, threshold: float = 0.5) -> Tensor:
    """1 where a number is at least the threshold and 0 elsewhere, with the gradient of the identity (straight through).

    >>> import torch
    >>> binarise(torch.tensor([0.2, 0.5, 0.9]))
    tensor([0., 1., 1.])
    """
    if has_torch_function_unary(x):
        out: Tensor = handle_torch_function(binarise, (x,), x, threshold)
        return out
    return x + ((x >= threshold).to(x) - x).detach()


def _both_ends(x: Any, threshold: float = 0.5) -> Any:
    return x.moved(lambda end: binarise(end, threshold))


binarise.interval_rule = _both_ends  # type: ignore[attr-defined]  # see polariscope.robustness.bounds.intervals


@models.register("binarised")
@dataclass(frozen=True)
class BinarisedConfig:
    """Any model that predicts, on binarised images in training and after it; by default the CNN of the comparison."""

    of: Model = field(default_factory=EluCNN)
    threshold: float = 0.5
    """Pixels of at least this brightness become 1, others 0."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"the threshold is {self.threshold}: it needs to be between 0 and 1")

    def build(self, brief: Brief) -> Binarised:
        network = self.of.build(brief)
        return (BinarisedEncoder if hasattr(network, "encode") else Binarised)(network, self.threshold)


class Binarised(nn.Module):
    """A network f on binarised images: f(1[x >= threshold])."""

    def __init__(self, network: nn.Module, threshold: float = 0.5) -> None:
        super().__init__()
        self.network, self.threshold = network, threshold

    def binarised(self, x: Tensor) -> Tensor:
        return binarise(x, self.threshold)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(self.binarised(x))
        return outputs


class BinarisedEncoder(Binarised):
    """A binarised model whose network also encodes."""

    def encode(self, x: Tensor) -> Tensor:
        features: Tensor = self.network.encode(self.binarised(x))  # type: ignore[operator]
        return features
