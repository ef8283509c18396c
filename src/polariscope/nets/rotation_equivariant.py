"""A rotation-equivariant CNN: group convolutions over eight rotations.

A feature has eight channels, one for each orientation of its filter (Cohen and Welling 2016, "Group equivariant
convolutional networks"). If the image is rotated by 90 degrees, the maps rotate and move on by two channels. This is
exact: quarter turns of filters need no interpolation, and strides fit into even sides from both ends. For 45 degrees it
holds up to interpolation.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.model import Brief, images, models, predicts
from polariscope.nets.predictors import EncoderWithHead
from polariscope.nets.vision import FEATURES, convolutions

ROTATIONS = 8


@models.register("rotation-equivariant")
@dataclass(frozen=True)
class RotationEquivariant:
    """The CNN with every convolution made equivariant to eight rotations, for square images."""

    big: bool = False
    """Whether there are as many features as the CNN has channels, each in eight orientations, or an eighth of them. The
    big network needs 64 times as much computation."""
    pooled: bool = True
    """Keep only the largest orientation of each feature, as published. The prediction is then the same for a rotated
    image and does not depend on positions."""

    def build(self, brief: Brief) -> EncoderWithHead:
        name = "rotation-equivariant"
        shape = images(brief, name, 8)
        if shape[1] != shape[2]:
            raise ValueError(f"{name} needs square images, and these have {shape[1]} x {shape[2]} pixels: use cnn")
        share = 1 if self.big else ROTATIONS
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for part, block in convolutions(shape).named_children():
            plain = next(layer for layer in block.modules() if isinstance(layer, nn.Conv2d))
            inputs = plain.in_channels // share if blocks else None
            turning = RotationConv(
                inputs or shape[0],
                plain.out_channels // share,
                plain.kernel_size[0],
                plain.stride[0],
                int(plain.padding[0]),
                lifts=not blocks,
            )
            blocks[part] = nn.Sequential(turning, nn.ReLU(inplace=True))
        blocks["pool"] = OverRotations() if self.pooled else nn.Flatten()
        features = FEATURES // share * (1 if self.pooled else ROTATIONS)
        return EncoderWithHead(nn.Sequential(blocks), features, predicts(brief, name))


class RotationConv(nn.Module):
    """A convolution between features of eight orientations each: channel ``8 * feature + orientation``.

    With ``lifts``, its inputs are plain channels, which have no orientation.
    """

    turned: Tensor
    relative: Tensor

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, padding: int, *, lifts: bool) -> None:
        super().__init__()
        orientations = 1 if lifts else ROTATIONS
        self.size, self.stride, self.padding = size, stride, padding
        self.weight = nn.Parameter(torch.empty(outputs, inputs, orientations, size * size))
        nn.init.normal_(self.weight, std=math.sqrt(2 / self.weight[0].numel()))  # Kaiming's, as in the CNN
        self.bias = nn.Parameter(torch.zeros(outputs))
        here, there = torch.arange(ROTATIONS)[:, None], torch.arange(orientations)
        self.register_buffer("turned", turned_filters(size), persistent=False)
        self.register_buffer("relative", (there - here) % orientations, persistent=False)

    def filters(self) -> Tensor:
        """The filters of the equivalent plain convolution: those between two orientations depend on their angle."""
        every = torch.einsum("oisp,kqp->ksoiq", self.weight, self.turned)
        chosen = every[torch.arange(ROTATIONS)[:, None], self.relative]
        bank = chosen.permute(2, 0, 3, 1, 4)  # feature, orientation; and the same of the inputs
        return bank.flatten(0, 1).flatten(1, 2).unflatten(2, (self.size, self.size))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias.repeat_interleave(ROTATIONS)
        return functional.conv2d(x, self.filters(), bias, self.stride, self.padding)


class OverRotations(nn.Module):
    """The maximum of each feature over its orientations and all positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, ROTATIONS)).amax((2, 3, 4))


def turned_filters(size: int) -> Tensor:
    """Matrices ``(8, size², size²)`` that turn a flat filter counter-clockwise by multiples of 45 degrees.

    Quarter turns permute the weights; the turns by 45 degrees between them are bilinear, with zeros outside.
    """
    pixels = torch.eye(size * size).view(-1, 1, size, size)
    half = math.sqrt(0.5)
    eighth = torch.tensor([[half, -half, 0.0], [half, half, 0.0]]).expand(len(pixels), 2, 3)
    places = functional.affine_grid(eighth, list(pixels.shape), align_corners=False)
    between = functional.grid_sample(pixels, places, align_corners=False)
    turns = [start.rot90(quarter, (2, 3)) for quarter in range(4) for start in (pixels, between)]
    return torch.stack([turn.flatten(1).T for turn in turns])
