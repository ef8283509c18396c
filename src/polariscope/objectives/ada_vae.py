"""Ada-GVAE and Ada-ML-VAE: latents that a pair seems to share are given one posterior (Locatello et al. 2020)."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.posterior import Diagonal
from polariscope.objectives.autoencoding import Autoencoding
from polariscope.objectives.objective import Batch, Need, Terms, at_least, objectives
from polariscope.objectives.several import divergence, encode_pair, reconstruct_all


@dataclass(frozen=True)
class AdaVAE(Autoencoding):
    """R + βK, averaged over both observations of a pair after their shared latents were averaged."""

    beta: float = 1.0
    """Weight of the divergence; with 1 and no shared latents this is the VAE."""

    needs: ClassVar[tuple[Need, ...]] = ("other",)

    def __post_init__(self) -> None:
        at_least(self.beta, 0, "beta")

    @staticmethod
    @abstractmethod
    def average(first: Diagonal, second: Diagonal) -> Diagonal:
        """The shared posterior of both observations."""

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        first, second = encode_pair(model, batch, "Ada-VAE")
        same = shared(first, second)
        mean = self.average(first, second)
        pair = tuple(
            Diagonal(torch.where(same, mean.mean, own.mean), torch.where(same, mean.logvar, own.logvar))
            for own in (first, second)
        )
        reconstruction = reconstruct_all(model, batch, tuple(own.sample() for own in pair)) / 2
        kl = (pair[0].kl() + pair[1].kl()).mean() / 2
        parts = {"reconstruction": reconstruction, "kl": kl, "shared": same.sum(1).to(kl).mean()}
        return Terms(reconstruction + self.beta * kl, parts)


@objectives.register("ada-gvae")
@dataclass(frozen=True)
class AdaGVAE(AdaVAE):
    """The beta-VAE of pairs; a shared latent gets the average of both means and variances."""

    @staticmethod
    def average(first: Diagonal, second: Diagonal) -> Diagonal:
        logvar = torch.logaddexp(first.logvar, second.logvar) - math.log(2)
        return Diagonal((first.mean + second.mean) / 2, logvar)


@objectives.register("ada-ml-vae")
@dataclass(frozen=True)
class AdaMLVAE(AdaVAE):
    """The beta-VAE of pairs; a shared latent gets the product of both posteriors, with twice its variance."""

    @staticmethod
    def average(first: Diagonal, second: Diagonal) -> Diagonal:
        total = torch.logaddexp(first.logvar, second.logvar)
        share = (second.logvar - total).exp()  # of the first: the surer it is, the more
        mean = share * first.mean + (1 - share) * second.mean
        return Diagonal(mean, first.logvar + second.logvar - total + math.log(2))


def shared(first: Diagonal, second: Diagonal) -> Tensor:
    """Latents whose posteriors differ by less than halfway between the least and the most different one, ``(n, d)``.

    If all differ by the same amount, as for two equal observations, none is below: nothing is averaged.

    >>> apart = Diagonal(torch.tensor([[0.0, 0.0, 4.0]]), torch.zeros(1, 3))
    >>> shared(apart, Diagonal(torch.zeros(1, 3), torch.zeros(1, 3))).tolist()
    [[True, True, False]]
    """
    apart = divergence(first, second).detach()
    low, high = apart.aminmax(dim=1, keepdim=True)
    return apart < (low + high) / 2
