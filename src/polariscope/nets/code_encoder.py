"""An encoder without a decoder, for objectives that never reconstruct."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from polariscope.nets.architecture import Architecture, Conv
from polariscope.nets.model import Brief, Shape, models
from polariscope.nets.posterior import Point, PointHead


@models.register("code-encoder")
@dataclass(frozen=True)
class CodeEncoderConfig:
    """The encoder of an autoencoder with one number for each latent, and no decoder."""

    latents: int = 10
    """Number of latent variables."""
    architecture: Architecture = field(default_factory=Conv)

    def __post_init__(self) -> None:
        if self.latents < 1:
            raise ValueError(f"the latent size is {self.latents}: it needs to be at least 1")

    def build(self, brief: Brief) -> CodeEncoder:
        return CodeEncoder(self.architecture, brief.observation, self.latents)


class CodeEncoder(nn.Module):
    """``encode`` returns a code without a variance."""

    def __init__(self, architecture: Architecture, shape: Shape, latents: int) -> None:
        super().__init__()
        self.latents = latents
        self.encoder = architecture.encoder(shape)
        self.head = PointHead(architecture.features(shape), latents)

    def encode(self, x: Tensor) -> Point:
        code: Point = self.head(self.encoder(x))
        return code
