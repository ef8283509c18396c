"""Splits: which observations are trained on and which are held out. Splits have names and are recorded with a run.

A split by values holds out combinations of factors, or parts of their range (Spec 001a, section 8.3). Values are
positions on a factor's grid. By default they are the values published for the world; for other worlds, as many as leave
about three tenths of the observations to train on, from the inside of each ordered factor (interpolation) or from its
end (extrapolation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.foreign_files import check_regular
from polariscope.registry import Registry, Settings, nearest
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.readers.numpy_files import read_npy
from polariscope.worlds.view import Paired, View, inside
from polariscope.worlds.world import World, worlds

Numbers = NDArray[np.int64]
Values = Mapping[str, tuple[int, ...]]
"""Positions by the name of the factor."""
ValueSplit = Literal["interpolation", "extrapolation", "composition"]
TRAIN_SHARE = 0.3
"""About the share of the observations that the published splits train on."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of the training and of the held-out observations."""

    train: Numbers
    held_out: Numbers

    @property
    def share(self) -> float:
        """Share of the observations that are trained on."""
        return len(self.train) / (len(self.train) + len(self.held_out))


class Split(Protocol):
    """A new split is a registered frozen dataclass with ``parts``."""

    def parts(self, world: World) -> Parts: ...


splits: Registry[Split] = Registry("split", of=Split)


@splits.register("random")
@dataclass(frozen=True)
class RandomSplit:
    """Hold out a random share of the observations, the same for every seed, so that runs can be compared."""

    share: float = 0.1
    """Share of the observations that is held out."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"the held-out share is {self.share}: it needs to be in [0, 1)")

    def parts(self, world: World) -> Parts:
        count = len(world)
        order = np.random.default_rng(count).permutation(count)
        held_out = min(round(count * self.share), count - 1)
        return Parts(order[held_out:], order[:held_out])


@splits.register("interpolation")
@dataclass(frozen=True)
class Interpolation:
    """Hold out observations with a value from inside the range of some factor."""

    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Held-out positions by factor; spread over the inside of every ordered factor if not given."""

    def parts(self, world: World) -> Parts:
        return _by_values(world, self.values or usual_values(world, "interpolation"), "interpolation")


@splits.register("extrapolation")
@dataclass(frozen=True)
class Extrapolation:
    """Hold out observations with a value from the end of the range of some factor."""

    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Held-out positions by factor; from the end of every ordered factor if not given."""

    def parts(self, world: World) -> Parts:
        return _by_values(world, self.values or usual_values(world, "extrapolation"), "extrapolation")


@splits.register("composition")
@dataclass(frozen=True)
class Composition:
    """Hold out most combinations of values: train on observations in which some factor has one of its first values."""

    values: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Positions by factor; every training observation has at least one of them. The first positions of some ordered
    factors if not given. Name at least two factors: with one, training would see no other value of it."""

    def parts(self, world: World) -> Parts:
        return _by_values(world, self.values or usual_values(world, "composition"), "composition")


