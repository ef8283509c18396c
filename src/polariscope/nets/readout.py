"""A small network that predicts factors from a code: the usefulness of a representation for later tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polariscope.nets.classifiers import mlp
from polariscope.nets.model import Brief, Model, Shape, models, predicts


@models.register("readout")
@dataclass(frozen=True)
class Readout:
    """Three dense layers of 40 units on the mean code of another model, or on the observations themselves.

    In the benchmark the other model is trained first and then frozen (Spec 001a, section 9): ``--model readout
    --model.from RUN --start.freeze of`` takes it from its run.
    """

    of: Model | None = None
    """The model whose code is the input; without one, the observations are the input."""
    hidden: tuple[int, ...] = (40, 40, 40)
    """Units of each hidden layer."""

    def build(self, brief: Brief) -> CodeReader:
        outputs = predicts(brief, "readout")
        of = None if self.of is None else self.of.build(brief)
        if of is not None and not callable(getattr(of, "encode", None)):
            raise ValueError(
                f"a readout needs the code of a model, but {models.name_of(self.of)} does not encode: use autoencoder"
            )
        return CodeReader(of, brief.observation, self.hidden, outputs)


class CodeReader(nn.Module):
    """``encode`` returns the code of the inner model, ``forward`` the prediction from the mean of that code."""

    def __init__(self, of: Any, shape: Shape, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.of = of
        self.eval()  # this one call finds the size of the code and must not change batch statistics
        with torch.no_grad():
            size = self._mean(torch.zeros(1, *shape)).shape[1]
        self.train()
        self.readout = mlp(size, hidden, outputs, seed=int(torch.randint(2**31, ())))

    def encode(self, x: Tensor) -> Any:
        return x.flatten(1) if self.of is None else self.of.encode(x)

    def forward(self, x: Tensor) -> Tensor:
        predictions: Tensor = self.readout(self._mean(x))
        return predictions

    def _mean(self, x: Tensor) -> Tensor:
        code = self.encode(x)
        mean: Tensor = code if isinstance(code, Tensor) else code.mean
        return mean
