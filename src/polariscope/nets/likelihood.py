"""Likelihoods: the meaning of a decoder's output. Negative log-likelihoods are sums over pixels, one per example."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

HAIR = 1e-3
"""How far rounding may take probabilities outside [0, 1]."""


class Bernoulli(nn.Module):
    """The decoder returns logits; grey values in [0, 1] count as probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = False

    def nll(self, logits: Tensor, x: Tensor) -> Tensor:
        if not self._asked:  # only the first batch is checked: a check of every batch would make the device wait
            self.check(x)
        return functional.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)

    def distortion(self, logits: Tensor, x: Tensor) -> Tensor:
        """The negative log-likelihood, which here has no constant to leave out."""
        return self.nll(logits, x)

    def check(self, x: Tensor) -> None:
        """Refuse observations that are not probabilities."""
        low, high = (float(end) for end in torch.aminmax(x.detach()))
        if low < -HAIR or high > 1 + HAIR:
            raise ValueError(
                "a Bernoulli likelihood needs observations in [0, 1], but these go from "
                f"{low:.4g} to {high:.4g}: use the Gaussian likelihood "
                '(likelihood="gaussian", --model.likelihood gaussian)'
            )
        self._asked = True

    def expectation(self, logits: Tensor) -> Tensor:
        """The mean observation, in the data's own units."""
        return logits.sigmoid()


class Gaussian(nn.Module):
    """The decoder returns means; all dimensions share one variance, fixed or learned.

    With ``var=0.5`` the squared error counts once (not halved), up to a constant.
    """

    def __init__(self, var: float = 1.0, learned: bool = False) -> None:
        super().__init__()
        if not var > 0:
            raise ValueError(f"the decoder variance is {var}: it needs to be positive")
        logvar = torch.tensor(math.log(var))
        if learned:
            self.logvar = nn.Parameter(logvar)
        else:
            self.register_buffer("logvar", logvar)

    @property
    def var(self) -> Tensor:
        return self.logvar.exp()

    def nll(self, mean: Tensor, x: Tensor) -> Tensor:
        squares = (x - mean).flatten(1).square().sum(1)
        dimensions = x[0].numel()
        return 0.5 * (squares / self.var + dimensions * (self.logvar + math.log(2 * math.pi)))

    def distortion(self, mean: Tensor, x: Tensor) -> Tensor:
        """The negative log-likelihood without its constant: the squared error over 2 var, if var is not learned."""
        if self.logvar.requires_grad:
            return self.nll(mean, x)
        return 0.5 * (x - mean).flatten(1).square().sum(1) / self.var

    def expectation(self, mean: Tensor) -> Tensor:
        return mean
