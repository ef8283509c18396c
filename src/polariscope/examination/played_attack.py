"""An attack on one image, step by step: every image that the attack sent to the classifier, in order.

The attacks themselves are unchanged: a wrapper of the classifier records its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.robustness.attacks import Attack, Attacked, Norm
from polariscope.robustness.attacks.geometry import length
from polariscope.subjects import as_subject
from polariscope.subjects.labelled import labelled_examples

LARGEST = 2**24
"""Largest number of recorded images; if an attack makes more queries, every second image is dropped, and so on."""


@dataclass(frozen=True, eq=False)
class PlayedAttack:
    """The images of an attack, the first the original and the last the nearest adversarial (if there is one)."""

    attacked: Attacked
    label: int
    images: NDArray[np.float32]
    """``(steps, ...)``, from 0 to 1."""
    probabilities: NDArray[np.float32]
    """Probability of each class at each step."""
    distances: NDArray[np.float64]
    """Distance of each step from the original, in the norm of the attack."""
    queries: NDArray[np.int64]
    """Number of queries up to each step."""

    @property
    def succeeded(self) -> bool:
        return bool(np.isfinite(self.attacked.distances[0]))

    @property
    def headline(self) -> str:
        name, norm = self.attacked.attacks[0], self.attacked.norm
        distance = float(self.attacked.distances[0])
        if distance == 0:
            return f"This image is misclassified without an attack: class {int(self.probabilities[0].argmax())}."
        if not np.isfinite(distance):
            return f"{name} found no adversarial in {int(self.attacked.queries[0])} queries."
        return (
            f"{name} changes class {self.label} to class {int(self.probabilities[-1].argmax())} with a change of "
            f"{norm} {distance:.3g}, found with {int(self.attacked.queries[0])} queries."
        )


def play_attack(
    model: Any,
    image: Any,
    label: int,
    attack: Attack,
    *,
    norm: Norm,
    epsilons: tuple[float, ...] | None = None,
    seed: int = 0,
    steps: int = 40,
) -> PlayedAttack:
    """Attack a classifier on one ``image`` (without a batch axis, from 0 to 1) and return up to ``steps`` of its
    images: the first, the last, and some between them, equally spaced in the order of the queries.

    >>> from polariscope.robustness.attacks.fast_gradient import FastGradient
    >>> bright = lambda x: torch.stack([0.5 - x.mean(1), x.mean(1) - 0.5], 1)
    >>> played = play_attack(bright, np.full(4, 0.4), 0, FastGradient(), norm="linf")
    >>> played.succeeded, bool(played.distances[0] == 0), bool(abs(played.distances[-1] - 0.1) < 1e-3)
    (True, True, True)
    """
    if steps < 2:
        raise ValueError(f"an attack is played in at least 2 steps; got {steps}")
    subject = as_subject(model)
    x, y = labelled_examples(subject, np.asarray(image)[None], np.asarray([label]))
    if subject.predicts is None:
        raise TypeError(f"{subject.name} does not predict, so it cannot be attacked")
    asked: list[tuple[int, Tensor]] = []
    spent, every, room = 0, 1, max(2 * steps, LARGEST // max(x.numel(), 1))
    predicts = subject.predicts

    def watched(points: Tensor) -> Any:
        nonlocal spent, every
        for row in points.detach():
            if spent % every == 0:
                asked.append((spent, row.clone()))
            spent += 1
            if len(asked) > room:
                del asked[1::2]
                every *= 2
        return predicts(points)

    attacked = attack(replace(subject, predicts=watched), x, y, norm=norm, seed=seed, epsilons=epsilons)
    chosen = [asked[i] for i in np.unique(np.linspace(0, len(asked) - 1, steps - 1).round().astype(int))]
    images = torch.stack([x[0].cpu(), *(row.to(x.dtype).cpu().reshape(x.shape[1:]) for _, row in chosen[1:])])
    queries = [0, *(number for number, _ in chosen[1:])]
    if np.isfinite(attacked.distances[0]):
        images = torch.cat([images, attacked.adversarials.to(images)])
        queries.append(int(attacked.queries[0]))
    with subject.at_rest():
        probabilities = subject.scores(images.to(x)).softmax(1).cpu()
    channels = x.shape[1] if x.ndim == 4 else 1
    distances = length((images - images[:1]).flatten(1), norm, channels)
    return PlayedAttack(
        attacked,
        int(label),
        images.float().numpy(),
        probabilities.float().numpy(),
        distances.double().numpy(),
        np.asarray(queries, np.int64),
    )
