"""U-Net: predicts a class for every pixel, from a window around it (Ronneberger et al. 2015).

The default is the network of Samarin's dissertation, section 4.4.2 (Spec 000, section 5.4): depth 3, 32 root filters,
467,525 parameters for six channels and five classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, images, models

Padding = Literal["valid", "same"]


@models.register("unet")
@dataclass(frozen=True)
class UNetConfig:
    """A U-Net: scores of the classes for every pixel of an image."""

    depth: int = 3
    """Number of resolutions: the image's own, then each half of the one before."""
    root: int = 32
    """Filters at the image's own resolution; each lower resolution has twice as many."""
    padding: Padding = "same"
    """"same" pads every convolution with zeros and keeps the size; "valid" predicts only pixels with a full window."""
    dropout: float = 0.1
    """Rate before every activation of a 3x3 convolution."""
    batch_norm: bool = False
    attention: bool = False
    """Gates that weigh the skip connections by features of the lower resolution (Oktay et al. 2018)."""
    rectified_scores: bool = False
    """Whether the scores pass a ReLU, as in the reference implementation."""

    def __post_init__(self) -> None:
        if self.depth < 1 or self.root < 1:
            raise ValueError(f"a U-Net has depth and root filters of at least 1; got {self.depth} and {self.root}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the dropout rate is {self.dropout}: it is at least 0 and below 1")

    def build(self, brief: Brief) -> UNet:
        channels, height, width = images(brief, "unet")
        if not brief.dense:
            raise ValueError(
                "unet predicts a class for every pixel, and the target of this world is not a mask: use a world with "
                "masks, or a model that predicts one answer for each image"
            )
        network = UNet(
            channels,
            brief.outputs,
            self.depth,
            self.root,
            self.padding,
            self.dropout,
            batch_norm=self.batch_norm,
            attention=self.attention,
            rectified_scores=self.rectified_scores,
        )
        network.output_size(height, width)  # refuse sizes that do not fit now
        return network


class UNet(nn.Module):
    """Scores ``(n, classes, h, w)`` of images ``(n, channels, H, W)``; with valid padding ``h`` is ``H - 2 margin``.

    >>> network = UNet(6, 5)
    >>> sum(weight.numel() for weight in network.parameters()), UNet(6, 5, padding="valid").output_size(388, 352)
    (467525, (348, 312))
    >>> network.receptive_field, network.margin, network.halo
    (32, 20, 24)
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        depth: int = 3,
        root: int = 32,
        padding: Padding = "same",
        dropout: float = 0.0,
        *,
        batch_norm: bool = False,
        attention: bool = False,
        rectified_scores: bool = False,
    ) -> None:
        super().__init__()
        self.channels, self.classes, self.depth, self.padding = channels, classes, depth, padding
        self.rectified_scores = rectified_scores
        widths = [root * 2**level for level in range(depth)]

        def double(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                *_convolution(inputs, outputs, padding, dropout, batch_norm),
                *_convolution(outputs, outputs, padding, dropout, batch_norm),
            )

        self.down = nn.ModuleList(
            double(before, after) for before, after in zip([channels, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        pairs = list(itertools.pairwise(widths))
        self.up = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(low, high, 2, 2), nn.ReLU(inplace=True)) for high, low in pairs
        )
        self.gates = nn.ModuleList(AttentionGate(high) for high, _ in pairs) if attention else None
        self.merge = nn.ModuleList(double(2 * high, high) for high, _ in pairs)
        self.head = nn.Conv2d(root, classes, 1)
        self.apply(_drawn(root))

    @property
    def multiple(self) -> int:
        """The prediction shifts with the image if the shift is a multiple of this: a factor 2 for each pooling."""
        return 2 ** (self.depth - 1)

    @property
    def receptive_field(self) -> int:
        """Side of the window of pixels that one position at the lowest resolution depends on."""
        return 1 + sum(4 * 2**level for level in range(self.depth)) + self.multiple - 1

    @property
    def margin(self) -> int:
        """Pixels that valid convolutions lose at each side."""
        at_each = [2 * 2**level for level in range(self.depth)]
        return 2 * sum(at_each) - at_each[-1]

    @property
    def halo(self) -> int:
        """Pixels around a window that influence its prediction, rounded up to a multiple of the pooling."""
        return math.ceil((self.margin + self.multiple - 1) / self.multiple) * self.multiple

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the prediction; an error for sizes whose maps are not even before a pooling."""
        return self._length(height), self._length(width)

    def fitting(self, least: int) -> int:
        """The smallest side of an image whose prediction has a side of at least ``least``."""
        length = least + (2 * self.margin if self.padding == "valid" else 0)
        while not self._fits(length):
            length += 1
        return length

    def _fits(self, length: int) -> bool:
        lost = 4 if self.padding == "valid" else 0
        for _ in range(self.depth - 1):
            length -= lost
            if length < 2 or length % 2:
                return False
            length //= 2
        return length > lost

    def _length(self, length: int) -> int:
        if not self._fits(length):
            shorter = next((n for n in range(length, 0, -1) if self._fits(n)), None)
            longer = next(n for n in range(length, length + 2**self.depth + 2 * self.margin + 8) if self._fits(n))
            choice = f"{longer}" if shorter is None else f"{shorter} or {longer}"
            raise ValueError(
                f"a U-Net of depth {self.depth} with {self.padding} padding does not take a side of {length} pixels: "
                f"use {choice}"
            )
        return length - (2 * self.margin if self.padding == "valid" else 0)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x))
        return scores.relu() if self.rectified_scores else scores

    def features(self, x: Tensor) -> Tensor:
        """Features that the scores are computed from: ``root`` numbers for each pixel."""
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        for level in reversed(range(self.depth - 1)):
            x = self.up[level](x)
            skip = middle(skips[level], x.shape[2], x.shape[3])
            if self.gates is not None:
                skip = self.gates[level](skip, x)
            x = self.merge[level](torch.cat([skip, x], 1))
        return x


