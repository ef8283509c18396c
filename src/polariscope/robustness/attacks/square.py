"""The square attack (Andriushchenko et al. 2020), the part of AutoAttack that uses scores only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.robustness.attacks.attack import attacks, check_positive
from polariscope.robustness.attacks.fixed_epsilon import FixedEpsilonAttack
from polariscope.robustness.attacks.geometry import Norm
from polariscope.robustness.attacks.goals import margin
from polariscope.robustness.attacks.trial import Need, Trial

HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""The shares of all questions after which the area of a square is halved."""


@attacks.register("square")
@dataclass(frozen=True)
class Square(FixedEpsilonAttack):
    """A random search over squares of the image: a change of one square is kept if it raises the margin.

    In L∞ the pixels of a square move to x ± epsilon, all in one direction. In L2 a square takes over the change of
    another one, in the shape of a hill. Squares become smaller over time. For observations without height and width,
    intervals replace squares.
    """

    steps: int = 1000
    area: float = 0.8
    """The first squares' share of the image."""

    needs: ClassVar[Need] = "score"
    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        check_positive(self, "steps", "area")

    def attempt(self, trial: Trial, rows: Tensor, epsilon: Tensor, key: int) -> None:
        shape = trial.shape if len(trial.shape) == 3 else (1, 1, trial.x.shape[1])
        change = _first(trial, rows, shape, (key, 0))
        points = _moved(trial, rows, change, epsilon)
        value = margin(trial.scores(points, rows), trial.goal.at(rows))
        for step in range(1, self.steps + 1):
            epsilon, rows, change, points, value = trial.left(epsilon, rows, change, points, value)
            if not len(rows):
                return
            side = self._side(step, shape)
            if trial.norm == "linf":
                tried = _new_square(trial, rows, change, side, (key, step))
            else:
                spare = (epsilon.square() - (points - trial.x[rows]).double().square().sum(1)).clamp(min=0)
                actual = ((points - trial.x[rows]) / epsilon.to(points.dtype)[:, None]).unflatten(1, shape)
                tried = _new_hill(trial, rows, actual, side, (spare / epsilon.square()).to(points.dtype), (key, step))
            moved = _moved(trial, rows, tried, epsilon)
            after = margin(trial.scores(moved, rows), trial.goal.at(rows))
            better = after > value
            change = torch.where(better[:, None, None, None], tried, change)
            points = torch.where(better[:, None], moved, points)
            value = torch.where(better, after, value)

    def _side(self, step: int, shape: tuple[int, ...]) -> tuple[int, int]:
        """Height and width of the squares."""
        area = self.area / 2 ** sum(step > share * self.steps for share in HALVINGS) * shape[1] * shape[2]
        if min(shape[1:]) == 1:
            return (1, max(1, min(shape[2] - 1, round(area)))) if shape[1] == 1 else (max(1, round(area)), 1)
        side = max(1, min(round(area**0.5), min(shape[1:]) - 1))
        return side, side


def _moved(trial: Trial, rows: Tensor, change: Tensor, epsilon: Tensor) -> Tensor:
    """The image with a change, of which only the direction counts in L2 and only the sign in L∞."""
    change = change.flatten(1)
    if trial.norm == "l2":
        change = change / change.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return (trial.x[rows] + change * epsilon.to(change.dtype)[:, None]).clamp(0, 1)


