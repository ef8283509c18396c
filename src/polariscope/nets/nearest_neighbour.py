"""The nearest neighbour as a network: training fills its memory, and it predicts by distances to the stored examples.

(Schott et al. 2019, appendix A.7; Spec 001b, section B4.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Shape, models, predicts

DISTANCES = 2**25
"""How many distances are computed at a time."""


@models.register("nearest-neighbour")
@dataclass(frozen=True)
class NearestNeighbourConfig:
    """Scores by the distance to the nearest example of each class. It is made for the objective memorise."""

    capacity: int = 10_000
    """Number of examples in memory; once it is full, the newest example replaces the oldest."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"the capacity is {self.capacity}: it needs to be at least 1")

    def build(self, brief: Brief) -> NearestNeighbour:
        return NearestNeighbour(brief.observation, predicts(brief, "nearest-neighbour"), self.capacity)


class NearestNeighbour(nn.Module):
    """The score of a class is minus the L2 distance to its nearest example, times a learned scale, which changes
    probabilities but no decision. A class without examples counts as further away than every example."""

    memory: Tensor
    labels: Tensor

    def __init__(self, shape: Shape, outputs: int, capacity: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.register_buffer("memory", torch.zeros(capacity, *shape))
        self.register_buffer("labels", torch.zeros(capacity, outputs, dtype=torch.bool))

    @torch.no_grad()
    def remember(self, x: Tensor, labels: Tensor, start: int) -> Tensor:
        """Store examples with their classes ``(n, outputs)`` from place ``start`` on, continuing at place 0 after the
        last; returns the places."""
        capacity = len(self.memory)
        if len(x) > capacity:
            raise ValueError(f"a batch of {len(x)} examples does not fit into a memory of {capacity}: enlarge capacity")
        places = (start + torch.arange(len(x), device=x.device)) % capacity
        self.memory[places] = x.to(self.memory)
        self.labels[places] = labels.to(self.labels)
        return places

    def examples(self) -> tuple[Tensor, Tensor]:
        """Everything in memory, ``(m, *shape)``, and the classes ``(m, outputs)`` that each example has."""
        there = self.labels.any(1)
        return self.memory[there], self.labels[there]

    def forward(self, x: Tensor, without: Tensor | None = None) -> Tensor:
        """Scores ``(n, outputs)``; ``without`` gives, for each image, a place in memory that is ignored for it."""
        nearest, there = self.nearest(x, without)
        gaps = x[:, None] - self.memory[nearest]
        distances = gaps.flatten(2).square().sum(2).clamp(min=torch.finfo(x.dtype).tiny).sqrt()
        if not there.all():
            with torch.no_grad():  # no example can be further away than this
                reach = x.flatten(1).norm(dim=1) + self.memory.flatten(1).norm(dim=1).amax()
            distances = torch.where(there, distances, reach[:, None])
        return -self.log_scale.exp() * distances

    @torch.no_grad()
    def nearest(self, x: Tensor, without: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The place of the nearest example of each class ``(n, outputs)``, and whether there is one."""
        filled = self.labels.any(1).nonzero()
        end = int(filled[-1]) + 1 if len(filled) else 1
        rows, labels = self.memory[:end].flatten(1), self.labels[:end]
        squares = rows.square().sum(1)
        places, finite = [], []
        for some in torch.arange(len(x), device=x.device).split(max(1, DISTANCES // end)):
            part = x[some].flatten(1).to(rows)
            squared = torch.addmm(squares.expand(len(part), -1), part, rows.T, alpha=-2)
            if without is not None:
                squared.scatter_(1, without[some, None], math.inf)
            least = [torch.where(labels[:, c], squared, math.inf).min(1) for c in range(labels.shape[1])]
            places.append(torch.stack([one.indices for one in least], 1))
            finite.append(torch.stack([one.values.isfinite() for one in least], 1))
        return torch.cat(places), torch.cat(finite)
