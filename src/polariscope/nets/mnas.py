"""A deep convolutional net without normalisation layers, whose tangent kernel is that of a realistic net.

Sixteen convolutions in the manner of MnasNet: a stem, a separable convolution, four inverted residuals with depthwise
filters, and a head, then the mean over all positions and a readout. Without batch normalisation each input is processed
separately, as a tangent kernel needs. Parameters are standard normal and scaled in the forward pass, and only the
readout has a bias. (Spec 004, section 8; Paccolat, Petrini, Geiger, Tyloo and Wyart 2021, section 5.2.)
"""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polariscope.nets.classifiers import NTKConv2d, NTKLinear

SWISH_SCALE = 1.6765324703310907
"""Gives u sigmoid(u) the second moment 1 if u is standard normal."""
EXPANSION = 3
FILTER = 5


def mnas_net(width: int = 4, channels: int = 1, seed: int = 0) -> nn.Sequential:
    """The net with one output for images of any size; ``width`` multiplies every number of channels.

    >>> sum(p.numel() for p in mnas_net(4).parameters())
    11405
    """
    if width < 1 or channels < 1:
        raise ValueError(f"the net needs a width and input channels of at least 1; got {width} and {channels}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        readout = NTKLinear(20 * width, 1, weight_var=1.0, bias_var=1.0)
        net = nn.Sequential(
            OrderedDict(
                stem=nn.Sequential(_conv(channels, 4 * width, FILTER, stride=2), Swish(), ChannelsLast()),
                separable=nn.Sequential(_depthwise(4 * width), Swish(), _conv(4 * width, 2 * width), Swish()),
                shrink1=_inverted(2 * width, 3 * width, stride=2),
                refine1=Residual(_inverted(3 * width, 3 * width)),
                shrink2=_inverted(3 * width, 5 * width, stride=2),
                refine2=Residual(_inverted(5 * width, 5 * width)),
                head=nn.Sequential(_conv(5 * width, 20 * width), Swish()),
                pool=nn.AdaptiveAvgPool2d(1),
                flatten=nn.Flatten(),
                output=readout,
            )
        )
        for parameter in net.parameters():
            nn.init.normal_(parameter)
        nn.init.zeros_(readout.bias)
    return net


class Swish(nn.Module):
    """u sigmoid(u), scaled to keep the second moment of a standard normal u."""

    def forward(self, x: Tensor) -> Tensor:
        return SWISH_SCALE * F.silu(x)


class ChannelsLast(nn.Module):
    """The same images, stored pixel by pixel: depthwise filters then train almost twice as fast.

    It permutes the axes instead of setting a memory format, because ``vmap``, which computes tangent kernels, does not
    support memory formats.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class Residual(nn.Module):
    """(x + block(x)) / √2, which keeps the scale of two independent parts."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = (x + self.block(x)) / math.sqrt(2)
        return result


def _inverted(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Widen, filter every channel by itself, and narrow without an activation."""
    inside = EXPANSION * inputs
    return nn.Sequential(
        _conv(inputs, inside), Swish(), _depthwise(inside, stride), Swish(), _conv(inside, outputs)
    )  # fmt: skip


def _depthwise(channels: int, stride: int = 1) -> NTKConv2d:
    return _conv(channels, channels, FILTER, stride, groups=channels)


def _conv(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> NTKConv2d:
    return NTKConv2d(inputs, outputs, size, stride, size // 2, weight_var=1.0, bias_var=0.0, groups=groups)
