"""The convolutional network that classifiers by synthesis are compared with. (Schott et al. 2019, appendix A.7; Spec
001b, section B4.)"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from polariscope.nets.model import Brief, images, models, predicts

KERNELS, STRIDES = (5, 4, 3), (1, 2, 2)
SMALLEST = 12
"""Smallest side of an image for which the third layer has an output."""


@models.register("elu-cnn")
@dataclass(frozen=True)
class EluCNN:
    """Four convolutions with ELU and batch norm, without pooling: 28 pixels become 24, 11, 5 and 1.

    The last layer spans the whole map of the third layer, which is 5 x 5 for 28 x 28 pixels. It is linear: the
    publication has ELU on all layers, which would bound the scores from below. For digits, the network has 248,536
    weights and 692 of batch norm.
    """

    channels: tuple[int, int, int] = (20, 70, 256)

    def __post_init__(self) -> None:
        if min(self.channels) < 1:
            raise ValueError(f"the numbers of channels are {self.channels}: each needs to be at least 1")

    def build(self, brief: Brief) -> nn.Sequential:
        inputs, height, width = images(brief, "elu-cnn", SMALLEST)
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (maps, kernel, stride) in enumerate(zip(self.channels, KERNELS, STRIDES, strict=True), 1):
            layer = nn.Conv2d(inputs, maps, kernel, stride)
            blocks[f"conv{number}"] = nn.Sequential(layer, nn.BatchNorm2d(maps), nn.ELU())
            inputs, height, width = maps, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        last = nn.Conv2d(inputs, predicts(brief, "elu-cnn"), (height, width))
        blocks["scores"] = nn.Sequential(last, nn.Flatten())
        return nn.Sequential(blocks)
