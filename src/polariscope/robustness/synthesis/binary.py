"""Binary analysis by synthesis: the same decoders on binarised images, with a factor for the loss of each class.

The factors are searched for, one class after another, such that the accuracy on training data rises. They multiply
losses without the constant of the likelihood: with it, a factor of 4 % would shift a score by 18 nats. (Schott et al.
2019, appendix A.7; Spec 001b, section B4.)
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from polariscope.robustness.synthesis.classifier import ABSClassifier

RANGE = (0.96, 1.06)
"""Factors that are tried, as published."""
TRIED = 101
PASSES = 5


def search_gamma(
    losses: Tensor, labels: Tensor, offsets: Tensor | None = None, between: tuple[float, float] = RANGE
) -> Tensor:
    """Factors ``(K,)`` of the losses ``(n, K)`` for which ``argmax(offsets - gamma * losses)`` is right most often.

    A line search for one class after another, until a pass over the classes changes nothing. Of equally good factors
    the one nearest to 1 is taken, so a class keeps 1 unless another factor helps. Never less accurate than all 1.
    """
    losses = losses.detach().double()
    labels = torch.as_tensor(labels, device=losses.device).long()
    offset = torch.zeros_like(losses[0]) if offsets is None else offsets.to(losses)
    count, classes = losses.shape
    if labels.shape != (count,) or not count:
        raise ValueError(f"the search needs a label for each row of losses; got {tuple(labels.shape)} for {count} rows")
    tried = torch.cat([torch.linspace(*between, TRIED, dtype=losses.dtype), losses.new_ones(1).cpu()]).to(losses.device)
    tried = tried[(tried - 1).abs().argsort(stable=True)]
    gamma = losses.new_ones(classes)
    for _ in range(PASSES):
        before = gamma.clone()
        for number in range(classes):
            scores = offset - gamma * losses
            others = scores.index_fill(1, labels.new_tensor([number]), -torch.inf)
            own = offset[number] - tried[:, None] * losses[:, number]
            # The class wins where its score is above all others; elsewhere the best of the others does.
            best, second = others.max(1)
            right = torch.where(own > best, labels == number, labels == second).double().mean(1)
            current = ((scores.argmax(1) == labels).double().mean() - 1e-12).clamp(min=0)
            if right.max() > current + 1e-9:
                gamma[number] = tried[right.argmax()]
        if torch.equal(gamma, before):
            break
    return gamma


def binarised(classifier: ABSClassifier, x: Tensor, y: Tensor) -> ABSClassifier:
    """The binary version of a classifier, which shares its weights, with factors searched on images ``x`` of labels
    ``y`` (of the training data)."""
    other = copy.copy(classifier)
    other._buffers = dict(classifier._buffers)
    other.binary = True
    gamma = search_gamma(other.infer(x).losses, y, other.offsets)
    other.gamma = gamma.to(classifier.gamma)
    return other
