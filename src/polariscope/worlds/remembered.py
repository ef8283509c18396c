"""Data in memory, by its hash: a run on it can be stored, and resumes when the same data is given again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings, held
from polariscope.worlds.factors import Factor, Kind
from polariscope.worlds.world import World, worlds

HASHED_AT_ONCE = 1024


@worlds.register("remembered")
@dataclass(frozen=True)
class Remembered:
    """The record of data that was given in memory: its hash, its size, its factors; not the data itself."""

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs data in memory

    sha256: str
    count: int
    observation: tuple[int, ...]
    """Shape of one observation."""
    factor_names: tuple[str, ...] = ()
    factor_sizes: tuple[int, ...] = ()
    factor_kinds: tuple[Kind, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.observation

    @property
    def factors(self) -> tuple[Factor, ...]:
        return tuple(map(Factor, self.factor_names, self.factor_sizes, self.factor_kinds))

    def __len__(self) -> int:
        return self.count

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        raise ValueError(self._missing)

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        raise ValueError(self._missing)

    @property
    def _missing(self) -> str:
        return (
            f"this run was made with {self.count} observations of shape {self.observation} in memory, which are not "
            "stored: give the same data again, in Python with data=..."
        )

    def recall(self, world: World) -> World:
        """The data, if it is the same."""
        given = remember(world)
        if given.sha256 != self.sha256:
            what = f"{given.count} of shape {given.observation}, hash {given.sha256[:12]}"
            mine = f"{self.count} of shape {self.observation}, hash {self.sha256[:12]}"
            raise ValueError(f"this is other data than the run was made with: got {what}, and it was {mine}")
        return world


def remember(world: World) -> Remembered:
    """The record of a world that has no name."""
    digest = hashlib.sha256()
    for start in range(0, len(world), HASHED_AT_ONCE):
        index = np.arange(start, min(start + HASHED_AT_ONCE, len(world)))
        for part in (world.observe(index), world.factors_of(index)):
            digest.update(str(part.dtype).encode() + np.ascontiguousarray(part).tobytes())
    return Remembered(
        digest.hexdigest(),
        len(world),
        tuple(world.shape),
        tuple(factor.name for factor in world.factors),
        tuple(factor.size for factor in world.factors),
        tuple(factor.kind for factor in world.factors),
    )


def recalled(world: World, data: World) -> World:
    """The world with its data in place of every record of data in memory."""
    if isinstance(world, Remembered):
        return world.recall(data)
    inner: dict[str, Any] = {name: getattr(world, name) for name in held(world)} if is_dataclass(world) else {}
    filled = {name: recalled(one, data) for name, one in inner.items() if isinstance(one, World)}
    changed = {name: one for name, one in filled.items() if one is not inner[name]}
    return replace(world, **changed) if changed else world  # type: ignore[type-var]
