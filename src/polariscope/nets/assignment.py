"""An assignment solver as a layer: the forward pass solves the assignment, the backward pass gives a useful gradient
of the costs.

A matching is piecewise constant in its costs, so its derivative is useless. A second solution at costs shifted along
the incoming gradient gives the slope of a linear interpolation of the loss instead (blackbox differentiation, used for
the matching of key points: Spec 003, section 7.1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn


def cheapest_matching(cost: Tensor) -> Tensor:
    """Permutation matrices ``(..., k, k)`` of least total cost."""
    if cost.ndim < 2 or cost.shape[-1] != cost.shape[-2]:
        raise ValueError(f"an assignment needs square costs (..., k, k); got {tuple(cost.shape)}")
    costs = cost.detach().double().cpu().numpy().reshape(-1, *cost.shape[-2:])
    if not np.isfinite(costs).all():
        raise ValueError("the costs of an assignment need to be finite")
    matched = np.stack([linear_sum_assignment(one)[1] for one in costs])  # the solver takes one problem at a time
    chosen = torch.from_numpy(matched).to(cost.device)
    return nn.functional.one_hot(chosen, cost.shape[-1]).to(cost.dtype).reshape(cost.shape)


class _Matching(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cost: Tensor, strength: float) -> Tensor:
        matching = cheapest_matching(cost)
        ctx.save_for_backward(cost, matching)
        ctx.strength = strength
        return matching

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        cost, matching = ctx.saved_tensors
        pushed = cheapest_matching(cost + ctx.strength * gradients[0])
        return (pushed - matching) / ctx.strength, None


class Assignment(nn.Module):
    """Maps costs ``(..., k, k)`` to the permutation matrices of the cheapest matchings, with a useful gradient.

    ``strength`` (λ) is how far the costs are pushed: with a small λ the gradient is faithful and mostly zero, with a
    large λ it is smooth. The gradient is zero exactly where the push does not change the matching.

    >>> cost = torch.tensor([[1.0, 2.0], [2.0, 1.5]], requires_grad=True)
    >>> Assignment(strength=10.0)(cost)[0, 0].backward()
    >>> cost.grad.tolist()   # the first pair is unwanted: it should cost more, and so should its partner
    [[-0.1..., 0.1...], [0.1..., -0.1...]]
    """

    def __init__(self, strength: float = 10.0) -> None:
        super().__init__()
        if not strength > 0:
            raise ValueError(f"the strength of the interpolation is {strength}: it needs to be positive")
        self.strength = strength

    def forward(self, cost: Tensor) -> Tensor:
        matching: Tensor = _Matching.apply(cost, self.strength)
        return matching


def hamming_loss(matching: Tensor, truth: Tensor) -> Tensor:
    """Share of wrongly matched points, differentiable in the matching."""
    wrong = matching * (1 - truth) + truth * (1 - matching)
    return wrong.sum((-2, -1)).mean() / (2 * matching.shape[-1])
