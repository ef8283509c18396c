"""The checks of examples and networks before a classifier is diagnosed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polariscope.subjects.subject import misfit
from polariscope.user_code import user_code
from polariscope.worlds.targets import Examples

NEIGHBOURS = 5
"""Neighbours of the estimate of mutual information, as published: every class needs more examples than this."""


Labelled = Examples
"""The earlier name of what a diagnosis takes."""


def check_labels(examples: Examples) -> None:
    """Refuse targets that are not one class each."""
    if len(examples.classes) != 1:
        raise TypeError(
            f"labels are whole numbers, one class each; got {examples.y.dtype} of shape {tuple(examples.y.shape)}"
        )


def check_examples(fit: Examples, test: Examples) -> int:
    """The number of classes; examples that are not enough for a diagnosis, or have no classes, are refused."""
    check_labels(fit)
    check_labels(test)
    if not len(test):
        raise ValueError("no held-out examples to count errors on")
    counts = fit.y.bincount()
    if len(counts) < 2 or int(counts.min()) <= NEIGHBOURS:
        raise ValueError(
            f"the diagnosis needs at least 2 classes, and more than {NEIGHBOURS} examples of each; the examples per "
            f"class are {counts.tolist()}: use more (--count)"
        )
    if int(test.y.max()) >= len(counts):
        raise ValueError(f"class {int(test.y.max())} is among the held-out examples but not among the others")
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
        raise ValueError(f"the network needs outputs (n, C) or (n,) for n inputs; for {len(x[:2])} it returned {got}")
    width = 1 if outputs.ndim == 1 else int(outputs.shape[1])
    if width == 1 and classes > 2:
        raise ValueError(f"one output separates two classes, and there are {classes}")
    if 1 < width < classes:
        raise ValueError(f"the network has {width} outputs for {classes} classes; it needs one per class")
    return width
