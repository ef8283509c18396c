"""Models that predict: registered configurations of the networks in :mod:`~polariscope.nets.classifiers`, and the
encoder of any architecture with a dense layer on its features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import nn

from polariscope.nets.architecture import Architecture, Conv
from polariscope.nets.classifiers import Parametrisation, Pooling, Weights, alexnet, lenet, mlp
from polariscope.nets.model import Brief, images, models, predicts


@models.register("mlp")
@dataclass(frozen=True)
class Perceptron:
    """A fully connected network on flattened observations."""

    hidden: tuple[int, ...] = (128, 128)
    """Units of each hidden layer."""
    width: int = 1
    """Factor on every hidden layer."""
    parametrisation: Parametrisation = "torch"
    """How weights are drawn and scaled."""

    def build(self, brief: Brief) -> nn.Sequential:
        hidden = [self.width * units for units in self.hidden]
        outputs = predicts(brief, "mlp")
        return mlp(math.prod(brief.observation), hidden, outputs, Weights(self.parametrisation), seed=_draw())


@models.register("lenet")
@dataclass(frozen=True)
class LeNet:
    """LeNet with 3x3 filters, for images of at least 10 x 10 pixels."""

    width: int = 1
    """Factor on every number of channels and hidden units."""
    pooling: Pooling = "max"
    parametrisation: Parametrisation = "torch"
    """How weights are drawn and scaled."""

    def build(self, brief: Brief) -> nn.Sequential:
        shape, weights = images(brief, "lenet"), Weights(self.parametrisation)
        return lenet(self.width, shape, predicts(brief, "lenet"), self.pooling, weights, seed=_draw())


@models.register("alexnet")
@dataclass(frozen=True)
class AlexNet:
    """AlexNet of one column, without dropout, for images of about 224x224 pixels."""

    width: int = 1
    """Factor on every number of channels and hidden units."""
    parametrisation: Parametrisation = "torch"
    """How weights are drawn and scaled."""

    def build(self, brief: Brief) -> nn.Sequential:
        channels, weights = images(brief, "alexnet", smallest=63)[0], Weights(self.parametrisation)
        return alexnet(self.width, channels, predicts(brief, "alexnet"), weights, seed=_draw())


@models.register("digit-net")
@dataclass(frozen=True)
class DigitNet:
    """Two 5x5 convolutions with max-pooling and a hidden layer: the usual network for robust training on digits
    (Madry et al. 2018)."""

    channels: tuple[int, int] = (32, 64)
    hidden: int = 1024

    def build(self, brief: Brief) -> nn.Sequential:
        colours, height, width = images(brief, "digit-net", smallest=4)
        first, second = self.channels
        return nn.Sequential(
            nn.Conv2d(colours, first, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (width // 4), self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, predicts(brief, "digit-net")),
        )


@models.register("encoder")
@dataclass(frozen=True)
class Encoder:
    """The encoder of an architecture, as in an autoencoder, with one dense layer from its features to the outputs."""

    architecture: Architecture = field(default_factory=Conv)

    def build(self, brief: Brief) -> EncoderWithHead:
        shape, outputs = brief.observation, predicts(brief, "encoder")
        return EncoderWithHead(self.architecture.encoder(shape), self.architecture.features(shape), outputs)


class EncoderWithHead(nn.Module):
    """``encode`` returns the features, ``forward`` the unbounded output of one dense layer on them."""

    def __init__(self, encoder: nn.Module, features: int, outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(features, outputs)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.encoder(x)
        return features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.encode(x))
        return outputs


def _draw() -> int:
    """A seed from torch's global random state, for networks that take a seed."""
    return int(torch.randint(2**31, ()))
