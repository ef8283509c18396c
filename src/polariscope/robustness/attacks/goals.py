"""The goal of an attack in terms of class scores, and losses that increase towards it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class Goal:
    """A class other than each label, or a target class."""

    labels: Tensor
    targets: Tensor | None = None

    def at(self, rows: Tensor) -> Goal:
        return Goal(self.labels[rows], None if self.targets is None else self.targets[rows])

    @cached_property
    def named(self) -> Tensor:
        """The class that the goal is about: the target, or the label to get away from."""
        return (self.labels if self.targets is None else self.targets)[:, None]

    def reached(self, scores: Tensor) -> Tensor:
        """Which rows of scores reach the goal."""
        same = scores.argmax(1) == self.named[:, 0]
        return ~same if self.targets is None else same


Loss = Callable[[Tensor, Goal], Tensor]
"""A number for each row of scores, or several ``(n, k)``."""


def cross_entropy(scores: Tensor, goal: Goal) -> Tensor:
    """-log p of the label, or log p of the target."""
    loss = functional.cross_entropy(scores, goal.named[:, 0], reduction="none")
    return loss if goal.targets is None else -loss


def margin(scores: Tensor, goal: Goal) -> Tensor:
    """The best other score minus that of the label, or the target's minus the best other one: positive where the goal
    is reached.

    >>> scores, label = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0])
    >>> margin(scores, Goal(label)).item(), margin(scores, Goal(label, torch.tensor([1]))).item()
    (-1.0, -2.0)
    """
    own = scores.gather(1, goal.named)[:, 0]
    other = scores.scatter(1, goal.named, -torch.inf).amax(1)
    return other - own if goal.targets is None else own - other


def dlr(scores: Tensor, goal: Goal) -> Tensor:
    """The difference of logits ratio (Croce and Hein 2020), which no rescaling of the scores changes: (best other −
    label) / (first − third), and with a target (target − label) / (first − (third + fourth) / 2)."""
    if goal.targets is not None and scores.shape[1] < 4:
        raise ValueError(
            f"with a target, the difference of logits ratio compares the 4 best scores, and the classifier has "
            f"{scores.shape[1]} classes: use the loss 'ce'"
        )
    best = scores.topk(min(4, scores.shape[1]), dim=1).values
    own = scores.gather(1, goal.labels[:, None])[:, 0]
    if goal.targets is None:
        gap, spread = scores.scatter(1, goal.named, -torch.inf).amax(1) - own, best[:, 0] - best[:, 2]
    else:
        gap, spread = scores.gather(1, goal.named)[:, 0] - own, best[:, 0] - (best[:, 2] + best[:, 3]) / 2
    return gap / (spread + 1e-12)


def class_gaps(count: int) -> Loss:
    """Values for each of the ``count`` best classes that would reach the goal: how far each is above the class in its
    way, negative where it is not. With a target that is one class."""

    def gaps(scores: Tensor, goal: Goal) -> Tensor:
        if goal.targets is not None:
            return margin(scores, goal)[:, None]
        others = scores.scatter(1, goal.named, -torch.inf)
        return others.topk(min(count, scores.shape[1] - 1), dim=1).values - scores.gather(1, goal.named)

    return gaps


def rivals(scores: Tensor, labels: Tensor, count: int) -> Tensor:
    """The classes with the best scores besides the label, best first, ``(n, count)``."""
    return scores.scatter(1, labels[:, None], -torch.inf).topk(min(count, scores.shape[1] - 1), dim=1).indices
