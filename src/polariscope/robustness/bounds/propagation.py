"""Certificates of networks: interval bound propagation, and Lipschitz constants of differences of scores.

Both apply to any module that is made of functions with a known rule. (Gowal et al. 2018; Hein and Andriushchenko 2017,
Formal guarantees on the robustness of a classifier against adversarial manipulation.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polariscope.robustness.bounds.intervals import Ball, Interval
from polariscope.robustness.bounds.lipschitz import Steepness
from polariscope.theory.halfspaces import Norm, norm_from_l2

Network = Callable[[Any], Any]
"""A module, or a function that takes intervals where it takes images."""
HALVINGS = 32
TIED = 1e-6
"""Share of the largest score by which two scores differ at least, so that rounding cannot decide between them."""
ERRORS = 8
"""How many times the rounding error of a score two scores differ at least."""


def rounding_error(network: nn.Module, x: Tensor, scores: Callable[[nn.Module, Any], Any]) -> float:
    """The largest error of the scores of a network in single precision on some images; 0 if it is not known, because
    the network does not compute in double precision."""
    if x.dtype != torch.float32:
        return 0.0
    try:
        with torch.no_grad():
            exact = scores(copy.deepcopy(network).double(), x.double())
            return float((scores(network, x) - exact).abs().max())
    except (RuntimeError, TypeError, ValueError, AttributeError):  # a forward may have numbers of its own
        return 0.0


def _clear(sizes: Tensor, error: float) -> Tensor:
    """By how much scores of these sizes ``(n, classes)`` have to differ, so that rounding cannot decide."""
    return (_share(sizes.dtype) * (1 + sizes.amax(1, keepdim=True))).clamp(min=ERRORS * error)


def _share(dtype: torch.dtype) -> float:
    """The share :data:`TIED` in single precision, and accordingly less in double precision."""
    return TIED * torch.finfo(dtype).eps / torch.finfo(torch.float32).eps


def surroundings(x: Tensor, epsilon: Tensor, norm: Norm) -> Interval:
    """All images within epsilon (one for each image) of given ones, with pixels in [0, 1]."""
    reach = (epsilon > 0).to(x) if norm == "l0" else epsilon.to(x)
    reach = reach.reshape(-1, *[1] * (x.ndim - 1))
    ball = None if norm == "linf" else Ball(x, epsilon.to(x), norm, x.shape[1] if x.ndim == 4 else 1)
    return Interval((x - reach).clamp(min=0), (x + reach).clamp(max=1), ball)


def verified(
    network: Network, x: Tensor, y: Tensor, epsilon: Tensor, norm: Norm = "linf", error: float = 0.0
) -> Tensor:
    """Which images provably keep their class ``y`` for every change of at most epsilon (one for each image).

    The network must be in evaluation mode; otherwise its batch norm is refused. ``error`` is the rounding error of
    its scores, as :func:`rounding_error` estimates it.
    """
    scores = network(surroundings(x, epsilon, norm))
    if not isinstance(scores, Interval) or scores.ndim > 2:
        raise ValueError("the network returns no class scores (n, classes) for an interval of images")
    scores = _in_columns(scores)
    least = scores.differences(y)
    clear = _clear(torch.maximum(scores.lower.abs(), scores.upper.abs()), error)
    others = torch.ones_like(least, dtype=torch.bool).scatter_(1, y[:, None], False)
    return ((least > clear) | ~others).all(1)


def _in_columns(scores: Interval) -> Interval:
    """One score is that of the second of two classes, and the first has 0."""
    lower, upper = (part[:, None] if part.ndim == 1 else part for part in (scores.lower, scores.upper))
    if lower.shape[1] > 1:
        return scores
    zero = torch.zeros_like(lower)
    return Interval(torch.cat([zero, lower], 1), torch.cat([zero, upper], 1))


def interval_distances(network: Network, x: Tensor, y: Tensor, norm: Norm, error: float = 0.0) -> NDArray[np.float64]:
    """The largest distances for which :func:`verified` holds, by bisection; 0 for an image that is classified wrongly.

    In L0 the bound is one more than the largest number of pixels that is verified.
    """
    pixels = x[0].numel() // (x.shape[1] if x.ndim == 4 else 1)
    most = {"linf": 1.0, "l2": float(x[0].numel()) ** 0.5, "l1": float(x[0].numel()), "l0": float(pixels)}[norm]
    low = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    high = torch.full_like(low, most)
    with torch.no_grad():
        right = verified(network, x, y, low, norm, error)
        everywhere = verified(network, x, y, high, norm, error)
        low = torch.where(everywhere, high, low)
        for _ in range(HALVINGS if norm != "l0" else int(np.ceil(np.log2(pixels + 1))) + 1):
            middle = (low + high) / 2
            middle = middle.ceil() if norm == "l0" else middle
            holds = verified(network, x, y, middle, norm, error)
            low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    low = torch.where(everywhere, torch.inf, low + (norm == "l0"))
    return torch.where(right, low, 0.0).cpu().numpy()


def lipschitz_distances(network: Network, x: Tensor, y: Tensor, norm: Norm, error: float = 0.0) -> NDArray[np.float64]:
    """Differences of scores over their Lipschitz constants, the smallest for each image; in other norms than L2, the
    smallest change of the image within [0, 1] that is as long. 0 for an image that is classified wrongly, or whose
    scores differ by no more than rounding."""
    with torch.no_grad():
        scores = network(Steepness(x))
        if not isinstance(scores, Steepness) or scores.ndim != 2 or scores.shape[1] < 2:
            raise ValueError("the network returns no class scores (n, classes) for images")
        gaps = scores.value.gather(1, y[:, None]) - scores.value
        ratios = (
            (gaps - _clear(scores.value.abs(), error)) / scores.differences(y).clamp(min=torch.finfo(x.dtype).tiny)
        ).double()
        least = ratios.scatter(1, y[:, None], torch.inf).amin(1).clamp(min=0).cpu().numpy()
        least = least * (1 - _share(x.dtype))
    room = torch.maximum(x, 1 - x).flatten(1).double().cpu().numpy()
    return norm_from_l2(least, room, norm, x.shape[1] if x.ndim == 4 else 1)
