"""Lengths of perturbations, and the largest ones that a norm and the box [0, 1] allow.

Images are rows of numbers here, ``(n, d)``. The L0 norm counts pixels: the channels of a pixel lie ``d / channels``
apart and count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Norm = Literal["l0", "l2", "linf"]
NORMS: tuple[Norm, ...] = ("l0", "l2", "linf")
NORM_NAMES: dict[Norm, str] = {"l2": "L2", "linf": "L∞", "l0": "L0"}
ROUNDING = 1e-6
"""How far rounding in float32 may carry a perturbation beyond its epsilon."""
NEWTON = 30
"""Largest number of steps to a plane."""


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


def check_sizes(sizes: Sequence[float], norm: Norm) -> None:
    """Refuse sizes in units of bytes, which are far larger than any change in the box: every attack reaches them. Up to
    twice the largest change may be asked for, as twice a distance that was found."""
    if norm == "linf" and max(sizes, default=0.0) > 2:
        most = max(sizes)
        raise ValueError(
            f"L∞ sizes are at most 1, as pixels go from 0 to 1; got {most:g}: divide bytes by 255, "
            f"here {most:g} / 255 = {most / 255:.4g}"
        )


def within(distance: Tensor, epsilon: Tensor | float) -> Tensor:
    """Which distances are at most epsilon, up to rounding."""
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


def to_plane(points: Tensor, normal: Tensor, gap: Tensor, norm: Norm) -> Tensor:
    """The smallest move of each point inside the box with normal · move = gap, for gaps >= 0; if the box is too small
    for it, the move that gets furthest.

    Coordinate i moves by min(t |normal_i|, room_i) in L2 and by min(t, room_i) in L∞, where room_i is its way to the
    bound. What is gained is concave and piecewise linear in t, so that Newton's method reaches the t that is wanted
    from below in finitely many steps, in practice in a few.

    >>> x, w = torch.tensor([[0.5, 0.9]]), torch.tensor([[1.0, 2.0]])
    >>> [[round(v, 4) for v in to_plane(x, w, torch.tensor([0.4]), norm)[0].tolist()] for norm in ("l2", "linf")]
    [[0.2, 0.1], [0.2, 0.1]]
    """
    weight = normal.abs()
    room = torch.where(normal > 0, 1 - points, points)
    pace = weight if norm == "l2" else torch.ones_like(weight)
    tiny = torch.finfo(points.dtype).tiny
    level = torch.zeros_like(gap)[:, None]
    for _ in range(NEWTON):
        full = level * pace >= room
        gained = (weight * room * full).sum(1, keepdim=True)
        slope = (weight * pace * ~full).sum(1, keepdim=True)
        after = ((gap[:, None] - gained) / slope.clamp(min=tiny)).clamp(min=0)
        if torch.equal(after, level):
            break
        level = after
    return normal.sign() * torch.minimum(level * pace, room)
