"""Several observations of one moment through one model: what objectives of pairs and sequences start from."""

from __future__ import annotations

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


def reconstruct_all(model: Autoencoder, batch: Batch, codes: tuple[Tensor, ...]) -> Tensor:
    """Mean negative log-likelihood of the observations together: a sum over those of one moment."""
    x = torch.cat([batch.x, *batch.others])
    return model.likelihood.nll(model.decode(torch.cat(codes)), x).mean() * len(codes)
