"""From factors to silhouettes, by the very rule with which dSprites was drawn.

dSprites (Matthey, Higgins, Hassabis and Lerchner 2017) was drawn as vectors by a graphics card: single-precision
transforms, corners snapped to 1/256 pixel, each polygon a fan of triangles, a pixel lit where a triangle covers its
centre. Following that rule operation by operation gives the same bits; drawing the shapes some other way does not.
The order of the roundings below is therefore part of the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SUBPIXELS = 256
_CHUNK_PIXELS = 1 << 19  # what is worked on at a time stays in the processor's cache

Floats = NDArray[np.float64]


class Outline(NamedTuple):
    """A closed polygon (the last corner is the first), counter-clockwise as seen, canvas width 1, y down."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    origin: tuple[np.float32, np.float32]


def _outline(x: Floats, y: Floats, origin: tuple[float, float] = (0.0, 0.0)) -> Outline:
    closed = np.append(np.arange(len(x)), 0)
    return Outline(
        x[closed].astype(np.float32), y[closed].astype(np.float32), (np.float32(origin[0]), np.float32(origin[1]))
    )


def _square() -> Outline:
    return _outline(np.array([0, 0, 0.3, 0.3]), np.array([0, 0.3, 0.3, 0]), origin=(-0.15, -0.15))


def _ellipse() -> Outline:
    turn = 2 * np.pi * np.arange(100) / 100
    return _outline(0.15 * 1.33 * np.cos(turn), -(0.15 / 1.33) * np.sin(turn))


def _heart() -> Outline:
    turn = 2 * np.pi * (-np.arange(150) % 150) / 150  # from the dip, the left lobe first
    x = 0.3 * 16 * np.sin(turn) ** 3 / 32
    y = -0.3 * (13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn)) / 29
    return _outline(x, y, origin=(0, -0.3 * 0.075))


OUTLINES = (_square(), _ellipse(), _heart())


