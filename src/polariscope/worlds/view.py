"""Views: worlds made from another world. Pairs, tasks, parts, changed pictures: each is a world like any other.

A view holds its source world in ``of``, and is named, described and built with it. Its observations are numbered as in
any world; a view with draws of its own (augmentation, pairs) has new draws at every step, see :meth:`View.drawn`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.world import World

V = TypeVar("V", bound="View")


class View:
    """A world made from another world; everything that it does not change comes from that world. A new view is a
    registered frozen dataclass with a field ``of``."""

    of: World

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.of.factors

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions about the data of the source world, in sentences."""
        return getattr(self.of, "assumed", ())

    def __len__(self) -> int:
        return len(self.of)

    def there(self, index: ArrayLike) -> NDArray[np.int64]:
        """The numbers of this view's observations in the source world."""
        return numbered(index, len(self))

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.shown(self.of.observe(self.there(index)), index)

    def shown(self, observations: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        """The observations of this view from those of the source world, and from the others in their pairs."""
        return observations

    def shown_target(self, target: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        """The targets of this view from those of the source world.

        Classes and numbers of whole observations do not change. A mask ``(n, height, width)`` has a class for each
        pixel: a view that changes pixels must transform it here, or refuse it.
        """
        changes = type(self).shown is not View.shown or type(self).observe is not View.observe
        if changes and np.ndim(target) > 2:
            raise ValueError(
                f"the view {type(self).__name__} changes observations and does not define how masks change: define "
                "shown_target(target, index) in it"
            )
        return target

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.of.factors_of(self.there(index))

    def drawn(self: V, seed: int, time: int) -> V:
        """The same view with the draws of another step. A view without draws of its own passes this to its source
        world."""
        return dataclasses.replace(self, of=drawn(self.of, seed, time)) if draws(self.of) else self  # type: ignore[type-var]

    @property
    def draws(self) -> bool:
        """Whether observations change with the time."""
        return draws(self.of)


@runtime_checkable
class Paired(Protocol):
    """A world whose observations come with partners, as in pairs and sequences."""

    def others_of(self, index: ArrayLike) -> tuple[NDArray[Any], ...]:
        """The second observation of each pair, and further ones of sequences."""


@runtime_checkable
class Weighted(Protocol):
    """A world with weights for drawing its observations in training."""

    def draw_weights(self, index: ArrayLike) -> NDArray[np.float64]:
        """How likely each of the observations by number is drawn; their sum is 1."""


def inside(world: World, kind: Any, index: ArrayLike = ()) -> tuple[Any, NDArray[np.int64]] | None:
    """The world itself, or the nearest source world, that has the methods of ``kind``; with the numbers there."""
    while not isinstance(world, kind):
        if not isinstance(world, View):
            return None
        index, world = world.there(index), world.of
    return world, np.asarray(index, dtype=np.int64)


def others_of(world: World, index: ArrayLike) -> tuple[NDArray[Any], ...] | None:
    """The others of observations by number, changed as the views change the first of them; None if there are none."""
    if isinstance(world, Paired):
        return world.others_of(index)
    if not isinstance(world, View):
        return None
    others = others_of(world.of, world.there(index))
    return None if others is None else tuple(world.shown(other, index) for other in others)


def draws(world: World) -> bool:
    return isinstance(world, View) and world.draws


def drawn(world: World, seed: int, time: int) -> World:
    """The world at a step of training, for worlds whose observations change from step to step."""
    return world.drawn(seed, time) if isinstance(world, View) else world