def _first(trial: Trial, rows: Tensor, shape: tuple[int, ...], key: tuple[int, ...]) -> Tensor:
    """Stripes of random sign for L∞, a grid of hills for L2."""
    channels, height, width = shape
    if trial.norm == "linf":
        signs = _signs(trial, rows, channels * width, key).reshape(-1, channels, 1, width)
        return signs.expand(-1, -1, height, -1).clone()
    tall, wide = max(1, height // 5), max(1, width // 5)
    down, across = height // tall, width // wide
    signs = _signs(trial, rows, channels * down * across, key).reshape(-1, channels, down, 1, across, 1)
    tile = hill(tall, wide).to(trial.x)[:, None]
    grid = (signs * tile).reshape(-1, channels, down * tall, across * wide)
    return torch.nn.functional.pad(grid, (0, width - across * wide, 0, height - down * tall))


def _new_square(trial: Trial, rows: Tensor, change: Tensor, side: tuple[int, int], key: tuple[int, ...]) -> Tensor:
    """One square at a random place with a random sign in each channel."""
    channels, height, width = change.shape[1:]
    inside = _window(trial, rows, (height, width), side, (*key, 0))
    signs = _signs(trial, rows, channels, (*key, 1))[:, :, None, None]
    # A square whose signs are all as they were would ask the same question again.
    same = ((change == signs) | ~inside[:, None]).flatten(1).all(1)
    signs = torch.where(same[:, None, None, None], -signs, signs)
    return torch.where(inside[:, None], signs, change)


def _new_hill(
    trial: Trial, rows: Tensor, change: Tensor, side: tuple[int, int], spare: Tensor, key: tuple[int, ...]
) -> Tensor:
    """One window is emptied; another one gets its length and what is left of epsilon, as the sum of what it had and a
    hill of random sign in each channel."""
    channels, height, width = change.shape[1:]
    first = _window(trial, rows, (height, width), side, (*key, 0))[:, None]
    second = _window(trial, rows, (height, width), side, (*key, 1))[:, None]
    signs = _signs(trial, rows, channels, (*key, 2))[:, :, None, None]
    upright = hill(*side).to(change)
    lying = hill(*side[::-1]).T.to(change)
    turned = trial.draws.uniform(rows, 1, (*key, 3))[:, :, None, None] < 0.5
    hills = torch.where(turned, lying, upright).expand(-1, channels, -1, -1)
    peak = torch.zeros_like(change).masked_scatter(first.expand_as(change), hills)
    had = change * first
    shape = signs * peak + had / _length(had)
    budget = (spare[:, None, None, None] / channels + _length(change * (first | second)).square()).sqrt()
    return change * ~(first | second) + shape / _length(shape) * budget


def _length(change: Tensor) -> Tensor:
    """The L2 norm of each channel."""
    return change.flatten(2).norm(dim=2)[..., None, None].clamp(min=1e-12)


def _window(trial: Trial, rows: Tensor, size: tuple[int, int], side: tuple[int, int], key: tuple[int, ...]) -> Tensor:
    """A window at a random place, as a mask."""
    masks = []
    for place, (whole, part) in zip(trial.draws.uniform(rows, 2, key).T, zip(size, side, strict=True), strict=True):
        first = (place * (whole - part + 1)).floor()[:, None]
        at = torch.arange(whole, device=rows.device)
        masks.append((at >= first) & (at < first + part))
    return masks[0][:, :, None] & masks[1][:, None, :]


def _signs(trial: Trial, rows: Tensor, count: int, key: tuple[int, ...]) -> Tensor:
    return torch.where(trial.draws.uniform(rows, count, key) < 0.5, -1.0, 1.0).to(trial.x.dtype)


def hill(height: int, width: int) -> Tensor:
    """Two hills of length 1 together in a window, an upward one in its first half and a downward one in the second.

    >>> one = hill(5, 5)
    >>> round(float(one.norm()), 6), bool((one[:2] > 0).all()), bool((one[2:] < 0).all())
    (1.0, True, True)
    """
    if height < width:
        return hill(width, height).T
    half = height // 2
    both = torch.cat([_rectangles(half, width), -_rectangles(height - half, width)])
    return both / both.norm()


def _rectangles(height: int, width: int) -> Tensor:
    """Nested rectangles on top of each other: the k-th from the centre weighs 1 / k²."""
    down = (torch.arange(height) - height // 2).abs()[:, None]
    across = (torch.arange(width) - width // 2).abs()[None]
    ring = torch.maximum(down, across)  # the smallest rectangle that a pixel is in
    weights = torch.arange(1, max(height, width) + 2, dtype=torch.float64) ** -2.0
    return weights.flip(0).cumsum(0).flip(0)[ring]
