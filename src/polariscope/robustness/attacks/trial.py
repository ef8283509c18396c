"""A batch of images under attack, and the only way by which an attack reaches the classifier.

A trial counts the queries of each image, and remembers the nearest adversarial among all queried points. So an attack
only has to propose good points: its result is adversarial because the classifier was queried, and never further away
than its start.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from polariscope.robustness.attacks.attacked import Attacked
from polariscope.robustness.attacks.draws import Draws
from polariscope.robustness.attacks.geometry import Norm, length, within
from polariscope.robustness.attacks.goals import Goal, Loss, cross_entropy, margin
from polariscope.subjects import Subject
from polariscope.user_code import UserCodeError

Need = Literal["gradient", "score", "decision"]
"""The access of an attack to a classifier: gradients of its scores, its scores, or the predicted class."""
Jacobian = Callable[["Trial", Tensor, Tensor, Loss, Goal], tuple[Tensor, Tensor]]
"""Points, their rows, values of scores and the goal these speak of, to gradients ``(n, k, d)`` and scores."""


class NoGradient(ValueError):
    """The classifier gives no gradient, so only attacks by score or decision apply."""


class Trial:
    """Images as rows ``x`` of shape (n, d), none of which reaches the goal yet. Points are queried with their ``rows``,
    the numbers of the images that they were made from. Scores and gradients have the precision of the images."""

    def __init__(
        self,
        subject: Subject,
        x: Tensor,
        goal: Goal,
        norm: Norm,
        *,
        draws: Draws,
        needs: Need = "gradient",
        epsilons: Sequence[float] = (),
        starts: Tensor | None = None,
        batch_size: int = 256,
    ) -> None:
        self.subject, self.goal, self.norm, self.draws, self.needs = subject, goal, norm, draws, needs
        self.shape = tuple(x.shape[1:])
        """The shape of one image."""
        self.channels = x.shape[1] if x.ndim == 4 else 1
        self.x = x.flatten(1)
        self.epsilons = sorted(epsilons)
        self.starts = None if starts is None else starts.flatten(1)
        self.batch_size = batch_size
        self.distance = x.new_full((len(x),), torch.inf, dtype=torch.float64)
        """The distance of the nearest adversarial so far."""
        self.best = self.x.clone()
        """The nearest adversarial; until there is one, the point with the largest margin seen."""
        self.closeness = x.new_full((len(x),), -torch.inf)
        self.queries = x.new_zeros(len(x), dtype=torch.int64)
        self.gradients = torch.zeros_like(self.queries)
        self.zero_gradients = torch.zeros_like(self.queries)
        self._jacobian: Jacobian = exact_jacobian
        if self.starts is not None:
            self.reached(self.starts)

    @property
    def rows(self) -> Tensor:
        return torch.arange(len(self.x), device=self.x.device)

    def left(self, epsilon: Tensor, rows: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Epsilon, rows and further arguments of the rows without an adversarial within epsilon."""
        left = ~within(self.distance[rows], epsilon)
        return [epsilon, rows, *tensors] if left.all() else [one[left] for one in (epsilon, rows, *tensors)]

    def length(self, points: Tensor, rows: Tensor) -> Tensor:
        """How far points are from their images."""
        return length(points - self.x[rows], self.norm, self.channels)

    def reached(self, points: Tensor, rows: Tensor | None = None) -> Tensor:
        """Which points reach the goal."""
        rows = self.rows if rows is None else rows
        with torch.no_grad():
            scores = self._scores(points, rows)
        return self._remember(points, rows, scores)

    def scores(self, points: Tensor, rows: Tensor, *, remember: bool = True) -> Tensor:
        """Class scores of points. Probes around a point need not be remembered; a row may then be queried several times
        at once."""
        assert self.needs != "decision", "an attack that needs only decisions must not query scores"
        with torch.no_grad():
            scores = self._scores(points, rows)
        if remember:
            self._remember(points, rows, scores)
        return scores.to(points.dtype)

    def gradient(
        self, points: Tensor, rows: Tensor, loss: Loss = cross_entropy, goal: Goal | None = None
    ) -> tuple[Tensor, Tensor]:
        """The gradient of a loss at points, ``(n, d)``, and the scores there. The loss is that of the attack's goal, or
        of another one with a class for each point."""
        jacobian, scores = self.jacobian(points, rows, loss, goal)
        return jacobian[:, 0], scores

    def jacobian(self, points: Tensor, rows: Tensor, values: Loss, goal: Goal | None = None) -> tuple[Tensor, Tensor]:
        """The gradients of several values at points, ``(n, k, d)``, and the scores there. A gradient with NaN or
        infinity is set to zero, and counted as a zero gradient."""
        jacobian, scores = self._jacobian(self, points, rows, values, goal or self.goal.at(rows))
        largest = jacobian.detach().flatten(1).abs().amax(1)  # NaN if any entry is
        if not largest.isfinite().all():
            jacobian = jacobian.where(largest.isfinite()[:, None, None], 0)
        self.zero_gradients[rows] += (largest == 0) | ~largest.isfinite()
        self._remember(points, rows, scores)
        return jacobian.to(points.dtype), scores.to(points.dtype)

    def differentiated(self, by: Jacobian) -> Trial:
        """The same trial, with gradients from elsewhere."""
        other = copy.copy(self)  # what it remembers and counts is shared
        other._jacobian = by
        return other

    def on(self, subject: Subject) -> Trial:
        """A trial of the same images on another classifier, with full access to it."""
        images = self.x.reshape(-1, *self.shape)
        return Trial(subject, images, self.goal, self.norm, draws=self.draws, batch_size=self.batch_size)

    def elsewhere(self, attack: Callable[..., Attacked], subject: Any) -> Tensor:
        """The images that an attack makes of these ones on another classifier, one which may be wrong about them."""
        images = self.x.reshape(-1, *self.shape)
        targets = self.goal.targets
        crafted = attack(
            subject,
            images,
            self.goal.labels,
            norm=self.norm,
            seed=self.draws.seed,
            epsilons=self.epsilons,
            targets=targets,
            numbers=self.draws.numbers,
            batch_size=self.batch_size,
        )
        return crafted.adversarials.to(images).flatten(1)

    def ask(self, points: Tensor, rows: Tensor) -> Tensor:
        """The scores of the classifier, with gradients if they are enabled."""
        scores = self.subject.scores(points.reshape(-1, *self.shape))
        self.queries.index_add_(0, rows, torch.ones_like(rows))
        return finite(scores, self.subject)

    def _scores(self, points: Tensor, rows: Tensor) -> Tensor:
        parts = zip(points.split(self.batch_size), rows.split(self.batch_size), strict=True)
        scores = [self.ask(some, of) for some, of in parts]
        return scores[0] if len(scores) == 1 else torch.cat(scores)

    def _remember(self, points: Tensor, rows: Tensor, scores: Tensor) -> Tensor:
        goal = self.goal.at(rows)
        reached = goal.reached(scores)
        if self.needs != "decision":
            close = margin(scores, goal).to(self.closeness)
            closer = (close > self.closeness[rows]) & self.distance[rows].isinf() & ~reached
            self._put(points, rows, closer, self.closeness, close)
        distance = torch.full_like(rows, torch.inf, dtype=torch.float64)
        distance[reached] = self.length(points[reached], rows[reached])
        self._put(points, rows, distance < self.distance[rows], self.distance, distance)
        return reached

    def _put(self, points: Tensor, rows: Tensor, which: Tensor, into: Tensor, values: Tensor) -> None:
        if which.any():
            into[rows[which]] = values[which]
            self.best[rows[which]] = points[which]