@splits.register("group")
@dataclass(frozen=True)
class GroupSplit:
    """Hold out whole groups: all observations of some values of one factor (a person, a scene, a session)."""

    factor: str = ""
    """Factor whose values are the groups; the first if not given."""
    share: float = 0.1
    """Share of the groups that is held out, at least one group."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"the share of groups is {self.share}: it needs to lie between 0 and 1")

    def parts(self, world: World) -> Parts:
        column = _column(world.factors, self.factor or next((f.name for f in world.factors), ""))
        group = world.factors_of(np.arange(len(world)))[:, column]
        values = np.unique(group)
        if len(values) < 2:
            raise ValueError(f"a split by groups needs at least 2, and {world.factors[column].name} has {len(values)}")
        count = max(1, round(self.share * len(values)))
        return parted(np.isin(group, np.random.default_rng(len(values)).permutation(values)[:count]))


@splits.register("file")
@dataclass(frozen=True)
class FileSplit:
    """Hold out the observations whose numbers are in a file: .npy, or text with one number per line."""

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs a file of yours

    path: str

    def parts(self, world: World) -> Parts:
        path = Path(self.path).expanduser()
        try:
            path.stat()  # a file that is not there has a sentence of its own
            check_regular(path)
            rows = read_npy(path) if path.suffix == ".npy" else np.loadtxt(path, dtype=np.int64, ndmin=1)
        except FileNotFoundError as error:
            raise ValueError(f"there is no file {path} with the numbers of the held-out observations") from error
        except ValueError as error:
            raise ValueError(f"{path} needs whole numbers, one per line, or an array of them ({error})") from error
        held_out = np.zeros(len(world), dtype=bool)
        held_out[numbered(rows, len(world))] = True
        return parted(held_out)


@runtime_checkable
class Divided(Protocol):
    """A world with a test set of its own."""

    @property
    def held_out(self) -> Numbers | None:
        """Numbers of the observations in the test set; None if there is none."""


@splits.register("own")
@dataclass(frozen=True)
class OwnSplit:
    """Hold out the test set that the data came with, such as the t10k files of MNIST."""

    def parts(self, world: World) -> Parts:
        divided = inside(world, Divided, np.arange(len(world)))
        held_out = None if divided is None else divided[0].held_out
        if divided is None or held_out is None:
            raise ValueError(
                "the split 'own' holds out the test set that the data came with, but this data has none: use another "
                "split (split=RandomSplit(), --split random)"
            )
        return parted(np.isin(divided[1], held_out))


def usual_split(world: World) -> Split:
    """The default split: the data's own test set if it has one, otherwise a random split."""
    divided = inside(world, Divided)
    return RandomSplit() if divided is None or divided[0].held_out is None else OwnSplit()


