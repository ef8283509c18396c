"""Classifiers that are trained on stylised images: shapes stay, textures are random.

The published networks learn from photographs in the styles of paintings (Geirhos et al. 2019, ImageNet-trained networks
are biased towards texture), for which weights of another network are needed. Here the ink and the paper of an image
are filled with fractal textures (Spec 001b, section E0). Batches of stylised, clean and noisy images are those of Rusak
et al. (2020, section 3.2; Spec 001b, section A6.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from polariscope.objectives.objective import Batch, Terms, objectives
from polariscope.objectives.predict import Supervised, classification, target_of
from polariscope.robustness.adversarial_noise_training import AdversarialNoiseTraining
from polariscope.robustness.noise_training import composition
from polariscope.robustness.rescale import within_box

INK, PAPER = (0.6, 0.9), (0.1, 0.4)
"""Ranges of the mean brightness where an image is white, and where it is black."""
CONTRAST = 0.15
"""Standard deviation of a texture."""
ROUGHNESS = (0.5, 2.0)
"""Range of the power of the frequency with which the amplitudes of a texture fall."""


@objectives.register("stylised-training")
@dataclass(frozen=True)
class StylisedTraining(Supervised):
    """Cross-entropy of the classes on batches with an exact share of stylised images."""

    share: float = 0.5
    """Share of the images that are stylised."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of stylised images is {self.share}: it needs to be from 0 to 1")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        clean, _ = composition(len(batch.x), (1 - self.share, self.share))
        outputs = model(torch.cat([batch.x[:clean], stylised(batch.x[clean:])]))
        loss, wrong = classification(outputs, target_of(batch), batch.classes)
        return Terms(loss, {"cross_entropy": loss, "error": wrong})


@objectives.register("stylised-noise-training")
@dataclass(frozen=True)
class StylisedNoiseTraining(AdversarialNoiseTraining):
    """Adversarial noise training on batches that are 25 % clean and 30 % stylised; 45 % have the noise of generators,
    three fifths of them of the current one."""

    shares: ClassVar[tuple[float, ...]] = (0.25, 0.3, 0.27, 0.18)
    """Of a batch: clean, stylised, with noise of the current generator, with noise of one from the memory."""

    def composed(self, count: int) -> tuple[int, int, int]:
        clean, styled, current, earlier = composition(count, self.shares)
        return clean + styled, current, earlier

    def undisturbed(self, x: Tensor, count: int) -> Tensor:
        clean = composition(count, self.shares)[0]
        return torch.cat([x[:clean], stylised(x[clean:])])


def stylised(x: Tensor, draws: torch.Generator | None = None) -> Tensor:
    """Images ``(n, channels, height, width)`` in [0, 1] with one texture in place of white, and another in place of
    black: bright for white and dark for black in the mean, the same for all channels. Points ``(n, d)`` are images of
    one row."""
    if not len(x):
        return x
    within_box(x)
    if x.ndim != 4:
        return stylised(x.reshape(len(x), 1, 1, -1), draws).reshape(x.shape)
    ink, paper = (_texture(x, low, high, draws) for low, high in (INK, PAPER))
    return (x * ink + (1 - x) * paper).clamp(0, 1)


def _texture(x: Tensor, low: float, high: float, draws: torch.Generator | None) -> Tensor:
    """A texture for each image: noise whose amplitudes fall with a power of the frequency."""
    count, height, width = len(x), *x.shape[-2:]
    frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1  # the mean, which is left out below

    def between(ends: tuple[float, float]) -> Tensor:
        return ends[0] + (ends[1] - ends[0]) * torch.rand(count, 1, 1, generator=draws)

    noise = torch.fft.rfft2(torch.randn(count, height, width, generator=draws))
    texture = torch.fft.irfft2(noise * frequency ** -between(ROUGHNESS), s=(height, width))
    texture = texture - texture.mean((1, 2), keepdim=True)
    size = texture.std((1, 2), keepdim=True, unbiased=False).clamp(min=torch.finfo(texture.dtype).tiny)
    return (between((low, high)) + CONTRAST * texture / size)[:, None].to(x)
