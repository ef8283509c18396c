"""Probabilistic U-Net: several maps of one image, where experts disagree (Kohl et al. 2018; Spec 000, row F099).

A latent variable selects one of the possible maps. In training it is inferred from image and mask; afterwards it is
drawn from a distribution that is predicted from the image alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.model import Brief, images, models
from polariscope.nets.posterior import Diagonal
from polariscope.nets.unet import Padding, UNet


@models.register("probabilistic-unet")
@dataclass(frozen=True)
class ProbabilisticUNetConfig:
    """A U-Net with latent variables for the disagreement of experts: each draw of them gives a whole map."""

    depth: int = 3
    root: int = 32
    """Filters at the image's own resolution; each lower resolution has twice as many."""
    padding: Padding = "same"
    dropout: float = 0.0
    latents: int = 6
    """Number of latent variables that select one of the possible maps."""

    def build(self, brief: Brief) -> ProbabilisticUNet:
        channels, height, width = images(brief, "probabilistic-unet")
        if not brief.dense:
            raise ValueError(
                "probabilistic-unet predicts masks, and the target of this world is not a mask: use another world"
            )
        network = ProbabilisticUNet(
            channels, brief.outputs, self.depth, self.root, self.padding, self.dropout, self.latents
        )
        network.unet.output_size(height, width)
        return network


class ProbabilisticUNet(nn.Module):
    """Scores ``(n, classes, h, w)`` of images: a call uses the mean of the latents, :meth:`drawn` random latents."""

    only_in_training = ("posterior",)
    """The parts that only training uses: the posterior encodes image and mask together."""
    whole_image = True
    """The latents are inferred from the whole image: separate windows of a raster would have different latents."""

    def __init__(
        self,
        channels: int,
        classes: int,
        depth: int = 3,
        root: int = 32,
        padding: Padding = "same",
        dropout: float = 0.0,
        latents: int = 6,
    ) -> None:
        super().__init__()
        if latents < 1:
            raise ValueError(f"a probabilistic U-Net has at least 1 latent; got {latents}")
        self.classes, self.latents = classes, latents
        self.unet = UNet(channels, classes, depth, root, padding, dropout)
        self.prior = ImageEncoder(channels, depth, root, latents)
        self.posterior = ImageEncoder(channels + classes, depth, root, latents)
        self.combine = nn.Sequential(
            nn.Conv2d(root + latents, root, 1), nn.ReLU(), nn.Conv2d(root, root, 1), nn.ReLU(),
            nn.Conv2d(root, classes, 1),
        )  # fmt: skip
        self.unet.head = nn.Identity()  # type: ignore[assignment]  # the combination takes its place

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.unet.features(x), self.prior(x).mean)

    def scores(self, features: Tensor, z: Tensor) -> Tensor:
        """Scores from the features of the U-Net at each pixel and a latent for each image."""
        planes = z[:, :, None, None].expand(-1, -1, features.shape[2], features.shape[3])
        combined: Tensor = self.combine(torch.cat([features, planes], 1))
        return combined

    def informed(self, x: Tensor, mask: Tensor) -> Diagonal:
        """The latents of images whose masks ``(n, h, w)`` are known; unlabelled pixels are ignored."""
        planes = functional.one_hot(mask.clamp(min=0), self.classes).movedim(-1, 1).to(x) * (mask >= 0)[:, None]
        known: Diagonal = self.posterior(torch.cat([x, planes], 1))
        return known

    def drawn(self, x: Tensor, draws: int, generator: torch.Generator | None = None) -> Tensor:
        """Scores ``(draws, n, classes, h, w)`` of as many possible maps."""
        features, prior = self.unet.features(x), self.prior(x)
        shape = (draws, *prior.mean.shape)
        z = prior.mean + prior.var.sqrt() * torch.randn(shape, generator=generator, device=x.device)
        return torch.stack([self.scores(features, one) for one in z])


class ImageEncoder(nn.Module):
    """A Gaussian over latents from a whole image: the encoder half of a U-Net, averaged over its pixels."""

    def __init__(self, channels: int, depth: int, root: int, latents: int) -> None:
        super().__init__()
        widths = [channels, *(root * 2**level for level in range(depth))]
        layers: list[nn.Module] = []
        for level, (before, after) in enumerate(itertools.pairwise(widths)):
            layers += [nn.AvgPool2d(2)] if level else []
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1)]
            layers += [nn.ReLU()]
        self.down = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 2 * latents)

    def forward(self, x: Tensor) -> Diagonal:
        mean, logvar = self.head(self.down(x).mean((2, 3))).chunk(2, dim=1)
        return Diagonal(mean, logvar.clamp(-8, 8))
