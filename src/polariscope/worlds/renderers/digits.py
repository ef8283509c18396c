"""Handwritten-like digits drawn by strokes: a digit set that needs no file and knows its causes.

A glyph is a set of control points in the unit square joined by smooth strokes. Because a Catmull-Rom spline is linear
in its control points, a glyph is one constant matrix, and a sample is that matrix applied to jittered control points,
followed by an affine map and a pen. The distributions of the factors are those of spec 001b, part E0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from polariscope.worlds.capacity import check_count
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.world import worlds

# Control points "x,y" in hundredths of the box, y downwards; strokes as (hexadecimal) numbers of the points they run
# through. Corners are where strokes end, and strokes that share a point stay joined when it is jittered.
GLYPHS = (
    ("50,03 27,20 22,50 29,82 50,97 72,81 78,50 72,18", "012345670"),
    ("38,18 54,03 52,50 50,97", "01 123"),
    ("24,24 36,06 57,03 74,20 68,46 45,72 21,95 80,94", "0123456 67"),
    ("25,12 46,03 69,14 68,37 43,47 71,57 76,80 52,97 23,86", "01234 45678"),
    ("34,05 21,60 80,60 66,28 62,97", "01 12 34"),
    ("75,05 33,05 28,44 52,37 75,53 73,80 50,97 24,87", "01 12 234567"),
    ("64,03 41,20 27,48 25,75 41,96 64,92 74,72 61,53 39,57", "0123456783"),
    ("22,06 78,06 57,46 43,97", "01 123"),
    ("50,46 29,28 34,09 52,03 69,11 70,29 74,64 71,88 50,97 28,87 26,64", "0123450 06789a0"),
    ("71,30 64,10 45,03 28,16 30,39 48,49 66,43 69,64 64,97", "01234560 078"),
)
PIECES = 4  # straight pieces between two control points: the chord error stays under a tenth of a pixel at 28x28
JITTER = 0.02
CHUNK = 64  # images drawn at a time: the working arrays then stay in the processor's cache

FACTORS = (
    Factor("digit", 10, "categorical"),
    Factor("rotation", 0),
    Factor("shear", 0),
    Factor("scale_x", 0),
    Factor("scale_y", 0),
    Factor("shift_x", 0),
    Factor("shift_y", 0),
    Factor("thickness", 0),
)


@worlds.register("digits")
@dataclass(frozen=True)
class Digits:
    """Grey images of handwritten-like digits; image ``i`` depends on ``(seed, i)`` alone, not on ``count``.

    Factors are floats ``(n, 8)``: the digit 0..9 in column 0, then rotation (radians, clockwise positive), shear,
    scale_x, scale_y, shift_x, shift_y (in units of the glyph's box, 20 of 28 pixels) and thickness (half the pen's
    width, in pixels of a 28x28 image). The jitter of the control points is the style no factor accounts for.

    >>> world = Digits(count=100)
    >>> world.observe([0, 1]).shape, world.factors_of([0, 1]).shape
    ((2, 1, 28, 28), (2, 8))
    """

    count: int = 10_000
    size: int = 28
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"digits: count is {self.count}; at least 1 observation is needed")
        check_count(self.count, "digits")
        if self.size < 8:
            raise ValueError(f"digits: size is {self.size}; a digit needs at least 8 pixels")

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.size, self.size)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return FACTORS

    def __len__(self) -> int:
        return self.count

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        index = numbered(index, self.count)
        return self.render(self._values[index], self._jitter[index])

    def factors_of(self, index: ArrayLike) -> NDArray[np.float64]:
        return self._values[numbered(index, self.count)]

    def render(self, factors: ArrayLike, jitter: ArrayLike | None = None) -> NDArray[np.uint8]:
        """Images ``uint8 (n, 1, size, size)`` of factor values ``(n, 8)``; without ``jitter`` in the plain style."""
        factors = np.asarray(factors, dtype=np.float64)
        if factors.ndim != 2 or factors.shape[1] != len(FACTORS):
            raise ValueError(f"digits: factors need shape (n, {len(FACTORS)}); got {factors.shape}")
        if not np.isin(factors[:, 0], np.arange(10)).all():
            raise ValueError("digits: column 0 of the factors is the digit and needs whole numbers from 0 to 9")
        control, strokes = _glyphs()
        digit = factors[:, 0].astype(np.int64)
        points = control[digit] if jitter is None else control[digit] + np.asarray(jitter)
        scale = self.size / 28
        points = (_affine(points, factors[:, 1:7]) * 20 + 4) * scale
        images = np.empty((len(factors), *self.shape), np.uint8)
        for glyph in np.unique(digit):  # glyph by glyph, because they differ much in length
            rows = np.flatnonzero(digit == glyph)
            for start in range(0, len(rows), CHUNK):
                part = rows[start : start + CHUNK]
                images[part, 0] = _draw(strokes[glyph] @ points[part], factors[part, 7] * scale, self.size)
        return images

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        # Uniform numbers are drawn row by row, so a longer set starts with the shorter one.
        uniform = np.random.default_rng((self.seed, 0)).random((self.count, len(FACTORS)))
        uniform[:, [1, 2, 5, 6]] = ndtri(np.clip(uniform[:, [1, 2, 5, 6]], 1e-12, None))
        spread = np.array([10, np.deg2rad(8), 0.15, 0.35, 0.35, 0.04, 0.04, 0.9])
        values = uniform * spread + np.array([0, 0, 0, 0.75, 0.75, 0, 0, 0.8])
        values[:, 0] = np.floor(values[:, 0])
        values.flags.writeable = False
        return values

    @cached_property
    def _jitter(self) -> NDArray[np.float32]:
        points = _glyphs()[0].shape[1]
        normal = np.random.default_rng((self.seed, 1)).standard_normal((self.count, points, 2), dtype=np.float32)
        return normal * np.float32(JITTER)


@cache
def _glyphs() -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Control points ``(10, p, 2)``; a matrix ``(2 s, p)`` a glyph to the starts, then the ends, of its pieces."""
    control = np.full((len(GLYPHS), max(len(points.split()) for points, _ in GLYPHS), 2), 0.5)
    matrices = []
    for digit, (points, strokes) in enumerate(GLYPHS):
        xy = np.array([point.split(",") for point in points.split()], dtype=np.float64) / 100
        control[digit, : len(xy)] = xy
        unit = np.eye(control.shape[1])
        lines = [_spline(len(stroke)) @ unit[[int(point, 16) for point in stroke]] for stroke in strokes.split()]
        matrices.append(np.concatenate([line[:-1] for line in lines] + [line[1:] for line in lines]))
    return control, matrices


