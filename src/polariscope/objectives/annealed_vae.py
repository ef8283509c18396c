"""The annealed VAE: a capacity for the divergence that grows during training (Burgess et al. 2018)."""

from dataclasses import dataclass

from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Terms, at_least, objectives


@objectives.register("annealed-vae")
@dataclass(frozen=True)
class AnnealedVAE(Autoencoding):
    """R + γ|K − C(t)| with C(t) = C_max · min(1, t/T): a divergence below the capacity is penalised as well."""

    gamma: float = 1000.0
    """Weight of the distance to the capacity."""
    capacity: float = 25.0
    """C_max, in nats: a larger capacity is a weaker regularisation."""
    ramp: int = 100_000
    """T: steps until the capacity is reached."""

    def __post_init__(self) -> None:
        at_least(self.gamma, 0, "gamma")
        at_least(self.capacity, 0, "capacity")
        at_least(self.ramp, 1, "ramp")

    def capacity_at(self, step: int) -> float:
        return self.capacity * min(1.0, step / self.ramp)

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        excess = (p.kl - self.capacity_at(step)).abs()
        return Terms(p.reconstruction + self.gamma * excess, {"reconstruction": p.reconstruction, "kl": p.kl})
