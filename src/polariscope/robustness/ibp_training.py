"""Classifiers that are trained to be verifiable: the loss is computed from the worst scores that interval bounds allow.

At first the classifier learns from clean images; then epsilon grows, and the weight of the clean loss falls to its last
value. (Gowal et al. 2018, On the effectiveness of interval bound propagation for training verifiably robust models;
Spec 001b, row B-46.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.objectives.objective import Batch, Terms, at_least, objectives
from polariscope.objectives.predict import Supervised, classification, target_of
from polariscope.robustness.bounds.intervals import Interval, NoRule
from polariscope.robustness.bounds.propagation import surroundings
from polariscope.robustness.rescale import within_box
from polariscope.subjects import as_subject


@objectives.register("ibp-training")
@dataclass(frozen=True)
class IBPTraining(Supervised):
    """A weighted sum of the cross-entropy on clean images and that of the worst scores within epsilon in L∞."""

    epsilon: float = 0.3
    """Largest change of a pixel. Publications train with a little more than they verify."""
    kappa: float = 0.5
    """Weight of the clean loss after the schedule; it starts at 1."""
    warmup: int = 2000
    """Steps on clean images alone."""
    ramp: int = 10_000
    """Steps over which epsilon and kappa then move to their last values."""

    def __post_init__(self) -> None:
        at_least(self.epsilon, 0, "epsilon")
        at_least(self.warmup, 0, "warmup")
        at_least(self.ramp, 0, "ramp")
        if not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa is {self.kappa}: it is a weight from 0 to 1")

    def at(self, step: int) -> tuple[float, float]:
        """Epsilon and kappa at a step.

        >>> objective = IBPTraining(epsilon=0.4, warmup=10, ramp=10)
        >>> [objective.at(step) for step in (5, 15, 30)]
        [(0.0, 1.0), (0.2, 0.75), (0.4, 0.5)]
        """
        done = float(step >= self.warmup) if not self.ramp else min(1.0, max(0.0, (step - self.warmup) / self.ramp))
        return done * self.epsilon, 1 - done * (1 - self.kappa)

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        within_box(batch.x)
        target = target_of(batch)
        epsilon, kappa = (self.epsilon, self.kappa) if batch.evaluating else self.at(step)
        clean, wrong = classification(model(batch.x), target, batch.classes)
        worst, unverified = self.verified(model, batch.x, target, batch.classes, epsilon)
        loss = kappa * clean + (1 - kappa) * worst
        return Terms(loss, {"cross_entropy": clean, "worst": worst, "error": wrong, "unverified": unverified})

    def verified(
        self, model: nn.Module, x: Tensor, target: Tensor, classes: tuple[int, ...], epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the worst scores within epsilon, a sum over the targets, and the share of images that are
        not verified. Intervals pass through the network in evaluation mode: batch norm then is a fixed layer."""
        try:
            with as_subject(model).at_rest(gradients=torch.is_grad_enabled()):
                scores = model(surroundings(x, x.new_full((len(x),), epsilon), "linf"))
        except NoRule as error:
            raise ValueError(f"ibp-training needs a network whose functions have interval rules: {error}") from error
        if not isinstance(scores, Interval) or scores.ndim != 2:
            raise ValueError("ibp-training needs a network with scores (n, classes)")
        losses, open_ = [], []
        for first, size, labels in zip(_starts(classes), classes, target.long().T, strict=True):
            least = scores.columns(first, first + size).differences(labels)
            losses.append(functional.cross_entropy(-least, labels))
            others = least.scatter(1, labels[:, None], torch.inf)
            open_.append((others.amin(1) <= 0).float().mean())
        return torch.stack(losses).sum(), torch.stack(open_).mean()


def _starts(classes: tuple[int, ...]) -> list[int]:
    """Where the scores of each target begin."""
    return [sum(classes[:number]) for number in range(len(classes))]
