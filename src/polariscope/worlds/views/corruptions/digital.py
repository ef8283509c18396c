"""Digital corruptions: contrast, elastic deformation, pixelation and JPEG compression."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image

from polariscope.worlds.views.corruptions.corruption import Draws, Images
from polariscope.worlds.views.corruptions.resampling import (
    Matrix,
    grid,
    looked_up_from_the_middle,
    soft_noise,
    through,
)


def contrast(images: Images, draws: Draws, scale: float, factor: float) -> Images:
    """All pixels move towards the mean of their channel."""
    mean = images.mean((2, 3), keepdims=True)
    return (images - mean) * np.float32(factor) + mean


def elastic(images: Images, draws: Draws, scale: float, strength: float, softness: float, jitter: float) -> Images:
    """Three corners of a square are moved, the picture with them, and every pixel a little more than its neighbours.

    Lengths are shares of 244 pixels, as published. There are two kinds among the severities: 1 and 2 bend the whole
    picture, 3 to 5 are finer and move pixels less far, so that severity 3 is nearer to the picture than 2 is. Both
    moves are looked up at once, the published ones after one another.
    """
    unit, half = 244 * scale, np.float32(min(images.shape[2:]) / 3)
    rows, columns = grid(images)
    moved = (2 * draws.uniform("corners", 3, 2, 1, 1) - 1) * np.float32(jitter * unit)
    shift, along, down = (
        (moved[:, 0] + moved[:, 2]) / 2,
        (moved[:, 1] - moved[:, 2]) / 2,
        (moved[:, 0] - moved[:, 1]) / 2,
    )
    bent = shift + down * (columns / half) + along * (rows / half)
    waves = soft_noise(2 * draws.uniform("waves", 2, *images.shape[2:]) - 1, 244 * softness, scale)
    bent = bent + np.float32(strength * unit) * waves
    return looked_up_from_the_middle(images, rows + bent[:, 0], columns + bent[:, 1], "mirror")


def pixelate(images: Images, draws: Draws, scale: float, factor: float) -> Images:
    """Fewer, larger pixels, each the mean of those in it. The factor is a share of the size and no length."""
    return through(images, *(_coarse(side, factor) for side in images.shape[2:]))


@lru_cache(64)
def _coarse(side: int, factor: float) -> Matrix:
    """From pixels to the means of those whose middles are in the same large one."""
    large = ((np.arange(side) + 0.5) * max(1, int(side * factor)) / side).astype(np.int64)
    together = large[:, None] == large
    return (together / together.sum(1, keepdims=True)).astype(np.float32)


def jpeg(images: Images, draws: Draws, scale: float, quality: int) -> Images:
    """Compressed as JPEG and read again: colours together, other channels one by one.

    The codec takes one picture at a time, so that this is the one corruption with a loop over pictures.
    """
    bytes_ = np.rint(images * 255).clip(0, 255).astype(np.uint8)
    coloured = images.shape[1] == 3
    pictures = bytes_.transpose(0, 2, 3, 1) if coloured else bytes_.reshape(-1, *images.shape[2:])
    read = np.stack([_compressed(picture, quality) for picture in pictures])
    read = read.transpose(0, 3, 1, 2) if coloured else read.reshape(images.shape)
    return read.astype(np.float32) / np.float32(255)


def _compressed(picture: np.ndarray, quality: int) -> np.ndarray:
    written = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(written, "JPEG", quality=quality)
    return np.asarray(Image.open(written))
