"""Networks that normalise their pixels themselves, so that noise and attacks work on raw ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, images, models
from polariscope.nets.predictors import Encoder

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels, as networks for ImageNet have them."""


@models.register("normalised")
@dataclass(frozen=True)
class NormalisedConfig:
    """Any predicting model of images that gets (x - mean) / sd of pixels in [0, 1]."""

    of: Model = field(default_factory=Encoder)
    mean: tuple[float, ...] = (0.5,)
    """Mean of each channel, or one for all."""
    sd: tuple[float, ...] = (0.5,)
    """Standard deviation of each channel, or one for all."""

    def __post_init__(self) -> None:
        if not self.sd or not min(self.sd) > 0:
            raise ValueError(f"pixels can only be divided by positive standard deviations; got {self.sd}")

    def build(self, brief: Brief) -> Normalised:
        channels = images(brief, "normalised")[0]
        if not {len(self.mean), len(self.sd)} <= {1, channels}:
            raise ValueError(
                f"images of {channels} channels are normalised by one mean and sd each, or one for all; got "
                f"{len(self.mean)} and {len(self.sd)}"
            )
        network = self.of.build(brief)
        return (NormalisedEncoder if hasattr(network, "encode") else Normalised)(network, self.mean, self.sd)


class Normalised(nn.Module):
    """f((x − mean) / sd). The two are settings, and not in a checkpoint."""

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
