"""A code in two parts, where only the first contains a property: the sparse bottleneck with property cycles, and its
baseline, the β-VAE with a property head (Spec 000, sections 6.2, 6.3 and 6.5)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, PosteriorKind
from polariscope.nets.posterior import Posterior
from polariscope.nets.property_autoencoder import PropertyAutoencoder, PropertyAutoencoderConfig
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.bottleneck import (
    OfProperty,
    absolute_errors,
    as_term,
    check_noise,
    sparse_information,
    with_property_decoder,
)
from polariscope.objectives.cycles import CycleNorm, latent_cycle, property_cycle, sample
from polariscope.objectives.objective import Batch, Terms, at_least, objectives
from polariscope.objectives.predict import target_of


@dataclass(frozen=True)
class Partitioned(OfProperty):
    """I(X;Z) + λ (error of the observation + w · error of the property + β · cycle) for a code (Z0, Z1).

    Settings that follow the reference implementation are the defaults.
    """

    lam: Annealing = field(default_factory=lambda: Annealing(1.9, 1.03, 1000, after=3000, until=300_000))
    """λ, the weight of the error terms: it grows during training, which relaxes the compression."""
    property_weight: float = 1.0
    """w: weight of the error of the property."""
    beta: float = 5.0
    """Weight of the cycle; 0 leaves it out."""
    copies: int = 6
    """How many times Z0 of an observation is decoded with a new Z1; the text has it once."""
    reach: float = 2.0
    """Range of drawn codes, in standard deviations of the signal of each latent."""
    cycle: Literal["property", "latent"] = "property"
    """What the cycle compares: the property, or the whole code (the baseline)."""
    cycle_norm: CycleNorm = "squared"
    """Squared distances, as in the reference implementation, or plain ones, as the text prints them."""

    usual = PropertyAutoencoderConfig

    def __post_init__(self) -> None:
        for name, low in {"property_weight": 0, "beta": 0, "copies": 0, "reach": 0}.items():
            at_least(getattr(self, name), low, name)

    @abstractmethod
    def information(self, posterior: Posterior) -> Tensor:
        """I(X;Z) of a batch."""

    def __call__(self, model: PropertyAutoencoder, batch: Batch, step: int) -> Terms:
        posterior = model.encode(batch.x)
        rate = self.information(posterior)
        sampled, outputs = sample(model, posterior, self.copies, self.reach, anew=self.beta > 0)
        reconstruction = model.likelihood.distortion(sampled.observations[: len(batch.x)], batch.x).mean()
        error = model.property_decoder.error(outputs, target_of(batch)).mean()
        lam = self.lam.at(step)
        kept = reconstruction + self.property_weight * error
        parts = {"information": rate, "reconstruction": reconstruction, "property": error, "lam": as_term(lam, rate)}
        if self.beta:
            back = property_cycle if self.cycle == "property" else latent_cycle
            parts["cycle"] = back(model, sampled, self.cycle_norm)
            kept = kept + self.beta * parts["cycle"]
        counts = absolute_errors(model, batch, posterior) if batch.evaluating else {}
        return Terms(rate + lam * kept, parts, counts=counts)


@objectives.register("conditional-invariance")
@dataclass(frozen=True)
class ConditionalInvariance(Partitioned):
    """A sparse bottleneck whose decoded observations keep their property when Z1 is resampled.

    I(X;Z) is ½ Σ log(m_j + o_j) at noise 1, with o = 1 except for the last latent. ``AS_PRINTED`` has the cycle of the
    text.
    """

    last_offset: float = 10.0
    """o of the last latent: it then wakes ten times earlier, which suits an angle that jumps at 2π."""

    posterior: ClassVar[PosteriorKind] = "unit"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.last_offset, 1, "last_offset")

    def build(self, model: Model, brief: Brief) -> nn.Module:
        check_noise(model, "sparse")
        return with_property_decoder(model.build(brief), "conditional-invariance")

    def information(self, posterior: Posterior) -> Tensor:
        return sparse_information(posterior, self.last_offset)


@objectives.register("property-beta-vae")
@dataclass(frozen=True)
class PropertyBetaVAE(Partitioned):
    """The β-VAE with a property head: the same code and decoders, the divergence from N(0, I) with one free noise for
    each latent as I(X;Z), and no cycle unless ``beta`` is positive. Its usual β is 1/λ."""

    beta: float = 0.0
    """Weight of the cycle; 0 leaves it out."""

    posterior: ClassVar[PosteriorKind] = "constant"

    def build(self, model: Model, brief: Brief) -> nn.Module:
        return with_property_decoder(model.build(brief), "property-beta-vae")

    def information(self, posterior: Posterior) -> Tensor:
        return posterior.kl().mean()


AS_PRINTED = ConditionalInvariance(copies=1, cycle_norm="euclidean")
"""The cycle of the text: one draw of Z1 for each observation, and distances that are not squared (Spec 000, A5)."""
