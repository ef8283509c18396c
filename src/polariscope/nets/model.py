"""A model before it is built: a small configuration that makes an ``nn.Module`` for some data.

The methods of a model (``encode``, ``decode``, ``forward``), never its class, decide how it can be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import nn

from polariscope.registry import Registry

Shape = tuple[int, ...]
PosteriorKind = Literal["diagonal", "constant", "unit", "full", "point"]


@dataclass(frozen=True)
class Brief:
    """The requirements on a model: its data, and the needs of its objective."""

    observation: Shape
    """Shape of one observation."""
    outputs: int = 0
    """Numbers to predict: a score for each class of each target, or a value; 0 if nothing is predicted."""
    factors: tuple[int, ...] = ()
    """Sizes of the world's factors (0 if continuous), for models that use them."""
    posterior: PosteriorKind = "diagonal"
    """The kind of posterior that the objective needs, for models that have a posterior."""
    dense: bool = False
    """Whether the model predicts for each pixel, because the target is a mask."""
    classes: tuple[int, ...] = ()
    """Number of classes of each target, 0 for a target that is a number; if empty, all outputs are numbers."""


class Model(Protocol):
    """A new model is one file: a registered frozen dataclass with ``build``, which draws weights from torch's global
    random state."""

    def build(self, brief: Brief) -> nn.Module: ...


models: Registry[Model] = Registry("model", of=Model)


def predicts(brief: Brief, name: str) -> int:
    """The number of outputs of a model with one prediction per image; an error if it has nothing to predict."""
    if brief.outputs < 1:
        raise ValueError(
            f"the model {name} predicts, but this objective has nothing to predict: use classify or regress"
        )
    if brief.dense:
        raise ValueError(
            f"the model {name} predicts one answer per image, but the target of this world is a mask: use a "
            "model that maps every pixel"
        )
    return brief.outputs


def images(brief: Brief, name: str, smallest: int = 1) -> tuple[int, int, int]:
    """Channels, height and width, for a model of images; an error for other data and for images that are too small."""
    if len(brief.observation) != 3:
        raise ValueError(f"{name} is for images, but the data has points of shape {brief.observation}: use mlp")
    channels, height, width = brief.observation
    if min(height, width) < smallest:
        raise ValueError(
            f"{name} needs images of at least {smallest} x {smallest} pixels, and these have {height} x {width}: "
            "use larger images, or another model, such as mlp"
        )
    return channels, height, width
