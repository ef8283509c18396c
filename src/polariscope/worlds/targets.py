"""What is to be predicted from an observation: one of its factors or several, as classes or as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import nearest
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.view import View, inside
from polariscope.worlds.world import World, worlds


@runtime_checkable
class Targeted(Protocol):
    """A world that says what is to be predicted."""

    @property
    def targets(self) -> tuple[Factor, ...]:
        """One factor for each column of the target; its size is the number of classes, 0 says it is a number."""

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        """``(n, columns)``: classes from 0, or values."""


@worlds.register("task")
@dataclass(frozen=True)
class Task(View):
    """A world with the question that is asked of it.

    ``factor`` names the factors to tell, separated by commas; "all" are all of them. Without a name it is the first
    that is categorical, or else the first with a few values. As "values" discrete factors are brought to [0, 1] by
    their range, as is usual in regression.

    >>> from polariscope.worlds.sprites import Sprites
    >>> task = Task(Sprites(), "shape,x", "values")
    >>> task.target_of([0, len(task) - 1]).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    of: World
    factor: str = ""
    told: Literal["classes", "values", "parity"] = "classes"
    """As classes, as values from 0 to 1, or as two classes: even and odd."""

    def __post_init__(self) -> None:
        _ = self.columns  # refuse what is not there now

    @property
    def columns(self) -> list[int]:
        known = [factor.name for factor in self.of.factors]
        if not known:
            raise ValueError("this world knows no factors, so there is nothing to predict: give data with labels")
        if self.factor == "all":
            return list(range(len(known)))
        names = [name.strip() for name in self.factor.split(",")] if self.factor else [self._usual()]
        for name in names:
            if name not in known:
                raise ValueError(f"the data has no factor {name!r}: {nearest(name, known)}")
        columns = [known.index(name) for name in names]
        for factor in (self.of.factors[column] for column in columns):
            if self.told != "values" and not factor.size:
                raise ValueError(f"a class is a discrete factor, and {factor.name} is continuous: ask for its values")
        return columns

    def _usual(self) -> str:
        discrete = [factor for factor in self.of.factors if factor.size]
        usual = next((factor for factor in discrete if factor.kind == "categorical"), next(iter(discrete), None))
        if usual is None and self.told == "values":
            usual = self.of.factors[0]
        if usual is None:
            raise ValueError("every factor of this data is continuous, and a class is a discrete one: ask for values")
        return usual.name

    @property
    def targets(self) -> tuple[Factor, ...]:
        chosen = [self.of.factors[column] for column in self.columns]
        if self.told == "parity":
            return tuple(Factor(factor.name, 2, "categorical") for factor in chosen)
        return tuple(chosen) if self.told == "classes" else tuple(Factor(factor.name, 0) for factor in chosen)

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        columns = self.columns
        positions = np.asarray(self.of.factors_of(index))[:, columns]
        factors = [self.of.factors[column] for column in columns]
        if self.told == "classes":
            return positions.astype(np.int64)
        if self.told == "parity":  # that of what a position means
            meant = [np.asarray(f.values or range(f.size)) for f in factors]
            return np.column_stack([m[p.astype(int)] for m, p in zip(meant, positions.T, strict=True)]).astype(int) % 2
        return (positions / [max(factor.size - 1, 1) for factor in factors]).astype(np.float32)


def targets_of(world: World) -> tuple[Factor, ...]:
    """What is to be predicted in a world: what it says itself, or what its usual task is."""
    found = inside(world, Targeted)
    return Task(world).targets if found is None else found[0].targets


def target_values(world: World, index: ArrayLike) -> NDArray[Any]:
    """The target of observations by number."""
    found = inside(world, Targeted, index)
    return Task(world).target_of(index) if found is None else found[0].target_of(found[1])


@dataclass(frozen=True, eq=False)
class Examples:
    """Arrays exactly as a network takes them, ``(n, ...)`` of any floats, and what it is to say, ``(n, columns)``.

    ``classes`` are the numbers of classes of the columns; without them the target is numbers.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    classes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.y.ndim != 2 or len(self.x) != len(self.y):
            raise ValueError(f"inputs and targets need the same length; got {len(self.x)} and {len(self.y)}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape[1:]

    @property
    def factors(self) -> tuple[Factor, ...]:
        return ()

    def __len__(self) -> int:
        return len(self.x)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.x[numbered(index, len(self))]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return np.zeros((np.size(index), 0))

    @property
    def targets(self) -> tuple[Factor, ...]:
        sizes = self.classes or (0,) * self.y.shape[1]
        return tuple(Factor(f"target {i}", size) for i, size in enumerate(sizes))

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.y[numbered(index, len(self))]
