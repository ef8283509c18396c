"""Which observations are trained on and which are kept: splits have names, and are recorded with a run.

A split by values keeps combinations of factors, or parts of their range, out of the training (Spec 001a, section 8.3).
Values are positions on a factor's grid. Where none are given they follow the published rule: about a fifth of each
ordered factor's values is kept, from its inside to interpolate and from its end to extrapolate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Registry, nearest
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.view import Paired, View, inside
from polariscope.worlds.world import World, worlds

Numbers = NDArray[np.int64]
Values = Mapping[str, tuple[int, ...]]
"""Positions by the name of the factor."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of the observations to train on, and of those that are kept from training."""

    train: Numbers
    held_out: Numbers


class Split(Protocol):
    """A new split is a registered frozen dataclass with ``parts``."""

    def parts(self, world: World) -> Parts: ...


splits: Registry[Split] = Registry("split", "polariscope.worlds", of=Split)


@splits.register("random")
@dataclass(frozen=True)
class RandomSplit:
    """A random share of the observations is kept: the same for every seed, so that runs compare."""

    share: float = 0.1
    """Share of the world kept for evaluation, never trained on."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"the held-out share is {self.share}: it needs to be in [0, 1)")

    def parts(self, world: World) -> Parts:
        count = len(world)
        order = np.random.default_rng(count).permutation(count)
        kept = min(round(count * self.share), count - 1)
        return Parts(order[kept:], order[:kept])


@splits.register("interpolation")
@dataclass(frozen=True)
class Interpolation:
    """Observations with a value from inside the range of some factor are kept."""

    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Positions that are kept, by factor; spread over the inside of every ordered factor if not given."""

    def parts(self, world: World) -> Parts:
        return _by_values(world, self.values or usual_values(world.factors, "interpolation"), kept=True)


@splits.register("extrapolation")
@dataclass(frozen=True)
class Extrapolation:
    """Observations with a value from the end of the range of some factor are kept."""

    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Positions that are kept, by factor; the last fifth of every ordered factor if not given."""

    def parts(self, world: World) -> Parts:
        return _by_values(world, self.values or usual_values(world.factors, "extrapolation"), kept=True)


@splits.register("composition")
@dataclass(frozen=True)
class Composition:
    """Trained on are observations with a first value of some factor: every value is seen, most combinations are not."""

    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Positions, one of which every observation in training has, by factor; the first of each ordered factor with ten
    values or more if not given."""

    def parts(self, world: World) -> Parts:
        return _by_values(world, self.values or usual_values(world.factors, "composition"), kept=False)


