"""Cycle consistency: compare a code or an observation with what decoding and encoding it again returns.

In the property cycle, the code of a decoded observation must encode the property that was decoded (Spec 000, sections
6.2 and 6.3). The latent cycle compares the whole code, and the cycle of two domains compares an observation (Zhu, Park,
Isola and Efros, Unpaired image-to-image translation using cycle-consistent adversarial networks, 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polariscope.nets.posterior import Posterior
from polariscope.nets.property_autoencoder import PropertyAutoencoder

CycleNorm = Literal["squared", "euclidean"]
FLOOR = 1e-4
"""Second moment that is added to every latent before its range is taken, as in the reference implementation."""


@dataclass(frozen=True)
class Sampled:
    """Observations that a model decoded from codes of three kinds, one block of rows after the other: the codes of a
    batch; codes drawn anew; and Z0 of the batch with a new Z1, ``copies`` times."""

    observations: Tensor
    """Likelihood parameters, one row for each code."""
    codes: Tensor
    properties: Tensor
    """The property that went into each of the observations."""
    copies: int


def uniform_codes(posterior: Posterior, rows: int, reach: float) -> Tensor:
    """Codes from U(−reach σ, reach σ) for the signal σ_j = √(mean μ_j² + 10⁻⁴) of each latent, plus its noise."""
    signal = (posterior.mean.square().mean(0) + FLOOR).sqrt()
    noise = posterior.var.mean(0).sqrt()
    drawn = torch.rand(rows, len(signal), dtype=signal.dtype, device=signal.device)
    return reach * signal * (2 * drawn - 1) + noise * torch.randn_like(drawn)


def sample(
    model: PropertyAutoencoder, posterior: Posterior, copies: int, reach: float = 2.0, anew: bool = True
) -> tuple[Sampled, Tensor]:
    """Codes of a batch and drawn ones (unless nothing is to be drawn ``anew``), decoded together; and the outputs of
    the property decoder on the batch."""
    z = posterior.sample()
    count = len(z)
    if not anew:
        outputs = model.property_decoder(model.split(z)[0])
        properties = model.property_decoder.expectation(outputs)
        return Sampled(model.decoder(model.joined(properties, *model.split(z))), z, properties, 0), outputs
    drawn = uniform_codes(posterior, count * (1 + copies), reach)
    z0, z1 = model.split(torch.cat([z, drawn]))
    outputs = model.property_decoder(z0[: 2 * count])
    properties = model.property_decoder.expectation(outputs)
    properties = torch.cat([properties, properties[:count].repeat(copies, 1)])
    z0 = torch.cat([z0[: 2 * count], z0[:count].repeat(copies, 1)])
    observations = model.decoder(model.joined(properties, z0, z1))
    return Sampled(observations, torch.cat([z0, z1], 1), properties, copies), outputs[:count]


def property_cycle(model: PropertyAutoencoder, sampled: Sampled, norm: CycleNorm = "squared") -> Tensor:
    """The error of the property that is predicted from the code of a decoded observation, relative to the decoded
    property.

    ``squared`` is the mean of the squared distances over all rows, as in the reference implementation; ``euclidean``
    the sum of the mean distances of the three kinds of rows, as the text prints it.
    """
    z0, _ = model.split(model.encode(model.likelihood.expectation(sampled.observations)).sample())
    return _gap(model.property_of(z0) - sampled.properties, sampled.copies, norm)


def latent_cycle(model: PropertyAutoencoder, sampled: Sampled, norm: CycleNorm = "squared") -> Tensor:
    """The distance between the mean code of a decoded observation and the code that was decoded.

    It grows with the number of latents, so that its weight has to be chosen anew for each.
    """
    again = model.encode(model.likelihood.expectation(sampled.observations)).mean
    return _gap(again - sampled.codes, sampled.copies, norm)


def two_domain_cycle(there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Mean ‖back(there(x)) − x‖₁ over the observations: 0 if ``back`` inverts ``there``.

    >>> two_domain_cycle(lambda x: 2 * x, lambda x: x / 2, torch.ones(3, 2)).item()
    0.0
    """
    return (back(there(x)) - x).flatten(1).abs().sum(1).mean()


def _gap(difference: Tensor, copies: int, norm: CycleNorm) -> Tensor:
    if norm == "squared":
        return difference.square().sum(1).mean()
    count = len(difference) // (2 + copies)
    lengths = torch.linalg.vector_norm(difference, dim=1)
    kinds = lengths.split([count, count, *([count * copies] if copies else [])])
    return torch.stack([kind.mean() for kind in kinds]).sum()
