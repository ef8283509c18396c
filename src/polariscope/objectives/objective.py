"""What an objective is: hyper-parameters, and one call from a batch to the terms of a loss.

Losses are summed over pixels and latents and averaged over the batch. An objective that trains a second network
against the model (FactorVAE) builds it in ``adversary`` and returns its loss beside the main one; the training loop
gives it an optimiser of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from polariscope.nets.architecture import Shape
from polariscope.nets.autoencoder import Autoencoder, ModelConfig, PosteriorKind
from polariscope.nets.posterior import Posterior
from polariscope.registry import Registry


@dataclass(frozen=True)
class Batch:
    """Observations as floats on the training device, the size of the set they come from, and their factors."""

    x: Tensor
    population: int
    factors: Tensor | None = None


@dataclass(frozen=True)
class Terms:
    """A loss and what it is made of: scalars, batch means. ``adversary`` is the second network's own loss."""

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    adversary: Tensor | None = None


class Objective(ABC):
    """A new objective is one file: a registered frozen dataclass with ``__call__``."""

    posterior: ClassVar[PosteriorKind] = "diagonal"
    """The posterior the objective is made for."""

    @abstractmethod
    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms: ...

    def build(self, config: ModelConfig, shape: Shape, factor_sizes: tuple[int, ...] = ()) -> Autoencoder:
        """The model this objective trains: an autoencoder for data of ``shape``, its adversary with it.

        ``factor_sizes`` are the world's factors (0 where continuous), for models that look at them.
        """
        model = Autoencoder(config, shape, self.posterior)
        model.adversary = self.adversary(config.latents)
        return model

    def adversary(self, latents: int) -> nn.Module | None:
        """A network to train against the model; its parameters never belong to the main loss."""
        return None

    def adversary_optimiser(self) -> dict[str, object]:
        """Adam's settings for the adversary."""
        return {}


objectives: Registry[Objective] = Registry("objective", "polariscope.objectives")


@dataclass(frozen=True)
class Pass:
    """One pass of a batch through the model: what every variational objective starts from."""

    posterior: Posterior
    z: Tensor
    reconstruction: Tensor
    """Mean negative log-likelihood."""
    kl: Tensor
    """Mean divergence of the posterior from the prior."""


def forward(model: Autoencoder, batch: Batch) -> Pass:
    """Encode, draw once, decode."""
    posterior = model.encode(batch.x)
    z = posterior.sample()
    return Pass(posterior, z, model.likelihood.nll(model.decode(z), batch.x).mean(), posterior.kl().mean())


def at_least(value: float, low: float, name: str) -> None:
    """Refuse a hyper-parameter that is too small (or NaN), in a sentence."""
    if not value >= low:
        raise ValueError(f"{name} is {value}: it needs to be at least {low:g}")
