"""Labelled examples for the diagnosis of a classifier, and the checks of examples and networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polariscope.subjects.subject import misfit
from polariscope.user_code import user_code
from polariscope.worlds.targets import target_values
from polariscope.worlds.world import World, to_tensor

NEIGHBOURS = 5
"""Neighbours of the mutual information, as published: every class needs more examples than these."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Inputs ``(n, ...)`` as the network takes them, and their classes 0, 1, ... ``(n,)``."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.y.ndim != 1 or len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} inputs need as many labels, in one column; got {tuple(self.y.shape)}")
        if self.y.is_floating_point() or self.y.is_complex():
            raise TypeError(f"labels are whole numbers, one class each; got {self.y.dtype}")
        if len(self.y) and int(self.y.min()) < 0:
            raise ValueError(f"classes are counted from 0; the least label is {int(self.y.min())}")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


def labelled(world: World, numbers: NDArray[np.int64]) -> Labelled:
    """Observations of a world by number with their classes."""
    x = to_tensor(world.observe(numbers)).clone(memory_format=torch.contiguous_format)
    return Labelled(x, torch.from_numpy(target_values(world, numbers)[:, 0].astype(np.int64)))


def check_examples(fit: Labelled, test: Labelled) -> int:
    """The number of classes; examples that are not enough for a diagnosis are refused."""
    if not len(test):
        raise ValueError("there are no held-out examples to count errors on")
    counts = fit.y.bincount()
    if len(counts) < 2 or int(counts.min()) <= NEIGHBOURS:
        raise ValueError(
            f"the diagnosis needs at least 2 classes, and more than {NEIGHBOURS} examples of every one; the examples "
            f"per class are {counts.tolist()}: use more of them (--count)"
        )
    if test.classes > len(counts):
        raise ValueError(f"class {test.classes - 1} is among the held-out examples but not among the others")
    return len(counts)


@torch.no_grad()
def output_width(model: nn.Module, x: Tensor, classes: int) -> int:
    """The number of outputs, which must be one per class, or one for two classes."""
    was_training = model.training
    try:
        with user_code("the network", lambda error: misfit(error, tuple(x.shape[1:]))):
            outputs = model.eval()(x[:2])
    finally:
        model.train(was_training)
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != len(x[:2]):
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the network needs outputs (n, C) or (n,) for n inputs; for {len(x[:2])} it gave {got}")
    width = 1 if outputs.ndim == 1 else int(outputs.shape[1])
    if width == 1 and classes > 2:
        raise ValueError(f"one output tells two classes apart, and there are {classes}")
    if 1 < width < classes:
        raise ValueError(f"the network has {width} outputs for {classes} classes; it needs one per class")
    return width
