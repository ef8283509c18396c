"""FactorVAE: a discriminator estimates the total correlation of the codes, which is penalised (Kim & Mnih 2018)."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.model import Brief
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Player, Terms, at_least, objectives


@objectives.register("factor-vae")
@dataclass(frozen=True)
class FactorVAE(Autoencoding):
    """R + K + γ TC, with TC = E[log D − log(1 − D)] for a discriminator D between codes and codes whose latents were
    shuffled over the batch independently of each other."""

    gamma: float = 35.0
    """Weight of the total correlation."""
    width: int = 1000
    """Units of each hidden layer of the discriminator."""
    depth: int = 6
    """Hidden layers of the discriminator."""
    discriminator_learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        at_least(self.gamma, 0, "gamma")
        at_least(self.width, 1, "width")
        at_least(self.depth, 1, "depth")
        at_least(self.discriminator_learning_rate, 1e-12, "discriminator_learning_rate")

    def players(self, model: Autoencoder, brief: Brief) -> dict[str, Player]:
        sizes = [model.latents, *[self.width] * self.depth]
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(sizes):
            layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
        discriminator = nn.Sequential(*layers, nn.Linear(self.width, 2))
        return {"discriminator": Player(discriminator, {"lr": self.discriminator_learning_rate, "betas": (0.5, 0.9)})}

    def __call__(self, model: Autoencoder, batch: Batch, step: int, discriminator: nn.Module) -> Terms:
        p = forward(model, batch)
        tc = total_correlation(discriminator(p.z))
        codes = p.z.detach()
        logits = discriminator(torch.cat([codes, shuffle_each_latent(codes)]))
        labels = torch.arange(2, device=codes.device).repeat_interleave(len(codes))
        return Terms(
            p.reconstruction + p.kl + self.gamma * tc,
            {"reconstruction": p.reconstruction, "kl": p.kl, "total_correlation": tc},
            {"discriminator": functional.cross_entropy(logits, labels)},
        )


def total_correlation(logits: Tensor) -> Tensor:
    """The density-ratio estimate: mean difference of the two logits on codes of the model."""
    return (logits[:, 0] - logits[:, 1]).mean()


def shuffle_each_latent(codes: Tensor) -> Tensor:
    """Each latent permuted over the batch on its own: a draw from the product of the marginals."""
    order = torch.rand_like(codes).argsort(dim=0)
    return codes.gather(0, order)
