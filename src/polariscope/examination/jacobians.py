"""Jacobians of decoders in batches, their orthogonality, and the posterior variance they predict.

At the optimum of a beta-VAE the encoder's variance is set by the decoder's slope (Spec 002, section 5.6): a latent that
the decoder uses is encoded precisely, a latent that it ignores keeps the prior's variance. Comparing the prediction
with the encoder checks encoder, decoder and objective together.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.func import jvp, vmap

from polariscope.measures.orthogonality import Orthogonality, orthogonality_of_grams
from polariscope.nets.autoencoder import Autoencoder
from polariscope.nets.likelihood import Bernoulli, Gaussian


def decoder_jacobians(decode: Callable[[Tensor], Tensor], z: Tensor, chunk: int = 64) -> Tensor:
    """``(n, m, d)`` derivatives of a decoder's flattened output at codes ``z`` ``(n, d)``.

    Forward mode: one pass per latent for a whole batch, since latents are few and pixels many. ``decode`` must treat
    the examples of a batch independently.
    """
    return torch.cat([_jacobian(decode, part)[1] for part in z.split(chunk)])


@torch.no_grad()
def decoder_grams(decode: Callable[[Tensor], Tensor], z: Tensor, chunk: int = 64) -> Tensor:
    """JᵀJ of a decoder at codes ``z``, ``(n, d, d)`` in double precision, holding ``chunk`` Jacobians at a time."""
    grams = []
    for part in z.split(chunk):
        jacobian = _jacobian(decode, part)[1].cpu().double()
        grams.append(jacobian.mT @ jacobian)
    return torch.cat(grams)


def decoder_orthogonality(
    decode: Callable[[Tensor], Tensor], z: Tensor, active: ArrayLike | None = None, chunk: int = 64
) -> Orthogonality:
    """How orthogonal the columns of any decoder's Jacobian are at codes ``z`` (use the posterior means of data).

    ``decode`` should return the values that enter the squared error: ``model.generate`` for data in their own units, or
    ``model.decode`` for logits. ``active`` are the latents to include; see
    :func:`polariscope.measures.orthogonality.orthogonality`.

    >>> weight = torch.tensor([[4.0, 1.0], [-3.0, 1.0], [5.0, -1.0]])
    >>> round(decoder_orthogonality(lambda z: z @ weight.T, torch.zeros(1, 2)).value, 5)
    0.11918
    """
    return orthogonality_of_grams(decoder_grams(decode, z, chunk).numpy(), active)


def predicted_var(model: Autoencoder, z: Tensor, beta: float = 1.0, chunk: int = 64) -> Tensor:
    """Posterior variances ``(n, d)`` that the decoder's slope at ``z`` predicts.

    σ_j = 1 / (1 + Σ_i h_i J_ij² / β), where h is the curvature of the negative log-likelihood in the decoder's
    output: 1/γ for a Gaussian of variance γ, p(1 − p) for Bernoulli logits.
    """
    variances = []
    for part in z.split(chunk):
        output, jacobian = _jacobian(model.decode, part)
        squares = (jacobian.square() * _curvature(model, output)[:, :, None]).sum(1)
        variances.append(1 / (1 + squares / beta))
    return torch.cat(variances)


def _jacobian(decode: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """Output ``(n, m)`` and Jacobian ``(n, m, d)`` of one batch."""

    def push(direction: Tensor) -> Tensor:
        tangent: Tensor = jvp(decode, (z,), (direction.expand_as(z),))[1]
        return tangent.flatten(1)

    columns = vmap(push, out_dims=2)(torch.eye(z.shape[1], dtype=z.dtype, device=z.device))
    return decode(z).flatten(1), columns


def _curvature(model: Autoencoder, output: Tensor) -> Tensor:
    if isinstance(model.likelihood, Gaussian):
        return torch.ones_like(output) / model.likelihood.var
    assert isinstance(model.likelihood, Bernoulli)
    p = output.sigmoid()
    return p * (1 - p)
