"""The beta-VAE (Higgins et al. 2017), and the same with a full posterior covariance."""

from dataclasses import dataclass
from typing import ClassVar

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.model import PosteriorKind
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Terms, at_least, objectives


@objectives.register("beta-vae")
@dataclass(frozen=True)
class BetaVAE(Autoencoding):
    """R + βK: the divergence from the prior weighs more than in the VAE, so fewer latents are used."""

    beta: float = 4.0
    """Weight of the divergence; 1 is the VAE."""

    def __post_init__(self) -> None:
        at_least(self.beta, 0, "beta")

    @property
    def divergence_weight(self) -> float | None:
        return self.beta if self.posterior == "diagonal" else None

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        return Terms(p.reconstruction + self.beta * p.kl, {"reconstruction": p.reconstruction, "kl": p.kl})


@objectives.register("full-beta-vae")
@dataclass(frozen=True)
class FullBetaVAE(BetaVAE):
    """The beta-VAE with a full posterior covariance, which does not align latents with the axes."""

    posterior: ClassVar[PosteriorKind] = "full"
