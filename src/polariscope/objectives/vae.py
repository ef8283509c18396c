"""The variational autoencoder: the negative evidence lower bound (Kingma & Welling 2014)."""

from dataclasses import dataclass

from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Terms, objectives


@objectives.register("vae")
@dataclass(frozen=True)
class VAE(Autoencoding):
    """R + K: reconstruction plus the divergence of the posterior from the prior."""

    @property
    def divergence_weight(self) -> float | None:
        return 1.0

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        return Terms(p.reconstruction + p.kl, {"reconstruction": p.reconstruction, "kl": p.kl})
