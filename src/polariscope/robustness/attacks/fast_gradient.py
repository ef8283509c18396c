"""One step along the gradient: FGSM in L∞, FGM in L2 (Goodfellow et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polariscope.robustness.attacks.attack import Attack, attacks
from polariscope.robustness.attacks.geometry import Norm, reach, steepest
from polariscope.robustness.attacks.line_search import search_line
from polariscope.robustness.attacks.trial import Need, Trial


@attacks.register("fast-gradient")
@dataclass(frozen=True)
class FastGradient(Attack):
    """The direction that raises the cross-entropy most, and a search for the smallest step along it that misleads.

    In L∞ the direction is the sign of the gradient (FGSM), in L2 the gradient over its length (FGM).
    """

    needs: ClassVar[Need] = "gradient"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def run(self, trial: Trial) -> None:
        gradient, _ = trial.gradient(trial.x, trial.rows)
        search_line(trial, trial.rows, steepest(gradient, trial.norm), reach(trial.x, trial.norm))