@splits.register("group")
@dataclass(frozen=True)
class GroupSplit:
    """Whole groups are kept: all observations of some values of one factor (a person, a scene, a session)."""

    factor: str = ""
    """Factor whose values are the groups; the first if not given."""
    share: float = 0.1
    """Share of the groups that is kept, at least one."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"the share of groups is {self.share}: it needs to lie between 0 and 1")

    def parts(self, world: World) -> Parts:
        column = _column(world.factors, self.factor or next((f.name for f in world.factors), ""))
        group = world.factors_of(np.arange(len(world)))[:, column]
        values = np.unique(group)
        if len(values) < 2:
            raise ValueError(f"a split by groups needs at least 2, and {world.factors[column].name} has {len(values)}")
        kept = np.random.default_rng(len(values)).permutation(values)[: max(1, round(self.share * len(values)))]
        return parted(np.isin(group, kept))


@splits.register("file")
@dataclass(frozen=True)
class FileSplit:
    """The numbers of the observations that are kept stand in a file: .npy, or text with one in a line."""

    path: str

    def parts(self, world: World) -> Parts:
        path = Path(self.path).expanduser()
        try:
            rows = (
                np.load(path, allow_pickle=False)
                if path.suffix == ".npy"
                else np.loadtxt(path, dtype=np.int64, ndmin=1)
            )
        except FileNotFoundError as error:
            raise ValueError(f"there is no file {path} with the numbers of what is kept from training") from error
        except ValueError as error:
            raise ValueError(f"{path} needs whole numbers, one in a line, or an array of them ({error})") from error
        kept = np.zeros(len(world), dtype=bool)
        kept[numbered(rows, len(world))] = True
        return parted(kept)


@worlds.register("part")
@dataclass(frozen=True)
class Part(View):
    """One side of a split as a world of its own, numbered from 0.

    >>> from polariscope.worlds.mini_sprites import MiniSprites
    >>> len(Part(MiniSprites())), len(Part(MiniSprites(), side="train"))
    (130, 1166)
    """

    of: World
    split: Split = field(default_factory=RandomSplit)
    side: Literal["train", "held-out"] = "held-out"

    def __post_init__(self) -> None:
        if not len(self._index):
            raise ValueError("this split keeps nothing from training, so there is no held-out part")

    @cached_property
    def _index(self) -> Numbers:
        parts = self.split.parts(self.of)
        return parts.train if self.side == "train" else parts.held_out

    def __len__(self) -> int:
        return len(self._index)

    def there(self, index: ArrayLike) -> Numbers:
        return self._index[numbered(index, len(self))]


@dataclass(frozen=True, eq=False)
class Chosen(View):
    """Some observations of a world by number, renumbered from 0; rendered when asked for, like the world's own."""

    of: World
    index: Numbers

    def __post_init__(self) -> None:
        index = np.asarray(self.index, dtype=np.int64)
        if index.ndim != 1 or not index.size or index.min() < 0 or index.max() >= len(self.of):
            raise ValueError(f"a part needs numbers of observations from 0 to {len(self.of) - 1}, at least one")
        object.__setattr__(self, "index", index)

    def __len__(self) -> int:
        return len(self.index)

    def there(self, index: ArrayLike) -> Numbers:
        return self.index[numbered(index, len(self))]


@runtime_checkable
class Confinable(Protocol):
    """A world of pairs that knows itself how to keep to some of them."""

    def confined(self, index: Numbers) -> World:
        """The pairs of these numbers, numbered from 0, in which nothing of the others is seen."""


def confined(world: World, index: Numbers) -> World:
    """Some observations of a world of pairs, with others from among them alone: what is kept is seen by nobody.

    >>> from polariscope.worlds.mini_sprites import MiniSprites
    >>> from polariscope.worlds.pairs import Pairs
    >>> few = confined(Pairs(MiniSprites(), "lap-nc"), np.arange(12))
    >>> len(few), bool((few.partners(np.arange(12)) < 12).all())
    (12, True)
    """
    if isinstance(world, Confinable):
        return world.confined(index)
    if not isinstance(world, View) or inside(world, Paired) is None:
        return Chosen(world, index)
    if isinstance(world, Part | Chosen):
        return confined(world.of, world.there(index))
    choose = Chosen if isinstance(world, Paired) else confined
    return replace(world, of=choose(world.of, world.there(index)))  # type: ignore[type-var]


