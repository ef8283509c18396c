"""What an attack wants of a classifier's scores, and losses that rise on the way to it."""

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
