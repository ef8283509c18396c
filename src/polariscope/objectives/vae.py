"""The variational autoencoder: the negative evidence lower bound (Kingma & Welling 2014)."""

from dataclasses import dataclass

from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.objective import Batch, Objective, Terms, forward, objectives


@objectives.register("vae")
@dataclass(frozen=True)
class VAE(Objective):
    """R + K: reconstruction plus the divergence of the posterior from the prior."""

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        return Terms(p.reconstruction + p.kl, {"reconstruction": p.reconstruction, "kl": p.kl})
