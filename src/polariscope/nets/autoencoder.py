"""The autoencoder: encoder, posterior head, decoder and likelihood."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from polariscope.nets.architecture import Architecture, Conv
from polariscope.nets.likelihood import Bernoulli, Gaussian
from polariscope.nets.model import Brief, PosteriorKind, Shape, models
from polariscope.nets.posterior import HEADS, Posterior


@models.register("autoencoder")
@dataclass(frozen=True)
class AutoencoderConfig:
    """Encoder, posterior and decoder. ``posterior="auto"`` chooses the posterior that the objective needs."""

    latents: int = 10
    """Number of latent variables."""
    architecture: Architecture = field(default_factory=Conv)
    """Encoder and decoder pair: conv, mlp or linear."""
    posterior: Literal["auto", "diagonal", "constant", "unit", "full", "point"] = "auto"
    """Shape of the posterior; auto chooses the one that the objective needs."""
    likelihood: Literal["bernoulli", "gaussian"] = "bernoulli"
    """Meaning of the decoder's output: logits of pixels (bernoulli) or means (gaussian)."""
    variance: float = 1.0
    """Decoder variance of the Gaussian likelihood (its starting value, if it is learned)."""
    learn_variance: bool = False
    """Learn the decoder variance with the weights."""

    def __post_init__(self) -> None:
        if self.latents < 1:
            raise ValueError(f"the latent size is {self.latents}: it needs to be at least 1")
        if not self.variance > 0:
            raise ValueError(f"the decoder variance is {self.variance}: it needs to be positive")

    def build(self, brief: Brief) -> Autoencoder:
        return Autoencoder(self, brief.observation, brief.posterior)


class Reconstructing(nn.Module, ABC):
    """A model that encodes and reconstructs: an encoder, a head from its features to a posterior, and a likelihood.
    A subclass defines ``decode``."""

    shape: Shape
    encoder: nn.Module
    head: nn.Module
    likelihood: Bernoulli | Gaussian

    def encode(self, x: Tensor) -> Posterior:
        check_shape(x, self.shape)
        posterior: Posterior = self.head(self.encoder(x))
        return posterior

    @abstractmethod
    def decode(self, z: Tensor) -> Tensor:
        """The likelihood's parameters: logits for Bernoulli, means for Gaussian."""

    def generate(self, z: Tensor) -> Tensor:
        """The expected observation of latents ``z``, in the data's units."""
        return self.likelihood.expectation(self.decode(z))

    def reconstruct(self, x: Tensor) -> Tensor:
        """The expected observation of the posterior mean."""
        return self.generate(self.encode(x).mean)

    def forward(self, x: Tensor) -> Tensor:
        return self.reconstruct(x)

    @property
    def dimensions(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.shape)


def check_shape(x: Tensor, shape: Shape) -> None:
    """Refuse observations whose shape is not the one that a model was built for."""
    if tuple(x.shape[1:]) != shape:
        raise ValueError(f"this model takes observations of shape {shape}; got {tuple(x.shape[1:])}")


class Autoencoder(Reconstructing):
    """``encode`` returns a posterior, ``decode`` the likelihood's parameters, ``reconstruct`` an observation.

    >>> model = Autoencoder(AutoencoderConfig(latents=10), (1, 64, 64), "diagonal")
    >>> sum(p.numel() for p in model.parameters())
    763285
    """

    def __init__(self, config: AutoencoderConfig, shape: Shape, posterior: PosteriorKind = "diagonal") -> None:
        super().__init__()
        kind = posterior if config.posterior == "auto" else config.posterior
        self.config = config
        self.shape = tuple(shape)
        self.latents = config.latents
        self.encoder = config.architecture.encoder(shape)
        self.head = HEADS[kind](config.architecture.features(shape), config.latents)
        self.decoder = config.architecture.decoder(config.latents, shape)
        gaussian = config.likelihood == "gaussian"
        self.likelihood = Gaussian(config.variance, config.learn_variance) if gaussian else Bernoulli()

    def decode(self, z: Tensor) -> Tensor:
        parameters: Tensor = self.decoder(z)
        return parameters
