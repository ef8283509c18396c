"""Adversarials on lines from each image."""

from __future__ import annotations

import torch
from torch import Tensor

from polariscope.robustness.attacks.trial import Trial

GRID = 32
"""Points on a line that are tried in turn."""
PRECISE = 2e-7
"""Relative precision of the length at which bisection ends: that of single-precision numbers."""
NEAR = 0.97
"""The first share of a segment that is tried."""
BISECTIONS = 60
"""Largest number of bisections: a limit for lengths near zero."""
FURTHER = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Sizes of a change, relative to one that misleads, at which the classifier that decides is queried if the attack saw
another one: a quick version, or other draws. An adversarial at the boundary of the one often just misses that of the
other."""


def search_line(trial: Trial, rows: Tensor, direction: Tensor, longest: Tensor) -> None:
    """Query clip(x + t direction) at lengths t that rise evenly to ``longest``, up to the first adversarial; then
    bisect. Points beyond the first adversarial are further away and are not queried."""
    x = trial.x[rows]

    def asked(which: Tensor, lengths: Tensor) -> Tensor:
        moved = x[which] + lengths.to(x.dtype)[:, None] * direction[which]
        return trial.reached(moved.clamp_(0, 1), rows[which])

    low = torch.zeros_like(longest)
    high = torch.full_like(longest, torch.inf)
    left = torch.arange(len(rows), device=rows.device)
    for number in range(1, GRID + 1):
        lengths = longest[left] * number / GRID
        reached = asked(left, lengths)
        high[left[reached]] = lengths[reached]
        left = left[~reached]
        low[left] = lengths[~reached]
        if not len(left):
            break
    between = high.isfinite().nonzero()[:, 0]
    for _ in range(BISECTIONS):
        between = between[high[between] - low[between] > PRECISE * high[between]]
        if not len(between):
            return
        middle = (low[between] + high[between]) / 2
        reached = asked(between, middle)
        high[between[reached]], low[between[~reached]] = middle[reached], middle[~reached]


def search_segment(trial: Trial, rows: Tensor, bisections: int = 12) -> None:
    """Bisect the segment from each image to its nearest adversarial so far, near which the boundary usually lies."""
    x, change = trial.x[rows], trial.best[rows] - trial.x[rows]
    low, high = torch.zeros_like(change[:, :1]), torch.ones_like(change[:, :1])
    for number in range(bisections if len(rows) else 0):
        middle = (low + high) / 2 if number else torch.full_like(low, NEAR)
        reached = trial.reached(x + middle * change, rows)[:, None]
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
