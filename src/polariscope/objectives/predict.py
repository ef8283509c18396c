"""Supervised objectives: predict the class of an observation, or a number about it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.predictors import Encoder
from polariscope.objectives.objective import Batch, Need, Objective, Terms, at_least, objectives


class Supervised(Objective):
    """An objective of models that predict a target."""

    needs: ClassVar[tuple[Need, ...]] = ("target",)
    usual: ClassVar[type[Any] | None] = Encoder


@objectives.register("classify")
@dataclass(frozen=True)
class Classify(Supervised):
    """Cross-entropy of the classes, summed over the targets where there are several; ``error`` is the share of wrong
    predictions."""

    scale: float = 1.0
    """Divisor of the loss, for networks whose outputs are scaled."""

    def __post_init__(self) -> None:
        at_least(self.scale, 1e-30, "scale")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        loss, wrong = classification(model(batch.x), target_of(batch), batch.classes)
        return Terms(loss / self.scale, {"cross_entropy": loss, "error": wrong})


@objectives.register("regress")
@dataclass(frozen=True)
class Regress(Supervised):
    """Squared error, summed over the targets and averaged over the batch."""

    numeric: ClassVar[bool] = True

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        target = target_of(batch)
        outputs = in_columns(model(batch.x), target.shape[1])
        loss = (outputs - target.to(outputs)).square().sum(1).mean()
        return Terms(loss, {"squared_error": loss})


def classification(outputs: Tensor, target: Tensor, classes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the classes, a sum over the targets, and the mean share of wrong predictions."""
    if not all(classes):
        raise ValueError("classify predicts classes, but a target of this world is a number: use regress, or a task")
    scores = in_columns(outputs, sum(classes))
    columns = list(zip(scores.split(classes, dim=1), target.long().T, strict=True))
    loss = torch.stack([functional.cross_entropy(one, label) for one, label in columns]).sum()
    wrong = torch.stack([(one.argmax(1) != label).float().mean() for one, label in columns]).mean()
    return loss, wrong


def in_columns(outputs: Tensor, width: int) -> Tensor:
    """A network's output as ``(n, width)``; for two classes, one score (of the second class) is enough."""
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if outputs.ndim == 2 and outputs.shape[1] == 1 and width == 2:
        outputs = functional.pad(outputs, (1, 0))
    if outputs.ndim != 2 or outputs.shape[1] < width:
        raise ValueError(f"the network has outputs of shape {tuple(outputs.shape)}; the targets need (n, {width})")
    return outputs[:, :width] if outputs.shape[1] > width else outputs


def target_of(batch: Batch) -> Tensor:
    """The targets ``(n, columns)`` of a batch; a batch without targets, or with masks, is refused."""
    if batch.target is None:
        raise ValueError("a supervised objective needs targets: use a world whose factors are known")
    if batch.target.ndim > 2:
        raise ValueError(
            "this objective predicts one answer for each observation, and the target of this world is a mask with one "
            "for each pixel: use an objective for masks"
        )
    return batch.target