class AttentionGate(nn.Module):
    """Weights in (0, 1) for every pixel of a skip connection, from it and from features of the lower resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.skip = nn.Conv2d(width, width, 1, bias=False)
        self.context = nn.Conv2d(width, width, 1)
        self.weight = nn.Conv2d(width, 1, 1)

    def forward(self, skip: Tensor, context: Tensor) -> Tensor:
        weight: Tensor = self.weight((self.skip(skip) + self.context(context)).relu()).sigmoid()
        return skip * weight


def with_channels(network: UNet, channels: int) -> UNet:
    """Add input channels behind the existing ones of a trained network, in place. Their weights are zero, so that
    predictions stay the same until it is trained further."""
    if channels < network.channels:
        raise ValueError(
            f"the network has {network.channels} channels, and {channels} are fewer: channels cannot be removed"
        )
    block = network.down[0]
    assert isinstance(block, nn.Sequential)
    first = block[0]
    assert isinstance(first, nn.Conv2d)
    wider = nn.Conv2d(channels, first.out_channels, 3, padding=first.padding).to(first.weight)  # type: ignore[arg-type]
    with torch.no_grad():
        wider.weight.zero_()
        wider.weight[:, : network.channels] = first.weight
        assert wider.bias is not None
        assert first.bias is not None
        wider.bias.copy_(first.bias)
    block[0] = wider
    network.channels = channels
    return network


def _convolution(inputs: int, outputs: int, padding: Padding, dropout: float, batch_norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1 if padding == "same" else 0)]
    layers += [nn.BatchNorm2d(outputs)] if batch_norm else []
    layers += [nn.Dropout(dropout)] if dropout else []
    return [*layers, nn.ReLU(inplace=True)]


def _drawn(root: int) -> Callable[[nn.Module], None]:
    """Weights from a truncated normal of variance 2 / (9 · features), biases 0.1 (Spec 000, section 5.4)."""

    def draw(layer: nn.Module) -> None:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            features = root if layer.kernel_size == (1, 1) else max(layer.out_channels, root)
            deviation = math.sqrt(2 / (9 * features))
            nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.1)

    return draw


def middle(x: Tensor, height: int, width: int) -> Tensor:
    """The middle of maps or masks, in the given size: the part that a network with valid padding predicts."""
    top, left = (x.shape[-2] - height) // 2, (x.shape[-1] - width) // 2
    return x[..., top : top + height, left : left + width]
