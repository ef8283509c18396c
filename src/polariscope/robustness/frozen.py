"""A trained network that is looked at, and not changed: in evaluation mode, asked with plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polariscope.objectives.predict import in_columns
from polariscope.worlds.world import to_tensor

Predict = Callable[[Tensor], Tensor]
"""Observations in [0, 1] to scores ``(n, classes)``; of two classes one score may stand for both. A network that wants
its inputs normalised does that itself."""


@contextmanager
def at_rest(predict: object) -> Iterator[None]:
    """Evaluation mode for a while: batch statistics and dropout rest. Afterwards every part is as it was."""
    modes = [(part, part.training) for part in predict.modules()] if isinstance(predict, nn.Module) else []
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def as_examples(predict: object, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Observations as floats and their classes ``(n,)``, where the network is."""
    weights = predict.parameters() if isinstance(predict, nn.Module) else iter(())
    device = next((weight.device for weight in weights), torch.device("cpu"))
    images = (x if isinstance(x, Tensor) else to_tensor(np.asarray(x))).to(device)
    labels = torch.as_tensor(y, device=device).squeeze(-1) if np.ndim(y) == 2 else torch.as_tensor(y, device=device)
    if not images.is_floating_point() or labels.shape != images.shape[:1] or not len(labels):
        raise ValueError(
            f"expected images as floats from 0 to 1 (or bytes in an array) with a class each; got {images.dtype} of "
            f"shape {tuple(images.shape)} and classes of shape {tuple(labels.shape)}"
        )
    return images, labels.long()


def class_scores(predict: Predict, x: Tensor) -> Tensor:
    """Scores with a column for each class, of two at least."""
    outputs = predict(x)
    return in_columns(outputs, 2 if outputs.ndim == 1 else max(2, outputs.shape[1]))
