"""An attack: a search for the smallest change of an image that changes the predicted class.

A new attack is one file with one registered frozen dataclass. It declares which access to the classifier it needs and
in which norms it works, and its method ``run`` queries the classifier through a
:class:`~polariscope.robustness.attacks.trial.Trial`, which remembers the nearest adversarial. The contract kit
(:func:`polariscope.testing.attacks.check_attack`) checks every registered attack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.registry import Registry
from polariscope.robustness.attacks.attacked import Attacked, joined
from polariscope.robustness.attacks.draws import Draws
from polariscope.robustness.attacks.geometry import ROUNDING, Norm, check_sizes
from polariscope.robustness.attacks.goals import Goal
from polariscope.robustness.attacks.trial import Need, Trial, finite
from polariscope.subjects import Subject, as_subject
from polariscope.subjects.labelled import labelled_examples


class Attack(ABC):
    """A frozen dataclass with one method, ``run``, and two facts about it."""

    @property
    @abstractmethod
    def needs(self) -> Need:
        """The access to the classifier that the attack needs: gradients, scores or decisions."""

    @property
    @abstractmethod
    def norms(self) -> tuple[Norm, ...]:
        """The norms in which it looks for small perturbations."""

    @abstractmethod
    def run(self, trial: Trial) -> None:
        """Query the classifier at points, each nearer to its image or more adversarial than the last. All draws come
        from ``trial.draws``, and the result for a row must not depend on other rows."""

    def refuses(self, classes: int) -> str:
        """The reason why it cannot attack a classifier with this many classes, if it cannot."""
        return ""

    def applies(self, subject: Subject) -> bool:
        """Whether it is made for classifiers of this kind; most attacks are made for all."""
        return True

    @final
    def __call__(
        self,
        subject: Any,
        x: Any,
        y: Any,
        *,
        norm: Norm,
        seed: int = 0,
        epsilons: Sequence[float] | float | None = None,
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
        check_sizes(limits, norm)
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: a batch has at least 1 image")
        x, y = labelled_examples(subject, x, y)
        x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
        numbers = torch.arange(len(x)) if numbers is None else torch.as_tensor(np.asarray(numbers, np.int64))
        if len(numbers) != len(x):
            raise ValueError(f"{len(x)} images have as many numbers; got {len(numbers)}")
        starts = None if starts is None else _starts(subject, x, y, starts)
        targets = None if targets is None else _targets(subject, x, y, targets)
        blocks = []
        for rows in torch.arange(len(x), device=x.device).split(batch_size):
            goal = Goal(y[rows], None if targets is None else targets[rows])
            some = None if starts is None else starts[rows]
            draws = Draws(seed, numbers[rows.cpu()])
            with subject.at_rest(gradients=self.needs == "gradient"):
                blocks.append(self._block(name, subject, x[rows], goal, norm, draws, limits, some, batch_size))
        return joined(blocks)

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
            _check_box(name, trial.best[trial.distance.isfinite()])
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


def check_positive(attack: Attack, *settings: str) -> None:
    """Refuse settings that are not positive: a search without steps finds nothing, which would look like robustness."""
    for name in settings:
        value = getattr(attack, name)
        if not value > 0:
            raise ValueError(f"{name} of {type(attack).__name__} is {value!r}: it needs to be larger than 0")


def _check_box(name: str, adversarials: Tensor) -> None:
    """Refuse adversarials that are no images: outside of the box there may be nearer ones than inside."""
    if not adversarials.numel():
        return
    low, high = (end.item() for end in adversarials.aminmax())
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise ValueError(
            f"the attack {name} returned an adversarial with pixels from {low:.4g} to {high:.4g}: images have pixels "
            "from 0 to 1, so let it clamp its points to [0, 1]"
        )


def _targets(subject: Subject, x: Tensor, y: Tensor, targets: Any) -> Tensor:
    try:
        _, targets = labelled_examples(subject, x, targets)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the targets do not fit: {error}") from error
    if same := int((targets == y).sum()):
        raise ValueError(f"a target is a class other than the true one; {same} of {len(y)} targets are the true class")
    return targets


def _starts(subject: Subject, x: Tensor, y: Tensor, starts: Any) -> Tensor:
    try:
        starts, _ = labelled_examples(subject, starts, y)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the starts do not fit: {error}") from error
    if starts.shape != x.shape:
        raise ValueError(f"starts have the shape of the images, {tuple(x.shape)}; got {tuple(starts.shape)}")
    return starts.to(x.dtype)


def _positive(epsilons: Sequence[float] | float | None) -> tuple[float, ...]:
    limits = tuple(np.atleast_1d(np.asarray([] if epsilons is None else epsilons, float)).tolist())
    if any(not 0 < one < np.inf for one in limits):
        raise ValueError(f"epsilons are positive numbers; got {limits}")
    return limits
