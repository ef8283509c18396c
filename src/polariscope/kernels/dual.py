"""Dual activations on large tensors: the same closed forms as ``theory.dual_activations``, with few passes over memory.

The infinite-width convolutional kernel spends nearly all its time here (676² pairs of positions for one pair of 28x28
images), so temporaries are reused in place and the same pass multiplies the tangent kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

TWO_PI = 2 * math.pi


class Activation(Protocol):
    """A nonlinearity of a :class:`~polariscope.kernels.infinite.Stack`."""

    def propagate(self, nngp: Tensor, ntk: Tensor, var1: Tensor, var2: Tensor) -> tuple[Tensor, Tensor]:
        """E[φ(u)φ(v)] and ntk · E[φ'(u)φ'(v)]; the variances broadcast against the covariances ``nngp``.

        The arguments do not change. ``ntk`` may be the same tensor as ``nngp``, as it is after a first layer.
        """


@dataclass(frozen=True)
class Relu:
    """max(0, ·), with the arc-cosine kernels of degree 1 and 0."""

    def propagate(self, nngp: Tensor, ntk: Tensor, var1: Tensor, var2: Tensor) -> tuple[Tensor, Tensor]:
        sd1, sd2 = var1.sqrt(), var2.sqrt()
        # A position without variance has no angle: an inverse of zero makes it a right one, and its kernels stay zero.
        inverse1, inverse2 = (torch.where(sd > 0, 1 / sd, 0) for sd in (sd1, sd2))
        derivative = torch.mul(nngp, inverse1).mul_(inverse2).clamp_(-1, 1)
        value = torch.addcmul(torch.ones((), dtype=nngp.dtype), derivative, derivative, value=-1).sqrt_()
        value.mul_(sd1).mul_(sd2 / TWO_PI)
        derivative.neg_().acos_().mul_(1 / TWO_PI)
        if ntk is nngp:
            product = derivative.mul_(nngp)
            return value.add_(product), product
        return value.addcmul_(nngp, derivative), derivative.mul_(ntk)


@dataclass(frozen=True)
class Erf:
    """The error function."""

    def propagate(self, nngp: Tensor, ntk: Tensor, var1: Tensor, var2: Tensor) -> tuple[Tensor, Tensor]:
        inverse1, inverse2 = (2 * var1 + 1).rsqrt(), (2 * var2 + 1).rsqrt()
        value = torch.mul(nngp, 2 * inverse1).mul_(inverse2).clamp_(-1, 1)
        # (1+2a)(1+2b) − 4c² = (1+2a)(1+2b)(1 − s²) with s the argument of arcsin
        derivative = torch.addcmul(torch.ones((), dtype=nngp.dtype), value, value, value=-1).rsqrt_()
        derivative.mul_(inverse1 * (4 / math.pi)).mul_(inverse2).mul_(ntk)
        return value.asin_().mul_(2 / math.pi), derivative


@dataclass(frozen=True)
class Gelu:
    """u Φ(u) with Φ the normal distribution function (the exact GELU, not its tanh approximation)."""

    def propagate(self, nngp: Tensor, ntk: Tensor, var1: Tensor, var2: Tensor) -> tuple[Tensor, Tensor]:
        inverse1, inverse2 = 1 / (1 + var1), 1 / (1 + var2)
        sine = torch.mul(nngp, inverse1.sqrt()).mul_(inverse2.sqrt()).clamp_(-1, 1)
        rest = torch.addcmul(torch.ones((), dtype=nngp.dtype), sine, sine, value=-1)  # D / ((1+a)(1+b))
        density = rest.rsqrt().mul_(inverse1.sqrt() / TWO_PI).mul_(inverse2.sqrt())
        quadrant = sine.asin_().mul_(1 / TWO_PI).add_(0.25)
        inverses = inverse1 + inverse2
        value = (inverses - 1) * nngp.square()
        value.addcmul_(var1, var2).mul_(density).addcmul_(nngp, quadrant)
        slope = rest.reciprocal_().mul_(inverse1).mul_(inverse2).add_(inverses).mul_(nngp)
        return value, quadrant.addcmul_(density, slope).mul_(ntk)
