"""Permutation-contrastive learning: distinguish consecutive observations from shuffled ones (Hyvärinen and
Morioka 2017; Spec 001a, section 3.4)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.code_encoder import CodeEncoder, CodeEncoderConfig
from polariscope.nets.model import Brief, PosteriorKind
from polariscope.objectives.objective import Batch, Need, Objective, Player, Terms, objectives


@objectives.register("pcl")
@dataclass(frozen=True)
class PCL(Objective):
    """Cross-entropy of a logistic regression between pairs and pairs whose first parts were shuffled over the batch;
    ``error`` is the share of wrong answers."""

    posterior: ClassVar[PosteriorKind] = "point"
    needs: ClassVar[tuple[Need, ...]] = ("other",)
    asks_for: ClassVar[tuple[str, ...]] = ("encode",)
    usual = CodeEncoderConfig

    def players(self, model: CodeEncoder, brief: Brief) -> dict[str, Player]:
        return {"regressor": Player(Regressor(model.latents))}

    def __call__(self, model: CodeEncoder, batch: Batch, step: int, regressor: nn.Module) -> Terms:
        before, now = model.encode(torch.cat([batch.x, batch.other])).mean.chunk(2)
        true = regressor(now, before)
        false = regressor(now, before[torch.randperm(len(before), device=before.device)])
        loss = (functional.softplus(-true).mean() + functional.softplus(false).mean()) / 2
        error = ((true < 0).float().mean() + (false > 0).float().mean()) / 2
        # Encoder and regressor learn from one loss, each by its own optimiser.
        return Terms(loss, {"error": error}, {"regressor": loss})


class Regressor(nn.Module):
    """−Σ|a h + b h' + c| + Σ h² + e of a code h and the one before it, h': the log-ratio of a Laplace step."""

    def __init__(self, latents: int) -> None:
        super().__init__()
        self.now = nn.Parameter(torch.ones(latents))
        self.before = nn.Parameter(-torch.ones(latents))
        self.shift = nn.Parameter(torch.zeros(latents))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, now: Tensor, before: Tensor) -> Tensor:
        steps = (self.now * now + self.before * before + self.shift).abs()
        return (now.square() - steps).sum(1) + self.bias
