"""The beta-TC-VAE: total correlation by minibatch-weighted sampling (Chen et al. 2018)."""

import math
from dataclasses import dataclass

from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.posterior import Diagonal
from polariscope.objectives.autoencoding import Autoencoding, forward
from polariscope.objectives.objective import Batch, Terms, at_least, objectives


@objectives.register("beta-tc-vae")
@dataclass(frozen=True)
class BetaTCVAE(Autoencoding):
    """R + K + (β − 1) TC: only the total correlation is weighted by β; β = 1 is the VAE."""

    beta: float = 6.0
    """Weight of the total correlation; 1 is the VAE."""

    def __post_init__(self) -> None:
        at_least(self.beta, 0, "beta")

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        p = forward(model, batch)
        if not isinstance(p.posterior, Diagonal):
            raise TypeError("the beta-TC-VAE needs a diagonal posterior")
        tc = total_correlation(p.z, p.posterior, batch.population)
        loss = p.reconstruction + p.kl + (self.beta - 1) * tc
        # Shown is the estimate within the batch, which compares with other objectives: the population's size enters the
        # loss as a constant of well over a hundred nats, on which no gradient depends.
        constant = (p.z.shape[1] - 1) * math.log(batch.population)
        parts = {"reconstruction": p.reconstruction, "kl": p.kl, "total_correlation": tc.detach() - constant}
        return Terms(loss, parts, offset=(self.beta - 1) * constant)


def total_correlation(z: Tensor, posterior: Diagonal, population: int | None = None) -> Tensor:
    """mean_i [log q(z_i) − Σ_j log q(z_ij)] with q(z) ≈ Σ_k q(z|x_k) / (N M) over a batch of M out of N examples.

    ``population=None`` drops the constants log(N M), which enter once and d times; no gradient depends on them.
    """
    count, latents = z.shape
    pairs = posterior_log_density(z, posterior)
    joint = pairs.sum(2).logsumexp(1)
    marginals = pairs.logsumexp(1).sum(1)
    constant = 0.0 if population is None else (latents - 1) * math.log(population * count)
    return (joint - marginals).mean() + constant


def posterior_log_density(z: Tensor, posterior: Diagonal) -> Tensor:
    """log q(z_ij | x_k), of every code i under every example k: ``(n, n, d)``."""
    return Diagonal(posterior.mean[None], posterior.logvar[None]).log_density(z[:, None])
