"""PM-VAE: SlowVAE with posteriors matched to each other in place of sparse steps (Spec 001a, section 3.3)."""

from dataclasses import dataclass
from typing import ClassVar

from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.autoencoding import Autoencoding
from polariscope.objectives.objective import Batch, Need, Terms, at_least, objectives
from polariscope.objectives.several import divergence, encode_pair, reconstruct_all


@objectives.register("pm-vae")
@dataclass(frozen=True)
class PMVAE(Autoencoding):
    """R + βK + γM: M is the divergence of the posteriors of a pair from each other, a Gaussian step, which in theory
    cannot disentangle. R is of both observations; K and M are means over both directions of time."""

    gamma: float = 10.0
    """Weight of the match."""
    beta: float = 1.0
    """Weight of the divergence from the prior."""

    needs: ClassVar[tuple[Need, ...]] = ("other",)

    def __post_init__(self) -> None:
        at_least(self.gamma, 0, "gamma")
        at_least(self.beta, 0, "beta")

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        first, second = encode_pair(model, batch, "PM-VAE")
        reconstruction = reconstruct_all(model, batch, (first.sample(), second.sample()))
        kl = (first.kl() + second.kl()).mean() / 2
        match = (divergence(first, second) + divergence(second, first)).sum(1).mean() / 2
        loss = reconstruction + self.beta * kl + self.gamma * match
        return Terms(loss, {"reconstruction": reconstruction, "kl": kl, "match": match})
