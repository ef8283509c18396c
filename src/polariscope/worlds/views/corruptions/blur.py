"""Blur: out of focus, behind glass, in motion, and while zooming."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polariscope.worlds.views.corruptions.corruption import Draws, Images
from polariscope.worlds.views.corruptions.resampling import Matrix, blurred, sampled, tents, through


def gaussian_blur(images: Images, draws: Draws, scale: float, sd: float) -> Images:
    """A Gaussian blur."""
    return blurred(images, sd, scale)


def defocus(images: Images, draws: Draws, scale: float, radius: int, soft: float) -> Images:
    """Defocus blur: every point becomes a disk with a soft edge."""
    kernel, width = disk(radius, soft, scale), images.shape[3]
    reach = len(kernel) // 2
    padded = np.pad(images, ((0, 0), (0, 0), (reach, reach), (0, 0)), mode="reflect")
    seen = np.zeros_like(images)
    for i, row in enumerate(kernel):  # a row of the kernel is a matrix that mixes columns
        across = ndimage.correlate1d(np.eye(width), row, axis=0, mode="mirror").astype(np.float32)
        seen += padded[:, :, i : i + images.shape[2]] @ across.T
    return seen


@lru_cache(64)
def disk(radius: int, soft: float, scale: float) -> NDArray[np.float64]:
    """The kernel of a disk of ``radius`` published pixels, its rim softened by a Gaussian; its weights sum to 1."""
    finer = int(np.ceil(scale))
    steps = np.arange(-(radius + 2) * finer, (radius + 2) * finer + 1) / finer
    inside = (steps[:, None] ** 2 + steps**2 <= radius**2).astype(np.float64)
    far = int(np.ceil(steps[-1] * scale))
    shared = tents(steps * scale, -far, far + 1)
    kernel = shared.T @ ndimage.gaussian_filter(inside, soft * finer) @ shared
    used = np.flatnonzero(kernel.sum(0) > 0)
    kernel = kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1]
    return np.asarray(kernel / kernel.sum(), np.float64)


def glass(
    images: Images, draws: Draws, scale: float, sd: float, furthest: int, times: int, share: float = 1.0
) -> Images:
    """Blur, pixels that change places with others nearby, and blur again.

    The published loop goes through the picture and exchanges one pixel after the other with one up to ``furthest``
    away, so that a pixel may travel. Here every pixel looks up another one at most as far away, all at once: a pixel
    may be seen twice or not at all. ``share`` of the pixels do so.
    """
    images, (height, width) = blurred(images, sd, scale), images.shape[2:]
    rows, columns = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)
    u = draws.uniform("places", times, 3, height, width)
    for i in range(times):
        steps = np.floor(u[:, i, :2] * (2 * furthest + 1)) - furthest
        steps *= np.float32(scale) * (u[:, i, 2:] < share)
        images = sampled(images, rows + steps[:, 0], columns + steps[:, 1], "nearest")
    return blurred(images, sd, scale)


def motion(images: Images, draws: Draws, scale: float, radius: int, sd: float) -> Images:
    """The camera moves to the right and up to 45 degrees upwards or downwards."""
    return streaked(images, np.pi / 4 * (2 * draws.uniform("angle", 1)[:, 0] - 1), radius, sd, scale)


def streaked(images: Images, angles: Matrix, radius: int, sd: float, scale: float) -> Images:
    """Pictures smeared along straight lines, at angles of their own of up to 45 degrees to the rows.

    A line's taps, half a Gaussian of ``2 radius + 1`` published pixels, are gathered in whole columns, between whose
    rows it passes; the published ones are at the nearest pixels of the line.
    """
    count, channels, height, width = images.shape
    columns, weights = _streaks(angles, radius, sd, scale)
    padded = np.pad(images, ((0, 0), (0, 0), (0, 0), (0, columns - 1)), mode="edge")
    lines = np.ascontiguousarray(padded.transpose(0, 2, 1, 3)).reshape(count * height, -1)  # whole rows are copied fast
    lines_of = np.arange(count)[:, None] * height
    seen = np.zeros((count, height, channels, width), np.float32)
    for j in range(columns):
        down = (j * np.tan(angles))[:, None] + np.arange(height, dtype=np.float32)
        upper = np.floor(down)
        for row, part in ((upper, upper + 1 - down), (upper + 1, down - upper)):
            places = (row.clip(0, height - 1).astype(np.intp) + lines_of).ravel()
            taken = lines.take(places, axis=0).reshape(count, height, channels, -1)[..., j : j + width]
            seen += taken * (weights[:, j, None] * part)[:, :, None, None]
    return np.ascontiguousarray(seen.transpose(0, 2, 1, 3))


def _streaks(angles: Matrix, radius: int, sd: float, scale: float) -> tuple[int, Matrix]:
    """How many columns lines cover, and the weight ``(n, columns)`` that each has in them."""
    finer = int(np.ceil(scale))
    steps = np.arange(2 * radius * finer + 1) / finer
    taps = np.exp(-0.5 * (steps / sd) ** 2)
    columns = int(np.ceil(steps[-1] * scale)) + 1
    reached = (np.cos(angles)[:, None] * (steps * scale)).astype(np.float32)
    shares = tents(reached.reshape(-1), 0, columns).reshape(*reached.shape, columns)
    weights = (taps.astype(np.float32)[:, None] * shares).sum(1)
    return columns, weights / weights.sum(1, keepdims=True)


def zoom(images: Images, draws: Draws, scale: float, most: float, step: float) -> Images:
    """The mean of the picture and of copies enlarged by 1, 1 + ``step``, ... up to but without ``most``."""
    factors = np.arange(1, most, step)
    seen = images.copy()
    for factor in factors:
        seen += through(images, *(_enlarging(side, float(factor)) for side in images.shape[2:]))
    return seen / np.float32(len(factors) + 1)


@lru_cache(512)
def _enlarging(side: int, factor: float) -> Matrix:
    middle = (side - 1) / 2
    return tents((np.arange(side) - middle) / factor + middle, 0, side)
