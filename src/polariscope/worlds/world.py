"""What a world is: numbered observations with known causes.

Training asks a world for three things only: how many observations it has, some of them by number, and their factors.
A :class:`GridWorld` renders them from a factor grid on demand; an :class:`ArrayWorld` holds them. Images are
``uint8 (n, channels, height, width)``, point data ``float32 (n, m)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Registry
from polariscope.worlds.factors import Factor, FactorGrid


@runtime_checkable
class World(Protocol):
    """Numbered observations, and the factors that caused them (none where they are not known)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation: ``(channels, height, width)`` for images, ``(m,)`` for points."""

    @property
    def factors(self) -> tuple[Factor, ...]:
        """What caused the observations; empty if unknown."""

    def __len__(self) -> int: ...

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        """Observations by number: ``uint8`` images or ``float32`` points."""

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        """Factor positions (or values, where continuous) ``(n, k)`` of observations by number."""


worlds: Registry[World] = Registry("world", "polariscope.worlds")


class GridWorld(ABC):
    """A world that renders the combinations of a factor grid. A new one defines ``grid``, ``shape`` and ``render``."""

    @property
    @abstractmethod
    def grid(self) -> FactorGrid: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

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
    """Observations held in memory, with their factors if they are known.

    Takes ``uint8`` images ``(n, h, w)``, ``(n, h, w, c)`` or ``(n, c, h, w)``; floats in [0, 1] of those shapes; or
    points ``(n, m)`` of any real type.

    >>> world = ArrayWorld(np.zeros((5, 8, 8), np.uint8))
    >>> len(world), world.shape
    (5, (1, 8, 8))
    """

    observations: NDArray[Any]
    positions: NDArray[Any] | None = None
    factors: tuple[Factor, ...] = ()
    source: str = "array"

    def __post_init__(self) -> None:
        object.__setattr__(self, "observations", as_observations(self.observations, self.source))
        if self.positions is None:
            object.__setattr__(self, "positions", np.zeros((len(self.observations), 0), np.int64))
            object.__setattr__(self, "factors", ())
            return
        positions = np.asarray(self.positions)
        positions = positions[:, None] if positions.ndim == 1 else positions
        if positions.ndim != 2 or len(positions) != len(self.observations):
            raise ValueError(
                f"{self.source}: factors need one row an observation ({len(self.observations)}); got {positions.shape}"
            )
        if positions.dtype.kind == "f" and not np.isfinite(positions).all():
            raise ValueError(f"{self.source}: the factors contain NaN or infinity")
        object.__setattr__(self, "positions", positions)
        if not self.factors:
            integer = positions.dtype.kind in "iub"
            sizes = positions.max(0).astype(int) + 1 if integer and len(positions) else [0] * positions.shape[1]
            object.__setattr__(self, "factors", tuple(Factor(f"factor_{j}", int(size)) for j, size in enumerate(sizes)))
        if len(self.factors) != positions.shape[1]:
            raise ValueError(f"{self.source}: {len(self.factors)} factor names for {positions.shape[1]} columns")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.observations.shape[1:])

    def __len__(self) -> int:
        return len(self.observations)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.observations[np.asarray(index, dtype=np.int64)]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        assert self.positions is not None
        return self.positions[np.asarray(index, dtype=np.int64)]


def as_observations(data: ArrayLike, source: str = "array") -> NDArray[Any]:
    """Bring user data into the house's form, or say in a sentence why it cannot be."""
    data = np.asarray(data)
    if data.dtype.kind not in "uifb":
        raise ValueError(f"{source}: observations need numbers, got {data.dtype}")
    if data.ndim not in (2, 3, 4):
        raise ValueError(
            f"{source}: observations need shape (n, m) for points or (n, h, w), (n, h, w, c), (n, c, h, w) for images; "
            f"got {data.shape}"
        )
    if 0 in data.shape:
        raise ValueError(f"{source}: the data set is empty (shape {data.shape})")
    if data.dtype.kind == "f" and not np.isfinite(data).all():
        bad = int((~np.isfinite(data)).sum())
        raise ValueError(f"{source}: {bad} values are NaN or infinite; clean the data first")
    if data.ndim == 2:
        return np.ascontiguousarray(data, dtype=np.float32)
    if data.ndim == 3:
        data = data[:, None]
    elif data.shape[1] not in (1, 2, 3, 4) and data.shape[-1] in (1, 2, 3, 4):
        data = np.moveaxis(data, -1, 1)
    elif data.shape[1] not in (1, 2, 3, 4):
        raise ValueError(f"{source}: images need 1 to 4 channels first or last; got shape {data.shape}")
    if data.dtype == np.uint8:
        return np.ascontiguousarray(data)
    low, high = float(data.min()), float(data.max())
    if data.dtype.kind == "f" and low >= 0 and high <= 1:
        return np.rint(data * 255).astype(np.uint8)
    if low >= 0 and high <= 255:
        return np.rint(data).astype(np.uint8)
    raise ValueError(f"{source}: image values need to lie in 0..1 or 0..255; got {low:g} to {high:g}")


def to_tensor(observations: NDArray[Any], device: torch.device | str = "cpu") -> torch.Tensor:
    """Floats on the device: images from uint8 to [0, 1] in channels-last order, points as they are."""
    tensor = torch.from_numpy(np.ascontiguousarray(observations)).to(device)
    if tensor.dtype != torch.uint8:
        return tensor
    return tensor.to(memory_format=torch.channels_last).float().mul_(1 / 255)


@dataclass(frozen=True)
class Batches:
    """An endless, seeded stream of observation numbers: a fresh shuffle an epoch, whole batches only.

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
        """Steps an epoch. A data set smaller than the batch makes one batch an epoch."""
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


def stream(world: World, batch_size: int, seed: int = 0) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Endless (observations, factors) batches of a world, rendered as they are asked for."""
    for index in Batches(len(world), batch_size, seed):
        yield world.observe(index), world.factors_of(index)


def sample(world: World, count: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """``count`` different observations (all of them, if there are fewer): observations, factors, numbers.

    The numbers come sorted, so that rendered worlds can reuse work between neighbours.
    """
    generator = np.random.default_rng(seed)
    if count >= len(world):
        index = np.arange(len(world))
    else:
        index = np.sort(generator.choice(len(world), size=count, replace=False))
    return world.observe(index), world.factors_of(index), index
