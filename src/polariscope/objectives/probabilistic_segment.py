"""Segmentation where experts disagree: a distribution over whole maps (Kohl et al. 2018; Spec 000, row F099)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from polariscope.nets.posterior import Diagonal
from polariscope.nets.probabilistic_unet import ProbabilisticUNetConfig
from polariscope.nets.unet import middle
from polariscope.objectives.objective import Batch, Terms, at_least, objectives
from polariscope.objectives.segment import UNLABELLED, Segment, errors_of, mask_of


@objectives.register("probabilistic-segment")
@dataclass(frozen=True)
class ProbabilisticSegment(Segment):
    """A distribution over masks: cross-entropy, summed over the labelled pixels, of a mask drawn with the latent of
    image and label, plus the divergence of that latent's distribution from the one predicted from the image alone."""

    asks_for: ClassVar[tuple[str, ...]] = ("informed", "drawn")
    usual = ProbabilisticUNetConfig

    beta: float = 1.0
    """Weight of the divergence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.beta, 0, "beta")
        if self.loss != "cross-entropy":
            raise ValueError(f"a distribution over masks is learned by the cross-entropy; got loss {self.loss!r}")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        target = mask_of(batch)
        features = model.unet.features(batch.x)  # type: ignore[operator, union-attr]
        prior = model.prior(batch.x)  # type: ignore[operator]
        informed = model.informed(batch.x, target)  # type: ignore[operator]
        scores = model.scores(features, informed.sample())  # type: ignore[operator]
        target = middle(target, scores.shape[2], scores.shape[3])
        weights = torch.tensor(self.weights, device=scores.device) if self.weights else None
        total = functional.cross_entropy(scores, target, weights, ignore_index=UNLABELLED, reduction="sum")
        misfit = total / len(target)
        divergence = divergence_of(informed, prior).mean()
        with torch.no_grad():
            predicted = model.scores(features, prior.mean).argmax(1)  # type: ignore[operator]
        wrong, counts = errors_of(predicted, target, scores.shape[1])
        parts = {"cross_entropy": misfit.detach(), "divergence": divergence.detach(), "error": wrong}
        return Terms(misfit + self.beta * divergence, parts, counts=counts)


def divergence_of(first: Diagonal, second: Diagonal) -> torch.Tensor:
    """KL(first || second) in nats, one number per example.

    >>> same = Diagonal(torch.zeros(1, 2), torch.zeros(1, 2))
    >>> divergence_of(same, same).item(), divergence_of(Diagonal(torch.ones(1, 2), torch.zeros(1, 2)), same).item()
    (0.0, 1.0)
    """
    ratio = first.logvar - second.logvar
    terms = ratio.exp() + (first.mean - second.mean).square() * (-second.logvar).exp() - 1 - ratio
    return 0.5 * terms.sum(1)
