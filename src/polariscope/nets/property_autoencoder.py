"""Codes that encode a property: the predictor with a bottleneck, and the autoencoder whose code has two parts.

In the autoencoder, a decoder of the property reads the first part Z0 of the code alone. The decoder of observations
gets the decoded property, not Z0, beside the second part Z1 (Spec 000, section 6.2): all information of Z0 about an
observation passes through the property.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.architecture import MLP, Activation, Architecture, dense, glorot, kaiming
from polariscope.nets.autoencoder import Reconstructing, check_shape
from polariscope.nets.likelihood import Bernoulli, Gaussian
from polariscope.nets.model import Brief, PosteriorKind, models, predicts
from polariscope.nets.posterior import HEADS, Posterior

Noise = Literal["auto", "diagonal", "constant", "unit", "full", "point"]
Map = Callable[[Tensor], Tensor]
DecoderInput = Literal["property", "code"]
REFERENCE = MLP((256, 256), (512, 512), decoder_activation="relu")
"""Widths of the reference implementation, which produced the published numbers."""


@models.register("bottleneck")
@dataclass(frozen=True)
class BottleneckConfig:
    """An encoder to a noisy code, and a network that predicts the target from the code alone."""

    latents: int = 8
    """Number of latent variables."""
    architecture: Architecture = field(default_factory=lambda: REFERENCE)
    """Architecture of the encoder: mlp, conv, linear, ..."""
    posterior: Noise = "auto"
    """Noise of the code; auto chooses the one that the objective was made for. With unit it is fixed at 1, with
    constant it is one free number for each latent."""
    property_widths: tuple[int, ...] = (512,)
    """Units of the hidden layers from the code to the target."""

    def __post_init__(self) -> None:
        check_latents(self.latents)

    def build(self, brief: Brief) -> Bottleneck:
        kind = brief.posterior if self.posterior == "auto" else self.posterior
        return Bottleneck(self, brief, kind)


@models.register("property-autoencoder")
@dataclass(frozen=True)
class PropertyAutoencoderConfig:
    """An autoencoder whose first latents encode a property. The decoder sees the decoded property and the other
    latents.

    The defaults are those of the reference implementation on points; ``AS_PRINTED`` has the published widths.
    """

    latents: int = 8
    """Number of latent variables."""
    property_latents: int = 3
    """Number of latents, counted from the first, that the property is decoded from (Z0); 0 takes all of them."""
    architecture: Architecture = field(default_factory=lambda: REFERENCE)
    """Encoder and decoder pair: mlp, conv, sprite-conv, linear."""
    posterior: Noise = "auto"
    """Noise of the code; auto chooses the one that the objective was made for. With unit it is fixed at 1, with
    constant it is one free number for each latent."""
    property_widths: tuple[int, ...] = (512,)
    """Units of the hidden layers of the property decoder."""
    property_activation: Activation = "relu"
    property_bounded: bool = False
    """Whether properties that are numbers lie between 0 and 1. The property decoder then ends in a sigmoid."""
    decoder_input: DecoderInput = "property"
    """Input of the decoder of observations, besides Z1: the decoded property, or Z0 itself, as in a plain hybrid of VAE
    and bottleneck."""
    likelihood: Literal["bernoulli", "gaussian"] = "gaussian"
    """Meaning of the decoder's output: logits of pixels (bernoulli) or means (gaussian)."""
    variance: float = 1.0
    """Decoder variance of the Gaussian likelihood; 1 weighs the squared error by a half."""
    weights: Literal["kaiming", "glorot"] = "kaiming"
    """Initial weights: Kaiming-normal, or Glorot-uniform. The latter are smaller; with them the short recipe for level
    sets keeps the property instead of hiding it."""

    def __post_init__(self) -> None:
        check_latents(self.latents)
        if not 0 <= self.property_latents <= self.latents:
            raise ValueError(
                f"property_latents is {self.property_latents}: it needs to be 0 (all) to {self.latents}, the number of "
                "latents"
            )
        if not self.variance > 0:
            raise ValueError(f"the decoder variance is {self.variance}: it needs to be positive")

    def build(self, brief: Brief) -> PropertyAutoencoder:
        kind = brief.posterior if self.posterior == "auto" else self.posterior
        return PropertyAutoencoder(self, brief, kind)


