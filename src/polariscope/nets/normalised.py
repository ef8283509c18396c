"""Networks that normalise their input themselves, so that noise and attacks work on raw pixels."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, images, models
from polariscope.nets.predictors import Encoder

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels, as networks for ImageNet use them."""


@models.register("normalised")
@dataclass(frozen=True)
class NormalisedConfig:
    """Any model that predicts from images, on normalised pixels: (x - mean) / sd, with x in [0, 1]."""

    of: Model = field(default_factory=Encoder)
    mean: tuple[float, ...] = (0.5,)
    """Mean of each channel, or one for all."""
    sd: tuple[float, ...] = (0.5,)
    """Standard deviation of each channel, or one for all."""

    def __post_init__(self) -> None:
        if not self.sd or not min(self.sd) > 0:
            raise ValueError(f"the standard deviations of pixels need to be positive; got {self.sd}")

    def build(self, brief: Brief) -> Normalised:
        channels = images(brief, "normalised")[0]
        if not {len(self.mean), len(self.sd)} <= {1, channels}:
            raise ValueError(
                f"images of {channels} channels are normalised by a mean and an sd for each channel, or for all; got "
                f"{len(self.mean)} and {len(self.sd)}"
            )
        network = self.of.build(brief)
        return (NormalisedEncoder if hasattr(network, "encode") else Normalised)(network, self.mean, self.sd)


class Normalised(nn.Module):
    """A network f on normalised pixels: f((x − mean) / sd). Mean and sd are settings and not saved in a checkpoint."""

    mean: Tensor
    sd: Tensor

    def __init__(self, network: nn.Module, mean: tuple[float, ...], sd: tuple[float, ...]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("sd", torch.tensor(sd)[:, None, None], persistent=False)

    def normalise(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.sd

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(self.normalise(x))
        return outputs


class NormalisedEncoder(Normalised):
    """A normalised model whose network also encodes."""

    def encode(self, x: Tensor) -> Tensor:
        features: Tensor = self.network.encode(self.normalise(x))  # type: ignore[operator]
        return features