def _spline(count: int) -> NDArray[np.float64]:
    """The matrix from ``count`` control points to points along the Catmull-Rom spline through them.

    The end tangents point to the neighbours, so two points give a straight line.
    """
    if count == 2:
        return np.eye(2)
    tangent = np.zeros((count, count))
    inner = np.arange(1, count - 1)
    tangent[inner, inner - 1], tangent[inner, inner + 1] = -0.5, 0.5
    tangent[0, :2], tangent[-1, -2:] = (-1, 1), (-1, 1)
    t = np.arange(PIECES)[:, None, None] / PIECES
    here, there = np.eye(count)[:-1], np.eye(count)[1:]
    curve = (
        (1 + 2 * t) * (1 - t) ** 2 * here
        + t * (1 - t) ** 2 * tangent[:-1]
        + t**2 * (3 - 2 * t) * there
        - t**2 * (1 - t) * tangent[1:]
    )
    return np.concatenate([curve.swapaxes(0, 1).reshape(-1, count), np.eye(count)[-1:]])


def _affine(points: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale, shear, turn (about the middle of the box) and shift the control points ``(n, p, 2)``."""
    rotation, shear, scale_x, scale_y, shift_x, shift_y = values.T[:, :, None]
    x, y = (points[..., 0] - 0.5) * scale_x, (points[..., 1] - 0.5) * scale_y
    x = x - shear * y  # y points down: positive shear leans to the right, as handwriting does
    cos, sin = np.cos(rotation), np.sin(rotation)
    return np.stack([cos * x - sin * y + 0.5 + shift_x, sin * x + cos * y + 0.5 + shift_y], axis=-1)


def _draw(ends: NDArray[np.float64], half_width: NDArray[np.float64], size: int) -> NDArray[np.uint8]:
    """Images ``(n, size, size)``: ink where a piece is within the pen; ``ends`` ``(n, 2 s, 2)`` as in `_glyphs`.

    With a the start of a piece, u its direction, q = (p - a) u and t = q / |u|^2 cut to [0, 1], the squared distance of
    pixel p is |p - a|^2 + t (t |u|^2 - 2 q), where |p - a|^2 and q are sums of a term of the row and one of the column.
    """
    start, end = np.split(ends.astype(np.float32), 2, axis=1)
    along = end - start
    length = np.maximum((along**2).sum(-1), np.float32(1e-12))[:, :, None, None]
    offset = np.arange(size, dtype=np.float32) + np.float32(0.5) - start[..., None]  # (n, s, xy, middle of the pixel)
    column, row = np.moveaxis(offset, 2, 0)
    dot_column, dot_row = np.moveaxis(offset * along[..., None], 2, 0)
    nearest = np.full((len(ends), size, size), np.inf, np.float32)
    for j in range(start.shape[1]):
        q = dot_row[:, j, :, None] + dot_column[:, j, None, :]
        t = q / length[:, j]
        np.clip(t, 0, 1, out=t)
        distance = t * length[:, j]
        q *= 2
        distance -= q
        distance *= t
        distance += row[:, j, :, None] ** 2 + column[:, j, None, :] ** 2
        np.minimum(nearest, distance, out=nearest)
    ink = half_width.astype(np.float32)[:, None, None] + np.float32(0.5) - np.sqrt(np.maximum(nearest, 0))
    return np.rint(np.clip(ink, 0, 1) * 255).astype(np.uint8)
