"""Attacks on a substitute, carried over to the classifier (Papernot et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from polariscope.robustness.attacks.attack import Attack, attacks
from polariscope.robustness.attacks.geometry import Norm, reach, steepest
from polariscope.robustness.attacks.line_search import search_line
from polariscope.robustness.attacks.pgd import PGD
from polariscope.robustness.attacks.trial import Need, Trial
from polariscope.subjects import Subject, as_subject


@attacks.register("transfer")
@dataclass(frozen=True)
class Transfer(Attack):
    """The perturbation that an attack finds on another classifier, shrunk as far as it still misleads this one.

    The substitute may be anything that is a subject: a module, a function, a run or ``FILE.py:NAME``. Of the classifier
    itself only decisions are used. An image that the substitute misclassifies without an attack is moved along the
    gradient of the substitute's cross-entropy.
    """

    substitute: str | Subject | Callable[..., Any]
    of: Attack = field(default_factory=PGD)
    """The attack on the substitute."""

    needs: ClassVar[Need] = "decision"

    @property
    def norms(self) -> tuple[Norm, ...]:
        return self.of.norms

    def run(self, trial: Trial) -> None:
        substitute = as_subject(self.substitute)
        change = trial.elsewhere(self.of, substitute) - trial.x
        still = (change == 0).all(1).nonzero()[:, 0]  # the substitute is wrong about these images as they are
        if len(still) and self.of.needs == "gradient":
            with substitute.at_rest(gradients=True):
                gradient, _ = trial.on(substitute).gradient(trial.x[still], still)
            change[still] = steepest(gradient, trial.norm)
        size = change.abs().amax(1, keepdim=True).clamp(min=torch.finfo(change.dtype).tiny)
        search_line(trial, trial.rows, change / size, reach(trial.x, "linf"))
