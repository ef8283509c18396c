"""Classifiers that can be widened: LeNet, AlexNet and a small MLP, in the three parametrisations of the kernel studies.

A width factor k multiplies every number of channels and hidden units (Spec 000, section 7.1). ``parametrisation`` says
how weights are drawn and scaled (section 3.1): "torch" is PyTorch's own initialisation; "standard" draws weights with
variance ``weight_var`` / fan-in; "ntk" draws standard normal weights and scales them in the forward pass instead, which
is the same function at initialisation but has other gradients, those of the infinite-width theory.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Parametrisation = Literal["torch", "standard", "ntk"]
Pooling = Literal["max", "average"]


@dataclass(frozen=True)
class Weights:
    """How layers are drawn and scaled. The variances count for "standard" and "ntk" only; no bias if its is zero."""

    parametrisation: Parametrisation = "torch"
    weight_var: float = 2.0
    bias_var: float = 0.0

    def dense(self, inputs: int, outputs: int) -> nn.Linear:
        if self.parametrisation == "torch":
            return nn.Linear(inputs, outputs)
        kind = NTKLinear if self.parametrisation == "ntk" else nn.Linear
        return self._draw(kind(inputs, outputs, bias=self.bias_var > 0), inputs)

    def conv(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
        if self.parametrisation == "torch":
            return nn.Conv2d(inputs, outputs, size, stride, padding)
        kind = NTKConv2d if self.parametrisation == "ntk" else nn.Conv2d
        layer = kind(inputs, outputs, size, stride, padding, bias=self.bias_var > 0)
        return self._draw(layer, inputs * size**2)

    def _draw[L: (nn.Linear, nn.Conv2d)](self, layer: L, fan_in: int) -> L:
        scaled = isinstance(layer, NTKLinear | NTKConv2d)
        nn.init.normal_(layer.weight, std=1.0 if scaled else math.sqrt(self.weight_var / fan_in))
        if layer.bias is not None:
            nn.init.normal_(layer.bias, std=1.0 if scaled else math.sqrt(self.bias_var))
        if scaled:
            layer.weight_var, layer.bias_var = self.weight_var, self.bias_var
        return layer
