"""An autoencoder conditioned on the factors: an encoder q(z|x, u) and a prior p(z|u) in place of N(0, I).

This is the model of the identifiable VAE (Khemakhem et al. 2020; Spec 002, section 7). The decoder does not see u: all
information of the factors about an observation must pass through the latents.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import torch
from torch import Tensor, nn

from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig, check_shape
from polariscope.nets.model import PosteriorKind, Shape
from polariscope.nets.posterior import HEADS, Diagonal, Posterior

PriorMean = Literal["zero", "learned"]
PRIOR_WIDTHS = (50, 50, 50)
PRIOR_SLOPE = 0.1


class ConditionalAutoencoder(Autoencoder):
    """``encode(x, u)`` returns a posterior and ``prior(u)`` its prior; both are diagonal Gaussians.

    ``u`` are the factors of a world: positions on a grid, or values if a factor is continuous (its size is 0).
    Positions are standardised by their uniform distribution over the grid; values stay unchanged. With
    ``prior_mean="zero"`` only the variances of the prior depend on u, which makes the latents identifiable.

    >>> model = ConditionalAutoencoder(AutoencoderConfig(latents=3), (1, 16, 16), factor_sizes=(3, 0))
    >>> u = torch.tensor([[2.0, 0.7], [1.0, -4.2]])
    >>> model.encode(torch.rand(2, 1, 16, 16), u).mean.shape, model.prior(u).var.shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """

    factor_mean: Tensor
    factor_std: Tensor

    def __init__(
        self,
        config: AutoencoderConfig,
        shape: Shape,
        factor_sizes: tuple[int, ...],
        prior_mean: PriorMean = "zero",
        posterior: PosteriorKind = "diagonal",
    ) -> None:
        kind = posterior if config.posterior == "auto" else config.posterior
        if kind not in ("diagonal", "constant"):
            raise ValueError(f"a conditional prior needs a diagonal or constant posterior; got {kind!r}")
        if not factor_sizes:
            raise ValueError("a conditional prior needs factors: use a world whose factors are known")
        super().__init__(config, shape, posterior)
        factors = len(factor_sizes)
        self.head = HEADS[kind](config.architecture.features(shape) + factors, config.latents)
        self.prior_logvar = prior_net(factors, config.latents)
        self.prior_mean = prior_net(factors, config.latents) if prior_mean == "learned" else None
        # A factor with one position has no spread to divide by: it becomes 0.
        spreads = [math.sqrt((size**2 - 1) / 12) if size > 1 else 1.0 for size in factor_sizes]
        self.register_buffer("factor_mean", torch.tensor([max(size - 1, 0) / 2 for size in factor_sizes]))
        self.register_buffer("factor_std", torch.tensor(spreads))

    def standardise(self, u: Tensor) -> Tensor:
        """Factors ``(n, k)`` of any real type as floats of mean 0 and variance 1 over the grid."""
        if u.ndim != 2 or u.shape[1] != len(self.factor_mean):
            raise ValueError(f"this model takes factors of shape (n, {len(self.factor_mean)}); got {tuple(u.shape)}")
        return (u.to(self.factor_mean) - self.factor_mean) / self.factor_std

    def encode(self, x: Tensor, u: Tensor) -> Posterior:  # type: ignore[override]
        check_shape(x, self.shape)
        posterior: Posterior = self.head(torch.cat([self.encoder(x), self.standardise(u)], dim=1))
        return posterior

    def prior(self, u: Tensor) -> Diagonal:
        """p(z|u), one row per example."""
        u = self.standardise(u)
        logvar: Tensor = self.prior_logvar(u)
        return Diagonal(torch.zeros_like(logvar) if self.prior_mean is None else self.prior_mean(u), logvar)

    def reconstruct(self, x: Tensor, u: Tensor) -> Tensor:  # type: ignore[override]
        """The expected observation of the posterior mean."""
        return self.generate(self.encode(x, u).mean)

    def forward(self, x: Tensor, u: Tensor) -> Tensor:  # type: ignore[override]
        return self.reconstruct(x, u)


def prior_net(factors: int, latents: int) -> nn.Sequential:
    """The small network of Spec 002, section 7.3, from standardised factors to one moment of the prior."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise((factors, *PRIOR_WIDTHS)):
        layers += [nn.Linear(a, b), nn.LeakyReLU(PRIOR_SLOPE)]
    return nn.Sequential(*layers, nn.Linear(PRIOR_WIDTHS[-1], latents))
