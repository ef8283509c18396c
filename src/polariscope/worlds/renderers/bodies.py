"""Bodies put together from convex parts, and what is seen of many of them at once.

The view is that of ``solids.py``: along -z, with x to the right and y up. A part is drawn into the
square of rays around it alone, so that a scene may have many small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.renderers.solids import brightness, faces

Floats = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

SAMPLES = 2  # rays a pixel along each axis
_RAYS = 1 << 20  # cast at a time: memory stays small, and calls few


class Convex(Protocol):
    """One convex part of each of ``n`` bodies."""

    @property
    def centre(self) -> Floats:
        """Where it is, ``(n, 3)``."""

    @property
    def radius(self) -> Floats:
        """Of a sphere about the centre that holds it, ``(n,)``."""

    def turned(self, turn: Floats) -> Self:
        """After rotations ``(n, 3, 3)`` about the origin."""

    def moved(self, by: Floats) -> Self: ...

    def seen(self, across: Floats, down: Floats, light: Floats) -> tuple[Floats, Floats]:
        """Height above the centre (-inf beside the part) and brightness ``(n, m, m)``.

        Rays ``(n, m)`` are counted from the centre to the right and downwards; light comes from ``(n, 3)``.
        """


@dataclass(frozen=True)
class Faceted:
    """Parts between planes: outward normals ``(n, faces, 3)``, and how far from the centre each plane is."""

    normal: Floats
    offset: Floats
    centre: Floats
    radius: Floats

    def turned(self, turn: Floats) -> Faceted:
        return replace(self, normal=self.normal @ turn.swapaxes(1, 2), centre=applied(turn, self.centre))

    def moved(self, by: Floats) -> Faceted:
        return replace(self, centre=self.centre + by)

    def seen(self, across: Floats, down: Floats, light: Floats) -> tuple[Floats, Floats]:
        bright = brightness(applied(self.normal, light))
        rays = across[:, None].astype(np.float32), down[:, None].astype(np.float32)
        top, bottom, seen = faces(self.normal.swapaxes(1, 2), self.offset, bright, *rays)
        return np.where(top > bottom, top, np.float32(-np.inf)), seen


@dataclass(frozen=True)
class Ellipsoid:
    """Parts ``{p : (p - centre)' form (p - centre) <= 1}`` with positive forms ``(n, 3, 3)``."""

    form: Floats
    centre: Floats
    radius: Floats

    def turned(self, turn: Floats) -> Ellipsoid:
        return replace(self, form=turn @ self.form @ turn.swapaxes(1, 2), centre=applied(turn, self.centre))

    def moved(self, by: Floats) -> Ellipsoid:
        return replace(self, centre=self.centre + by)

    def seen(self, across: Floats, down: Floats, light: Floats) -> tuple[Floats, Floats]:
        x, y = across[:, None].astype(np.float32), -down[:, :, None].astype(np.float32)
        q = self.form[..., None, None].astype(np.float32)
        xz, yz, zz = q[:, 0, 2], q[:, 1, 2], q[:, 2, 2]
        # The sheet halfway between front and back is a plane; how far the front is above it is a square root.
        middle = -(xz * x + yz * y) / zz
        depth = 1 - (q[:, 0, 0] - xz**2 / zz) * x**2 - (q[:, 1, 1] - yz**2 / zz) * y**2
        depth = (depth - 2 * (q[:, 0, 1] - xz * yz / zz) * x * y) / zz
        z = middle + np.sqrt(np.maximum(depth, 0))
        normal = [q[:, k, 0] * x + q[:, k, 1] * y + q[:, k, 2] * z for k in range(3)]
        towards = light[..., None, None].astype(np.float32)
        cosine = sum(n * towards[:, k] for k, n in enumerate(normal)) / np.sqrt(sum(n * n for n in normal) + 1e-12)
        return np.where(depth > 0, z, np.float32(-np.inf)), brightness(cosine)


class Canvas:
    """Views of ``count`` scenes, ``size`` pixels a side: of each ray the paint and the brightness that it meets.

    ``reach`` is half the side of the view. Paint 0 is the background, which is fully bright.
    """

    def __init__(self, count: int, size: int, reach: float, light: ArrayLike) -> None:
        self.size, self.reach, fine = size, reach, SAMPLES * size
        self.line = (((2 * np.arange(fine) + 1) / fine - 1) * reach).astype(np.float32)
        self.light = np.broadcast_to(np.asarray(light, np.float64), (count, 3))
        self.height = np.full((count, fine, fine), -np.inf, np.float32)
        self.bright = np.ones((count, fine, fine), np.float32)
        self.paint = np.zeros((count, fine, fine), np.uint8)

    def draw(self, part: Convex, paint: int, number: ArrayLike | None = None) -> None:
        """A part of each scene, or of those numbered, where nothing drawn before is nearer."""
        scene = np.arange(len(self.height)) if number is None else np.asarray(number)
        if not len(scene):
            return
        fine = len(self.line)
        half = part.radius.max() * fine / (2 * self.reach)
        width = min(fine, int(np.ceil(2 * half)) + 1)

        def window(middle: Floats) -> Numbers:
            """Numbers of the rays ``(n, width)`` around places ``(n,)`` on the line."""
            first = np.floor((middle / self.reach + 1) * fine / 2 - width / 2).astype(np.int64)
            return np.clip(first, 0, fine - width)[:, None] + np.arange(width)

        x, y, z = part.centre.T[..., None]
        columns, rows = window(x[:, 0]), window(-y[:, 0])
        height, bright = part.seen(self.line[columns] - x, self.line[rows] + y, self.light[scene])
        height += z[..., None].astype(np.float32)
        place = ((scene[:, None] * fine + rows)[:, :, None] * fine + columns[:, None]).ravel()
        height, bright = height.ravel(), bright.ravel()
        nearer = np.flatnonzero(height > self.height.ravel()[place])
        place = place[nearer]
        self.height.reshape(-1)[place] = height[nearer]
        self.bright.reshape(-1)[place] = bright[nearer]
        self.paint.reshape(-1)[place] = paint

    def images(self, colours: ArrayLike, shaded: bool = True) -> Floats:
        """Images ``(n, channels, size, size)`` in the colours ``(n or 1, paints, channels)`` of the paints."""
        table = np.asarray(colours, np.float32)
        table = np.broadcast_to(table, (len(self.paint), *table.shape[1:]))
        colour = self.paint + (table.shape[1] * np.arange(len(self.paint)))[:, None, None]
        images = np.empty((len(self.paint), table.shape[2], self.size, self.size), np.float32)
        for channel in range(table.shape[2]):
            light = table[:, :, channel].ravel()[colour]
            if shaded:
                light *= self.bright
            strips = sum(light[:, row::SAMPLES] for row in range(SAMPLES))
            images[:, channel] = sum(strips[:, :, column::SAMPLES] for column in range(SAMPLES))
        return images / SAMPLES**2


def ellipsoid(centre: ArrayLike, radii: ArrayLike) -> Ellipsoid:
    """Ellipsoids along the axes; what is the same for all bodies need be given once."""
    centre, radii = _each(centre, radii)
    return Ellipsoid(np.eye(3) / radii[:, None, :] ** 2, centre, radii.max(1))


def prism(profile: ArrayLike, low: ArrayLike, high: ArrayLike, along: int) -> Faceted:
    """Convex polygons ``(n, corners, 2)``, counter-clockwise in the two other axes, drawn out from low to high."""
    profile = np.asarray(profile, np.float64)
    count, corners = profile.shape[:2]
    low, high = (np.broadcast_to(np.asarray(end, np.float64), count) for end in (low, high))
    middle = profile.mean(1)
    edge = np.roll(profile, -1, axis=1) - profile
    sideways = np.stack([edge[..., 1], -edge[..., 0]], -1) / np.linalg.norm(edge, axis=-1, keepdims=True)
    others = [axis for axis in range(3) if axis != along]
    normal = np.zeros((count, corners + 2, 3))
    normal[:, :corners, others] = sideways
    normal[:, corners:, along] = 1, -1
    half = (high - low)[:, None] / 2
    offset = np.hstack([((profile - middle[:, None]) * sideways).sum(-1), half, half])
    centre = np.empty((count, 3))
    centre[:, others], centre[:, along] = middle, (low + high) / 2
    radius = np.hypot(np.linalg.norm(profile - middle[:, None], axis=-1).max(1), half[:, 0])
    return Faceted(normal, offset, centre, radius)


def box(centre: ArrayLike, half: ArrayLike) -> Faceted:
    """Boxes along the axes, by half their sides."""
    centre, half = _each(centre, half)
    normal = np.broadcast_to(np.vstack([np.eye(3), -np.eye(3)]), (len(centre), 6, 3))
    return Faceted(normal, np.hstack([half, half]), centre, np.linalg.norm(half, axis=1))


def beam(start: Floats, end: Floats, thickness: float) -> Faceted:
    """Square beams from points to points ``(n, 3)``, with two sides upright. None of them may itself be upright."""
    along = end - start
    length = np.linalg.norm(along, axis=1, keepdims=True)
    along = along / length
    level = np.stack([-along[:, 1], along[:, 0], np.zeros(len(along))], 1)
    level /= np.linalg.norm(level, axis=1, keepdims=True)
    axes = np.stack([along, level, np.cross(along, level)], 1)
    half = np.hstack([length / 2, np.full((len(along), 2), thickness / 2)])
    return Faceted(
        np.concatenate([axes, -axes], 1), np.hstack([half, half]), (start + end) / 2, np.linalg.norm(half, axis=1)
    )


def pyramid(corners: int, radius: ArrayLike, height: ArrayLike, count: int) -> Faceted:
    """Upright pyramids about the origin, halfway up, on regular polygons that have a corner in front."""
    radius, height = (np.broadcast_to(np.asarray(given, np.float64), count) for given in (radius, height))
    angle = 2 * np.pi * (np.arange(corners) + 0.5) / corners - np.pi / 2
    inradius = radius * np.cos(np.pi / corners)
    level, up = height / np.hypot(height, inradius), inradius / np.hypot(height, inradius)
    side = np.stack([level[:, None] * np.cos(angle), level[:, None] * np.sin(angle), up[:, None] + 0 * angle], -1)
    normal = np.concatenate([side, np.broadcast_to((0.0, 0.0, -1.0), (count, 1, 3))], 1)
    offset = np.hstack([np.repeat((up * height / 2)[:, None], corners, 1), height[:, None] / 2])
    return Faceted(normal, offset, np.zeros((count, 3)), np.hypot(radius, height / 2))


def polygon(corners: int, radius: ArrayLike, count: int) -> Floats:
    """Corners ``(n, corners, 2)`` of regular polygons about 0, counter-clockwise; the first is at the bottom."""
    angle = 2 * np.pi * np.arange(corners) / corners - np.pi / 2
    radius = np.broadcast_to(np.asarray(radius, np.float64), count)
    return radius[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)


def chunks(count: int, size: int) -> Iterator[slice]:
    """Parts of ``count`` images that are drawn at a time."""
    at_a_time = max(1, _RAYS // (SAMPLES * size) ** 2)
    return (slice(begin, begin + at_a_time) for begin in range(0, count, at_a_time))


def camera(elevation: ArrayLike, azimuth: ArrayLike = 0.0) -> Floats:
    """Rotations ``(n, 3, 3)`` from a scene, with z up, into the view of a camera that looks down on it.

    Angles are in radians. At azimuth 0 the scene's x points right and its y away from the camera; the scene then turns
    counter-clockwise as seen from above.

    >>> bool(np.allclose(camera([np.pi / 2])[0], np.eye(3)))  # straight from above: y is up in the picture
    True
    """
    elevation, azimuth = np.broadcast_arrays(np.atleast_1d(elevation), azimuth)
    up, ahead = np.sin(elevation), np.cos(elevation)
    cosine, sine = np.cos(azimuth), np.sin(azimuth)
    none = np.zeros_like(up)
    rows = [[cosine, -sine, none], [sine * up, cosine * up, ahead], [-sine * ahead, -cosine * ahead, up]]
    return np.stack([np.stack(row, -1) for row in rows], 1)


def applied(matrix: Floats, vector: Floats) -> Floats:
    """Matrices ``(n, m, 3)`` times vectors ``(n, 3)``."""
    return (matrix @ vector[..., None])[..., 0]


def _each(*given: ArrayLike) -> list[Floats]:
    """Triples ``(n, 3)`` of numbers, those that are the same for all bodies repeated."""
    return list(np.broadcast_arrays(*(np.atleast_2d(np.asarray(triples, np.float64)) for triples in given)))
