"""Corruptions of drawings: geometric changes, partial inversion, lines drawn over them, and outlines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from polariscope.worlds.views.corruptions.corruption import Draws, Images
from polariscope.worlds.views.corruptions.resampling import Matrix, blurred, grid, looked_up_from_the_middle

PEN = 2.3
"""Published pixels above and below a drawn line in which there may be ink."""
AT_ONCE = 2**15
"""Pixels whose outlines are looked for together: what is computed of them fits into the cache of a core."""


def shear(images: Images, draws: Draws, scale: float, angle: float) -> Images:
    """Slanted to one side or the other about the middle."""
    rows, columns = grid(images)
    slant = _sign(draws) * np.float32(angle)
    return looked_up_from_the_middle(images, np.cos(slant) * rows, columns - np.sin(slant) * rows, "zero")


def resize(images: Images, draws: Draws, scale: float, factor: float) -> Images:
    """Smaller or larger, about the middle."""
    rows, columns = (at[None] / np.float32(factor) for at in grid(images))
    return looked_up_from_the_middle(images, rows, columns, "zero")


def rotate(images: Images, draws: Draws, scale: float, angle: float) -> Images:
    """Turned to one side or the other about the middle."""
    rows, columns = grid(images)
    turn = _sign(draws) * np.float32(angle)
    down, right = np.sin(turn) * columns + np.cos(turn) * rows, np.cos(turn) * columns - np.sin(turn) * rows
    return looked_up_from_the_middle(images, down, right, "zero")


def translate(images: Images, draws: Draws, scale: float, distance: float) -> Images:
    """Moved as far down or up as it is moved right or left."""
    rows, columns = grid(images)
    down, right = (_sign(draws, word) * np.float32(distance * scale) for word in ("down", "right"))
    return looked_up_from_the_middle(images, rows - down, columns - right, "zero")


def _sign(draws: Draws, what: str = "side") -> Matrix:
    """One way or the other, for each picture ``(n, 1, 1)``."""
    return np.where(draws.uniform(what, 1, 1) < 0.5, np.float32(-1), np.float32(1))


def stripe(images: Images, draws: Draws, scale: float) -> Images:
    """The quarters on the left and on the right are inverted."""
    width = images.shape[3]
    columns = np.arange(width)
    quarter = round(width / 4)
    return np.where((columns < quarter) | (columns >= width - quarter), 1 - images, images)


def dotted_line(images: Images, draws: Draws, scale: float, dots: float) -> Images:
    """A straight line from the left edge to the right one, drawn in every second piece of so many pixels."""
    height, width = images.shape[2:]
    columns = np.arange(width) / scale
    start, end = np.moveaxis(_rows(draws, height / scale, "rows", 2), 1, 0)
    line = start + (end - start) * (columns * scale / (width - 1)).astype(np.float32)
    return images + _inked(images, scale, line, columns // dots % 2 == 1)


def zigzag(images: Images, draws: Draws, scale: float, teeth: float, margin: float, slope: float) -> Images:
    """A zigzag line from left to right, up and down by ``teeth`` as far as it goes to the right for it.

    It rises or falls by up to ``slope`` on its way, and keeps a ``margin`` on both sides. The published one turns its
    teeth with the slope, by 12 degrees at most; here they stay upright.
    """
    height, width = images.shape[2:]
    columns = (np.arange(width) / scale).astype(np.float32)
    along = columns - np.float32(margin)
    length = (width - 1) / scale - 2 * margin
    start = _rows(draws, height / scale, "rows", 1)[:, 0]
    rise = np.floor((2 * draws.uniform("slope", 1) - 1) * slope)
    wave = teeth * (1 - np.abs((along / teeth + 1) % 4 - 2))  # 0 at first, then up, and back every second tooth
    line = start + rise * (along / length) - wave
    return images + _inked(images, scale, line, (along >= 0) & (along <= length))


def _rows(draws: Draws, height: float, what: str, count: int) -> Matrix:
    """Whole rows ``(n, count, 1)`` in published pixels, of all but the last."""
    return np.floor(draws.uniform(what, count, 1) * np.float32(height - 1))


def _inked(images: Images, scale: float, line: Matrix, drawn: np.ndarray) -> Images:
    """Ink ``(n, 1, height, width)`` of lines given by their row in each column ``(n, width)``."""
    rows = (np.arange(images.shape[2]) / scale).astype(np.float32)[:, None]
    distance = np.minimum(np.abs(rows - line[:, None, :]), np.float32(PEN - 1e-6))
    return ((np.log(1 - distance / np.float32(PEN)) + 1).clip(0, 1) * drawn)[:, None].astype(np.float32)


def canny(images: Images, draws: Draws, scale: float, sd: float, low: float, high: float) -> Images:
    """Outlines in white on black, channel by channel (Canny 1986).

    The slope of the blurred picture is kept where it is no less than its neighbours along it, and above ``low``; of
    the lines that are left, those that are above ``high`` somewhere.
    """
    planes = blurred(images, sd, scale, "constant").reshape(-1, *images.shape[2:])
    few = max(1, AT_ONCE // planes[0].size)
    outlines = [_outlines(planes[at : at + few], low, high) for at in range(0, len(planes), few)]
    return np.concatenate(outlines).reshape(images.shape)


def _outlines(planes: Images, low: float, high: float) -> Images:
    """The lines of blurred pictures ``(n, height, width)``."""
    down, right = (_sobel(planes, axis) for axis in (1, 2))
    slope = np.hypot(down, right)
    candidates = slope >= low
    candidates[:, [0, -1]] = candidates[:, :, [0, -1]] = False
    candidates[candidates] = _ridges(slope, down, right, np.flatnonzero(candidates))
    touching = np.zeros((3, 3, 3), bool)
    touching[1] = True  # within a picture only
    lines, count = ndimage.label(candidates, touching)
    strong = np.zeros(count + 1, bool)
    strong[lines[candidates & (slope >= high)]] = True
    return strong[lines].astype(np.float32)


def _sobel(planes: Images, axis: int) -> Images:
    """The slope along an axis of pictures ``(n, height, width)``. SciPy's own would smooth over pictures, too."""
    smooth = ndimage.correlate1d(planes, [1, 2, 1], 3 - axis, mode="nearest")
    return np.asarray(ndimage.correlate1d(smooth, [-1, 0, 1], axis, mode="nearest"))


def _ridges(slope: Images, down: Images, right: Images, at: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether the slopes at some places inside of pictures are no less than those before and behind them, looked up
    between the nearest two pixels."""
    width = slope.shape[2]
    slope, down, right = slope.reshape(-1), down.reshape(-1)[at], right.reshape(-1)[at]
    below, beside = np.sign(down).astype(np.intp) * width, np.sign(right).astype(np.intp)
    steep = np.abs(down) >= np.abs(right)
    straight, slanted = np.where(steep, below, beside), below + beside
    larger = np.where(steep, np.abs(down), np.abs(right))
    part = np.where(steep, np.abs(right), np.abs(down)) / np.where(larger > 0, larger, 1)

    def beyond(way: int) -> Images:
        return slope[at + way * slanted] * part + slope[at + way * straight] * (1 - part)

    here = slope[at]
    return np.asarray((here >= beyond(1)) & (here >= beyond(-1)))