class PropertyDecoder(nn.Module):
    """Maps a code to the property: a value for each number, and for each class a score for each of its values.

    ``classes`` has the number of classes of each property, 0 for a number.

    >>> decoder = PropertyDecoder(2, (4,), (0, 3))
    >>> decoder.expectation(decoder(torch.zeros(5, 2)))[:, 1:].sum(1).tolist()  # probabilities of three classes
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        inputs: int,
        widths: tuple[int, ...],
        classes: tuple[int, ...],
        activation: Activation = "relu",
        bounded: bool = False,
    ) -> None:
        super().__init__()
        self.classes, self.bounded = classes, bounded
        self.sizes = [size or 1 for size in classes]
        self.outputs = sum(self.sizes)
        last = widths[-1] if widths else inputs
        layers = OrderedDict(**dense(inputs, widths, activation), output=nn.Linear(last, self.outputs))
        self.layers = kaiming(nn.Sequential(layers))

    def forward(self, code: Tensor) -> Tensor:
        """Values of numbers and scores of classes, side by side."""
        outputs: Tensor = self.layers(code)
        if not self.bounded:
            return outputs
        return self._by_column(outputs, torch.sigmoid, lambda scores: scores)

    def expectation(self, outputs: Tensor) -> Tensor:
        """The decoded property from the outputs: numbers unchanged, scores as probabilities of the classes."""
        return self._by_column(outputs, lambda number: number, lambda scores: scores.softmax(1))

    def values(self, target: Tensor) -> Tensor:
        """Targets ``(n, columns)`` in the form of :meth:`expectation`: what a perfect decoder would return."""
        columns = self._columns(target)
        ones = [
            functional.one_hot(column.long(), size) if size else column[:, None]
            for column, size in zip(columns, self.classes, strict=True)
        ]
        return torch.cat([one.to(next(self.parameters())) for one in ones], 1)

    def error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Squared error of numbers plus cross-entropy of classes, summed over the properties: one number per
        example."""
        terms = [
            functional.cross_entropy(part, column.long(), reduction="none")
            if size
            else (part[:, 0] - column.to(part)).square()
            for part, column, size in self._parts(outputs, target)
        ]
        return torch.stack(terms).sum(0)

    def absolute_error(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Absolute error of numbers plus the share of wrong classes, summed over the properties."""
        terms = [
            (part.argmax(1) != column).to(part) if size else (part[:, 0] - column.to(part)).abs()
            for part, column, size in self._parts(outputs, target)
        ]
        return torch.stack(terms).sum(0)

    def _parts(self, outputs: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor, int]]:
        return zip(outputs.split(self.sizes, 1), self._columns(target), self.classes, strict=True)

    def _columns(self, target: Tensor) -> list[Tensor]:
        if target.ndim != 2 or target.shape[1] != len(self.classes):
            raise ValueError(
                f"the property of this model has {len(self.classes)} columns, but the targets have shape "
                f"{tuple(target.shape)}: give one row for each observation, with these columns"
            )
        return list(target.T)

    def _by_column(self, outputs: Tensor, number: Map, scores: Map) -> Tensor:
        if not any(self.classes):
            return number(outputs)
        parts = zip(outputs.split(self.sizes, 1), self.classes, strict=True)
        return torch.cat([scores(part) if size else number(part) for part, size in parts], 1)


class Bottleneck(nn.Module):
    """``encode`` returns a noisy code, ``forward`` the prediction from its mean: values, or scores of classes."""

    def __init__(self, config: BottleneckConfig, brief: Brief, posterior: PosteriorKind) -> None:
        super().__init__()
        classes = property_classes(brief, "bottleneck")
        self.shape, self.latents = tuple(brief.observation), config.latents
        self.encoder = config.architecture.encoder(self.shape)
        self.head = HEADS[posterior](config.architecture.features(self.shape), config.latents)
        self.property_decoder = PropertyDecoder(config.latents, config.property_widths, classes)

    def encode(self, x: Tensor) -> Posterior:
        check_shape(x, self.shape)
        posterior: Posterior = self.head(self.encoder(x))
        return posterior

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.property_decoder(self.encode(x).mean)
        return outputs


class PropertyAutoencoder(Reconstructing):
    """``encode`` returns a noisy code (Z0, Z1), ``decode`` maps it to the likelihood's parameters through the decoded
    property, and ``decode_property`` maps a property and Z1 to them.

    >>> model = AS_PRINTED.build(Brief((5,), 3, posterior="unit"))
    >>> [sum(p.numel() for p in part.parameters()) for part in (model.property_decoder, model.decoder)]
    [1795, 69381]
    >>> sum(p.numel() for part in (model.encoder, model.head) for p in part.parameters())
    69384
    """

    def __init__(self, config: PropertyAutoencoderConfig, brief: Brief, posterior: PosteriorKind) -> None:
        super().__init__()
        classes = property_classes(brief, "property-autoencoder")
        self.config = config
        self.shape, self.latents = tuple(brief.observation), config.latents
        self.property_latents = config.property_latents or config.latents
        self.encoder = config.architecture.encoder(self.shape)
        self.head = HEADS[posterior](config.architecture.features(self.shape), config.latents)
        self.property_decoder = PropertyDecoder(
            self.property_latents, config.property_widths, classes, config.property_activation, config.property_bounded
        )
        beside = self.property_decoder.outputs if config.decoder_input == "property" else self.property_latents
        self.decoder = config.architecture.decoder(beside + self.invariant_latents, self.shape)
        self.likelihood = Gaussian(config.variance) if config.likelihood == "gaussian" else Bernoulli()
        if config.weights == "glorot":
            glorot(self)

    @property
    def invariant_latents(self) -> int:
        """The number of latents of Z1."""
        return self.latents - self.property_latents

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Z0 and Z1 of codes."""
        z0, z1 = z.split([self.property_latents, self.invariant_latents], 1)
        return z0, z1

    def property_of(self, z0: Tensor) -> Tensor:
        """The property that Z0 encodes: numbers, and probabilities of classes."""
        return self.property_decoder.expectation(self.property_decoder(z0))

    def joined(self, value: Tensor, z0: Tensor, z1: Tensor) -> Tensor:
        """The input of the decoder of observations: the decoded property (or Z0, by configuration) and Z1."""
        return torch.cat([value if self.config.decoder_input == "property" else z0, z1], 1)

    def decode(self, z: Tensor) -> Tensor:
        z0, z1 = self.split(z)
        parameters: Tensor = self.decoder(self.joined(self.property_of(z0), z0, z1))
        return parameters

    def decode_property(self, value: Tensor, z1: Tensor) -> Tensor:
        """The likelihood's parameters of observations with a requested property ``(n, outputs)``."""
        if self.config.decoder_input != "property":
            raise ValueError(
                "the decoder of this model sees Z0 but not the property, so no property can be requested: train "
                "with decoder_input property"
            )
        parameters: Tensor = self.decoder(torch.cat([value, z1], 1))
        return parameters

    def predict_property(self, x: Tensor) -> Tensor:
        """The property that the mean code of observations encodes."""
        return self.property_of(self.split(self.encode(x).mean)[0])


def property_classes(brief: Brief, name: str) -> tuple[int, ...]:
    """The number of classes of each property, 0 for a number; an error for data without a property."""
    outputs = predicts(brief, name)
    return brief.classes or (0,) * outputs


def check_latents(latents: int) -> None:
    if latents < 1:
        raise ValueError(f"the latent size is {latents}: it needs to be at least 1")


AS_PRINTED = PropertyAutoencoderConfig(
    architecture=MLP((256, 256), (256, 256), decoder_activation="relu"), property_widths=(256,)
)
"""The network of the publication's text; its decoders have half the width of the reference (Spec 000, A4)."""
