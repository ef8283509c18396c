"""DIP-VAE I and II: a penalty pulls the covariance of the codes towards the identity (Kumar et al. 2018)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Terms, at_least, objectives


@objectives.register("dip-vae")
@dataclass(frozen=True)
class DIPVAE(Autoencoding):
    """R + K + λ_od Σ_{i≠j} C_ij² + λ_d Σ_i (C_ii − 1)².

    Kind I takes the covariance of the means, C = Cov[μ], and so fights passive latents; kind II that of the samples,
    C = Cov[μ] + diag(E[σ²]), which is the identity at the optimum of a linear VAE.
    """

    kind: Literal["I", "II"] = "II"
    off_diagonal: float = 5.0
    """λ_od."""
    diagonal: float = 5.0
    """λ_d."""

    def __post_init__(self) -> None:
        at_least(self.off_diagonal, 0, "off_diagonal")
        at_least(self.diagonal, 0, "diagonal")

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        covariance = torch.cov(p.posterior.mean.T, correction=0).reshape(model.latents, model.latents)
        if self.kind == "II":
            covariance = covariance + torch.diag(p.posterior.var.mean(0))
        penalty = self.penalty(covariance)
        loss = p.reconstruction + p.kl + penalty
        return Terms(loss, {"reconstruction": p.reconstruction, "kl": p.kl, "penalty": penalty})

    def penalty(self, covariance: Tensor) -> Tensor:
        diagonal = covariance.diagonal()
        off = covariance.square().sum() - diagonal.square().sum()
        return self.off_diagonal * off + self.diagonal * (diagonal - 1).square().sum()
