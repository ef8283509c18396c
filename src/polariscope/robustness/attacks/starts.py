"""Adversarials to start from, for attacks that use only decisions."""

from __future__ import annotations

import torch
from torch import Tensor

from polariscope.robustness.attacks.line_search import search_segment
from polariscope.robustness.attacks.salt_and_pepper import sprinkle
from polariscope.robustness.attacks.trial import Trial

BLENDS = 10
"""Shares of noise in an image, from a tenth to all of it."""


def adversarial_starts(trial: Trial, tries: int = 5) -> Tensor:
    """Search for an adversarial of each image that has none yet: images blended with more and more uniform noise, and
    salt-and-pepper noise. Returns the rows that have one."""
    for attempt in range(tries):
        for blend in range(1, BLENDS + 1):
            rows = _without(trial)
            if not len(rows):
                break
            noise = trial.draws.uniform(rows, trial.x.shape[1], (attempt, 0)).to(trial.x.dtype)
            trial.reached(torch.lerp(trial.x[rows], noise, blend / BLENDS), rows)
        if len(rows := _without(trial)):
            sprinkle(trial, rows, (attempt, 1), precisely=False)
    rows = trial.distance.isfinite().nonzero()[:, 0]
    search_segment(trial, rows)
    return rows


def _without(trial: Trial) -> Tensor:
    return trial.distance.isinf().nonzero()[:, 0]
