"""The world interface: numbered observations with known causes.

Training asks a world for three things only: how many observations it has, some of them by number, and their factors.
A :class:`GridWorld` renders them from a factor grid on demand; an :class:`ArrayWorld` has them in an array or a file.
Images are ``uint8 (n, channels, height, width)``, or ``float32`` where their numbers are no brightnesses; point data is
``float32 (n, m)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Registry
from polariscope.worlds.factors import Factor, FactorGrid, numbered
from polariscope.worlds.labels import Kinds, as_factors, on_their_grid
from polariscope.worlds.observations import as_array, as_observations


@runtime_checkable
class World(Protocol):
    """Numbered observations and the factors that caused them, if known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation: ``(channels, height, width)`` for images, ``(m,)`` for points."""

    @property
    def factors(self) -> tuple[Factor, ...]:
        """What caused the observations; empty if unknown."""

    def __len__(self) -> int: ...

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        """Observations by number: ``uint8`` or ``float32`` images, or ``float32`` points."""

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        """Factor positions (or values, where continuous) ``(n, k)`` of observations by number."""


def _spelled(word: str) -> dict[str, Any]:
    """A world's description from its name, or from the path of a file or folder."""
    if word in worlds.names():
        return {"name": word}
    if Path(word).exists():
        return {"name": "file", "path": word}
    if "/" in word or "." in word:
        raise ValueError(f"there is no file {word} and no world of that name")
    worlds.get(word)  # says which world was meant
    return {}


def _remembered(world: Any) -> World:
    from polariscope.worlds.remembered import remember

    return remember(world)


worlds: Registry[World] = Registry("world", of=World, spelled=_spelled, stand_in=_remembered)


