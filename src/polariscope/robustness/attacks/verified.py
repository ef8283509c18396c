"""Attacks on a quick version of a classifier by synthesis; the full classifier verifies every adversarial."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import Attack, attacks
from polariscope.robustness.attacks.deepfool import DeepFool
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.latent_descent import LatentDescent
from polariscope.robustness.attacks.line_search import FURTHER
from polariscope.robustness.attacks.trial import Need, Trial
from polariscope.robustness.synthesis.classifier import ABSClassifier, classifier_of
from polariscope.subjects import Subject, as_subject


@attacks.register("verified")
@dataclass(frozen=True)
class Verified(Attack):
    """Another attack, on the classifier with a shorter search for codes; then the full search decides.

    An adversarial that the full search does not confirm is moved further along its line, and where that fails the image
    goes towards the synthesis of another class. What counts was confirmed by the full search.
    """

    of: Attack = field(default_factory=DeepFool)
    steps: int = 10
    """Most gradient steps of a search during the attack."""
    tolerance: float = 0.05
    """A search stops when the loss falls by less over 5 steps."""

    @property
    def needs(self) -> Need:
        return self.of.needs

    @property
    def norms(self) -> tuple[Norm, ...]:
        return self.of.norms

    def applies(self, subject: Subject) -> bool:
        return isinstance(subject.module, ABSClassifier)

    def run(self, trial: Trial) -> None:
        classifier = classifier_of(trial.subject, "verified")
        search = replace(classifier.search, steps=self.steps, tolerance=self.tolerance)
        quick = as_subject(classifier.searching(search), name=trial.subject.name)
        images = trial.x.reshape(-1, *trial.shape)
        crafted = self.of(
            quick,
            images,
            trial.goal.labels,
            norm=trial.norm,
            seed=trial.draws.seed,
            epsilons=trial.epsilons,
            targets=trial.goal.targets,
            numbers=trial.draws.numbers,
            batch_size=trial.batch_size,
        )
        trial.queries += torch.from_numpy(crafted.queries).to(trial.queries)
        trial.gradients += torch.from_numpy(crafted.gradients).to(trial.gradients)
        trial.zero_gradients += torch.from_numpy(crafted.zero_gradients).to(trial.zero_gradients)
        change = crafted.adversarials.to(trial.x.device, trial.x.dtype).flatten(1) - trial.x
        for factor in FURTHER:
            rows = _without(trial)
            rows = rows[(change[rows] != 0).any(1)]
            if not len(rows):
                break
            trial.reached((trial.x[rows] + factor * change[rows]).clamp(0, 1), rows)
        if len(_without(trial)) and "l2" in self.norms:
            LatentDescent("segment").run(trial)


def _without(trial: Trial) -> Tensor:
    return trial.distance.isinf().nonzero()[:, 0]