def exact_jacobian(trial: Trial, points: Tensor, rows: Tensor, values: Loss, goal: Goal) -> tuple[Tensor, Tensor]:
    """Gradients by backpropagation to the input; no gradient of a weight is computed."""
    assert trial.needs == "gradient", "an attack that uses gradients must declare needs = 'gradient'"
    parts = torch.arange(len(rows), device=rows.device).split(trial.batch_size)
    both = [_backward(trial, points[part], rows[part], values, goal.at(part)) for part in parts]
    jacobian, scores = both[0] if len(both) == 1 else map(torch.cat, zip(*both, strict=True))
    return jacobian, scores


@contextmanager
def needing_gradients(subject: Subject) -> Iterator[None]:
    """Scores of images whose gradients are wanted. A classifier that leaves torch (``x.numpy()``) refuses such images:
    it gives no gradient."""
    try:
        yield
    except UserCodeError as error:
        if "requires grad" in str(error):
            raise no_gradient(subject) from error
        raise


def require_gradient(subject: Subject, x: Tensor) -> None:
    """Raise :class:`NoGradient` unless scores of images have a gradient with respect to them."""
    with torch.enable_grad(), needing_gradients(subject):
        point = x.detach().clone().requires_grad_()
        total = subject.scores(point).sum()
    if not total.requires_grad or torch.autograd.grad(total, point, allow_unused=True)[0] is None:
        raise no_gradient(subject)


def no_gradient(subject: Subject) -> NoGradient:
    return NoGradient(
        f"{subject.name} gives no gradient of its scores: use an attack that needs only scores or decisions"
    )


def _backward(trial: Trial, points: Tensor, rows: Tensor, values: Loss, goal: Goal) -> tuple[Tensor, Tensor]:
    points = points.detach().requires_grad_()
    missing = no_gradient(trial.subject)
    with torch.enable_grad():
        with needing_gradients(trial.subject):
            scores = trial.ask(points, rows)
        losses = values(scores, goal)
        losses = losses[:, None] if losses.ndim == 1 else losses
        if not losses.requires_grad:
            raise missing
        columns = losses.sum(0)
        last = len(columns) - 1
        each = [
            torch.autograd.grad(column, points, retain_graph=number < last, allow_unused=True)[0]
            for number, column in enumerate(columns)
        ]
    if any(one is None for one in each):
        raise missing
    trial.gradients[rows] += len(each)
    return each[0][:, None] if len(each) == 1 else torch.stack(each, dim=1), scores.detach()


def finite(scores: Tensor, subject: Subject) -> Tensor:
    """Scores, if all of them are numbers."""
    if not scores.isfinite().all():
        wrong = int((~scores.isfinite()).any(1).sum())
        raise ValueError(
            f"an attack needs finite class scores, and {subject.name} returned NaN or infinity for {wrong} of "
            f"{len(scores)} images: find out where its forward pass overflows"
        )
    return scores