@worlds.register("part")
@dataclass(frozen=True)
class SplitPart(View):
    """One part of a split as a world of its own, numbered from 0: the held-out part, or the training part.

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> len(SplitPart(MiniSprites())), len(SplitPart(MiniSprites(), side="train"))
    (130, 1166)
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": "mini-sprites", "side": "train", "split": "extrapolation"},)

    of: World
    split: Split = field(default_factory=RandomSplit)
    side: Literal["train", "held-out"] = "held-out"

    def __post_init__(self) -> None:
        if not len(self._index):
            raise ValueError("this split holds nothing out, so there is no held-out part")

    @cached_property
    def _index(self) -> Numbers:
        parts = self.split.parts(self.of)
        return parts.train if self.side == "train" else parts.held_out

    def __len__(self) -> int:
        return len(self._index)

    def there(self, index: ArrayLike) -> Numbers:
        return self._index[numbered(index, len(self))]


Part = SplitPart
"""The earlier name, for plug-ins."""


@dataclass(frozen=True, eq=False)
class Chosen(View):
    """Some observations of a world, chosen by number and renumbered from 0. They are rendered on demand."""

    of: World
    index: Numbers

    def __post_init__(self) -> None:
        index = np.asarray(self.index, dtype=np.int64)
        if index.ndim != 1 or not index.size or index.min() < 0 or index.max() >= len(self.of):
            raise ValueError(f"a selection needs at least one number of an observation, from 0 to {len(self.of) - 1}")
        object.__setattr__(self, "index", index)

    def __len__(self) -> int:
        return len(self.index)

    def there(self, index: ArrayLike) -> Numbers:
        return self.index[numbered(index, len(self))]


@runtime_checkable
class Confinable(Protocol):
    """A world of pairs that can restrict itself to some of them."""

    def confined(self, index: Numbers) -> World:
        """The pairs of these numbers, numbered from 0, made only of their own observations."""


def confined(world: World, index: Numbers) -> World:
    """Some observations of a world of pairs, whose partners come from the same observations: none is held out and seen.

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> from polariscope.worlds.views.pairs import Pairs
    >>> few = confined(Pairs(MiniSprites(), "lap-nc"), np.arange(12))
    >>> len(few), bool((few.partners(np.arange(12)) < 12).all())
    (12, True)
    """
    if isinstance(world, Confinable):
        return world.confined(index)
    if not isinstance(world, View) or inside(world, Paired) is None:
        return Chosen(world, index)
    if isinstance(world, SplitPart | Chosen):
        return confined(world.of, world.there(index))
    choose = Chosen if isinstance(world, Paired) else confined
    return replace(world, of=choose(world.of, world.there(index)))  # type: ignore[type-var]


def three_parts(
    count: int, seed: int | np.random.Generator = 0, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> tuple[Numbers, Numbers, Numbers]:
    """Divide ``count`` observations at random into training, validation and test part (Spec 003, sections 1.9 and 4.6).

    Sizes are the rounded shares; the remainder goes to the training part.

    >>> [len(part) for part in three_parts(101, seed=0)]
    [81, 10, 10]
    """
    if min(shares) < 0 or not np.isclose(sum(shares), 1):
        raise ValueError(f"the shares of a split must be at least 0 and add up to 1; got {shares}")
    _, evaluation, test = (round(share * count) for share in shares)
    for share, size in zip(shares, (count - evaluation - test, evaluation, test), strict=True):
        if share > 0 and size < 1:
            raise ValueError(f"{count} observations are too few to split by {shares}: one part would be empty")
    order = np.random.default_rng(seed).permutation(count)
    return order[evaluation + test :], order[:evaluation], order[evaluation : evaluation + test]


@dataclass(frozen=True, eq=False)
class OneOut:
    """Held-out observations in which exactly one factor has a value that no training observation has."""

    numbers: Numbers
    factor: Numbers
    """The column of that factor, for each of the numbers."""


def one_ood(world: World, split: Split) -> OneOut:
    """Held-out observations with a new value of exactly one factor (Spec 001a, section 8.4); compositions have none.

    Values of continuous factors never count as new: no split is along them.

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> out = one_ood(MiniSprites(), Extrapolation({"x": (5,), "y": (4, 5)}))
    >>> np.bincount(out.factor).tolist()  # x in one of 6 positions and y seen; y in two and x seen
    [0, 0, 0, 144, 360]
    """
    parts = split.parts(world)
    train, held_out = world.factors_of(parts.train), world.factors_of(parts.held_out)
    new = np.zeros(held_out.shape, dtype=bool)
    for column, factor in enumerate(world.factors):
        if factor.size:
            never_trained = np.ones(factor.size, dtype=bool)
            never_trained[train[:, column].astype(np.int64)] = False
            new[:, column] = never_trained[held_out[:, column].astype(np.int64)]
    one = np.flatnonzero(new.sum(1) == 1)
    return OneOut(parts.held_out[one], new[one].argmax(1))


@dataclass(frozen=True)
class Printed:
    """A published split, for worlds whose ordered factors have these names and sizes (Spec 001a, tables 2 and 3)."""

    sizes: Mapping[str, int]
    interpolation: Values
    extrapolation: Values
    composition: Values


_FIFTHS = (2, 7, 12, 17, 22, 27, 32, 37)
_PLACES = (2, 7, 11, 15, 20, 24, 29)
_HUES = ("floor_hue", "wall_hue", "object_hue")
_AXES = ("horizontal_axis", "vertical_axis")
_THREE = ("camera_height", "background_colour")
_LOOKS = ("smile", "blond", "age")


def _sprites(turns: int, inside: tuple[int, ...], end: range, first: range) -> Printed:
    places, last = {"x": _PLACES, "y": _PLACES}, {"x": tuple(range(25, 32)), "y": tuple(range(25, 32))}
    return Printed(
        {"scale": 6, "orientation": turns, "x": 32, "y": 32},
        {"scale": (1, 4), "orientation": inside, **places},
        {"scale": (4, 5), "orientation": tuple(end), **last},
        {"orientation": tuple(first), "x": (0, 1, 2), "y": (0, 1, 2)},
    )


PUBLISHED = {
    "dSprites": _sprites(40, _FIFTHS, range(32, 40), range(4)),
    "dSprites [0,90)": _sprites(10, (2, 7), range(8, 10), range(1)),
    "Shapes3D": Printed(
        {**dict.fromkeys(_HUES, 10), "scale": 8, "orientation": 15},
        {**dict.fromkeys(_HUES, (2, 7)), "scale": (2, 5), "orientation": (2, 7, 12)},
        {**dict.fromkeys(_HUES, (8, 9)), "scale": (6, 7), "orientation": (12, 13, 14)},
        {**dict.fromkeys(_HUES, (0,)), "orientation": (0,)},
    ),
    "MPI3D": Printed(
        {"object_colour": 6, **dict.fromkeys(_THREE, 3), **dict.fromkeys(_AXES, 40)},
        {"object_colour": (3,), **dict.fromkeys(_THREE, (1,)), **dict.fromkeys(_AXES, (5, 15, 24, 34))},
        {"object_colour": (5,), **dict.fromkeys(_THREE, (2,)), **dict.fromkeys(_AXES, (36, 37, 38, 39))},
        dict.fromkeys(_AXES, tuple(range(6))),
    ),
    # Compositions of CelebGlow are not printed: the first value of every factor that is split along.
    "CelebGlow": Printed(
        dict.fromkeys(_LOOKS, 6),
        dict.fromkeys(_LOOKS, (1, 4)),
        dict.fromkeys(_LOOKS, (4, 5)),
        dict.fromkeys(_LOOKS, (0,)),
    ),
}
"""The splits of the benchmark, by its data set. Those of the quarter turns are the rule, scaled (section 8.5)."""


def usual_values(world: World, kind: ValueSplit) -> dict[str, tuple[int, ...]]:
    """The default positions of a split by values: those published for the world, or about as many of each factor as
    leave three tenths of the observations for training.

    Unordered and continuous factors, and those with two values, are not split.

    >>> from polariscope.worlds.renderers.sprites import Sprites
    >>> usual_values(Sprites(), "extrapolation")["scale"]
    (4, 5)
    """
    ordered = {f.name: f.size for f in world.factors if f.size > 2 and f.kind != "categorical"}
    printed = next((own for own in PUBLISHED.values() if own.sizes == ordered), None)
    return dict(getattr(printed, kind)) if printed else _spread_values(world, kind, ordered)


def _spread_values(world: World, kind: ValueSplit, ordered: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Each factor accounts for an equal share of the held-out observations. Factors with few values come first, since
    those with many can make up for their rounding. A composition uses the two factors with most values."""
    table = world.factors_of(np.arange(len(world)))
    left = np.ones(len(table), dtype=bool)
    wanted = 1 - TRAIN_SHARE if kind == "composition" else TRAIN_SHARE
    names = sorted(ordered, key=lambda name: ordered[name])[-2 if kind == "composition" else 0 :]
    chosen: dict[str, tuple[int, ...]] = {}
    for place, name in enumerate(names):
        if not left.any():
            break
        size, column = ordered[name], table[:, _column(world.factors, name)].astype(np.int64)
        counts = np.bincount(column[left], minlength=size)
        share = (wanted / left.mean()) ** (1 / (len(names) - place))
        # A composition needs both of its factors; extrapolation needs two values to train on.
        least, most = (1, size - 1) if kind == "composition" else (0, size - 2)
        choices = [_positions(kind, size, int(n)) for n in np.unique(np.linspace(least, most, 201).astype(int))]
        rest = [1 - counts[list(positions)].sum() / counts.sum() for positions in choices]
        chosen[name] = choices[int(np.abs(np.array(rest) - share).argmin())]
        left &= ~np.isin(column, chosen[name])
    return {name: chosen[name] for name in ordered if chosen.get(name)}


