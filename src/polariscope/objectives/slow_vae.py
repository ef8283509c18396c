"""SlowVAE: the causes of the data change sparsely in time (Klindt et al. 2021; Spec 001a, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.posterior import Diagonal
from polariscope.objectives.autoencoding import Autoencoding
from polariscope.objectives.objective import Batch, Need, Terms, at_least, objectives
from polariscope.objectives.several import encode_all, reconstruct_all

PriorExpectation = Literal["mean", "exact", "sample"]


@objectives.register("slow-vae")
@dataclass(frozen=True)
class SlowVAE(Autoencoding):
    """R + βK + γT: the prior of the first latents is N(0, I), that of the following ones a Laplace step from the
    previous latents. R is of all observations of a pair or sequence; K and T are means over both directions of time.

    A bound of the likelihood only with β = 1, γ ≤ 1 and the exact (or a sampled) expectation of T.
    """

    gamma: float = 10.0
    """Weight of the transition."""
    rate: float = 6.0
    """Rate λ of the Laplace steps: a larger rate keeps the latents closer together."""
    beta: float = 1.0
    """Weight of the divergence from the prior."""
    prior_expectation: PriorExpectation = "mean"
    """How the latents before a step enter: by their mean, as published; in expectation, in closed form; or as a
    draw."""
    directions: Literal["both", "forward"] = "both"
    """Whether time is also read backwards."""
    reference_weighting: bool = False
    """Count the cross-entropy of the steps twice, as the published code does: like twice the rate."""

    needs: ClassVar[tuple[Need, ...]] = ("other",)

    def __post_init__(self) -> None:
        at_least(self.gamma, 0, "gamma")
        at_least(self.rate, 1e-12, "rate")
        at_least(self.beta, 0, "beta")

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        posteriors = encode_all(model, batch, "SlowVAE")
        codes = tuple(posterior.sample() for posterior in posteriors)
        moments = list(zip(posteriors, codes, strict=True))
        orders = [moments, moments[::-1]] if self.directions == "both" else [moments]
        kl = torch.stack([order[0][0].kl().mean() for order in orders]).mean()
        crossed, entropy = torch.stack([self._steps(order) for order in orders]).mean(0)
        reconstruction = reconstruct_all(model, batch, codes)
        weight = 2 if self.reference_weighting else 1
        loss = reconstruction + self.beta * kl + self.gamma * (weight * crossed - entropy)
        parts = {"reconstruction": reconstruction, "kl": kl, "transition": crossed - entropy, "entropy": entropy}
        return Terms(loss, parts)

    def _steps(self, moments: list[tuple[Diagonal, Tensor]]) -> Tensor:
        """Cross-entropy and entropy of all steps of a sequence, batch means."""
        crossed = [
            step_cross_entropy(after, before, self.rate, self.prior_expectation, code)
            for (before, code), (after, _) in pairwise(moments)
        ]
        entropies = [entropy(after) for after, _ in moments[1:]]
        return torch.stack([torch.stack(terms).sum((0, 2)).mean() for terms in (crossed, entropies)])


def step_cross_entropy(
    after: Diagonal, before: Diagonal, rate: float, expectation: PriorExpectation = "mean", drawn: Tensor | None = None
) -> Tensor:
    """−E log p(z' | z) of a Laplace step from z to z', for each latent: ``(n, d)``.

    −ln(λ/2) + λ E|z' − z|. The difference is Gaussian: around that of the means with the variance after the step, if
    the mean (or what was ``drawn``) stands for the latents before it, and with both variances in expectation.

    >>> one = Diagonal(torch.zeros(1, 1), torch.full((1, 1), 2 * math.log(0.2)))
    >>> [round(float(step_cross_entropy(one, one, 6, which)), 4) for which in ("mean", "exact")]
    [-0.1412, 0.2554]
    """
    if expectation == "sample" and drawn is None:
        raise ValueError("a sampled expectation needs the draw of the latents before the step")
    start = drawn if expectation == "sample" and drawn is not None else before.mean
    logvar = torch.logaddexp(after.logvar, before.logvar) if expectation == "exact" else after.logvar
    return rate * expected_distance(after.mean - start, logvar) - math.log(rate / 2)


def expected_distance(mean: Tensor, logvar: Tensor) -> Tensor:
    """E|z| of z ~ N(mean, exp(logvar)), the mean of a folded normal.

    >>> round(float(expected_distance(torch.tensor(1.0), torch.tensor(0.0))), 6)
    1.166631
    """
    std = (0.5 * logvar).exp()
    ratio = mean / std
    return math.sqrt(2 / math.pi) * std * (-0.5 * ratio.square()).exp() + mean * torch.erf(ratio / math.sqrt(2))


def entropy(posterior: Diagonal) -> Tensor:
    """ln(σ √(2πe)) for each latent: ``(n, d)``."""
    return 0.5 * (posterior.logvar + math.log(2 * math.pi * math.e))
