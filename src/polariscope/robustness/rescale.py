"""Noise of an exact norm on images that end at 0 and 1."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-14
"""Squares below this count as this: a pixel without noise has its bound at a finite length, and gradients that divide
by its square twice are finite in single precision."""


def rescaled(x: Tensor, delta: Tensor, norm: float) -> Tensor:
    """clip(x + γδ) with the γ for which it differs from x by ``norm``, in each observation of a batch.

    Pixels reach their bounds one after another as γ grows. Sorting them by that γ shows which are free when the norm is
    reached; for those γ² = (norm² − Σ room² of the others) / Σ δ², through which gradients flow. If the whole room of
    an image is less than the norm, every pixel goes to its bound. The length of δ does not matter. (Rauber and Bethge
    2020; Spec 001b, section A4.)

    >>> x, delta = torch.tensor([[0.5, 0.9]]).double(), torch.tensor([[1.0, 1.0]]).double()
    >>> [(rescaled(x, delta, norm) - x).numpy().round(4).tolist() for norm in (0.3, 0.1, 1.0)]
    [[[0.2828, 0.1]], [[0.0707, 0.0707]], [[0.5, 0.1]]]
    """
    if not norm > 0:
        raise ValueError(f"the norm of the noise is {norm}: it needs to be positive")
    within_box(x)
    flat = delta.flatten(1).to(x.dtype)  # a network in lower precision may have made it
    squares = flat.square().clamp(min=LEAST)
    room = torch.where(flat >= 0, 1 - x.flatten(1), x.flatten(1)).square()
    with torch.no_grad():
        bounds, order = (room / squares).sort(dim=1)
        slopes = squares.gather(1, order).flip(1).cumsum(1).flip(1)
        reached = (slopes * bounds.diff(dim=1, prepend=torch.zeros_like(bounds[:, :1]))).cumsum(1)
        place = (reached < norm**2).sum(1, keepdim=True)
        full = place == flat.shape[1]
        free = room / squares >= bounds.gather(1, place.clamp(max=flat.shape[1] - 1))
    rest = (norm**2 - (room * ~free).sum(1, keepdim=True)).clamp(min=LEAST)
    # Beyond the last bound where the image is full, so that no pixel just sits on it and has a gradient.
    length = torch.where(full, 4 * bounds[:, -1:], rest / (squares * free).sum(1, keepdim=True)).sqrt()
    return (x + (length * flat).reshape(x.shape)).clamp(0, 1)


def within_box(x: Tensor) -> None:
    """Refuse observations outside [0, 1]: noise is clipped at 0 and 1."""
    if x.amin() < 0 or x.amax() > 1:
        raise ValueError(
            f"noise is added to pixels from 0 to 1 and clipped there, and the data goes from {x.amin().item():.4g} to "
            f"{x.amax().item():.4g}: bring it to [0, 1], and normalise inside of the network"
        )
