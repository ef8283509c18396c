"""Supervised objectives: tell the class of an observation, or the value of something about it."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.model import Model
from polariscope.nets.predictors import Encoder
from polariscope.objectives.objective import Batch, Need, Objective, Terms, at_least, objectives


@objectives.register("classify")
@dataclass(frozen=True)
class Classify(Objective):
    """Cross-entropy of the classes, summed over the targets where there are several; ``error`` is the share of wrong
    answers."""

    scale: float = 1.0
    """What the loss is divided by, for networks whose outputs are scaled."""

    needs: ClassVar[tuple[Need, ...]] = ("target",)
    asks_for: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        at_least(self.scale, 1e-30, "scale")

    def default_model(self) -> Model:
        return Encoder()

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        loss, wrong = classification(model(batch.x), target_of(batch), batch.classes)
        return Terms(loss / self.scale, {"cross_entropy": loss, "error": wrong})


@objectives.register("regress")
@dataclass(frozen=True)
class Regress(Objective):
    """Squared error, summed over the targets and averaged over the batch."""

    needs: ClassVar[tuple[Need, ...]] = ("target",)
    asks_for: ClassVar[tuple[str, ...]] = ()

    def default_model(self) -> Model:
        return Encoder()

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        target = target_of(batch)
        outputs = in_columns(model(batch.x), target.shape[1])
        loss = (outputs - target.to(outputs)).square().sum(1).mean()
        return Terms(loss, {"squared_error": loss})


def classification(outputs: Tensor, target: Tensor, classes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the classes, a sum over the targets, and the mean share of wrong answers."""
    if not all(classes):
        raise ValueError("classify tells classes, and a target of this world is a number: use regress, or a task")
    scores = in_columns(outputs, sum(classes))
    columns = list(zip(scores.split(classes, dim=1), target.long().T, strict=True))
    loss = torch.stack([functional.cross_entropy(one, label) for one, label in columns]).sum()
    wrong = torch.stack([(one.argmax(1) != label).float().mean() for one, label in columns]).mean()
    return loss, wrong


def in_columns(outputs: Tensor, width: int) -> Tensor:
    """A network's answer as ``(n, width)``; of two classes one score may stand for both, as that of the second."""
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if outputs.ndim == 2 and outputs.shape[1] == 1 and width == 2:
        outputs = functional.pad(outputs, (1, 0))
    if outputs.ndim != 2 or outputs.shape[1] < width:
        raise ValueError(f"the network gives outputs of shape {tuple(outputs.shape)}, but (n, {width}) are to be told")
    return outputs[:, :width] if outputs.shape[1] > width else outputs


def target_of(batch: Batch) -> Tensor:
    """What is to be told, or a sentence where nothing is."""
    if batch.target is None:
        raise ValueError("a supervised objective needs targets: take a world whose factors are known")
    return batch.target
