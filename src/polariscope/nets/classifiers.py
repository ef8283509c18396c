"""Classifiers of any width: LeNet, AlexNet and a small MLP, in the three parametrisations of the kernel studies.

A width factor k multiplies every number of channels and hidden units (Spec 000, section 7.1). The parametrisation
defines how weights are drawn and scaled (section 3.1): "torch" is PyTorch's own initialisation; "standard" draws
weights with variance ``weight_var`` / fan-in; "ntk" draws standard normal weights and scales them in the forward pass
instead, which is the same law of functions at initialisation but has other gradients, those of the infinite-width
theory.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Parametrisation = Literal["torch", "standard", "ntk"]
Pooling = Literal["max", "average"]


class NTKLinear(nn.Linear):
    """A dense layer with standard normal parameters, which are scaled in the forward pass."""

    def __init__(self, inputs: int, outputs: int, weight_var: float, bias_var: float) -> None:
        super().__init__(inputs, outputs, bias=bias_var > 0)
        self.weight_var, self.bias_var = weight_var, bias_var
        self.weight_scale, self.bias_scale = math.sqrt(weight_var / inputs), math.sqrt(bias_var)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.weight_scale, None if self.bias is None else self.bias * self.bias_scale)


class NTKConv2d(nn.Conv2d):
    """A convolution with standard normal parameters, which are scaled in the forward pass."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        stride: int,
        padding: int,
        weight_var: float,
        bias_var: float,
        groups: int = 1,
    ) -> None:
        super().__init__(inputs, outputs, size, stride, padding, groups=groups, bias=bias_var > 0)
        self.weight_var, self.bias_var = weight_var, bias_var
        fan_in = inputs // groups * size**2
        self.weight_scale, self.bias_scale = math.sqrt(weight_var / fan_in), math.sqrt(bias_var)

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias * self.bias_scale
        return self._conv_forward(x, self.weight * self.weight_scale, bias)


@dataclass(frozen=True)
class Weights:
    """How the weights of layers are drawn and scaled.

    The variances apply to "standard" and "ntk" only; these have no bias if ``bias_var`` is 0.
    """

    parametrisation: Parametrisation = "torch"
    weight_var: float = 2.0
    bias_var: float = 0.0

    def __post_init__(self) -> None:
        if self.parametrisation not in ("torch", "standard", "ntk"):
            raise ValueError(f"the parametrisation is 'torch', 'standard' or 'ntk'; got {self.parametrisation!r}")

    def dense(self, inputs: int, outputs: int) -> nn.Linear:
        match self.parametrisation:
            case "torch":
                return nn.Linear(inputs, outputs)
            case "standard":
                linear = nn.Linear(inputs, outputs, bias=self.bias_var > 0)
                self._normal(linear, self.weight_var / inputs, self.bias_var)
            case "ntk":
                linear = NTKLinear(inputs, outputs, self.weight_var, self.bias_var)
                self._normal(linear, 1.0, 1.0)
        return linear

    def conv(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
        match self.parametrisation:
            case "torch":
                return nn.Conv2d(inputs, outputs, size, stride, padding)
            case "standard":
                conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=self.bias_var > 0)
                self._normal(conv, self.weight_var / (inputs * size**2), self.bias_var)
            case "ntk":
                conv = NTKConv2d(inputs, outputs, size, stride, padding, self.weight_var, self.bias_var)
                self._normal(conv, 1.0, 1.0)
        return conv

    @staticmethod
    def _normal(layer: nn.Linear | nn.Conv2d, weight_var: float, bias_var: float) -> None:
        nn.init.normal_(layer.weight, std=math.sqrt(weight_var))
        if layer.bias is not None:
            nn.init.normal_(layer.bias, std=math.sqrt(bias_var))


def mlp(
    inputs: int,
    hidden: Sequence[int] = (128, 128),
    outputs: int = 10,
    weights: Weights | None = None,
    activation: Callable[[], nn.Module] = nn.ReLU,
    seed: int = 0,
) -> nn.Sequential:
    """A fully connected network on flattened inputs; the same seed draws the same weights.

    >>> sum(p.numel() for p in mlp(784, (64, 32)).parameters())
    52650
    """
    weights = weights or Weights()
    widths = [inputs, *hidden]
    with _seeded(seed):
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (before, after) in enumerate(itertools.pairwise(widths), 1):
            layers[f"dense{number}"] = weights.dense(before, after)
            layers[f"activation{number}"] = activation()
        layers["output"] = weights.dense(widths[-1], outputs)
    return nn.Sequential(layers)


