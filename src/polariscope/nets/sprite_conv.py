"""The convolutional pair of the conditional-invariance work on sprites (Spec 000, section 6.8)."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from polariscope.nets.architecture import Reshape, architectures, kaiming
from polariscope.nets.model import Shape

CHANNELS = (32, 32, 64, 64)


@architectures.register("sprite-conv")
@dataclass(frozen=True)
class SpriteConv:
    """Four 4x4 convolutions of stride 2, then a flattened map; the decoder starts with two dense layers.

    Images need sides that divide by 16. At 64 x 64 pixels the map has 1024 numbers.

    >>> shape = (1, 64, 64)
    >>> sum(p.numel() for p in SpriteConv().encoder(shape).parameters()) + 1024 * 5 + 5  # with a head to 5 latents
    120517
    >>> sum(p.numel() for p in SpriteConv().decoder(5, shape).parameters())
    248193
    """

    hidden: int = 128
    """Units of the first dense layer of the decoder."""

    def features(self, shape: Shape) -> int:
        return CHANNELS[-1] * math.prod(_map_sides(shape))

    def encoder(self, shape: Shape) -> nn.Sequential:
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        _map_sides(shape)
        for number, (inputs, outputs) in enumerate(itertools.pairwise((shape[0], *CHANNELS)), 1):
            blocks[f"conv{number}"] = nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, 1), nn.ReLU(inplace=True))
        blocks["flatten"] = nn.Flatten()
        return kaiming(nn.Sequential(blocks))

    def decoder(self, latents: int, shape: Shape) -> nn.Sequential:
        sides, features = _map_sides(shape), self.features(shape)
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        blocks["dense1"] = nn.Sequential(nn.Linear(latents, self.hidden), nn.ReLU(inplace=True))
        blocks["dense2"] = nn.Sequential(
            nn.Linear(self.hidden, features), nn.ReLU(inplace=True), Reshape(CHANNELS[-1], *sides)
        )
        widths = (*reversed(CHANNELS), shape[0])
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), 1):
            layer = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1)
            last = number == len(CHANNELS)
            blocks[f"deconv{number}"] = layer if last else nn.Sequential(layer, nn.ReLU(inplace=True))
        return kaiming(nn.Sequential(blocks))


def _map_sides(shape: Shape) -> tuple[int, int]:
    """Sides of the last map."""
    if len(shape) != 3 or shape[1] % 16 or shape[2] % 16:
        raise ValueError(
            "the sprite-conv architecture needs images (channels, height, width) with sides that divide by 16; this "
            f"data has shape {tuple(shape)}: use conv or mlp (--model.architecture mlp), or resize with --world.size"
        )
    return shape[1] // 16, shape[2] // 16
