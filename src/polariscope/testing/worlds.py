"""Contract checks of worlds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.testing.promises import is_registered, rebuilt, require
from polariscope.worlds.remembered import recalled
from polariscope.worlds.view import View
from polariscope.worlds.world import GridWorld, World, worlds


def check_world(world: World, *, count: int = 64, seed: int = 0) -> None:
    """A world returns the same bits for the same number, whatever else is read, in the standard types and ranges.

    ``count`` observations are checked, including the first and the last. Worlds on a factor grid must number its
    combinations one to one.

    >>> from polariscope.worlds import ArrayWorld
    >>> check_world(ArrayWorld(np.eye(8)))
    """
    name = type(world).__name__
    require(isinstance(world, World), f"{name} is not a world: it needs shape, factors, len, observe and factors_of")
    require(len(world) >= 1, f"{name} is empty: a world needs at least 1 observation")
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(world), size=count)
    numbers = generator.permutation(np.unique([0, len(world) - 1, *drawn]))
    observations, factors = world.observe(numbers).copy(), world.factors_of(numbers).copy()
    _check_observations(name, world, observations, len(numbers))
    _check_factors(name, world, factors, len(numbers))
    _check_numbering(name, world, numbers, observations, factors)
    _check_bounds(name, world)
    if isinstance(world, GridWorld):
        _check_grid(name, world, numbers, observations, factors)
    if dataclasses.is_dataclass(world) and is_registered(worlds, world):
        again, seen = rebuilt(worlds, world), world
        while isinstance(seen, View):
            seen = seen.of
        again = again if worlds.knows(seen) else recalled(again, seen)  # a description does not contain data in memory
        same = np.array_equal(again.observe(numbers), world.observe(numbers))
        require(same, f"{name} rebuilt from its description has other observations")


def _check_observations(name: str, world: World, observations: NDArray[Any], count: int) -> None:
    shape = tuple(world.shape)
    images = len(shape) == 3
    require(images or len(shape) == 1, f"{name} has shape {shape}: it needs (channels, height, width) or (m,)")
    what = "images" if images else "points"
    kinds = (np.uint8, np.float32) if images else (np.float32,)
    require(
        observations.shape == (count, *shape),
        f"{name} returns observations of shape {observations.shape} for {count} numbers: expected {(count, *shape)}",
    )
    expected = " or ".join(str(np.dtype(kind)) for kind in kinds)
    require(observations.dtype in kinds, f"{name} returns {what} of {observations.dtype}: expected {expected}")
    if observations.dtype == np.uint8:
        few = 1 <= shape[0] <= 4 or shape[0] < min(shape[1:])  # a map may have more than four layers
        require(few, f"{name} has {shape[0]} channels of {shape[1]} x {shape[2]} pixels: channels come first")
        brightest = observations.max()
        require(brightest > 1, f"the brightest pixel of {name} is {brightest}: images use the range 0 to 255")
    else:
        require(bool(np.isfinite(observations).all()), f"{name} returns NaN or infinity")


def _check_factors(name: str, world: World, factors: NDArray[Any], count: int) -> None:
    expected = (count, len(world.factors))
    require(factors.shape == expected, f"{name} returns factors of shape {factors.shape}: expected {expected}")
    require(bool(np.isfinite(factors).all()), f"{name} returns factors that are NaN or infinite")
    for factor, column in zip(world.factors, factors.T, strict=True):
        if factor.size:
            on_grid = (column == np.rint(column)) & (column >= 0) & (column < factor.size)
            require(
                bool(on_grid.all()),
                f"factor {factor.name!r} of {name} takes the value {column[~on_grid][:1]}: "
                f"its positions are 0 to {factor.size - 1}",
            )


def _check_numbering(
    name: str, world: World, numbers: NDArray[Any], observations: NDArray[Any], factors: NDArray[Any]
) -> None:
    """An observation depends only on its number: not on other numbers, their order, or changes by callers."""
    orders: dict[str, slice | NDArray[np.intp]] = {
        "again": slice(None),
        "after the last result was overwritten": slice(None),
        "in another order": np.argsort(numbers),
        "with fewer others": slice(1, None, 3),
        "twice over": np.repeat(np.arange(len(numbers)), 2),
    }
    for how, order in orders.items():
        for what, call, first in (
            ("observations", world.observe, observations),
            ("factors", world.factors_of, factors),
        ):
            given = call(numbers[order])
            same = given.dtype == first.dtype and np.array_equal(given, first[order])
            require(same, f"{name} returns other {what} for the same numbers {how}")
            if given.flags.writeable:
                given[...] = 0  # the caller may overwrite a result


def _check_bounds(name: str, world: World) -> None:
    outside = {len(world): "one more than its last number", -1: "which is no number of an observation"}
    for call in (world.observe, world.factors_of):
        for number, why in outside.items():
            try:
                call(np.array([number]))
            except (IndexError, ValueError):
                continue
            raise AssertionError(f"{call.__name__} of {name} accepts {number}, {why}")


def _check_grid(
    name: str, world: GridWorld, numbers: NDArray[Any], observations: NDArray[Any], factors: NDArray[Any]
) -> None:
    combinations = math.prod(f.size for f in world.factors)
    require(len(world) == combinations, f"{name} has {len(world)} observations for {combinations} combinations")
    require(
        np.array_equal(world.grid.to_index(factors), numbers),
        f"the factors of {name} do not map back to their numbers",
    )
    require(np.array_equal(world.render(factors), observations), f"render of {name} returns other images than observe")
