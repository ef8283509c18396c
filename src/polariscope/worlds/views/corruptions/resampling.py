"""Pictures looked up between their pixels, and kernels for pictures of another size than they were published for.

A published kernel is a set of taps at whole pixels. In a picture a quarter of that size they are a quarter of a pixel
apart, and each is shared between the pixels on both sides of it: the picture is the published one seen smaller, and at
the published size the kernel is the published one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polariscope.worlds.views.corruptions.corruption import Images

Matrix = NDArray[np.floating[Any]]
Beyond = Literal["nearest", "mirror", "zero"]
"""What is seen beyond the edge: the pixels at the edge, the picture in a mirror, or black."""


def tents(places: NDArray[Any], start: int, stop: int) -> Matrix:
    """Shares ``(places, pixels)`` that the pixels ``start`` to ``stop - 1`` have in a value looked up between them."""
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(start, stop))).astype(np.float32)


def through(images: Images, down: Matrix, across: Matrix) -> Images:
    """Pictures whose rows and columns are weighted sums of the old ones, with a row of weights each."""
    return down @ images @ across.T


def sampled(images: Images, rows: Matrix, columns: Matrix, beyond: Beyond) -> Images:
    """Pictures looked up bilinearly, in all channels alike, at places that broadcast to ``(n, height, width)``."""
    sides, black = images.shape[2:], 1 if beyond == "zero" else 0
    if beyond == "mirror":
        rows, columns = (_mirrored(at, side) for at, side in zip((rows, columns), sides, strict=True))
    rows, columns = (
        (at + black).clip(0, side - 1 + 2 * black).astype(np.float32)
        for at, side in zip((rows, columns), sides, strict=True)
    )
    # One more row and column, so that every pixel has neighbours below and to the right; they count for nothing there.
    margin = (black, black + 1)
    images = np.pad(images, ((0, 0), (0, 0), margin, margin))
    count, channels, height, width = images.shape
    top, left = np.floor(rows), np.floor(columns)
    low, right = (rows - top)[:, None], (columns - left)[:, None]
    planes = np.arange(count * channels).reshape(count, channels, 1, 1) * (height * width)
    at = planes + (top.astype(np.intp) * width + left.astype(np.intp))[:, None]
    flat = images.reshape(-1)
    seen = flat.take(at) * ((1 - low) * (1 - right))
    seen += flat[1:].take(at) * ((1 - low) * right)
    seen += flat[width:].take(at) * (low * (1 - right))
    seen += flat[width + 1 :].take(at) * (low * right)
    return seen


def _mirrored(at: Matrix, side: int) -> Matrix:
    """Places folded back into the picture at the middles of its outermost pixels."""
    folded = np.abs(at) % np.float32(2 * (side - 1))
    return np.minimum(folded, 2 * (side - 1) - folded)


def grid(images: Images) -> tuple[Matrix, Matrix]:
    """Row and column of every pixel, seen from the middle: ``(height, 1)`` and ``(1, width)``."""
    rows, columns = (np.arange(side, dtype=np.float32) - (side - 1) / 2 for side in images.shape[2:])
    return rows[:, None], columns[None, :]


def looked_up_from_the_middle(images: Images, down: Matrix, right: Matrix, beyond: Beyond) -> Images:
    """:func:`sampled` at places that are given as seen from the middle of the picture."""
    rows, columns = (at + (side - 1) / 2 for at, side in zip((down, right), images.shape[2:], strict=True))
    return sampled(images, rows, columns, beyond)


@lru_cache(256)
def gaussian_kernel(sd: float, scale: float) -> NDArray[np.float64]:
    """A Gaussian of ``sd`` published pixels, as weights of whole pixels here."""
    finer = int(np.ceil(scale))  # in larger pictures taps would leave gaps
    steps = np.arange(-int(4 * sd * finer + 0.5), int(4 * sd * finer + 0.5) + 1) / finer
    taps = np.exp(-0.5 * (steps / sd) ** 2)
    far = int(np.ceil(steps[-1] * scale))
    weights = taps @ tents(steps * scale, -far, far + 1)
    return np.asarray(weights / weights.sum(), np.float64)


@lru_cache(256)
def _gaussian_matrix(side: int, sd: float, scale: float, mode: str) -> Matrix:
    return np.asarray(ndimage.correlate1d(np.eye(side), gaussian_kernel(sd, scale), axis=0, mode=mode), np.float32)


def blurred(images: Images, sd: float, scale: float, mode: str = "nearest") -> Images:
    """Pictures under a Gaussian of ``sd`` published pixels; ``mode`` is SciPy's word for what is beyond the edge."""
    return through(images, *(_gaussian_matrix(side, sd, scale, mode) for side in images.shape[2:]))


def soft_noise(noise: Images, sd: float, scale: float) -> Images:
    """White noise under a Gaussian of ``sd`` published pixels, with the deviation that it has at the published size.

    Where the blur covers fewer pixels it averages less away; that is made good.
    """
    here, there = (np.sum(gaussian_kernel(sd, s) ** 2) for s in (scale, 1.0))
    return blurred(noise, sd, scale, "reflect") * np.float32(there / here)
