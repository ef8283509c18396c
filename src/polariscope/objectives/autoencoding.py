"""Base class for objectives of autoencoders: their default model, one pass of a batch through it, and its two terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.posterior import Posterior
from polariscope.objectives.objective import Batch, Objective


class Autoencoding(Objective):
    """An objective of models that encode and decode."""

    asks_for: ClassVar[tuple[str, ...]] = ("encode", "decode")
    usual = AutoencoderConfig


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
