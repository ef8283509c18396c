"""Attacks by gradient on classifiers that give only scores: the gradient is estimated from differences of scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.goals import Goal, Loss
from polariscope.robustness.attacks.trial import Jacobian, Need, Trial


@attacks.register("estimated")
@dataclass(frozen=True)
class Estimated(Attack):
    """Another attack with an estimated gradient.

    ``coordinates`` changes each number of an image up and down (two questions a number; exact for affine scores),
    ``nes`` moves the whole image along random directions and back (Ilyas et al. 2018).
    """

    of: Attack = field(default_factory=DeepFool)
    method: Literal["coordinates", "nes"] = "coordinates"
    sizes: tuple[float, ...] = (0.01, 0.1)
    """The differences; the attack is repeated with each. A classifier that is flat nearby needs larger ones."""
    samples: int = 50
    """Directions of one estimate by ``nes``, each with its opposite."""

    needs: ClassVar[Need] = "score"

    def __post_init__(self) -> None:
        check_positive(self, "samples")
        if not self.sizes or min(self.sizes) <= 0:
            raise ValueError(f"sizes of Estimated are {self.sizes}: one or more positive differences")

    @property
    def norms(self) -> tuple[Norm, ...]:
        return self.of.norms

    def run(self, trial: Trial) -> None:
        for size in self.sizes:
            by: Jacobian = partial(by_coordinates, size=size)
            if self.method == "nes":
                by = partial(by_directions, size=size, samples=self.samples)
            self.of.run(trial.differentiated(by))


def by_coordinates(
    trial: Trial, points: Tensor, rows: Tensor, values: Loss, goal: Goal, *, size: float
) -> tuple[Tensor, Tensor]:
    """Central differences of each coordinate; at the edge of the box they are as one-sided as it makes them."""
    scores = trial.scores(points, rows, remember=False)
    up, down = (points + size).clamp(max=1), (points - size).clamp(min=0)
    coordinates = torch.arange(points.shape[1], device=points.device)
    columns = [
        (_probe(trial, points, rows, values, goal, some, up) - _probe(trial, points, rows, values, goal, some, down))
        / (up - down)[:, None, some]
        for some in coordinates.split(max(1, trial.batch_size // len(points)))
    ]
    return torch.cat(columns, dim=2), scores


def _probe(
    trial: Trial, points: Tensor, rows: Tensor, values: Loss, goal: Goal, coordinates: Tensor, moved: Tensor
) -> Tensor:
    """Values at points of which one coordinate has moved, ``(n, k, coordinates)``."""
    count = len(coordinates)
    each = torch.arange(len(points), device=points.device).repeat_interleave(count)
    where = coordinates.repeat(len(points))[:, None]
    probes = points[each].scatter(1, where, moved[each].gather(1, where))
    asked = values(trial.scores(probes, rows[each], remember=False), goal.at(each))
    return asked.reshape(len(points), count, -1).transpose(1, 2)


def by_directions(
    trial: Trial, points: Tensor, rows: Tensor, values: Loss, goal: Goal, *, size: float, samples: int
) -> tuple[Tensor, Tensor]:
    """The average over random directions u of u (values at x + size u − values at x − size u) / (2 size).

    Directions are keyed by the number of earlier queries of the row.
    """
    scores = trial.scores(points, rows, remember=False)
    asked = trial.queries[rows]
    total = torch.zeros(())
    for number in range(samples):
        direction = trial.draws.normal(rows, points.shape[1], (asked, number)).to(points.dtype)
        ends = [
            values(trial.scores((points + sign * size * direction).clamp(0, 1), rows, remember=False), goal)
            for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]).reshape(len(points), -1, 1) / (2 * size)
        total = total + slope * direction[:, None]
    return total / samples, scores
