"""The deep variational information bottleneck, alone and beside a VAE, with the divergence or the sparse term.

The bottleneck minimises I(X;Z) − λ I(Z;Y) by bounds: the divergence of the code from its prior is above I(X;Z), and
h(Y) minus the error of a decoder below I(Z;Y) (Alemi, Fischer, Dillon and Murphy, Deep variational information
bottleneck, 2017; Spec 000, sections 4.3 and 4.4). The compression parameter λ weights the information to keep, so
*small* values compress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, PosteriorKind
from polariscope.nets.posterior import Diagonal, Posterior
from polariscope.nets.property_autoencoder import (
    Bottleneck,
    BottleneckConfig,
    PropertyAutoencoder,
    PropertyAutoencoderConfig,
)
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.objective import Batch, Need, Objective, Terms, at_least, objectives
from polariscope.objectives.predict import target_of

Information = Literal["divergence", "sparse"]
INPUT_FREE = ("unit", "constant")
"""Noise that does not depend on the observation: fixed at 1, or one free number for each latent."""


class OfProperty(Objective):
    """An objective of a code from which the target of the data is decoded; its scores are mean absolute errors."""

    needs: ClassVar[tuple[Need, ...]] = ("target",)
    asks_for: ClassVar[tuple[str, ...]] = ("encode", "decode", "split")

    def scores(self, counts: Mapping[str, Tensor]) -> dict[str, float]:
        return mean_errors(counts)


@objectives.register("dvib")
@dataclass(frozen=True)
class DVIB(OfProperty):
    """I(X;Z) + λ · error of the target: the code keeps only what is needed to predict the target.

    The error is the squared error of numbers, or the cross-entropy of classes.
    """

    lam: Annealing = field(default_factory=lambda: Annealing(100.0))
    """λ, the weight of the prediction: constant, or growing during training."""
    information: Information = "divergence"
    """I(X;Z) as the divergence from N(0, I), or as the sparse term ½ Σ log(m_j/σ_j² + 1), which needs noise that does
    not depend on the observation."""

    asks_for: ClassVar[tuple[str, ...]] = ("encode",)
    usual = BottleneckConfig

    @property
    def posterior(self) -> PosteriorKind:  # type: ignore[override]
        return "unit" if self.information == "sparse" else "diagonal"

    def build(self, model: Model, brief: Brief) -> nn.Module:
        check_noise(model, self.information)
        return with_property_decoder(model.build(brief), "dvib")

    def __call__(self, model: Bottleneck, batch: Batch, step: int) -> Terms:
        posterior = model.encode(batch.x)
        rate = information_of(posterior, self.information)
        error = model.property_decoder.error(model.property_decoder(posterior.sample()), target_of(batch)).mean()
        lam = self.lam.at(step)
        counts = absolute_errors(model, batch, posterior) if batch.evaluating else {}
        return Terms(
            rate + lam * error, {"information": rate, "property": error, "lam": as_term(lam, rate)}, counts=counts
        )


@objectives.register("vae-dvib")
@dataclass(frozen=True)
class HybridDVIB(OfProperty):
    """I(X;Z) + λ (error of the observation + w · error of the target): a VAE and a bottleneck with one encoder.

    Both decoders see the whole code. The error of the observation is the negative log-likelihood, which for a Gaussian
    decoder of variance 1 is half the squared error.
    """

    lam: Annealing = field(default_factory=Annealing)
    """λ, the weight of both errors: constant, or growing during training."""
    property_weight: float = 1.0
    """Weight of the error of the target within it."""
    information: Information = "divergence"
    """I(X;Z) as the divergence from N(0, I), or as the sparse term ½ Σ log(m_j/σ_j² + 1), which needs noise that does
    not depend on the observation."""

    def __post_init__(self) -> None:
        at_least(self.property_weight, 0, "property_weight")

    @property
    def posterior(self) -> PosteriorKind:  # type: ignore[override]
        return "unit" if self.information == "sparse" else "diagonal"

    def default_model(self) -> Model:
        return PropertyAutoencoderConfig(property_latents=0, decoder_input="code")

    def build(self, model: Model, brief: Brief) -> nn.Module:
        check_noise(model, self.information)
        return with_property_decoder(model.build(brief), "vae-dvib")

    def __call__(self, model: PropertyAutoencoder, batch: Batch, step: int) -> Terms:
        posterior = model.encode(batch.x)
        rate = information_of(posterior, self.information)
        z0, z1 = model.split(posterior.sample())
        outputs = model.property_decoder(z0)
        decoded = model.decoder(model.joined(model.property_decoder.expectation(outputs), z0, z1))
        reconstruction = model.likelihood.distortion(decoded, batch.x).mean()
        error = model.property_decoder.error(outputs, target_of(batch)).mean()
        lam = self.lam.at(step)
        parts = {"information": rate, "reconstruction": reconstruction, "property": error, "lam": as_term(lam, rate)}
        counts = absolute_errors(model, batch, posterior) if batch.evaluating else {}
        return Terms(rate + lam * (reconstruction + self.property_weight * error), parts, counts=counts)


def sparse_information(posterior: Posterior, last_offset: float = 1.0) -> Tensor:
    """½ Σ_j log(m_j/σ_j² + o_j) of a batch, m_j the batch mean of the squared means, o_j = 1 except for the last
    latent.

    The noise σ_j² is that of the latent, the same for every observation.
    """
    if not isinstance(posterior, Diagonal):
        raise TypeError("the sparse term needs a posterior with a mean and a variance for each latent")
    ratio = posterior.mean.square().mean(0) / posterior.var.mean(0)
    offsets = torch.ones_like(ratio)
    offsets[-1] = last_offset
    return 0.5 * (ratio + offsets).log().sum()


def information_of(posterior: Posterior, kind: Information) -> Tensor:
    """I(X;Z) of a batch: its upper bound, the mean divergence, or the sparse term."""
    return sparse_information(posterior) if kind == "sparse" else posterior.kl().mean()


def check_noise(model: Model, kind: Information) -> None:
    """Refuse noise that depends on the observation if the sparse term is used: such noise would undo the sparsity."""
    noise = getattr(model, "posterior", "auto")
    if kind == "sparse" and noise not in ("auto", *INPUT_FREE):
        raise ValueError(
            f"the sparse term needs noise that does not depend on the observation, and the posterior is {noise}: use "
            "unit (fixed noise) or constant (free noise)"
        )


def with_property_decoder(network: nn.Module, objective: str) -> nn.Module:
    """A network as it is, if it decodes a property from its code."""
    if not hasattr(network, "property_decoder"):
        raise ValueError(
            f"the objective {objective} needs a model that decodes a property from its code: use bottleneck or "
            "property-autoencoder"
        )
    return network


def absolute_errors(model: Bottleneck | PropertyAutoencoder, batch: Batch, posterior: Posterior) -> dict[str, Tensor]:
    """Absolute errors of mean codes, summed over outputs and over the examples of a batch (the sum convention of the
    published tables), with the number of examples."""
    mean = posterior.mean
    counts = {"examples": as_term(len(mean), mean)}
    if isinstance(model, PropertyAutoencoder):
        counts["x_error"] = (model.generate(mean) - batch.x).abs().sum()
        mean = model.split(mean)[0]
    counts["y_error"] = model.property_decoder.absolute_error(model.property_decoder(mean), target_of(batch)).sum()
    return counts


def mean_errors(counts: Mapping[str, Tensor]) -> dict[str, float]:
    """Mean absolute errors, a sum over outputs, from their totals over a held-out set."""
    if not counts:
        return {}
    return {name: float(counts[name] / counts["examples"]) for name in ("x_error", "y_error") if name in counts}


def as_term(value: float, like: Tensor) -> Tensor:
    """A number beside the terms of a loss."""
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)
