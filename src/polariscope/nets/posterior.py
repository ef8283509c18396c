"""The posterior of one observation: a Gaussian over the latents (or a point), and the layers that compute it.

Each posterior has its mean, its marginal variances, a reparametrised sample and its divergence from the standard normal
prior, one number per example. The heads turn the features of an encoder into one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


class Posterior(Protocol):
    """A distribution over the latents for each example of a batch."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def var(self) -> Tensor:
        """Marginal variances ``(n, d)``: variances, neither standard deviations nor logarithms."""

    def sample(self) -> Tensor:
        """One reparametrised draw per example."""

    def kl(self) -> Tensor:
        """KL(q || N(0, I)) in nats, one number per example."""


@dataclass(frozen=True)
class Diagonal:
    """N(mean, diag(exp(logvar)))."""

    mean: Tensor
    logvar: Tensor

    @property
    def var(self) -> Tensor:
        return self.logvar.exp()

    def sample(self) -> Tensor:
        return self.mean + torch.randn_like(self.mean) * (0.5 * self.logvar).exp()

    def kl(self) -> Tensor:
        return self.kl_per_variable().sum(1)

    def kl_per_variable(self) -> Tensor:
        """The divergence of each latent, ``(n, d)``; they add up to :meth:`kl`."""
        return 0.5 * (self.mean.square() + self.logvar.exp() - self.logvar - 1)

    def log_density(self, z: Tensor) -> Tensor:
        """log q(z_j | x) for each latent; broadcasts, so that every z can be evaluated for every example."""
        return -0.5 * (
            (z - self.mean).square() * (-self.logvar).exp() + self.logvar + torch.log(z.new_tensor(2 * torch.pi))
        )


@dataclass(frozen=True)
class Full:
    """N(mean, L Lᵀ) with L lower triangular and a positive diagonal."""

    mean: Tensor
    scale_tril: Tensor

    @property
    def var(self) -> Tensor:
        return self.scale_tril.square().sum(-1)

    def sample(self) -> Tensor:
        noise = torch.randn_like(self.mean)
        return self.mean + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def kl(self) -> Tensor:
        logdet = 2 * self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return 0.5 * (self.mean.square().sum(1) + self.var.sum(1) - logdet - self.mean.shape[1])


@dataclass(frozen=True)
class Point:
    """A deterministic code: its variance and its divergence are 0."""

    mean: Tensor

    @property
    def var(self) -> Tensor:
        return torch.zeros_like(self.mean)

    def sample(self) -> Tensor:
        return self.mean

    def kl(self) -> Tensor:
        return self.mean.new_zeros(len(self.mean))


class DiagonalHead(nn.Linear):
    """One linear layer from features to the mean and the log-variance."""

    def __init__(self, features: int, latents: int) -> None:
        super().__init__(features, 2 * latents)

    def forward(self, features: Tensor) -> Diagonal:  # type: ignore[override]
        mean, logvar = super().forward(features).chunk(2, dim=1)
        return Diagonal(mean, logvar)


class ConstantVarianceHead(nn.Module):
    """A linear mean and one log-variance per latent that does not depend on the input: the linear VAE's posterior."""

    def __init__(self, features: int, latents: int) -> None:
        super().__init__()
        self.mean = nn.Linear(features, latents)
        self.logvar = nn.Parameter(torch.zeros(latents))

    def forward(self, features: Tensor) -> Diagonal:
        mean = self.mean(features)
        return Diagonal(mean, self.logvar.expand_as(mean))


class UnitVarianceHead(nn.Linear):
    """A linear layer from features to the mean; the variance of every latent is fixed at 1."""

    def forward(self, features: Tensor) -> Diagonal:  # type: ignore[override]
        mean = super().forward(features)
        return Diagonal(mean, torch.zeros_like(mean))


class FullHead(nn.Module):
    """One linear layer from features to the mean and a Cholesky factor, with an exponential on the diagonal."""

    def __init__(self, features: int, latents: int) -> None:
        super().__init__()
        self.latents = latents
        self.linear = nn.Linear(features, latents + latents * (latents + 1) // 2)
        self.below = tuple(torch.tril_indices(latents, latents, -1).tolist())

    def forward(self, features: Tensor) -> Full:
        d = self.latents
        mean, log_diagonal, below = self.linear(features).split([d, d, d * (d - 1) // 2], dim=1)
        scale_tril = torch.diag_embed(log_diagonal.exp())
        scale_tril[:, self.below[0], self.below[1]] = below
        return Full(mean, scale_tril)


class PointHead(nn.Linear):
    """A linear layer from features to a code."""

    def forward(self, features: Tensor) -> Point:  # type: ignore[override]
        return Point(super().forward(features))


HEADS: dict[str, type[nn.Module]] = {
    "diagonal": DiagonalHead,
    "constant": ConstantVarianceHead,
    "unit": UnitVarianceHead,
    "full": FullHead,
    "point": PointHead,
}
