"""Salt-and-pepper noise on a rising number of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.draws import Key
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.trial import Need, Trial

GRID = 32
"""Numbers of pixels that are tried in turn, evenly up to all of them."""


@attacks.register("salt-and-pepper")
@dataclass(frozen=True)
class SaltAndPepper(Attack):
    """Several draws of an order of pixels and a colour for each, black or white: the smallest number of pixels that
    mislead, first on an even grid and then by bisection."""

    repeats: int = 10

    needs: ClassVar[Need] = "decision"
    norms: ClassVar[tuple[Norm, ...]] = ("l0", "l2")

    def __post_init__(self) -> None:
        check_positive(self, "repeats")

    def run(self, trial: Trial) -> None:
        for repeat in range(self.repeats):
            sprinkle(trial, trial.rows, (repeat,))


def sprinkle(trial: Trial, rows: Tensor, key: Key, precisely: bool = True) -> tuple[Tensor, Tensor]:
    """Salt-and-pepper noise that misleads, on the fewest pixels in one random order (without ``precisely`` the fewest
    on the grid), and the rows for which it exists."""
    x = trial.x[rows]
    pixels = x.shape[1] // trial.channels
    place = trial.draws.order(rows, pixels, (*key, 0)).argsort(1).repeat(1, trial.channels)
    colour = (trial.draws.uniform(rows, pixels, (*key, 1)) < 0.5).to(x.dtype).repeat(1, trial.channels)

    def noisy(which: Tensor, count: Tensor) -> Tensor:
        return torch.where(place[which] < count[:, None], colour[which], x[which])

    low, high = torch.zeros_like(rows), torch.full_like(rows, pixels + 1)
    left = torch.arange(len(rows), device=rows.device)
    for number in range(1, GRID + 1):
        count = torch.full_like(left, -(-pixels * number // GRID))
        reached = trial.reached(noisy(left, count), rows[left])
        high[left[reached]], low[left[~reached]] = count[reached], count[~reached]
        left = left[~reached]
        if not len(left):
            break
    misled = high <= pixels
    while precisely and len(between := (misled & (high - low > 1)).nonzero()[:, 0]):
        count = (low[between] + high[between]) // 2
        reached = trial.reached(noisy(between, count), rows[between])
        high[between[reached]], low[between[~reached]] = count[reached], count[~reached]
    return noisy(torch.arange(len(rows), device=rows.device), high), misled
