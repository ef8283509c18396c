"""What an attack is: a search for the smallest change of an image that changes the class a classifier decides for.

A new attack is one file with one registered frozen dataclass. It says what it needs to know of a classifier and in
which norms it works, and its method ``run`` asks the classifier about points through a
:class:`~polariscope.robustness.attacks.trial.Trial`, which remembers the nearest adversarial. The contract kit
(:func:`polariscope.testing.attacks.check_attack`) checks every registered attack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.registry import Registry
from polariscope.robustness.attacks.attacked import Attacked, joined
from polariscope.robustness.attacks.draws import Draws
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.goals import Goal
from polariscope.robustness.attacks.trial import Need, Trial, finite
from polariscope.subjects import Subject, as_subject
from polariscope.worlds.world import to_tensor


class Attack(ABC):
    """A frozen dataclass with one method, ``run``, and two facts about it."""

    @property
    @abstractmethod
    def needs(self) -> Need:
        """What it must know of a classifier: gradients, scores or decisions."""

    @property
    @abstractmethod
    def norms(self) -> tuple[Norm, ...]:
        """The norms in which it looks for small perturbations."""

    @abstractmethod
    def run(self, trial: Trial) -> None:
        """Ask the classifier about points, each nearer to its image or more adversarial than those before. All draws
        come from ``trial.draws``, and what happens to a row does not depend on other rows."""

    def refuses(self, classes: int) -> str:
        """Why it cannot attack a classifier with so many classes, if so."""
        return ""

    @final
    def __call__(
        self,
        subject: Any,
        x: Any,
        y: Any,
        *,
        norm: Norm,
        seed: int = 0,
        epsilons: Sequence[float] | None = None,
        targets: Any = None,
        starts: Any = None,
        numbers: Any = None,
        batch_size: int = 250,
    ) -> Attacked:
        """Attack a classifier on images ``x`` from 0 to 1 with the classes ``y``.

        With ``epsilons`` the attack looks for an adversarial within each of them, without for the nearest one. With
        ``targets`` an image is adversarial if the classifier decides for its target. ``starts`` are images to start
        from, best adversarial ones; the result is at least as good as they are. Random draws belong to the ``numbers``
        of the images (0, 1, 2, ... by default): the result for an image does not depend on the batch size, nor on which
        images are attacked together.
        """
        name = attacks.name_of(self) if attacks.knows(self) else type(self).__name__
        if norm not in self.norms:
            raise ValueError(f"the attack {name} works in {' and '.join(self.norms)}; got the norm {norm!r}")
        subject = as_subject(subject)
        limits = _positive(epsilons)
        x, y = labelled_images(subject, x, y)
        numbers = torch.arange(len(x)) if numbers is None else torch.as_tensor(np.asarray(numbers, np.int64))
        if len(numbers) != len(x):
            raise ValueError(f"{len(x)} images have as many numbers; got {len(numbers)}")
        starts = None if starts is None else _images(subject, starts, "starts", tuple(x.shape))
        targets = None if targets is None else _classes(targets, len(x), "targets").to(x.device)
        blocks = []
        for rows in torch.arange(len(x), device=x.device).split(batch_size):
            goal = Goal(y[rows], None if targets is None else targets[rows])
            some = None if starts is None else starts[rows]
            draws = Draws(seed, numbers[rows.cpu()])
            with subject.at_rest(gradients=self.needs == "gradient"):
                blocks.append(self._block(name, subject, x[rows], goal, norm, draws, limits, some, batch_size))
        return _noted(joined(blocks))

    def _block(
        self,
        name: str,
        subject: Subject,
        x: Tensor,
        goal: Goal,
        norm: Norm,
        draws: Draws,
        epsilons: tuple[float, ...],
        starts: Tensor | None,
        batch_size: int,
    ) -> Attacked:
        with torch.no_grad():
            scores = finite(subject.scores(x), subject)
        _check_goal(goal, scores.shape[1])
        if reason := self.refuses(scores.shape[1]):
            raise ValueError(f"the attack {name} {reason}")
        open_rows = (~goal.reached(scores)).nonzero()[:, 0]
        trial = Trial(
            subject,
            x[open_rows],
            goal.at(open_rows),
            norm,
            draws=draws.at(open_rows),
            needs=self.needs,
            epsilons=epsilons,
            starts=None if starts is None else starts[open_rows],
            batch_size=batch_size,
        )
        if len(open_rows):
            self.run(trial)
        rows = open_rows.cpu().numpy()

        def spread(values: Tensor) -> NDArray[Any]:
            out = np.zeros(len(x), values.cpu().numpy().dtype)
            out[rows] = values.cpu().numpy()
            return out

        adversarials = x.clone()
        adversarials[open_rows] = trial.best.reshape(-1, *x.shape[1:])
        return Attacked(
            (name,),
            norm,
            adversarials.cpu(),
            spread(trial.distance),
            spread(trial.queries) + 1,
            spread(trial.gradients),
            spread(trial.zero_gradients),
            np.zeros(len(x), np.int64),
            epsilons,
        )


attacks: Registry[Attack] = Registry("attack", of=Attack)


def labelled_images(subject: Subject, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Images as floats from 0 to 1, and a class for each, where the classifier is."""
    images = _images(subject, x, "images")
    return images, _classes(y, len(images), "classes").to(images.device)


