"""Shapes3D without a download: one object in a coloured room, 480,000 images cast ray by ray.

The original (Burgess and Kim 2018) was rendered with code that was never released. This is a sibling with the same
factor grid and order: camera, room, object sizes and lights were fitted by least squares to the 50 images that its
public notebook shows. Each of them has a sibling here that is less than 3 of 255 grey levels away in the mean (2 over
all 50); what is missing are the faint textures of floor and walls and the facets of the round objects. The mean colour
of the whole set, and the mean contrast of its images, are those published of the original within 0.005 of 1.

Only scale, shape and orientation move anything: 480 geometries. The hues enter linearly, so a geometry is cast once
into layers (how much floor, wall, object, sky and highlight a pixel sees, shading included) and an image is a weighted
sum of five layers, clipped at white as an overexposed photograph is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.world import GridWorld, worlds

Floats = NDArray[np.floating[Any]]  # float32 in practice

SHAPES = ("cube", "cylinder", "sphere", "capsule")
SKY = (153, 226, 249)
SMALLEST, LARGEST = 8, 256  # side of an image in pixels; the layers of 480 geometries of 256 x 256 take 630 MB
FLOOR, WALL, OBJECT, SKYLIGHT, HIGHLIGHT = range(5)  # the layers

# The scene, fitted to real images. The room is 20 wide and deep; x points right, y into the picture
# at orientation 0, z up; the object stands on the floor at the origin.
ROOM = 10.0
WALL_BOTTOM, WALL_TOP = 0.274, 6.16  # the walls hover: the floor goes on below and beyond them
CAMERA_DISTANCE, CAMERA_HEIGHT = 8.612, 2.478  # the camera circles the object and looks along the horizon
FOCAL_LENGTH = 1.126  # in sides of the image
CUBE_HALF = 1.157
CYLINDER_RADIUS, CYLINDER_HEIGHT = 1.232, 2.479
SPHERE_RADIUS = 1.399
CAPSULE_RADIUS, CAPSULE_LENGTH = 1.068, 2.14  # the length without the caps
AMBIENT, HEADLIGHT, SPOTLIGHT, GLOSS = 0.361, 0.574, 0.976, 0.224
LIGHT = (-4.86, 1.72, 24.57)  # a spotlight that shines straight down and stays there when the camera turns
FOCUS = 11.1  # the spotlight falls off with this power of the cosine to the vertical

SAMPLES = 3  # rays a pixel and direction
_RAYS = 1 << 18  # cast at a time
_PIXELS = 1 << 19  # painted at a time: the layers of a part stay in the processor's cache


@worlds.register("shapes3d")
@dataclass(frozen=True)
class Shapes3D(GridWorld):
    """A cube, cylinder, sphere or capsule in a room whose floor, walls and object have one of ten hues each.

    ``size`` is the side of the images in pixels; other sides than 64 show the same scene coarser or finer.

    Hue k is the saturated colour ``hsv(k / 10, 1, 1)``, and hue 10 would be hue 0 again. Scales are
    ``linspace(0.75, 1.25, 8)``, orientations ``linspace(-30, 30, 15)`` degrees that turn the camera around the object.
    Which sign of the angle is a turn to the left in the original cannot be told from images without labels; here a
    negative one shows the corner at the right.

    >>> world = Shapes3D()
    >>> len(world), world.shape, world.grid.sizes
    (480000, (3, 64, 64), (10, 10, 10, 8, 4, 15))
    >>> world.observe([123456])[0, :, 0, 0].tolist()
    [153, 226, 249]
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"size": 16},)
    channels: ClassVar[int] = 3

    size: int = 64

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or not SMALLEST <= self.size <= LARGEST:
            raise ValueError(
                f"shapes3d images have a whole size of {SMALLEST} to {LARGEST} pixels a side, got {self.size!r}: "
                "the original has 64"
            )

    @cached_property
    def grid(self) -> FactorGrid:
        hues = tuple(k / 10 for k in range(10))
        return FactorGrid(
            (
                Factor("floor_hue", 10, "periodic", hues),
                Factor("wall_hue", 10, "periodic", hues),
                Factor("object_hue", 10, "periodic", hues),
                Factor("scale", 8, "ordinal", tuple(np.linspace(0.75, 1.25, 8).tolist())),
                Factor("shape", len(SHAPES), "categorical", tuple(map(float, range(len(SHAPES))))),
                Factor("orientation", 15, "ordinal", tuple(np.linspace(-30, 30, 15).tolist())),
            )
        )

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        factors = self.grid.check(factors)
        layers, geometry = self._layers_of(factors)
        paint = np.empty((len(factors), 3, 5), np.float32)
        paint[..., : OBJECT + 1] = 255 * hue_colours(factors[:, : OBJECT + 1] / 10).swapaxes(1, 2)
        paint[..., SKYLIGHT] = SKY
        paint[..., HIGHLIGHT] = 255
        images = np.empty((len(factors), 3, self.size**2), np.uint8)
        count = max(1, _PIXELS // self.size**2)
        for begin in range(0, len(factors), count):
            part = slice(begin, begin + count)
            light = paint[part] @ layers[geometry[part]]
            images[part] = np.rint(np.clip(light, 0, 255, out=light), out=light)
        return images.reshape(-1, *self.shape)

    def layers(self, factors: ArrayLike) -> Floats:
        """What images are made of, ``(n, 5, size, size)``: the light from floor, wall, object, sky and highlight.

        An image is the sum of the layers, each times its colour, clipped to 0..255. Beside an edge a weight may be
        slightly negative, as the down-filter has negative lobes. A layer that is 0 does not contribute to a pixel.
        """
        layers, geometry = self._layers_of(self.grid.check(factors))
        return layers[geometry].reshape(-1, 5, self.size, self.size)

    def _layers_of(self, factors: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
        """The layers of all geometries, computed for those of the images, and the geometry of each image."""
        layers, known = self._cast
        sizes = self.grid.sizes[3:]
        geometry = np.ravel_multi_index(tuple(factors[:, 3:].T), sizes)
        missing = np.zeros(len(known), bool)
        missing[geometry] = True
        missing &= ~known
        scales, orientations = np.asarray(self.factors[3].values), np.deg2rad(self.factors[5].values)
        count = max(1, _RAYS // (SAMPLES * self.size) ** 2)
        for shape, name in enumerate(SHAPES):
            scale, orientation = np.nonzero(missing.reshape(sizes)[:, shape])
            number = np.ravel_multi_index((scale, np.full_like(scale, shape), orientation), sizes)
            for begin in range(0, len(number), count):
                part = slice(begin, begin + count)
                seen = cast(name, scales[scale[part]], orientations[orientation[part]], self.size)
                layers[number[part]] = seen.reshape(len(seen), 5, -1)
                known[number[part]] = True
        return layers, geometry

    @cached_property
    def _cast(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Room for the layers of every geometry (memory is taken only when they are written), and which are there."""
        count = math.prod(self.grid.sizes[3:])
        return np.zeros((count, 5, self.size**2), np.float32), np.zeros(count, bool)


def hue_colours(hue: ArrayLike) -> Floats:
    """Saturated colours ``(..., 3)`` of hues, which have period 1.

    >>> hue_colours([0, 1 / 12, 0.5, 1]).tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """
    sixths = np.mod(6 * np.asarray(hue, np.float64)[..., None] - np.array([0, 2, 4]), 6)
    return np.clip(2 - np.minimum(sixths, 6 - sixths), 0, 1).astype(np.float32)


def cast(shape: str, scale: ArrayLike, orientation: ArrayLike, size: int) -> Floats:
    """The layers ``(n, 5, size, size)`` of one shape at ``n`` scales and ``n`` camera angles in radians."""
    enter, normal_at = SOLIDS[shape]
    angle = np.asarray(orientation, np.float32)[:, None]
    shrink = (1 / np.asarray(scale, np.float32))[:, None]
    level = np.zeros_like(angle)
    ahead, right = np.stack([-np.sin(angle), np.cos(angle), level]), np.stack([np.cos(angle), np.sin(angle), level])
    up = _column((0, 0, 1))[..., None]
    camera = np.float32(CAMERA_HEIGHT) * up - np.float32(CAMERA_DISTANCE) * ahead
    fine = SAMPLES * size
    slope = ((np.arange(fine, dtype=np.float32) + 0.5) / fine - 0.5) / np.float32(FOCAL_LENGTH)
    columns, rows = (axis.ravel() for axis in np.meshgrid(slope, slope))
    ray = ahead + right * columns - up * rows

    # To scale the object is to shrink everything else about its foot: the multiples of the rays stay what they are.
    to_object = enter(camera * shrink, ray * shrink)
    to_walls = (np.copysign(np.float32(ROOM), ray[:2]) - camera[:2]) / _nonzero(ray[:2])
    to_wall = to_walls.min(0)
    to_floor = np.float32(-CAMERA_HEIGHT) / np.minimum(ray[2], np.float32(-1e-9))
    height = camera[2] + to_wall * ray[2]
    sees_object = np.isfinite(to_object)
    sees_wall = ~sees_object & (height > WALL_BOTTOM) & (height < WALL_TOP)
    sees_floor = ~sees_object & ~sees_wall & (ray[2] < 0)

    def select(where: NDArray[np.bool_], distance: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Points seen, the rays that see them, and the number of the geometry of each."""
        number = np.flatnonzero(where)
        geometry = number // fine**2
        rays = ray.reshape(3, -1).take(number, axis=1)
        return camera[:, geometry, 0] + distance.take(number) * rays, rays, geometry

    def camera_light(normal: Floats, geometry: NDArray[np.int64]) -> Floats:
        return AMBIENT + HEADLIGHT * np.maximum(-_dot(normal, ahead[:, geometry, 0]), 0)

    layers = np.zeros((5, len(angle), fine**2), np.float32)
    layers[SKYLIGHT] = ~(sees_object | sees_wall | sees_floor)

    point, rays, geometry = select(sees_object, to_object)
    normal = normal_at(point * shrink[geometry, 0])
    layers[OBJECT, sees_object] = camera_light(normal, geometry) + spotlight(point, normal)
    layers[HIGHLIGHT, sees_object] = highlight(point, normal, rays)

    point, rays, geometry = select(sees_wall, to_wall)
    at_the_side = (to_walls[0] < to_walls[1])[sees_wall]
    normal = -np.sign(rays) * np.stack([at_the_side, ~at_the_side, np.zeros_like(at_the_side)])
    layers[WALL, sees_wall] = camera_light(normal, geometry) + spotlight(point, normal)

    point, _, geometry = select(sees_floor, to_floor)
    lit = np.isinf(enter(point * shrink[geometry, 0], (_column(LIGHT) - point) * shrink[geometry, 0]))
    layers[FLOOR, sees_floor] = AMBIENT + lit * spotlight(point, _column((0, 0, 1)))  # the camera light grazes it

    smaller = down_filter(size, SAMPLES)
    return smaller @ layers.reshape(5, len(angle), fine, fine).swapaxes(0, 1) @ smaller.T


def spotlight(point: Floats, normal: Floats) -> Floats:
    """Diffuse light that the spotlight adds at points ``(3, m)`` of a surface, if nothing is in its way."""
    to_light = _unit(_column(LIGHT) - point)
    return SPOTLIGHT * _beam(to_light) * np.maximum(_dot(normal, to_light), 0)


def highlight(point: Floats, normal: Floats, ray: Floats) -> Floats:
    """White light that points of a surface mirror from the spotlight into a ray.

    It starts at once where the surface turns to the light: the hard edge on the round objects of the original.
    """
    to_light = _unit(_column(LIGHT) - point)
    halfway = _unit(to_light - _unit(ray))
    return GLOSS * _beam(to_light) * np.maximum(_dot(normal, halfway), 0) * (_dot(normal, to_light) > 0)


def _beam(to_light: Floats) -> Floats:
    return np.maximum(to_light[2], 0) ** np.float32(FOCUS)


def down_filter(size: int, factor: int) -> Floats:
    """The matrix ``(size, size * factor)`` that shrinks with Keys' cubic (a = -1/2), which rings as the original does.

    >>> down_filter(8, 3).sum(1).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    centre, sample = np.arange(size) + 0.5, (np.arange(size * factor) + 0.5) / factor
    t = np.abs(sample - centre[:, None])
    weight = np.where(t < 1, (1.5 * t - 2.5) * t * t + 1, np.where(t < 2, ((2.5 - 0.5 * t) * t - 4) * t + 2, 0))
    return (weight / weight.sum(1, keepdims=True)).astype(np.float32)


# Where a ray enters an object of scale 1: multiples of the ray's direction, infinite where it passes by. Vectors have
# their coordinates in the first axis. A ray is inside a convex solid during one interval, and inside the intersection
# of two during the intersection of both.


def _slab(origin: Floats, direction: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """When rays enter and leave the space between two parallel planes, by the coordinate across them."""
    steep = _nonzero(direction)
    one, other = (np.float32(low) - origin) / steep, (np.float32(high) - origin) / steep
    return np.minimum(one, other), np.maximum(one, other)


def _ball(origin: Floats, direction: Floats, radius: float) -> tuple[Floats, Floats]:
    """When rays enter and leave a ball (three coordinates) or an endless tube (two) about 0; NaN if never."""
    speed = np.maximum(_dot(direction, direction), np.float32(1e-12))
    middle = -_dot(origin, direction) / speed
    # The nearest point first and then how deep it lies: in float32 the textbook discriminant would cancel.
    nearest = origin + middle * direction
    depth = np.float32(radius**2) - _dot(nearest, nearest)
    half = np.sqrt(np.where(depth > 0, depth, np.nan) / speed)
    return middle - half, middle + half


def _first(*intervals: tuple[Floats, Floats]) -> Floats:
    """When a ray enters the intersection of solids; infinite where it is never inside all of them, or starts there."""
    enter = reduce(np.maximum, (interval[0] for interval in intervals))
    leave = reduce(np.minimum, (interval[1] for interval in intervals))
    return np.where((enter < leave) & (enter > 0), enter, np.float32(np.inf))


def _enter_cube(origin: Floats, direction: Floats) -> Floats:
    bounds = (-CUBE_HALF, CUBE_HALF), (-CUBE_HALF, CUBE_HALF), (0, 2 * CUBE_HALF)
    return _first(*(_slab(o, d, *bound) for o, d, bound in zip(origin, direction, bounds, strict=True)))


def _cube_normal(point: Floats) -> Floats:
    offset = point - _column((0, 0, CUBE_HALF))
    face = np.abs(offset).argmax(0)
    return np.where(np.arange(3)[:, None] == face, np.sign(offset), np.float32(0))


def _enter_cylinder(origin: Floats, direction: Floats) -> Floats:
    return _first(_ball(origin[:2], direction[:2], CYLINDER_RADIUS), _slab(origin[2], direction[2], 0, CYLINDER_HEIGHT))


def _cylinder_normal(point: Floats) -> Floats:
    on_top = point[2] > np.float32(CYLINDER_HEIGHT - 1e-4)
    return np.where(on_top, _column((0, 0, 1)), point * _column((1, 1, 0)) / np.float32(CYLINDER_RADIUS))


def _enter_sphere(origin: Floats, direction: Floats) -> Floats:
    return _first(_ball(_lowered(origin, SPHERE_RADIUS), direction, SPHERE_RADIUS))


def _sphere_normal(point: Floats) -> Floats:
    return _lowered(point, SPHERE_RADIUS) / np.float32(SPHERE_RADIUS)


def _enter_capsule(origin: Floats, direction: Floats) -> Floats:
    low, high = CAPSULE_RADIUS, CAPSULE_RADIUS + CAPSULE_LENGTH
    tube = _first(_ball(origin[:2], direction[:2], CAPSULE_RADIUS), _slab(origin[2], direction[2], low, high))
    caps = (_first(_ball(_lowered(origin, height), direction, CAPSULE_RADIUS)) for height in (low, high))
    return reduce(np.minimum, caps, tube)


def _capsule_normal(point: Floats) -> Floats:
    axis = np.clip(point[2], CAPSULE_RADIUS, CAPSULE_RADIUS + CAPSULE_LENGTH)
    return _lowered(point, axis) / np.float32(CAPSULE_RADIUS)


def _lowered(point: Floats, height: float | Floats) -> Floats:
    return np.stack([point[0], point[1], point[2] - np.float32(height)])


def _column(vector: tuple[float, float, float]) -> Floats:
    return np.array(vector, np.float32)[:, None]


def _dot(one: Floats, other: Floats) -> Floats:
    return np.einsum("k...,k...->...", one, other)


def _unit(vector: Floats) -> Floats:
    return vector / np.sqrt(_dot(vector, vector))


def _nonzero(direction: Floats) -> Floats:
    """Directions one may divide by: a ray parallel to a plane reaches it a very long way off."""
    return np.where(np.abs(direction) < 1e-9, np.float32(1e-9), direction)


Solid = tuple[Callable[[Floats, Floats], Floats], Callable[[Floats], Floats]]
SOLIDS: dict[str, Solid] = {  # where a ray enters, and the outward normal at a point of the surface
    "cube": (_enter_cube, _cube_normal),
    "cylinder": (_enter_cylinder, _cylinder_normal),
    "sphere": (_enter_sphere, _sphere_normal),
    "capsule": (_enter_capsule, _capsule_normal),
}
