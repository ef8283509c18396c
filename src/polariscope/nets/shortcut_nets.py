"""Small ResNet and DenseNet: the shortcuts of the published networks, with less than 0.3 million weights.

The published networks (ResNet-50 and -101, DenseNet-121) take days on a CPU. These small ones keep their main ideas:
residual sums (He et al. 2016), concatenated layers with bottlenecks (Huang et al. 2017), batch normalisation, maps
that halve from stage to stage, and a mean over the last map.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, images, models, predicts
from polariscope.nets.predictors import EncoderWithHead


@models.register("resnet")
@dataclass(frozen=True)
class ResNet:
    """Residual blocks in three stages; each stage has half the side and twice the channels of the one before."""

    channels: int = 16
    """Channels of the first stage."""
    blocks: int = 1
    """Blocks of each stage."""

    def __post_init__(self) -> None:
        if min(self.channels, self.blocks) < 1:
            raise ValueError(f"channels are {self.channels} and blocks {self.blocks}: both need to be at least 1")

    def build(self, brief: Brief) -> EncoderWithHead:
        inputs = images(brief, "resnet", 8)[0]
        parts: OrderedDict[str, nn.Module] = OrderedDict(stem=_stem(inputs, self.channels))
        width = self.channels
        for stage, outputs in enumerate((self.channels, 2 * self.channels, 4 * self.channels), 1):
            for block in range(1, self.blocks + 1):
                parts[f"stage{stage}_{block}"] = Residual(width, outputs, 2 if stage > 1 and block == 1 else 1)
                width = outputs
        parts["mean"] = _mean()
        return EncoderWithHead(nn.Sequential(parts), width, predicts(brief, "resnet"))


class Residual(nn.Module):
    """A block that adds the output of two convolutions to its input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        projection = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if same else projection

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.shortcut(x) + self.change(x)
        return changed.relu()


@models.register("densenet")
@dataclass(frozen=True)
class DenseNet:
    """Each layer sees the outputs of all layers before it, in three blocks with halvings between them.

    It is trained with a learning rate of 1e-4: the published one diverged at 5e-4 (Spec 001a, section 9).
    """

    growth: int = 8
    """Channels that each layer adds."""
    layers: int = 2
    """Layers of each block."""

    def __post_init__(self) -> None:
        if min(self.growth, self.layers) < 1:
            raise ValueError(f"growth is {self.growth} and layers are {self.layers}: both need to be at least 1")

    def build(self, brief: Brief) -> EncoderWithHead:
        width = 2 * self.growth
        parts: OrderedDict[str, nn.Module] = OrderedDict(stem=_stem(images(brief, "densenet", 8)[0], width))
        for block in range(1, 4):
            if block > 1:
                narrow = nn.Conv2d(width, width // 2, 1, bias=False)
                parts[f"transition{block - 1}"] = nn.Sequential(*_normalised(width), narrow, nn.AvgPool2d(2))
                width //= 2
            for layer in range(1, self.layers + 1):
                parts[f"dense{block}_{layer}"] = Concatenated(width, self.growth)
                width += self.growth
        parts["mean"] = nn.Sequential(*_normalised(width), *_mean())
        return EncoderWithHead(nn.Sequential(parts), width, predicts(brief, "densenet"))


class Concatenated(nn.Module):
    """The input, followed by a few channels that are computed from it through a bottleneck."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            *_normalised(inputs),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            *_normalised(4 * growth),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layer(x)], 1)


def _stem(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), *_normalised(outputs))


def _normalised(channels: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True)


def _mean() -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
