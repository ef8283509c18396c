"""Classifiers that are trained on noisy images beside clean ones.

Noise is added to pixels in [0, 1] and clipped there, before the network sees anything: one that wants its inputs
normalised does that itself (the model ``normalised``). (Rusak et al. 2020, section 3.1; Spec 001b, sections A1 and A2.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from polariscope.objectives.objective import Batch, Terms, objectives
from polariscope.objectives.predict import Supervised, classification, target_of
from polariscope.robustness.rescale import within_box

Kind = Literal["gaussian", "speckle"]
USUAL: dict[Kind, tuple[float, ...]] = {"gaussian": (0.5,), "speckle": (0.15, 0.2, 0.35, 0.45, 0.6)}
"""Standard deviations if none are given: the best of the published ones, and the five severities of the corruption."""
SEVERITIES = (0.08, 0.12, 0.18, 0.26, 0.38)
"""Standard deviations of the Gaussian corruption of ImageNet-C, for training with several."""


@objectives.register("noise-training")
@dataclass(frozen=True)
class NoiseTraining(Supervised):
    """Cross-entropy of the classes on batches with an exact share of noisy images."""

    noise: Kind = "gaussian"
    """Gaussian noise is the same everywhere; speckle is proportional to the pixel."""
    sd: tuple[float, ...] = ()
    """Standard deviation of the noise (for speckle, as a share of the pixel). Of several each image draws one. Without
    any it is 0.5, and the five severities of the corruption for speckle."""
    share: float = 0.5
    """Share of the images that are noisy."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of noisy images is {self.share}: it needs to be from 0 to 1")
        if self.sd and not min(self.sd) >= 0:
            raise ValueError(f"the standard deviations of the noise are {self.sd}: none can be below 0")

    def __call__(self, model: nn.Module, batch: Batch, step: int) -> Terms:
        clean, _ = composition(len(batch.x), (1 - self.share, self.share))
        noisy = with_noise(batch.x[clean:], self.noise, self.sd or USUAL[self.noise])
        outputs = model(torch.cat([batch.x[:clean], noisy]))
        loss, wrong = classification(outputs, target_of(batch), batch.classes)
        return Terms(loss, {"cross_entropy": loss, "error": wrong})


def with_noise(x: Tensor, noise: Kind, sds: Sequence[float]) -> Tensor:
    """Images with noise, clipped to [0, 1]. Each image draws one of the given standard deviations."""
    if len(x):
        within_box(x)
    chosen = torch.tensor(sds, dtype=x.dtype, device=x.device)[torch.randint(len(sds), (len(x),), device=x.device)]
    change = chosen.reshape(-1, *[1] * (x.ndim - 1)) * torch.randn_like(x)
    return (x + (change * x if noise == "speckle" else change)).clamp(0, 1)


def composition(count: int, shares: Sequence[float]) -> tuple[int, ...]:
    """A batch of ``count`` divided by shares that add up to 1, the same way every time.

    The borders between the parts are where the shares add up to, rounded to the nearest image, halves upwards. No part
    is off by a whole image, and the parts add up to the batch.

    >>> composition(70, (0.5, 0.5)), composition(70, (0.5, 0.3, 0.2)), composition(70, (0.25, 0.3, 0.45))
    ((35, 35), (35, 21, 14), (18, 21, 31))
    """
    if min(shares) < 0 or not math.isclose(sum(shares), 1):
        raise ValueError(f"the shares of a batch need to add up to 1; got {tuple(shares)}")
    # A little more than a half: sums of decimal shares fall short of it by rounding.
    borders = [0, *(math.floor(count * up_to + 0.5 + 1e-9) for up_to in itertools.accumulate(shares))]
    return tuple(b - a for a, b in itertools.pairwise(borders))
