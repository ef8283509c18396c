"""What the studies of erosion mapping share: alpine tiles with the labels of an image analysis, and trained U-Nets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polariscope.mapping.harden import harden
from polariscope.mapping.scores import Agreement, object_scores, pixel_scores
from polariscope.nets.model import Model
from polariscope.nets.normalised import NormalisedConfig
from polariscope.nets.unet import UNetConfig
from polariscope.objectives.objective import Objective
from polariscope.objectives.segment import Segment
from polariscope.studies.study import Bench
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.renderers.aerial import BACKGROUND, CLASSES, Aerial
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import MaskedImages

AT_ONCE = 16
TAU = 0.3
"""The threshold of the work."""
PUBLISHED_TAUS = (0.2, 0.3, 0.5, 0.8)
CLASS_TAUS = {"landslide": 0.2, "trail": 0.2, "sheet": 0.3, "management": 0.5, "background": 0.5}
"""Thresholds of single classes, section 4.5.2 of the work."""


@dataclass(frozen=True, eq=False)
class Ground:
    """Tiles of a valley or several: images, what is really there, and what the image analysis of the year says."""

    images: NDArray[np.uint8]
    truth: NDArray[np.int64]
    labels: NDArray[np.int64]
    valley: NDArray[np.int64]
    year: NDArray[np.int64]
    """Places among the years of the world."""
    tile: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_]) -> Ground:
        return Ground(
            self.images[chosen], self.truth[chosen], self.labels[chosen], self.valley[chosen], self.year[chosen],
            self.tile[chosen],
        )  # fmt: skip

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel of pixels from 0 to 1."""
        x = self.images.astype(np.float32) / 255
        return tuple(x.mean((0, 2, 3)).tolist()), tuple(x.std((0, 2, 3)).tolist())


def ground(world: Aerial, index: NDArray[np.int64] | None = None) -> Ground:
    """Tiles of a world, drawn once."""
    numbers = np.arange(len(world)) if index is None else index
    images, truth, labels = [], [], []
    for start in range(0, len(numbers), 64):
        scene = world.scene(world.grid.to_factors(numbers[start : start + 64]))
        images.append(scene.image)
        truth.append(scene.mask.astype(np.int64))
        labels.append(scene.analysed.astype(np.int64))
    valley, year, tile = world.grid.to_factors(numbers).T
    return Ground(np.concatenate(images), np.concatenate(truth), np.concatenate(labels), valley, year, tile)


def fitted(
    bench: Bench,
    learned: Ground,
    seed: int,
    training: Mapping[str, Any],
    *,
    model: Model | None = None,
    objective: Objective | None = None,
    images: NDArray[Any] | None = None,
    masks: NDArray[Any] | None = None,
    root: int = 8,
) -> nn.Module:
    """A network trained in memory on tiles and their labels, normalised by their statistics."""
    pixels = learned.images if images is None else images
    x = pixels.astype(np.float32) / 255
    mean, sd = x.mean((0, 2, 3)), np.maximum(x.std((0, 2, 3)), 1e-3)
    inner = model or UNetConfig(root=root, dropout=0.0)
    world = MaskedImages(pixels, learned.labels if masks is None else masks, CLASSES)
    plan = TrainingConfig(seed=seed, evaluate_every=0, **training)
    if objective is not None and objective.asks_for:  # it calls parts of the network, so images come normalised
        world = replace(world, images=normalised(pixels, mean, sd))
        return bench.fit(RunConfig(world, objective, inner, plan, RandomSplit(0)))
    whole = NormalisedConfig(of=inner, mean=tuple(mean.tolist()), sd=tuple(sd.tolist()))
    return bench.fit(RunConfig(world, objective or Segment(), whole, plan, RandomSplit(0)))


def normalised(pixels: NDArray[Any], mean: NDArray[Any], sd: NDArray[Any]) -> NDArray[np.float32]:
    """Pixels as a network that does not normalise them itself takes them."""
    x = pixels.astype(np.float32) / 255
    return np.asarray((x - mean[:, None, None]) / sd[:, None, None], np.float32)


def probabilities(network: nn.Module, images: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities ``(n, classes, h, w)`` of tiles."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(images), AT_ONCE):
            x = torch.from_numpy(images[start : start + AT_ONCE])
            x = x.float() / 255 if x.dtype == torch.uint8 else x
            parts.append(network(x).double().softmax(1).numpy())
    return np.concatenate(parts)


def hard(shares: NDArray[Any], tau: float | Sequence[float]) -> NDArray[np.uint8]:
    """Maps ``(n, h, w)`` of probabilities ``(n, classes, h, w)``."""
    return harden(np.moveaxis(shares, 1, 0), tau, BACKGROUND)


def side_by_side(tiles: NDArray[Any]) -> NDArray[Any]:
    """Tiles as one image with a line of background between them, so that no object goes on in the next."""
    apart = np.pad(tiles, ((0, 0), (0, 0), (0, 1)), constant_values=BACKGROUND)
    return np.concatenate(list(apart), axis=1)


def scored(maps: NDArray[Any], reference: NDArray[Any], of: int | None = None) -> dict[str, float]:
    """Strict scores by pixels, and lenient ones by objects."""
    first, second = side_by_side(maps), side_by_side(reference)
    pixel = pixel_scores(first, second, BACKGROUND, of=of)
    whole = object_scores(first, second, BACKGROUND, of=of)
    return {**_named("pixel", pixel), **_named("object", whole)}


def _named(kind: str, scores: Agreement) -> dict[str, float]:
    return {f"{kind}_precision": scores.precision, f"{kind}_recall": scores.recall, f"{kind}_f1": scores.f1}


def plain_floats(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose undefined numbers are None, as tables have them."""
    return {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in row.items()}


def percent(values: NDArray[Any]) -> str:
    """Mean and spread of shares in per cent, without the sign.

    >>> percent(np.array([0.8, 0.9])), percent(np.array([]))
    ('85 ± 7', 'undefined')
    """
    if not len(values):
        return "undefined"
    spread = f" ± {100 * np.std(values, ddof=1):.0f}" if len(values) > 1 else ""
    return f"{100 * np.mean(values):.0f}{spread}"
