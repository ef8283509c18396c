"""Contract checks of views: draws are functions of seed and time, and a mask moves with the pixels it marks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.testing.promises import require
from polariscope.testing.worlds import check_world
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.targets import UNLABELLED, Target, target_values
from polariscope.worlds.view import View, drawn, draws, others_of
from polariscope.worlds.world import GridWorld, World, sample_numbers

TIMES = ((0, 1), (0, 2), (7, 1))
"""Pairs of seed and time."""
REACH = 3
"""Pixels by which masks are shifted, to test whether they fit better elsewhere."""
FITS, BETTER = 0.6, 0.2
"""A mask is misplaced if its correlation with the brightness of pixels is above FITS elsewhere, and larger by more than
BETTER than in its place. Fog and the like change brightness too much for any place to fit."""
MISPLACED = 0.1
"""Share of misplaced masks that chance explains."""


@dataclass(frozen=True)
class Marked(GridWorld):
    """Bright squares on dark ground, marked by masks: squares of some sizes at all places of an image."""

    size: int = 16

    @property
    def grid(self) -> FactorGrid:
        return FactorGrid((Factor("side", 3), Factor("row", self.size - 6), Factor("column", self.size - 6)))

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    @property
    def targets(self) -> tuple[Target, ...]:
        return (Target("square", "mask", 2),)

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        image = np.where(self._squares(np.asarray(factors)), 200, 50).astype(np.uint8)
        return np.repeat(image[:, None], 3, axis=1)

    def target_of(self, index: ArrayLike) -> NDArray[np.int64]:
        return self._squares(self.factors_of(index)).astype(np.int64)

    def _squares(self, factors: NDArray[Any]) -> NDArray[np.bool_]:
        side, row, column = (factors[:, i, None, None] for i in range(3))
        at = np.arange(self.size)
        y, x = at[:, None], at[None, :]
        inside = (y >= row) & (y < row + side + 4) & (x >= column) & (x < column + side + 4)
        return np.asarray(inside)


def check_view(view: View, *, count: int = 32, seed: int = 0) -> None:
    """A view is a world (see :func:`~polariscope.testing.worlds.check_world`), at any time.

    The same seed and time yield the same observations and partners, whatever was read in between. A view that ``draws``
    shows other observations at other times, any other view always the same; size, shape and factors never change. The
    view moves a mask with the pixels that it marks, or refuses masks in a :class:`ValueError`: the check applies the
    view to another world, bright squares on dark ground.

    >>> from polariscope.worlds.views.augmented import Augmented
    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> check_view(Augmented(MiniSprites(), flip="both", shift=2))
    """
    name = type(view).__name__
    require(isinstance(view, View), f"{name} is not a view: derive it from View, with the world it shows in 'of'")
    check_world(view, count=count, seed=seed)
    numbers = sample_numbers(view, count, seed)
    factors = view.factors_of(numbers)
    shown = {moment: drawn(view, *moment) for moment in TIMES}
    observed = {moment: one.observe(numbers).copy() for moment, one in shown.items()}
    partners = {moment: others_of(one, numbers) for moment, one in shown.items()}
    for moment, one in shown.items():
        where = f"{name} drawn with seed {moment[0]} at time {moment[1]}"
        require(isinstance(one, type(view)), f"{where} is a {type(one).__name__}, no longer a {name}")
        require(len(one) == len(view) and tuple(one.shape) == tuple(view.shape), f"{where} has another size or shape")
        require(np.array_equal(one.factors_of(numbers), factors), f"{where} has other factors")
        _check_again(where, drawn(view, *moment), numbers, observed[moment], partners[moment])
    if draws(view):
        first, *others = ([observed[m], *(partners[m] or ())] for m in TIMES)
        changing = any(_differ(first, other) for other in others)
        require(changing, f"{name} declares that it draws, but shows the same at every time")
    else:
        still = all(np.array_equal(values, view.observe(numbers)) for values in observed.values())
        require(still, f"{name} declares that it does not draw, but shows other observations at another time")
    _check_masks(name, view, numbers)


def _check_again(
    where: str, one: World, numbers: NDArray[Any], observed: NDArray[Any], partners: tuple[NDArray[Any], ...] | None
) -> None:
    """The same time yields the same observations, also for some of them in another order."""
    for order in (slice(None), slice(None, None, -1), slice(1, None, 3)):
        again = one.observe(numbers[order])
        require(np.array_equal(again, observed[order]), f"{where} shows other observations when read again")
        others = others_of(one, numbers[order])
        same = (others is None) == (partners is None) and not _differ(
            others or (), [partner[order] for partner in partners or ()]
        )
        require(same, f"{where} returns other partners when read again")


def _differ(some: Any, others: Any) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(some, others, strict=True))


def _check_masks(name: str, view: View, numbers: NDArray[Any]) -> None:
    try:
        marked: Any = dataclasses.replace(view, of=Marked())  # type: ignore[type-var]
        numbers = sample_numbers(marked, len(numbers))
        moments = [marked, *(drawn(marked, *moment) for moment in TIMES)]
        observed = [one.observe(numbers) for one in moments]
    except ValueError:
        return  # the view does not support such images
    if observed[0].ndim != 4:
        return
    for one, images in zip(moments, observed, strict=True):
        try:
            masks = target_values(one, numbers)
        except ValueError:
            return  # the view refuses masks
        if masks.ndim != 3:
            return  # the view has another target
        expected = (len(numbers), *images.shape[2:])
        require(masks.shape == expected, f"masks of {name} have shape {masks.shape}: its images need {expected}")
        share = float(_misplaced(images.mean(axis=1), masks).mean())
        require(
            share <= MISPLACED,
            f"{name} moves pixels but not their masks: {share:.0%} of the masks fit better after a shift or a "
            "rotation; define shown_target(target, index)",
        )


def _misplaced(brightness: NDArray[Any], masks: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each mask fits its image better after it was rotated, mirrored or shifted."""
    marks = np.where(masks == UNLABELLED, 0, masks).astype(np.float64)
    shifts = range(-REACH, REACH + 1)
    moved = [np.roll(marks, (down, right), axis=(1, 2)) for down in shifts for right in shifts]
    moved += [marks[:, ::-1], marks[:, :, ::-1], marks[:, ::-1, ::-1]]
    if marks.shape[1] == marks.shape[2]:
        turned = marks.transpose(0, 2, 1)
        moved += [turned, turned[:, ::-1], turned[:, :, ::-1], turned[:, ::-1, ::-1]]
    image = _standardised(brightness.astype(np.float64))
    fit, *others = (np.abs((image * _standardised(one)).mean(axis=(1, 2))) for one in (marks, *moved))
    elsewhere = np.max(others, axis=0)
    return np.asarray((elsewhere > FITS) & (elsewhere > fit + BETTER))


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean(axis=(1, 2), keepdims=True)
    return np.asarray(centred / np.maximum(centred.std(axis=(1, 2), keepdims=True), 1e-12))
