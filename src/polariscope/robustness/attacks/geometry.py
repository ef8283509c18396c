"""Lengths of perturbations, and the largest ones that a norm and the box [0, 1] allow.

Images are rows of numbers here, ``(n, d)``. The L0 norm counts pixels: the channels of a pixel lie ``d / channels``
apart and count once.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Norm = Literal["l0", "l2", "linf"]
NORMS: tuple[Norm, ...] = ("l0", "l2", "linf")
ROUNDING = 1e-6
"""How far rounding in float32 may carry a perturbation beyond its epsilon."""


def length(change: Tensor, norm: Norm, channels: int = 1) -> Tensor:
    """The norm of each row, in double precision.

    >>> change = torch.tensor([[0.0, 0.3, 0.0, -0.4]])
    >>> [round(length(change, norm).item(), 6) for norm in NORMS], length(change, "l0", channels=2).item()
    ([2.0, 0.5, 0.4], 1.0)
    """
    if norm == "l0":
        return (change != 0).unflatten(1, (channels, -1)).any(1).sum(1).double()
    if norm == "l2":
        return change.double().norm(dim=1)
    return change.abs().amax(1).double()


def within(distance: Tensor, epsilon: Tensor | float) -> Tensor:
    """Which distances are at most epsilon, but for rounding."""
    return distance <= epsilon * (1 + ROUNDING) + ROUNDING


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """The direction of unit length that raises a linear function most: the sign of its gradient for L∞, the gradient
    over its length for L2. A zero gradient has no direction and stays zero."""
    if norm == "linf":
        return gradient.sign()
    # Divided by its largest entry first: the square of a small float32 may be zero.
    scaled = gradient / gradient.abs().amax(1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
    return scaled / scaled.norm(dim=1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)


def clipped(points: Tensor, x: Tensor, epsilon: Tensor, norm: Norm) -> Tensor:
    """Points moved into the ball of radius ``epsilon`` (one for each row) around ``x`` and into the box."""
    epsilon = epsilon.to(x.dtype)[:, None]
    if norm == "linf":
        return torch.minimum(torch.maximum(points, x - epsilon), x + epsilon).clamp_(0, 1)
    change = points - x
    size = change.norm(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    return change.mul_((epsilon / size).clamp(max=1)).add_(x).clamp_(0, 1)


def reach(x: Tensor, norm: Norm, channels: int = 1) -> Tensor:
    """The distance from each row to the corner of the box that is furthest away."""
    return length(torch.maximum(x, 1 - x), norm, channels)