def lenet(
    width: int = 1,
    shape: tuple[int, int, int] = (1, 28, 28),
    outputs: int = 10,
    pooling: Pooling = "max",
    weights: Weights | None = None,
    seed: int = 0,
) -> nn.Sequential:
    """LeNet with 3x3 filters, ReLU and 2x2 pooling: channels 6k and 16k, then 120k and 84k hidden units.

    At 28x28 it has 58944 k² + 1120 k + 10 parameters. ``pooling="average"`` with "ntk" weights is the network whose
    infinite-width kernels have a closed form (Spec 000, section 7.1).

    >>> sum(p.numel() for p in lenet().parameters())
    60074
    """
    weights = weights or Weights()
    _check_width(width)
    channels, *sides = shape
    last = [((side - 2) // 2 - 2) // 2 for side in sides]
    if min(last) < 1:
        raise ValueError(f"LeNet needs images of at least 10 x 10 pixels; got {sides[0]} x {sides[1]}")
    if pooling not in ("max", "average"):
        raise ValueError(f"pooling is 'max' or 'average'; got {pooling!r}")
    pool = nn.MaxPool2d if pooling == "max" else nn.AvgPool2d
    with _seeded(seed):
        return nn.Sequential(
            OrderedDict(
                conv1=weights.conv(channels, 6 * width, 3),
                relu1=nn.ReLU(),
                pool1=pool(2),
                conv2=weights.conv(6 * width, 16 * width, 3),
                relu2=nn.ReLU(),
                pool2=pool(2),
                flatten=nn.Flatten(),
                dense1=weights.dense(16 * width * last[0] * last[1], 120 * width),
                relu3=nn.ReLU(),
                dense2=weights.dense(120 * width, 84 * width),
                relu4=nn.ReLU(),
                output=weights.dense(84 * width, outputs),
            )
        )


def alexnet(
    width: int = 1, channels: int = 3, outputs: int = 10, weights: Weights | None = None, seed: int = 0
) -> nn.Sequential:
    """AlexNet of one column, without dropout, for images of about 224x224: 56971264 k² + 73536 k + 10 parameters.

    Channels 64k, 192k, 384k, 256k, 256k, an adaptive pool to 6x6, and two hidden layers of 4096k units.

    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in alexnet().parameters())
    57044810
    """
    weights = weights or Weights()
    _check_width(width)
    # inputs, outputs, filter, stride, padding, pool after it
    table = [
        (channels, 64 * width, 11, 4, 2, True),
        (64 * width, 192 * width, 5, 1, 2, True),
        (192 * width, 384 * width, 3, 1, 1, False),
        (384 * width, 256 * width, 3, 1, 1, False),
        (256 * width, 256 * width, 3, 1, 1, True),
    ]
    with _seeded(seed):
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (*conv, pooled) in enumerate(table, 1):
            layers[f"conv{number}"] = weights.conv(*conv)
            layers[f"relu{number}"] = nn.ReLU()
            if pooled:
                layers[f"pool{number}"] = nn.MaxPool2d(3, 2)
        layers["resize"] = nn.AdaptiveAvgPool2d(6)
        layers["flatten"] = nn.Flatten()
        for number, units in ((1, 256 * width * 36), (2, 4096 * width)):
            layers[f"dense{number}"] = weights.dense(units, 4096 * width)
            layers[f"relu{5 + number}"] = nn.ReLU()
        layers["output"] = weights.dense(4096 * width, outputs)
    return nn.Sequential(layers)


def freeze_all_but_last(network: nn.Module) -> nn.Module:
    """Freeze all but the last dense layer: random features with a readout, the finite-width view of the NNGP.

    >>> network = freeze_all_but_last(lenet())
    >>> sum(p.numel() for p in network.parameters() if p.requires_grad)
    850
    """
    dense = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not dense:
        raise ValueError("the network has no nn.Linear layer, so nothing would be left to train")
    network.requires_grad_(False)
    dense[-1].requires_grad_(True)
    return network


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Use a separate random state for drawing weights, so that building a network does not affect other draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _check_width(width: int) -> None:
    if width < 1:
        raise ValueError(f"the width factor is {width}; it needs to be a whole number of at least 1")
