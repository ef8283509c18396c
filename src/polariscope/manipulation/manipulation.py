"""A manipulation: a bounded change of every observation that keeps the factors.

It is a frozen configuration. ``fit`` takes a world (and may train on it) and returns a function from factors to
changes; :func:`apply` adds the changes to all observations and returns a world to train on like any other, with the
same factors in the same order (Spec 003, sections 4.6 to 4.8; Zietlow, Rolinek and Martius 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polariscope.manipulation.folding import check_bound, shifted
from polariscope.registry import Registry
from polariscope.training.progress import TellNamed
from polariscope.worlds.observations import Arranged
from polariscope.worlds.world import ArrayWorld, World, sample

Change = Callable[[NDArray[Any], int], NDArray[np.floating]]
"""A function from factors ``(n, k)``, and the number of the first of these observations, to changes ``(n, *shape)``."""
BLOCK = 1024  # observations changed at a time, so that memory never holds a copy of a large world in floats


@dataclass(frozen=True, eq=False)
class Fitted:
    """A manipulation that is fitted to its world."""

    change: Change
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    """The learned network, if there is one."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready facts about the fit."""


class Manipulation(Protocol):
    """Configuration of a change of at most ``epsilon`` in every coordinate (a share of the range of images of bytes).

    A manipulation that must be trained sets the class variable ``trains`` to True.
    """

    @property
    def epsilon(self) -> float: ...

    def fit(self, world: World, seed: int, tell: TellNamed) -> Fitted: ...

    def describe(self) -> dict[str, Any]:
        """JSON-ready settings."""


manipulations: Registry[Manipulation] = Registry("manipulation", of=Manipulation)


@dataclass(frozen=True)
class ChangeSize:
    """How much a manipulation moved the observations (images in units of their range)."""

    max_norm: float
    """Largest change of any coordinate of any observation."""
    mean_square: float
    """Mean over observations of the squared change, summed over coordinates."""
    added_variance: float
    """Variance of the change as a share of the variance of the observations."""
    coordinates: int
    """Number of changed coordinates."""


@dataclass(frozen=True, eq=False)
class Manipulated:
    """A manipulated world with its original, the size of the change, and the settings that made it."""

    original: World
    world: ArrayWorld
    kind: str
    settings: dict[str, Any]
    epsilon: float
    seed: int
    size: ChangeSize
    fitted: Fitted

    def change_of(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Altered minus original, in the data's units."""
        return in_units(self.world.observe(index)) - in_units(self.original.observe(index))


def apply(
    world: World,
    manipulation: Manipulation,
    kind: str = "own",
    *,
    seed: int = 0,
    count: int | None = None,
    tell: TellNamed = lambda name, progress: None,
) -> Manipulated:
    """Fit a manipulation to a world and change all its observations (``count`` of them, drawn by the seed, if given).

    Any object with the three members of :class:`Manipulation` is accepted.
    """
    check_world(world, manipulation)
    if count is not None:
        if count < 2:
            raise ValueError(f"a manipulated world needs at least 2 observations; count is {count}")
        observations, factors, _ = sample(world, count, seed)
        world = ArrayWorld(Arranged(observations), factors, world.factors)
    fitted = manipulation.fit(world, seed, tell)
    altered, size = _changed(world, fitted.change, manipulation.epsilon)
    positions = world.factors_of(np.arange(len(world)))
    result = ArrayWorld(Arranged(altered), positions, world.factors, source=f"{kind} manipulation")
    return Manipulated(world, result, kind, manipulation.describe(), manipulation.epsilon, seed, size, fitted)


def check_world(world: World, manipulation: Manipulation) -> None:
    """Refuse a world without factors, and a bound that does not suit its observations."""
    check_bound(manipulation.epsilon, world.observe([0]).dtype == np.uint8)
    if not world.factors:
        raise ValueError("a manipulation needs a world whose factors are known, and this one has none")


def standardised(world: World) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of each factor over the world; 1 for a factor that does not vary."""
    table = world.factors_of(np.arange(len(world))).astype(np.float64)
    spread = table.std(axis=0)
    return table.mean(axis=0).astype(np.float32), np.where(spread > 0, spread, 1.0).astype(np.float32)


def changeable(world: World) -> NDArray[np.bool_]:
    """The coordinates that a hand-made change alters: the idle ones of points if there are at least two, else all.

    An idle coordinate never varies and encodes no factor, so a change there adds structure and disturbs no factor.
    """
    if len(world.shape) == 3:
        return np.ones(world.shape, dtype=bool)
    seen = sample(world, 2000)[0]
    idle = np.asarray(seen.min(axis=0) == seen.max(axis=0))
    return idle if idle.sum() >= 2 else np.ones_like(idle)


def _changed(world: World, change: Change, epsilon: float) -> tuple[NDArray[Any], ChangeSize]:
    """All observations after the change, and its size, a block at a time."""
    altered = np.empty((len(world), *world.shape), world.observe([0]).dtype)
    largest = 0.0
    sums = np.zeros((2, *world.shape))
    squares = np.zeros((2, *world.shape))
    for start in range(0, len(world), BLOCK):
        index = np.arange(start, min(start + BLOCK, len(world)))
        before = world.observe(index)
        altered[index] = shifted(before, change(world.factors_of(index), start), epsilon)
        x = in_units(before)
        moved = in_units(altered[index]) - x
        largest = max(largest, float(np.abs(moved).max()))
        sums += np.stack([x.sum(0), moved.sum(0)])
        squares += np.stack([(x**2).sum(0), (moved**2).sum(0)])
    means = squares / len(world)
    variance = (means - (sums / len(world)) ** 2).reshape(2, -1).sum(axis=1)
    if not variance[0] > 0:
        raise ValueError("all observations of this world are the same: there is no structure to manipulate")
    added = float(variance[1] / variance[0])
    return altered, ChangeSize(largest, float(means[1].sum()), added, int((squares[1] > 0).sum()))


def in_units(observations: NDArray[Any]) -> NDArray[np.float64]:
    """Observations as floats: images of bytes are scaled to [0, 1], other observations are not."""
    return observations.astype(np.float64) / (255 if observations.dtype == np.uint8 else 1)
