"""How far the code of an image moves when the image is perturbed: by noise, and by an attack on the encoder.

The attack looks for the perturbation within an L2 distance that moves the code most. Lengths are shares of the typical
distance between the codes of two images, so that encoders with codes of any scale compare. (Schott 2022, section 3.1.2;
Spec 001b, row C-07.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from polariscope.robustness.attacks.geometry import clipped, steepest

FIRST = 0.1
"""The first point of the attack, as a share of epsilon: at the image itself the distance of codes has no gradient."""
STEP = 0.25
"""The length of a step of the attack, as a share of epsilon."""


@dataclass(frozen=True)
class CodeShift:
    """Mean distances that codes move, as shares of the mean distance between codes of two images."""

    attack: float
    noise: float
    apart: float
    """The mean distance between codes of two images, in units of the code."""
    images: int
    epsilon: float


def code_shift(
    encode: Callable[[Tensor], Tensor], x: Tensor, epsilon: float, *, steps: int = 20, seed: int = 0
) -> CodeShift:
    """Move images ``x`` (pixels from 0 to 1) by at most ``epsilon`` in L2, at random and so that their codes move most.

    ``encode`` returns codes ``(n, d)``. Both kinds of perturbation are clipped to pixels from 0 to 1.
    """
    if len(x) < 2 or not epsilon > 0 or steps < 1:
        raise ValueError(
            f"the shift of codes needs at least 2 images, 1 step and a positive epsilon; got {len(x)}, {steps} and "
            f"{epsilon:g}"
        )
    flat, reach = x.detach().flatten(1), x.new_full((len(x),), epsilon)
    draws = torch.Generator().manual_seed(seed)

    def codes_of(points: Tensor) -> Tensor:
        return encode(points.reshape(x.shape)).flatten(1)

    with torch.no_grad():
        codes = codes_of(flat)
        other = torch.randperm(len(x), generator=draws).roll(1)
        order = torch.empty_like(other)
        order[other.roll(-1)] = other  # a cycle through all images: none is paired with itself
        apart = float((codes - codes[order]).norm(dim=1).mean())
        noise = steepest(torch.randn(flat.shape, generator=draws).to(flat), "l2")
        shaken = codes_of((flat + epsilon * noise).clamp(0, 1))
        farthest = (shaken - codes).norm(dim=1)
        shifted = float(farthest.mean())
    if not apart > 0:
        raise ValueError("all images have the same code, so there is no distance to compare a shift with")
    start = steepest(torch.randn(flat.shape, generator=draws).to(flat), "l2")
    points = clipped(flat + FIRST * epsilon * start, flat, reach, "l2")
    for _ in range(steps):
        points = points.detach().requires_grad_()
        moved = (codes_of(points) - codes).square().sum(1)
        (gradient,) = torch.autograd.grad(moved.sum(), points)
        farthest = torch.maximum(farthest, moved.detach().sqrt())
        points = clipped(points.detach() + STEP * epsilon * steepest(gradient, "l2"), flat, reach, "l2")
    with torch.no_grad():
        farthest = torch.maximum(farthest, (codes_of(points) - codes).norm(dim=1))
    return CodeShift(float(farthest.mean()) / apart, shifted / apart, apart, len(x), epsilon)