def _positions(kind: ValueSplit, size: int, count: int) -> tuple[int, ...]:
    """``count`` of a factor's positions: the first, the last, or evenly spaced between its ends."""
    if kind == "interpolation":
        return tuple(int(np.ceil((i + 0.5) * (size - 2) / count)) for i in range(count))
    return tuple(range(count)) if kind == "composition" else tuple(range(size - count, size))


def _by_values(world: World, values: Values, kind: ValueSplit) -> Parts:
    """Hold out observations with a listed value of some factor; a composition trains on these alone."""
    if not values:
        raise ValueError(
            "this split needs ordered factors with at least three values, and the world has none: name the values, "
            "or use a random split"
        )
    columns = {_column(world.factors, name): positions for name, positions in values.items()}
    for column, positions in columns.items():
        _check_positions(world.factors[column], positions, kind)
    table = world.factors_of(np.arange(len(world)))
    listed = np.any([np.isin(table[:, column], positions) for column, positions in columns.items()], axis=0)
    held_out = ~listed if kind == "composition" else listed
    parts = parted(held_out)
    for column, positions in columns.items():
        _check_seen(world.factors[column], table[:, column].astype(np.int64), positions, held_out, kind)
    return parts


def _check_positions(factor: Factor, positions: tuple[int, ...], kind: ValueSplit) -> None:
    if not factor.size:
        raise ValueError(
            f"a split by values needs positions; factor {factor.name!r} is continuous: name another factor"
        )
    outside = [p for p in positions if not 0 <= p < factor.size]
    if outside:
        raise ValueError(f"factor {factor.name!r} has positions 0 to {factor.size - 1}; the split has {outside[0]}")
    if factor.size < 3 and kind != "composition":
        raise ValueError(
            f"{kind} needs a factor with at least 3 values, one to hold out and two to train on, and {factor.name!r} "
            f"has {factor.size}: name another factor"
        )


