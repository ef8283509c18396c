"""The supervised models of the in-domain generalisation benchmark (Spec 001a, section 9), all with a linear head.

Each has an ``encoder`` and a ``head`` under these names, so that one of them can be taken from another run, or frozen,
without the other. At 64x64 pixels the sizes are those of the publication; for other images they follow the image. The
rotation-equivariant network and the networks with shortcuts are in files of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.architecture import Conv, kaiming
from polariscope.nets.model import Brief, Shape, images, models, predicts
from polariscope.nets.predictors import EncoderWithHead, Perceptron

FEATURES = 256
"""Numbers that the convolutional encoder returns."""


@models.register("mlp-regressor")
@dataclass(frozen=True)
class MLPRegressor(Perceptron):
    """The fully connected network with about as many weights as the CNN has at 64x64."""

    hidden: tuple[int, ...] = (90, 90, 90, 90, 45)


@models.register("cnn")
@dataclass(frozen=True)
class CNN:
    """The convolutional encoder of the autoencoders with a linear head: six layers at 64x64."""

    extra_layers: int = 0
    """Number of 3x3 convolutions of the last map before the features; 3 give the nine layers of the published
    ablation."""

    def __post_init__(self) -> None:
        if self.extra_layers < 0:
            raise ValueError(f"extra_layers is {self.extra_layers}: it needs to be at least 0")

    def build(self, brief: Brief) -> EncoderWithHead:
        encoder = convolutions(images(brief, "cnn", 8), self.extra_layers)
        return EncoderWithHead(encoder, FEATURES, predicts(brief, "cnn"))


@models.register("coordconv")
@dataclass(frozen=True)
class CoordConv:
    """Six small convolutions with coordinate channels as input, then pooling over the map.

    The publication does not state kernels and strides, and the 32 numbers that it has after the pool cannot be a square
    map of 16 channels. Here kernels are 3x3, the first layers halve the map down to 4 pixels, and the pool is over the
    whole map, so the network knows positions only from the coordinates.
    """

    channels: int = 16

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise ValueError(f"the number of channels is {self.channels}: it needs to be at least 1")

    def build(self, brief: Brief) -> EncoderWithHead:
        inputs, *sides = images(brief, "coordconv", 8)
        blocks: OrderedDict[str, nn.Module] = OrderedDict(coordinates=WithCoordinates(*sides))
        inputs += 2
        for number in range(1, 7):
            stride = 2 if min(sides) > 4 else 1
            blocks[f"conv{number}"] = nn.Sequential(nn.Conv2d(inputs, self.channels, 3, stride, 1), nn.ReLU())
            inputs, sides = self.channels, [-(-side // stride) for side in sides]
        blocks["pool"] = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten())
        blocks["features"] = _dense(self.channels, 32)
        return EncoderWithHead(kaiming(nn.Sequential(blocks)), 32, predicts(brief, "coordconv"))


@models.register("set-encoder")
@dataclass(frozen=True)
class SetEncoder:
    """A network on the set of pixels of an image with their coordinates ("coordinate-based" in the publication)."""

    def build(self, brief: Brief) -> EncoderWithHead:
        return EncoderWithHead(PixelSet(*images(brief, "set-encoder")), 20, predicts(brief, "set-encoder"))


@models.register("spatial-transformer")
@dataclass(frozen=True)
class SpatialTransformer:
    """A CNN that first transforms its image by a learned affine map, which starts as the identity."""

    def build(self, brief: Brief) -> EncoderWithHead:
        shape = images(brief, "spatial-transformer", 8)
        encoder = nn.Sequential(OrderedDict(straightened=Straightened(*shape), cnn=convolutions(shape)))
        return EncoderWithHead(encoder, FEATURES, predicts(brief, "spatial-transformer"))


def convolutions(shape: Shape, extra_layers: int = 0) -> nn.Sequential:
    """The encoder of the CNN: that of the autoencoders, with ``extra_layers`` more layers before its last."""
    blocks = OrderedDict(Conv().encoder(shape).named_children())
    features = blocks.pop("features")
    for number in range(1, extra_layers + 1):
        blocks[f"extra{number}"] = kaiming(nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(inplace=True)))
    return nn.Sequential(OrderedDict(**blocks, features=features))


class WithCoordinates(nn.Module):
    """Adds two channels to images: the row and the column of each pixel, from ``first`` to 1."""

    places: Tensor

    def __init__(self, height: int, width: int, first: float = -1.0) -> None:
        super().__init__()
        sides = (torch.linspace(first, 1, side) for side in (height, width))
        self.register_buffer("places", torch.stack(torch.meshgrid(*sides, indexing="ij")), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.places.expand(len(x), -1, -1, -1)], 1)


class PixelSet(nn.Module):
    """Features of a set of pixels: the mean of a network's outputs over the pixels, whose order does not matter, then a
    second network."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.coordinates = WithCoordinates(height, width, first=0.0)
        self.each = _dense(channels + 2, 40, 40, 20)
        self.together = _dense(20, 20, 20)

    def pixels(self, x: Tensor) -> Tensor:
        """Images as ``(n, pixels, values and coordinates)``."""
        placed: Tensor = self.coordinates(x)
        return placed.flatten(2).transpose(1, 2)

    def of_pixels(self, pixels: Tensor) -> Tensor:
        # A few images at a time, so that intermediate results stay in the processor's cache.
        means = torch.cat([self.each(part).mean(1) for part in pixels.split(8)])
        features: Tensor = self.together(means)
        return features

    def forward(self, x: Tensor) -> Tensor:
        return self.of_pixels(self.pixels(x))


class Straightened(nn.Module):
    """Transforms each image by the affine map that a small network, the localiser, predicts for it.

    Small images skip the later stages of the localiser; images of 64x64 pixels pass all three, which return 90 numbers.
    Training from any start other than the identity is reported to diverge (Spec 001a, section 16).
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for outputs, size in ((8, 7), (10, 5), (10, 6)):
            if min(height, width) <= size:
                break
            stages += [nn.Conv2d(channels, outputs, size), nn.MaxPool2d(2), nn.ReLU()]
            channels, height, width = outputs, (height - size + 1) // 2, (width - size + 1) // 2
        self.localiser = nn.Sequential(*stages, nn.Flatten(), *_dense(channels * height * width, 32))
        self.affine = nn.Linear(32, 6)
        with torch.no_grad():
            self.affine.weight.zero_()
            self.affine.bias.copy_(torch.eye(2, 3).flatten())

    def forward(self, x: Tensor) -> Tensor:
        maps = self.affine(self.localiser(x)).unflatten(1, (2, 3))
        places = functional.affine_grid(maps, list(x.shape), align_corners=False)
        return functional.grid_sample(x, places, align_corners=False)


def _dense(*widths: int) -> nn.Sequential:
    return kaiming(nn.Sequential(*(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU()))))
