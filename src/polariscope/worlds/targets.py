"""Targets: the classes, numbers or masks that a model predicts from an observation.

A mask lives on the pixels. A view that moves pixels has to move the mask with them, or refuse (see
:meth:`~polariscope.worlds.view.View.shown_target`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings, nearest
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.view import View, inside
from polariscope.worlds.world import World, to_tensor, worlds

Kind = Literal["class", "number", "mask"]
UNLABELLED = -1
"""Value of unlabelled pixels in a mask."""


@dataclass(frozen=True)
class Target:
    """One thing that a model predicts.

    >>> Target("erosion", "mask", 5), Target.of(Factor("shape", 3, "categorical")).kind
    (Target(name='erosion', kind='mask', size=5, labels=(), values=()), 'class')
    """

    name: str
    kind: Kind
    size: int = 0
    """Number of classes; 0 for a number."""
    labels: tuple[str, ...] = ()
    """Names of the classes."""
    values: tuple[float, ...] = ()
    """The number of each class, if it is not its position."""

    def __post_init__(self) -> None:
        if (self.kind == "number") != (self.size == 0) or self.size < 0:
            raise ValueError(f"target {self.name!r} is a {self.kind} with {self.size} classes: a number has none")
        if self.labels and len(self.labels) != self.size:
            raise ValueError(f"target {self.name!r} has {self.size} classes and {len(self.labels)} labels")

    @classmethod
    def of(cls, factor: Factor) -> Target:
        """A factor as a target: a class if it is discrete, else a number."""
        return cls(factor.name, "class" if factor.size else "number", factor.size, values=factor.values)

    @property
    def names(self) -> list[str]:
        """A name for each class."""
        return list(self.labels) or [f"{value:g}" for value in self.values or range(self.size)]


@runtime_checkable
class Targeted(Protocol):
    """A world with targets for a model to predict."""

    @property
    def targets(self) -> tuple[Target | Factor, ...]:
        """One for each column of the target, or a single mask."""

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        """``(n, columns)``: classes from 0, or values; of a mask the class of each pixel, ``(n, height, width)``."""


@worlds.register("task")
@dataclass(frozen=True)
class Task(View):
    """A world with a target: the class or value of some of its factors.

    ``factor`` names the factors to predict, separated by commas; "all" means all of them. The default is the first
    categorical factor, or else the first with a few values. As "values", discrete factors are scaled to [0, 1] by their
    range, as is usual in regression.

    >>> from polariscope.worlds.renderers.sprites import Sprites
    >>> task = Task(Sprites(), "shape,x", "values")
    >>> task.target_of([0, len(task) - 1]).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": "mini-sprites", "factor": "shape,x", "form": "values"},)

    of: World
    factor: str = ""
    form: Literal["classes", "values", "parity"] = "classes"
    """Form of the target: classes, values from 0 to 1, or two classes, even and odd."""

    @staticmethod
    def earlier_settings(settings: Settings) -> Settings:
        """Files of earlier versions call the form of the target ``told``."""
        return {"form" if name == "told" else name: value for name, value in settings.items()}

    def __post_init__(self) -> None:
        _ = self.columns  # refuse what is not there now

    @property
    def columns(self) -> list[int]:
        known = [factor.name for factor in self.of.factors]
        if not known:
            raise ValueError("this world has no factors to predict: give data with labels")
        if self.factor == "all":
            return list(range(len(known)))
        names = [name.strip() for name in self.factor.split(",")] if self.factor else [self._usual()]
        for name in names:
            if name not in known:
                raise ValueError(f"the data has no factor {name!r}: {nearest(name, known)}")
        columns = [known.index(name) for name in names]
        for factor in (self.of.factors[column] for column in columns):
            if self.form != "values" and not factor.size:
                raise ValueError(
                    f"a class needs a discrete factor, and {factor.name} is continuous: predict its values"
                )
        return columns

    def _usual(self) -> str:
        discrete = [factor for factor in self.of.factors if factor.size]
        usual = next((factor for factor in discrete if factor.kind == "categorical"), next(iter(discrete), None))
        if usual is None and self.form == "values":
            usual = self.of.factors[0]
        if usual is None:
            raise ValueError(
                "a class needs a discrete factor, but every factor of this data is continuous: store classes as whole "
                "numbers, or predict values with the view properties (polariscope train properties --world.of DATA)"
            )
        return usual.name

    @property
    def targets(self) -> tuple[Target, ...]:
        chosen = [self.of.factors[column] for column in self.columns]
        if self.form == "classes":
            return tuple(Target.of(factor) for factor in chosen)
        if self.form == "parity":
            return tuple(Target(factor.name, "class", 2, ("even", "odd")) for factor in chosen)
        return tuple(Target(factor.name, "number") for factor in chosen)

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        columns = self.columns
        positions = np.asarray(self.of.factors_of(index))[:, columns]
        factors = [self.of.factors[column] for column in columns]
        if self.form == "classes":
            return positions.astype(np.int64)
        if self.form == "parity":  # that of what a position means
            meant = [np.asarray(f.values or range(f.size)) for f in factors]
            return np.column_stack([m[p.astype(int)] for m, p in zip(meant, positions.T, strict=True)]).astype(int) % 2
        return (positions / [max(factor.size - 1, 1) for factor in factors]).astype(np.float32)


def class_task(world: World, factor: str | None = None) -> World:
    """A world with a class to predict: the named factor, else the target that the world has, else the usual factor."""
    return world if factor is None and inside(world, Targeted) is not None else Task(world, factor or "")