def silhouettes(
    shape: NDArray[np.int64], scale: Floats, orientation: Floats, x: Floats, y: Floats, size: int
) -> NDArray[np.uint8]:
    """Masks ``(n, size, size)``, 255 on the sprite and 0 beside it, of ``n`` factor combinations.

    ``shape`` is 0 square, 1 ellipse, 2 heart; ``orientation`` in radians, counter-clockwise; ``x`` to the right and
    ``y`` down, where 0 and 1 put the centre a quarter of the canvas from its border. The canvas is cut into ``size``
    pixels a side after the transforms, so every size shows the same geometry.
    """
    masks = np.empty((len(shape), size, size), np.uint8)
    chunk = max(1, _CHUNK_PIXELS // size**2)
    for number, outline in enumerate(OUTLINES):
        rows = np.flatnonzero(shape == number)
        for begin in range(0, len(rows), chunk):
            part = rows[begin : begin + chunk]
            corners = place(outline, scale[part], orientation[part], x[part], y[part], size)
            masks[part] = fill_fans(*corners, size)
    return masks


def place(
    outline: Outline, scale: Floats, orientation: Floats, x: Floats, y: Floats, size: int
) -> tuple[Floats, Floats]:
    """Corners ``(n, corners)`` of the placed outline on the canvas: whole numbers of 1/256 pixel, y up."""
    single = np.float32
    angle = orientation.astype(single).astype(np.float64)
    cosine = np.cos(angle).astype(single) * scale.astype(single)
    sine = np.sin(angle).astype(single) * scale.astype(single)

    half = single(0.5)
    right, down = outline.origin
    centre_x = (cosine * right + sine * down) + (half + half * (x - 0.5).astype(single))
    centre_y = (-sine * right + cosine * down) + (half + half * (y - 0.5).astype(single))

    # Clip space, y up: products and sums in double, one rounding at the end.
    a, b = ((2 * part).astype(np.float64)[:, None] for part in (cosine, sine))
    clip_x = a * outline.x + b * outline.y + (2 * centre_x - 1)[:, None]
    clip_y = b * outline.x - a * outline.y + (1 - 2 * centre_y)[:, None]
    return _snap(clip_x, size), _snap(clip_y, size)


def _snap(clip: Floats, size: int) -> Floats:
    """Clip space (-1 to 1) to whole subpixels, through a single-precision window coordinate."""
    window = clip.astype(np.float32)
    window *= np.float32(size / 2)
    window += np.float32(size / 2)
    window *= np.float32(SUBPIXELS)
    return np.rint(window, out=window).astype(np.float64)


def fill_fans(x: Floats, y: Floats, size: int) -> NDArray[np.uint8]:
    """Masks ``(n, size, size)`` of ``n`` closed polygons, each drawn as the triangle fan from its first corner.

    ``x`` and ``y`` ``(n, corners + 1)`` are whole subpixels, y up, the last corner repeating the first. A pixel is
    255 if any triangle of the fan covers its centre; a centre on an edge counts as if moved right, then up, by an
    infinitesimal step. At most 255 corners. All arithmetic is on whole numbers far below 2**53, hence exact in float64.

    The winding number of a polygon at a pixel is (triangles of the fan turning left that cover it) - (those turning
    right). It needs the crossings of the outline only. Adding the few right-turning triangles twice makes it the
    number of triangles that cover the pixel, whatever the polygon: no need to scan the many long spokes of the fan.
    """
    corners = x.shape[1]
    first_row = _first_centre(y, size)  # counted from the bottom

    steps = first_row[:, 1:] != first_row[:, :-1]
    image, corner = np.nonzero(steps)
    outline = image * corners + corner

    x_spoke, y_spoke = x - x[:, :1], y - y[:, :1]
    turn = x_spoke[:, :-1] * y_spoke[:, 1:] - y_spoke[:, :-1] * x_spoke[:, 1:]
    image, corner = np.nonzero(turn < 0)
    hub, rim = image * corners, image * corners + corner

    start = np.concatenate([outline, hub, rim, rim + 1])
    end = np.concatenate([outline + 1, rim, rim + 1, hub])
    weight = np.repeat(np.array([1, -2], np.int8), [len(outline), 3 * len(hub)])
    return _accumulate(x, y, first_row, start, end, weight, size)


def _accumulate(
    x: Floats,
    y: Floats,
    first_row: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    weight: NDArray[np.int8],
    size: int,
) -> NDArray[np.uint8]:
    """Masks of where the weighted edges ``start -> end`` (flat corner numbers) wind around a pixel at all."""
    low, high = first_row.ravel()[start], first_row.ravel()[end]
    weight = np.where(low > high, weight, -weight)  # an edge going down has the inside of its polygon to the right
    low, count = np.minimum(low, high), np.abs(high - low)
    edge = np.repeat(np.arange(len(start)), count)
    row = low[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count)

    start, end, weight = start[edge], end[edge], weight[edge]
    x0, y0 = x.ravel()[start], y.ravel()[start]
    run, rise = x.ravel()[end] - x0, y.ravel()[end] - y0
    climb = (row * SUBPIXELS + SUBPIXELS // 2) - y0
    column = _first_centre(x0 * rise + climb * run, size, unit=rise)

    # Running sums along the rows, eight pixels a word: times 0x01...01 every byte becomes the sum of itself and those
    # before it. A byte below zero borrows from the next; the sums are counts of triangles, never below zero, so the
    # borrows cancel there.
    words = size // 8 + 1
    winding = np.zeros((len(x) * size, words), "<u8")
    line = start // x.shape[1] * size + size - 1 - row
    shift = (column % 8 * 8).astype(np.uint64)
    np.add.at(winding.reshape(-1), line * words + column // 8, weight.astype(np.uint64) << shift)
    for word in range(words):
        if word:
            winding[:, word] += winding[:, word - 1] >> np.uint64(56)
        winding[:, word] *= np.uint64(0x0101010101010101)
    covered = winding.view(np.uint8).reshape(len(x), size, 8 * words)[..., :size] != 0
    return covered.view(np.uint8) * np.uint8(255)


def _first_centre(position: Floats, size: int, unit: Floats | float = 1.0) -> NDArray[np.int64]:
    """The first pixel whose centre is at or beyond ``position / unit`` subpixels, within 0 (first) and size (none)."""
    pixel = np.ceil((position - unit * (SUBPIXELS // 2)) / (unit * SUBPIXELS))
    return np.clip(pixel, 0, size, out=pixel).astype(np.int64)