def three_parts(
    count: int, seed: int | np.random.Generator = 0, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> tuple[Numbers, Numbers, Numbers]:
    """Disjoint random parts of ``count`` observations, to train on, to choose by and to report on, that together are
    all of them (Spec 003, sections 1.9 and 4.6).

    Sizes are the shares rounded; what rounding leaves goes to the training part.

    >>> [len(part) for part in three_parts(101, seed=0)]
    [81, 10, 10]
    """
    if min(shares) < 0 or not np.isclose(sum(shares), 1):
        raise ValueError(f"the shares of a split are at least 0 and add up to 1; got {shares}")
    _, evaluation, test = (round(share * count) for share in shares)
    for share, size in zip(shares, (count - evaluation - test, evaluation, test), strict=True):
        if share > 0 and size < 1:
            raise ValueError(f"{count} observations are too few to split by {shares}: one part would be empty")
    order = np.random.default_rng(seed).permutation(count)
    return order[evaluation + test :], order[:evaluation], order[evaluation : evaluation + test]


def usual_values(
    factors: tuple[Factor, ...], kind: Literal["interpolation", "extrapolation", "composition"]
) -> dict[str, tuple[int, ...]]:
    """The positions that a split by values goes by where none are given: those published, where there are any.

    Factors that are unordered, continuous, or have two values, are left alone.

    >>> from polariscope.worlds.sprites import Sprites
    >>> usual_values(Sprites().factors, "extrapolation")["scale"]
    (4, 5)
    """
    ordered = [factor for factor in factors if factor.size > 2 and factor.kind != "categorical"]
    own = PUBLISHED_OF_ARM[kind]
    if kind == "composition":
        many = [factor for factor in ordered if factor.size >= 10]
        first = {factor: tuple(range(max(1, factor.size // 10))) for factor in many or ordered}
        return {factor.name: own.get((factor.name, factor.size), usual) for factor, usual in first.items()}
    found = {}
    for factor in ordered:
        size, kept = factor.size, math.ceil(factor.size / 5)
        if (factor.name, size) in own:
            found[factor.name] = own[factor.name, size]
        elif kind == "extrapolation":
            found[factor.name] = tuple(range(size - kept, size))
        else:
            spread = tuple(int((i + 0.5) * size / kept) for i in range(kept))
            found[factor.name] = PUBLISHED.get(size, spread)
    return found


PUBLISHED = {8: (2, 5), 32: (2, 7, 11, 15, 20, 24, 29)}
"""Values to interpolate where the published ones are not evenly spread, by the number of a factor's values."""

_AXES = ("horizontal_axis", 40), ("vertical_axis", 40)
PUBLISHED_OF_ARM: dict[str, dict[tuple[str, int], tuple[int, ...]]] = {
    "interpolation": {("object_colour", 6): (3,), **dict.fromkeys(_AXES, (5, 15, 24, 34))},
    "extrapolation": {("object_colour", 6): (5,), **dict.fromkeys(_AXES, (36, 37, 38, 39))},
    "composition": dict.fromkeys(_AXES, tuple(range(6))),
}
"""MPI3D has many factors to keep some of: the published splits take fewer values of each, by its name and size."""


def _by_values(world: World, values: Values, kept: bool) -> Parts:
    """Observations with a listed value of some factor are kept, or else they alone are trained on."""
    if not values:
        raise ValueError(
            "this split is along ordered factors with at least three values, and the world has none: name the values, "
            "or take a random split"
        )
    columns = {_column(world.factors, name): positions for name, positions in values.items()}
    for column, positions in columns.items():
        factor = world.factors[column]
        outside = [p for p in positions if not 0 <= p < factor.size]
        if outside:
            raise ValueError(f"factor {factor.name!r} has positions 0 to {factor.size - 1}; the split has {outside[0]}")
    table = world.factors_of(np.arange(len(world)))
    listed = np.any([np.isin(table[:, column], positions) for column, positions in columns.items()], axis=0)
    return parted(listed if kept else ~listed)


def parted(kept: NDArray[np.bool_]) -> Parts:
    """The two parts; neither may be empty."""
    train, held_out = np.flatnonzero(~kept), np.flatnonzero(kept)
    if not len(train) or not len(held_out):
        raise ValueError(f"the split leaves {len(train)} observations to train on and {len(held_out)} to test on")
    # Evaluation looks at the first of what is kept: a shuffle makes them a fair sample.
    return Parts(train, np.random.default_rng(len(kept)).permutation(held_out))


def _column(factors: tuple[Factor, ...], name: str) -> int:
    known = [factor.name for factor in factors]
    if not known:
        raise ValueError("this split is by factors, and the world knows none")
    if name not in known:
        raise ValueError(f"the world has no factor {name!r}: {nearest(name, known)}")
    return known.index(name)