def targets_of(world: World) -> tuple[Target, ...]:
    """The targets of a world: its own, those of a world inside it, or the default task."""
    named = inside(world, Targeted)
    targets = Task(world).targets if named is None else named[0].targets
    targets = tuple(Target.of(one) if isinstance(one, Factor) else one for one in targets)
    if len(targets) > 1 and any(target.kind == "mask" for target in targets):
        raise ValueError("a mask is the only target of its world: give the other targets in a world of their own")
    return targets


def target_values(world: World, index: ArrayLike) -> NDArray[Any]:
    """The targets of observations by number, changed by every view between them and the world that has them."""
    if isinstance(world, Targeted):
        return np.asarray(world.target_of(index))
    if isinstance(world, View) and inside(world, Targeted) is not None:
        return world.shown_target(target_values(world.of, world.there(index)), index)
    return Task(world).target_of(index)


def class_names(world: World) -> list[str]:
    """The names of the classes of a world's first target."""
    return targets_of(world)[0].names


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples in memory: observations ``(n, ...)`` as a network takes them, and their targets. They are a
    world, too, on which a network can be trained.

    Targets are ``(n,)``, or ``(n, columns)`` if there are several. Whole numbers are classes 0, 1, ..., floats are
    numbers. Arrays stay arrays, and tensors tensors.

    >>> examples = Examples(np.eye(3), np.array([0, 2, 1]))
    >>> examples.classes, examples.target_of([1]).tolist(), Examples(np.eye(3), np.ones(3)).targets[0].kind
    ((3,), [[2]], 'number')
    """

    x: Any
    y: Any
    classes: tuple[int, ...] = ()
    """How many classes each column has; if not given, as many as there are labels. Numbers have none."""
    index: Any = None
    """Their numbers ``(n,)`` in the world that they come from; 0, 1, ... if not given."""

    def __post_init__(self) -> None:
        for name in ("x", "y"):  # lists become arrays
            if not hasattr(getattr(self, name), "shape"):
                object.__setattr__(self, name, np.asarray(getattr(self, name)))
        y = _array(self.y)
        if y.ndim not in (1, 2) or len(self.x) != len(y):
            raise ValueError(
                f"inputs and targets need the same length; got {len(self.x)} and {len(y)} (targets of shape {y.shape})"
            )
        if self.index is None:
            object.__setattr__(self, "index", np.arange(len(y)))
        if y.dtype.kind in "iu":
            columns = y.reshape(len(y), -1 if y.size else 1)
            if columns.min(initial=0) < 0:
                raise ValueError(f"classes are counted from 0; the least label is {y.min()}")
            object.__setattr__(self, "classes", self.classes or tuple((columns.max(0, initial=-1) + 1).tolist()))

    @classmethod
    def of(cls, world: World, index: ArrayLike) -> Examples:
        """Observations of a world by number, as tensors, with their targets."""
        numbers = np.asarray(index, dtype=np.int64)
        x = to_tensor(world.observe(numbers)).clone(memory_format=torch.contiguous_format)
        y = target_values(world, numbers)
        y = y.astype(np.int64) if y.dtype.kind in "iub" else y
        sizes = tuple(target.size for target in targets_of(world) if target.size)
        return cls(x, torch.from_numpy(y[:, 0] if y.shape[1:] == (1,) else y), sizes, numbers)

    def tensors(self) -> Examples:
        """The same examples as tensors."""
        return replace(self, x=torch.as_tensor(self.x), y=torch.as_tensor(self.y))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def factors(self) -> tuple[Factor, ...]:
        return ()

    def __len__(self) -> int:
        return len(self.x)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return _array(self.x)[numbered(index, len(self))]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return np.zeros((np.size(index), 0))

    @property
    def targets(self) -> tuple[Target, ...]:
        sizes = self.classes or (0,) * (1 if self.y.ndim == 1 else self.y.shape[1])
        return tuple(Target(f"target {i}", "class" if size else "number", size) for i, size in enumerate(sizes))

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        chosen = _array(self.y)[numbered(index, len(self))]
        return chosen[:, None] if chosen.ndim == 1 else chosen


def _array(values: Any) -> NDArray[Any]:
    """A tensor as an array of the same memory; an array as it is."""
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)


@dataclass(frozen=True, eq=False)
class MaskedImages:
    """Images ``(n, channels, h, w)`` in memory with a mask ``(n, h, w)`` each: a class for each pixel, -1 unlabelled.

    >>> world = MaskedImages(np.zeros((2, 3, 8, 8), np.uint8), np.zeros((2, 8, 8), int), ("soil", "grass"))
    >>> world.shape, world.targets[0].size
    ((3, 8, 8), 2)
    """

    images: NDArray[Any]
    masks: NDArray[Any]
    names: tuple[str, ...]
    """Names of the classes."""

    def __post_init__(self) -> None:
        n, _, *sides = self.images.shape
        if self.images.ndim != 4 or self.masks.shape != (n, *sides):
            raise ValueError(f"images and masks need the same pixels; got {self.images.shape} and {self.masks.shape}")
        if self.masks.size and not (self.masks.min() >= UNLABELLED and self.masks.max() < len(self.names)):
            raise ValueError(
                f"masks have classes 0 to {len(self.names) - 1}, or -1; got {self.masks.min()} to {self.masks.max()}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape[1:]

    @property
    def factors(self) -> tuple[Factor, ...]:
        return ()

    def __len__(self) -> int:
        return len(self.images)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.images[numbered(index, len(self))]

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return np.zeros((np.size(index), 0))

    @property
    def targets(self) -> tuple[Target, ...]:
        return (Target("class", "mask", len(self.names), self.names),)

    def target_of(self, index: ArrayLike) -> NDArray[Any]:
        return np.asarray(self.masks[numbered(index, len(self))], np.int64)
