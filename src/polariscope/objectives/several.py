"""Several observations of one example through one model: shared by the objectives of pairs and sequences."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.posterior import Diagonal
from polariscope.objectives.objective import Batch


def encode_all(model: Autoencoder, batch: Batch, name: str) -> tuple[Diagonal, ...]:
    """The posteriors of the observations and of all their others, from one call of the encoder."""
    others = batch.others or (batch.other,)  # which says what is missing
    posterior = model.encode(torch.cat([batch.x, *others]))
    if not isinstance(posterior, Diagonal):
        raise TypeError(f"{name} needs a diagonal posterior")
    count = len(batch.x)
    return tuple(
        Diagonal(*parts) for parts in zip(posterior.mean.split(count), posterior.logvar.split(count), strict=True)
    )


def encode_pair(model: Autoencoder, batch: Batch, name: str) -> tuple[Diagonal, Diagonal]:
    """The posteriors of the observations and of the second ones; sequences are read as pairs of their first two."""
    first, second = encode_all(model, replace(batch, others=(batch.other,)), name)
    return first, second


def reconstruct_all(model: Autoencoder, batch: Batch, codes: tuple[Tensor, ...]) -> Tensor:
    """Mean negative log-likelihood of as many observations as there are codes: a sum over those of one moment."""
    x = torch.cat([batch.x, *batch.others[: len(codes) - 1]])
    return model.likelihood.nll(model.decode(torch.cat(codes)), x).mean() * len(codes)


def divergence(one: Diagonal, other: Diagonal) -> Tensor:
    """KL(one || other) of each latent, ``(n, d)``."""
    apart = one.logvar - other.logvar
    return 0.5 * (apart.exp() + (one.mean - other.mean).square() * (-other.logvar).exp() - 1 - apart)