def _check_seen(
    factor: Factor, column: Numbers, positions: tuple[int, ...], held_out: NDArray[np.bool_], kind: ValueSplit
) -> None:
    """Each value must be trained on or held out as the split says; a composition trains on every value."""
    sides = column, column[~held_out], column[held_out]
    there, trained, tested = (np.bincount(values, minlength=factor.size) > 0 for values in sides)
    listed = np.isin(np.arange(factor.size), positions)
    untrained = there & ~trained & (True if kind == "composition" else ~listed)
    untested = ~tested & (there & ~listed if kind == "composition" else listed)
    if untrained.any():
        raise ValueError(
            f"this {kind} leaves no training observation with {factor.name!r} at position {untrained.argmax()}, which "
            "is not held out: list other values, or values of one more factor"
        )
    if untested.any():
        raise ValueError(
            f"this {kind} holds out {factor.name!r} at position {untested.argmax()}, but there is no such observation: "
            "list other values"
        )


def parted(chosen: NDArray[np.bool_]) -> Parts:
    """The two parts of a split that holds out the observations where ``chosen`` is true; neither may be empty."""
    train, held_out = np.flatnonzero(~chosen), np.flatnonzero(chosen)
    if not len(train) or not len(held_out):
        raise ValueError(f"the split leaves {len(train)} observations to train on and {len(held_out)} held out")
    # Evaluation uses the first held-out observations: a shuffle makes them a fair sample.
    return Parts(train, np.random.default_rng(len(chosen)).permutation(held_out))


def _column(factors: tuple[Factor, ...], name: str) -> int:
    known = [factor.name for factor in factors]
    if not known:
        raise ValueError("this split is by factors, and the world has none")
    if name not in known:
        raise ValueError(f"the world has no factor {name!r}: {nearest(name, known)}")
    return known.index(name)


BENCHMARK_SPLITS = ("random", "composition", "interpolation", "extrapolation")
"""Splits of the generalisation benchmark, from the easiest to the hardest."""


def benchmark_split(kind: str, world: World) -> Split:
    """A split of the generalisation benchmark by name; the random one trains on as much data as extrapolation."""
    if kind != "random":
        return splits.build(kind)
    return RandomSplit(len(Extrapolation().parts(world).held_out) / len(world))