def _images(subject: Subject, x: Any, what: str, shape: tuple[int, ...] | None = None) -> Tensor:
    images = (x if isinstance(x, Tensor) else to_tensor(np.asarray(x))).detach().to(subject.device)
    if not images.is_floating_point():
        raise TypeError(f"{what} are floats from 0 to 1; got {images.dtype}: divide bytes by 255")
    if images.ndim < 2 or not len(images) or (shape is not None and tuple(images.shape) != shape):
        expected = "(n, ...) with at least one image" if shape is None else f"{shape}, that of the images"
        raise ValueError(f"{what} have the shape {expected}; got {tuple(images.shape)}")
    if not images.isfinite().all():
        raise ValueError(
            f"{what} are numbers from 0 to 1; {int((~images.isfinite()).sum())} of them are NaN or infinite"
        )
    if images.amin() < 0 or images.amax() > 1:
        raise ValueError(
            f"{what} go from 0 to 1; these go from {images.amin().item():.4g} to {images.amax().item():.4g}: bring "
            "them to [0, 1], and normalise inside of the network"
        )
    return images.to(images.dtype if images.dtype == torch.float64 else torch.float32)


def _classes(y: Any, count: int, what: str) -> Tensor:
    labels = torch.as_tensor(y).cpu()
    labels = labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"{what} are whole numbers from 0; got {labels.dtype}")
    if labels.shape != (count,):
        raise ValueError(f"{count} images need as many {what}; got the shape {tuple(labels.shape)}")
    return labels.long()


def _check_goal(goal: Goal, classes: int) -> None:
    for what, labels in (("classes", goal.labels), ("targets", goal.targets)):
        if labels is not None and not bool(((labels >= 0) & (labels < classes)).all()):
            raise ValueError(
                f"the classifier has {classes} classes, so {what} are 0 to {classes - 1}; got "
                f"{int(labels.min())} to {int(labels.max())}"
            )
    if goal.targets is not None and bool((goal.targets == goal.labels).any()):
        raise ValueError("a target is a class other than the true one; some targets are the class of their image")


def _positive(epsilons: Sequence[float] | None) -> tuple[float, ...]:
    limits = tuple(float(one) for one in epsilons or ())
    if any(not 0 < one < np.inf for one in limits):
        raise ValueError(f"epsilons are positive numbers; got {limits}")
    return limits


def _noted(attacked: Attacked) -> Attacked:
    notes = list(attacked.notes)
    if (attacked.distances == 0).all():
        notes.append(f"All {len(attacked)} images are misclassified without an attack, so every distance is 0.")
    return replace(attacked, notes=tuple(notes))
