"""Attacks that work within a given epsilon, and the search for the smallest epsilon at which they succeed."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack
from polariscope.robustness.attacks.geometry import reach
from polariscope.robustness.attacks.line_search import search_segment
from polariscope.robustness.attacks.trial import Trial

ROUNDS = 14
"""Epsilons tried for one image in the search for the smallest."""
FIRST = 1 / 8
"""The first epsilon tried, as a share of the largest distance in the box."""
PRECISE = 0.01
"""Relative precision of the smallest epsilon at which the search ends."""


class FixedEpsilonAttack(Attack):
    """An attack whose method ``attempt`` searches for an adversarial within an epsilon.

    For several epsilons, it tries them in rising order and skips images that have succeeded. For the smallest distance,
    it doubles epsilon until it succeeds and then bisects the interval, for all images at once; the upper end of the
    interval is the distance of the nearest adversarial seen on the way. The last search is on the segment from there to
    the image.
    """

    @abstractmethod
    def attempt(self, trial: Trial, rows: Tensor, epsilon: Tensor, key: int) -> None:
        """Look for adversarials of the rows, each within its own epsilon. ``key`` is for the draws of this attempt."""

    def run(self, trial: Trial) -> None:
        for number, epsilon in enumerate(trial.epsilons):
            limit, rows = trial.left(torch.full_like(trial.distance, epsilon), trial.rows)
            if len(rows):
                self.attempt(trial, rows, limit, number)
        if not trial.epsilons:
            self._search(trial)
            search_segment(trial, trial.distance.isfinite().nonzero()[:, 0])

    def _search(self, trial: Trial) -> None:
        far = reach(trial.x, trial.norm, trial.channels)
        low, epsilon = torch.zeros_like(far), torch.minimum(FIRST * far, trial.distance / 2)
        for number in range(ROUNDS):
            rows = self._unsettled(trial, low, far)
            if not len(rows):
                return
            self.attempt(trial, rows, epsilon[rows], number)
            failed = rows[trial.distance[rows] > epsilon[rows] * (1 + PRECISE)]
            low[failed] = epsilon[failed]
            middle = (low + trial.distance) / 2
            epsilon = torch.where(trial.distance.isfinite(), middle, torch.minimum(2 * epsilon, far))

    @staticmethod
    def _unsettled(trial: Trial, low: Tensor, far: Tensor) -> Tensor:
        """Rows whose smallest epsilon is not precise enough yet, and that have not failed at the largest one."""
        known = trial.distance - low <= PRECISE * trial.distance
        return ((low < far) & ~(known & trial.distance.isfinite())).nonzero()[:, 0]
