"""Store the training examples: this is how a nearest-neighbour classifier learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from polariscope.nets.nearest_neighbour import NearestNeighbour, NearestNeighbourConfig
from polariscope.objectives.objective import Batch, Terms, objectives
from polariscope.objectives.predict import Supervised, classification, target_of


@objectives.register("memorise")
@dataclass(frozen=True)
class Memorise(Supervised):
    """Store every batch in the memory of the model, and fit the scale of its scores by cross-entropy.

    Each example is classified by all others in memory. One pass over the data is enough: as many steps as it has whole
    batches. A batch size that divides the number of training examples leaves none of them out.
    """

    asks_for: ClassVar[tuple[str, ...]] = ("remember", "examples")
    usual = NearestNeighbourConfig

    def __call__(self, model: NearestNeighbour, batch: Batch, step: int) -> Terms:
        target = target_of(batch)
        if batch.evaluating:
            outputs = model(batch.x)
        else:
            # Places follow from the step, so that a step that is repeated after a stop changes nothing.
            places = model.remember(batch.x, marked(target, batch.classes), step * len(batch.x))
            outputs = model(batch.x, places)
        loss, wrong = classification(outputs, target, batch.classes)
        return Terms(loss, {"cross_entropy": loss, "error": wrong})


def marked(target: Tensor, classes: tuple[int, ...]) -> Tensor:
    """The classes of several targets side by side, ``(n, sum of classes)``: a 1 for each.

    >>> marked(torch.tensor([[1, 0]]), (2, 3)).int().tolist()
    [[0, 1, 1, 0, 0]]
    """
    if not all(classes):
        raise ValueError(
            "memorise needs classes, but a target of this world is a number: choose a discrete factor with a task"
        )
    columns = zip(target.long().T, classes, strict=True)
    return torch.cat([functional.one_hot(column, count) for column, count in columns], 1).bool()
