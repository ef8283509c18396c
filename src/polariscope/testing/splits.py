"""Contract checks of splits: two disjoint parts of a world, always the same."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from polariscope.testing.promises import is_registered, rebuilt, require
from polariscope.worlds.renderers.masks import Walkers
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import Parts, Split, splits
from polariscope.worlds.world import ArrayWorld, World


def split_worlds() -> tuple[World, ...]:
    """Small worlds of the kinds that splits support: a factor grid, sequences, and data with its own test set."""
    generator = np.random.default_rng(0)
    divided = ArrayWorld(generator.normal(size=(60, 4)), np.arange(60) % 5, held_out=np.arange(40, 60))
    return MiniSprites(scales=3, orientations=4, positions=4), Walkers(sequences=8), divided


def check_split(split: Split, worlds: Iterable[World] | None = None) -> None:
    """A split returns numbers to train on, at least one, and numbers to hold out, no number twice and none in both.

    The same world always has the same parts, whatever was drawn before, and numpy's random state stays unchanged. The
    split can be rebuilt from its description. It refuses a world that it does not support in a :class:`ValueError`, and
    must support at least one of ``worlds`` (:func:`split_worlds` by default).

    >>> from polariscope.worlds.splits import RandomSplit
    >>> check_split(RandomSplit(0.3))
    """
    name = type(split).__name__
    refusals = [_checked(name, split, world) for world in (split_worlds() if worlds is None else worlds)]
    require(not all(refusals), f"{name} refuses every world: {'; '.join(refusals)}")


def _checked(name: str, split: Split, world: World) -> str:
    """Check the parts of a world; returns the error with which the split refuses it, or nothing."""
    state = np.random.get_state()  # noqa: NPY002 - a split must not change it
    try:
        parts = split.parts(world)
    except ValueError as error:
        return str(error) or "without a message"
    where = f"of a world with {len(world)} observations"
    require(isinstance(parts, Parts), f"{name} returns a {type(parts).__name__}: expected Parts(train, held_out)")
    for side, numbers in (("train", parts.train), ("held_out", parts.held_out)):
        whole = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
        require(whole, f"{side} of {name} has {numbers.dtype} of shape {numbers.shape}: expected whole numbers (n,)")
        inside = not len(numbers) or (numbers.min() >= 0 and numbers.max() < len(world))
        require(bool(inside), f"{side} of {name} has numbers outside {where}")
        require(len(np.unique(numbers)) == len(numbers), f"{side} of {name} has a number twice")
    require(len(parts.train) > 0, f"{name} leaves nothing to train on {where}")
    both = np.intersect1d(parts.train, parts.held_out)
    require(not len(both), f"{name} trains on {len(both)} of the observations that it holds out")
    again = {"the same split": split}
    if is_registered(splits, split):
        again["the split rebuilt from its description"] = rebuilt(splits, split)
    np.random.default_rng().random()
    for what, one in again.items():
        second = one.parts(world)
        same = np.array_equal(second.train, parts.train) and np.array_equal(second.held_out, parts.held_out)
        require(same, f"{what} ({name}) returns other parts {where}")
    later = np.random.get_state()  # noqa: NPY002
    untouched = all(np.array_equal(a, b) for a, b in zip(state, later, strict=True))
    require(untouched, f"{name} draws from numpy's global state: use np.random.default_rng(seed)")
    return ""
