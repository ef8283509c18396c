"""The pointwise attack (Schott et al. 2019): noise on few pixels, made fewer one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks, check_positive
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.salt_and_pepper import sprinkle
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("pointwise")
@dataclass(frozen=True)
class Pointwise(Attack):
    """Salt-and-pepper noise that misleads, in which one changed pixel after another is reset to its clean value if the
    image stays adversarial, in random order until no pixel can be reset.

    All images take one step at a time together. A pass first resets blocks of pixels, then smaller ones, and single
    pixels last; this saves most of the queries, and the remaining pixels are the same kind of set: resetting any one of
    its pixels loses the adversarial. In L2 the values of these pixels are then moved towards the clean ones, one pixel
    after another, by bisection.
    """

    restarts: int = 10
    bisections: int = 10
    passes: int = 5
    """Largest number of bisection passes over the pixels, in L2."""

    needs: ClassVar[Need] = "decision"
    norms: ClassVar[tuple[Norm, ...]] = ("l0", "l2")

    def __post_init__(self) -> None:
        check_positive(self, "restarts")

    def run(self, trial: Trial) -> None:
        for restart in range(self.restarts):
            if restart == 0 and trial.starts is not None:  # the caller's adversarials come first
                rows = trial.distance.isfinite().nonzero()[:, 0]
                self._fewer(trial, rows, trial.starts[rows], restart)
            noisy, misled = sprinkle(trial, trial.rows, (restart, 0), precisely=False)
            self._fewer(trial, trial.rows[misled], noisy[misled], restart)

    def _fewer(self, trial: Trial, rows: Tensor, points: Tensor, restart: int) -> None:
        pixels = trial.x.shape[1] // trial.channels
        block, number = max(1, pixels // 16), 1
        while len(rows):
            points, changed = reset(trial, rows, points, block, (restart, 1, number))
            if block == 1:  # a pass over single pixels without a change is the last one
                if trial.norm == "l2":
                    self._nearer(trial, rows[~changed], points[~changed], restart)
                rows, points = rows[changed], points[changed]
            block, number = max(1, block // 2), number + 1

    def _nearer(self, trial: Trial, rows: Tensor, points: Tensor, restart: int) -> None:
        """Bisect each changed pixel between its value and the clean one, in random order."""
        for number in range(self.passes):
            before = trial.length(points, rows)
            for which, mask in turns(trial, rows, points, 1, (restart, 2, number)):
                low, high = torch.zeros_like(points[which, :1]), torch.ones_like(points[which, :1])
                start, x = points[which], trial.x[rows[which]]
                for _ in range(self.bisections):
                    share = (low + high) / 2  # of the pixel's change that stays
                    moved = torch.where(mask, x + share * (start - x), start)
                    reached = trial.reached(moved, rows[which])[:, None]
                    low, high = torch.where(reached, low, share), torch.where(reached, share, high)
                points[which] = torch.where(mask, x + high * (start - x), start)
            left = trial.length(points, rows) < 0.99 * before
            rows, points = rows[left], points[left]
            if not len(rows):
                return


def reset(trial: Trial, rows: Tensor, points: Tensor, block: int, key: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """One pass: reset each block of changed pixels if the image stays adversarial. Gives the points, and whether a
    pixel of them was reset."""
    points = points.clone()
    changed = torch.zeros_like(rows, dtype=torch.bool)
    for which, mask in turns(trial, rows, points, block, key):
        candidate = torch.where(mask, trial.x[rows[which]], points[which])
        reached = trial.reached(candidate, rows[which])
        points[which[reached]] = candidate[reached]
        changed[which[reached]] = True
    return points, changed


def turns(
    trial: Trial, rows: Tensor, points: Tensor, block: int, key: tuple[int, ...]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The changed pixels of each row in random order, ``block`` of them at a time: which rows have some left, and a
    mask of them."""
    differs = (points != trial.x[rows]).unflatten(1, (trial.channels, -1)).any(1)
    count = differs.sum(1, keepdim=True)
    order = trial.draws.order(rows, differs.shape[1], key)
    # Where each pixel stands among the changed ones; the others come last.
    place = order.argsort(1).where(differs, differs.shape[1]).argsort(1).argsort(1).where(differs, differs.shape[1])
    place = place.repeat(1, trial.channels)
    for first in range(0, int(count.max()) if len(rows) else 0, block):
        which = (count[:, 0] > first).nonzero()[:, 0]
        yield which, (place[which] >= first) & (place[which] < min(first + block, differs.shape[1]))