class MadeAgain:
    """A frozen dataclass of which other processes get the settings alone: they read or draw its data themselves."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


class GridWorld(ABC):
    """A world that renders the combinations of a factor grid. A new one defines ``grid`` and ``render``, and ``shape``
    unless its images are squares of ``size`` pixels a side."""

    size: int
    channels: ClassVar[int] = 1

    @property
    @abstractmethod
    def grid(self) -> FactorGrid: ...

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    @abstractmethod
    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        """``uint8 (n, channels, height, width)`` images of integer factor positions ``(n, k)``."""

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.grid.factors

    def __len__(self) -> int:
        return len(self.grid)

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        return self.render(self.grid.to_factors(index))

    def factors_of(self, index: ArrayLike) -> NDArray[np.int64]:
        return self.grid.to_factors(index)


@dataclass(frozen=True, eq=False)
class ArrayWorld:
    """Observations in an array, with their factors if known.

    Takes images ``(n, h, w)``, ``(n, h, w, c)`` or ``(n, c, h, w)`` and points ``(n, m)`` of any real type, in memory
    or elsewhere (see :class:`polariscope.worlds.observations.Stored`). Factors are a column each, of numbers or words;
    ``factors`` may be their names, or whole :class:`Factor`s, of which the columns then are the positions. ``kinds``
    declares kinds by name and ``white`` the number of a white pixel, if they cannot be inferred from the data;
    ``assumed`` lists what was inferred. Images of ``floats`` keep their numbers, in any number of channels: heights in
    metres or the layers of a map are not brightnesses.

    >>> world = ArrayWorld(np.zeros((5, 8, 8), np.uint8), ["cat", "dog", "cat", "cat", "dog"])
    >>> len(world), world.shape, world.factors_of([0, 1]).tolist()
    (5, (1, 8, 8), [[0], [1]])
    """

    observations: Any
    positions: Any = None
    factors: tuple[Factor, ...] = ()
    source: str = "array"
    kinds: Kinds | None = None
    white: float | None = None
    assumed: tuple[str, ...] = ()
    batch_size: int | None = None
    """Batch size of the data loader that the data came from; None if there was none."""
    floats: bool = False
    held_out: NDArray[np.int64] | None = None
    """Numbers of the observations in the test set of the data; None if there is none."""

    def __post_init__(self) -> None:
        observations, about_them = as_observations(self.observations, self.source, self.white, self.floats)
        positions, factors, about_factors = self._factors(len(observations))
        object.__setattr__(self, "observations", observations)
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "assumed", (*self.assumed, *about_them, *about_factors))

    def _factors(self, count: int) -> tuple[NDArray[Any], tuple[Factor, ...], list[str]]:
        named: tuple[Any, ...] = (self.factors,) if isinstance(self.factors, str) else tuple(self.factors)
        if self.positions is None:
            if named or self.kinds:
                raise ValueError(f"{self.source}: names or kinds of factors are given, but their values are missing")
            return np.zeros((count, 0), np.int64), (), []
        table = as_array(self.positions)
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2 or len(table) != count:
            raise ValueError(f"{self.source}: factors need one row per observation ({count}); got {table.shape}")
        if not any(isinstance(factor, Factor) for factor in named):
            return as_factors(table, named, self.kinds, source=self.source)
        if self.kinds:
            raise ValueError(f"{self.source}: kinds are declared, but the factors already have kinds")
        return on_their_grid(table, named, self.source), named, []

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.observations.shape[1:])

    def __len__(self) -> int:
        return len(self.observations)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return np.asarray(self.observations[numbered(index, len(self))])

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return np.asarray(self.positions[numbered(index, len(self))])


def to_tensor(observations: NDArray[Any], device: torch.device | str = "cpu") -> torch.Tensor:
    """Floats on the device: bytes become [0, 1] in channels-last order, floats stay as they are."""
    tensor = torch.from_numpy(np.ascontiguousarray(observations)).to(device)
    if tensor.dtype != torch.uint8:
        return tensor
    return tensor.to(memory_format=torch.channels_last).float().mul_(1 / 255)


@dataclass(frozen=True)
class Batches:
    """An endless, seeded stream of observation numbers: a new shuffle for each epoch, whole batches only.

    The batch at a step is a function of (seed, step) alone, so a run that resumes needs no state of the data order.

    >>> stream = Batches(count=10, size=4, seed=0)
    >>> stream.epoch_steps, stream[0].shape, bool((stream[5] == Batches(10, 4, 0)[5]).all())
    (2, (4,), True)
    """

    count: int
    size: int
    seed: int
    _shuffled: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("the data set is empty")
        if self.size < 1:
            raise ValueError(f"the batch size is {self.size}: it needs to be at least 1")

    @cached_property
    def epoch_steps(self) -> int:
        """Steps per epoch. A data set smaller than the batch is one batch per epoch."""
        return max(1, self.count // self.size)

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        epoch, within = divmod(step, self.epoch_steps)
        if epoch not in self._shuffled:
            self._shuffled.clear()
            self._shuffled[epoch] = np.random.default_rng((self.seed, epoch)).permutation(self.count)
        start = within * self.size
        return self._shuffled[epoch][start : start + self.size]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        step = 0
        while True:
            yield self[step]
            step += 1


@dataclass(frozen=True, eq=False)
class WeightedBatches:
    """A seeded stream of observation numbers drawn with replacement, in proportion to their weights.

    >>> drawn = WeightedBatches(3, 4, 0, np.array([0.0, 1.0, 0.0]))
    >>> drawn.epoch_steps, drawn[7].tolist()
    (1, [1, 1, 1, 1])
    """

    count: int
    size: int
    seed: int
    weights: NDArray[np.float64]

    @property
    def epoch_steps(self) -> int:
        return max(1, self.count // self.size)

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        return np.cumsum(self.weights) / np.sum(self.weights)

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        u = np.random.default_rng((self.seed, step)).random(self.size)
        return np.minimum(np.searchsorted(self._ends, u, side="right"), self.count - 1)


def stream(world: World, batch_size: int, seed: int = 0) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Endless (observations, factors) batches of a world, rendered on demand."""
    for index in Batches(len(world), batch_size, seed):
        yield world.observe(index), world.factors_of(index)


def sample(world: World, count: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """``count`` different observations (or all, if there are fewer): observations, factors, numbers."""
    index = sample_numbers(world, count, seed)
    return world.observe(index), world.factors_of(index), index


def sample_numbers(world: World, count: int, seed: int = 0) -> NDArray[np.int64]:
    """Numbers of ``count`` different observations (or of all, if there are fewer), for observations that are too large
    to load at once.

    They come sorted, so that rendered worlds can reuse work between neighbours.
    """
    if count >= len(world):
        return np.arange(len(world))
    return np.sort(np.random.default_rng(seed).choice(len(world), size=count, replace=False))
