"""Many things on a turntable: rendered siblings of Cars3D and SmallNORB, whose types are unordered categories.

Every type is put together from parts whose sizes are drawn from (``seed``, type), so a world has as many types as one
asks for, and a type stays what it is however many there are (Spec 001a, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.renderers.bodies import (
    Canvas,
    Convex,
    Faceted,
    Floats,
    beam,
    box,
    camera,
    chunks,
    ellipsoid,
    prism,
)
from polariscope.worlds.renderers.shapes3d import hue_colours
from polariscope.worlds.world import GridWorld, worlds

SMALLEST, LARGEST = 16, 256  # side of an image in pixels
REACH = 1.15  # half the side of the view
DRAWS = 12  # uniform numbers that make a type
LIGHT = (-0.48, 0.6, 0.64)

BODY, GLASS, TYRE, HUB, FRONT_LIGHT, TAIL_LIGHT = range(1, 7)  # paints; 0 is the background
CAR_COLOURS = ((245, 245, 245), (0, 0, 0), (66, 84, 104), (38, 38, 42), (190, 192, 196), (255, 244, 190), (200, 25, 25))
TOY_GREYS = ((200,), (225,))

Painted = tuple[Convex, int]


@worlds.register("cars")
@dataclass(frozen=True)
class Cars(GridWorld):
    """Cars of 183 types on a turntable, seen from 4 heights: a rendered sibling of Cars3D.

    A type has its own length, height, bonnet, boot, wheels and colour.

    >>> world = Cars()
    >>> len(world), world.shape, world.grid.sizes
    (17568, (3, 64, 64), (4, 24, 183))
    """

    channels: ClassVar[int] = 3

    size: int = 64
    """Side of the images in pixels."""
    types: int = 183
    seed: int = 0
    """Draws the types."""

    def __post_init__(self) -> None:
        _check_size("cars", self.size)
        _check_count("types", "cars", self.types)

    @cached_property
    def grid(self) -> FactorGrid:
        return FactorGrid(
            (
                Factor("elevation", 4, "ordinal", _radians(np.linspace(8, 38, 4))),
                Factor("azimuth", 24, "periodic", _radians(np.arange(24) * 15)),
                Factor("object_type", self.types, "categorical"),
            )
        )

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        factors = self.grid.check(factors)
        images = np.empty((len(factors), *self.shape), np.uint8)
        elevation, azimuth = (np.asarray(self.factors[k].values)[factors[:, k]] for k in (0, 1))
        for some in chunks(len(factors), self.size):
            draws = uniform(self.seed, factors[some, 2], DRAWS)
            canvas = Canvas(len(draws), self.size, REACH, LIGHT)
            turn = camera(elevation[some], azimuth[some])
            for part, paint in car(draws):
                canvas.draw(part.turned(turn), paint)
            colours = np.tile(np.asarray(CAR_COLOURS, np.float32), (len(draws), 1, 1))
            colours[:, BODY] = varnish(draws[:, -3:])
            images[some] = np.rint(canvas.images(colours))
        return images


@worlds.register("toys")
@dataclass(frozen=True)
class Toys(GridWorld):
    """Grey toys of 5 kinds, 10 of each, on a turntable, in 6 lights: a rendered sibling of SmallNORB.

    The kinds are four-legged animals, human figures, aeroplanes, trucks and cars. The light moves from left to right.

    >>> world = Toys()
    >>> len(world), world.shape, world.grid.sizes
    (48600, (1, 64, 64), (5, 10, 9, 18, 6))
    """

    size: int = 64
    """Side of the images in pixels."""
    instances: int = 10
    """Toys of each kind."""
    seed: int = 0
    """Draws the toys."""

    def __post_init__(self) -> None:
        _check_size("toys", self.size)
        _check_count("instances", "toys", self.instances)

    @cached_property
    def grid(self) -> FactorGrid:
        return FactorGrid(
            (
                Factor("category", len(KINDS), "categorical"),
                Factor("instance", self.instances, "categorical"),
                Factor("elevation", 9, "ordinal", _radians(np.arange(30, 71, 5))),
                Factor("azimuth", 18, "periodic", _radians(np.arange(18) * 20)),
                Factor("lighting", 6, "ordinal", _radians(np.linspace(-75, 75, 6))),
            )
        )

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        factors = self.grid.check(factors)
        images = np.empty((len(factors), *self.shape), np.uint8)
        elevation, azimuth, lighting = (np.asarray(self.factors[k].values)[factors[:, k]] for k in (2, 3, 4))
        for some in chunks(len(factors), self.size):
            category, instance = factors[some, 0], factors[some, 1]
            draws = uniform(self.seed, len(KINDS) * instance + category, DRAWS)
            angle = lighting[some]
            light = np.stack([0.8 * np.sin(angle), np.full_like(angle, 0.6), 0.8 * np.cos(angle)], 1)
            canvas = Canvas(len(draws), self.size, REACH, light)
            turn = camera(elevation[some], azimuth[some])
            for kind, parts in enumerate(KINDS.values()):
                number = np.flatnonzero(category == kind)
                for part in parts(draws[number]):
                    canvas.draw(part.turned(turn[number]), BODY, number)
            images[some] = np.rint(canvas.images([TOY_GREYS]))
        return images


# Bodies of n types from n rows of uniform numbers: x points ahead, y to the left and z up, about the middle of each.


def car(draws: Floats) -> list[Painted]:
    """Saloons, hatchbacks, vans and all between."""
    u = draws.T
    length, width = 0.75 + 0.25 * u[0], 0.34 + 0.08 * u[1]  # half of them
    wheel = 0.15 + 0.06 * u[2]
    bottom, waist = 0.6 * wheel, 0.4 + 0.12 * u[3]
    roof = waist + 0.2 + 0.22 * u[4]
    nose = bottom + (0.7 + 0.25 * u[5]) * (waist - bottom)
    windscreen = length * (0.65 - 0.45 * u[6])
    rear = -length * (0.97 - 0.4 * u[7] * (u[7] > 0.3))  # no boot at all in every third
    slant_ahead, slant_behind = 0.1 + 0.17 * u[8], 0.03 + 0.12 * u[7]
    middle = roof / 2
    bottom, waist, roof, nose, ground = (height - middle for height in (bottom, waist, roof, nose, 0))
    sill = [(-length, bottom), (length, bottom), (length, nose), (windscreen, waist), (-length, waist)]
    cabin = [(rear, waist), (windscreen, waist), (windscreen - slant_ahead, roof), (rear + slant_behind, roof)]
    top = [
        (rear + slant_behind - 0.02, roof - 0.03),
        (windscreen - slant_ahead + 0.02, roof - 0.03),
        (windscreen - slant_ahead - 0.02, roof + 0.03),
        (rear + slant_behind + 0.02, roof + 0.03),
    ]
    pillar = (windscreen - slant_ahead + rear + slant_behind) / 2
    upright = [(pillar - 0.03, waist), (pillar + 0.03, waist), (pillar + 0.03, roof), (pillar - 0.03, roof)]
    parts: list[Painted] = [
        (_across(sill, width), BODY),
        (_across(cabin, 0.9 * width), GLASS),
        (_across(top, 0.92 * width), BODY),
        (_across(upright, 0.92 * width), BODY),
    ]
    for side in (-1, 1):
        for axle in (-0.62, 0.62):
            at = _points(axle * length, side * width, ground + wheel)
            parts.append((ellipsoid(at, _points(wheel, 0.07, wheel)), TYRE))
            parts.append((ellipsoid(at, _points(0.55 * wheel, 0.085, 0.55 * wheel)), HUB))
        for end, height, paint in ((length, nose, FRONT_LIGHT), (-length, waist, TAIL_LIGHT)):
            lamp = _points(end, side * 0.75 * width, height - 0.07)
            parts.append((ellipsoid(lamp, (0.04, 0.08, 0.05)), paint))
    return parts


def truck(draws: Floats) -> list[Convex]:
    u = draws.T
    length, width, wheel = 0.75 + 0.15 * u[0], 0.28 + 0.08 * u[1], 0.13 + 0.04 * u[2]
    cab, load = 0.22 + 0.12 * u[3], 0.3 + 0.35 * u[4]  # half the length of the cab, height of the load
    floor = 1.6 * wheel
    cab_height = 0.4 + 0.25 * u[5]
    lift = (floor + np.maximum(load, cab_height)) / 2
    front = length - cab
    parts = [
        box(_points(0, 0, floor - lift - 0.05), _points(length, 0.8 * width, 0.05)),
        box(_points(front, 0, floor + cab_height / 2 - lift), _points(cab, width, cab_height / 2)),
        box(
            _points(-cab - 0.03, 0, floor + load / 2 - lift),
            _points(length - cab - 0.03, width, load / 2),
        ),
    ]
    bonnet = _points(length + 0.08 * u[6], 0, floor + 0.1 - lift)
    parts.append(box(bonnet, _points(0.02 + 0.1 * u[6], 0.9 * width, 0.1)))
    wheels = [
        ellipsoid(_points(at * length, side * width, wheel - lift), _points(wheel, 0.08, wheel))
        for side in (-1, 1)
        for at in (-0.75, -0.4, 0.65)
    ]
    return [*parts, *wheels]


def aeroplane(draws: Floats) -> list[Convex]:
    u = draws.T
    length, girth = 0.85 + 0.15 * u[0], 0.11 + 0.06 * u[1]
    span, chord, sweep = 0.7 + 0.3 * u[2], 0.16 + 0.12 * u[3], 0.45 * u[4]
    height = -0.4 * girth + 0.9 * girth * (u[5] > 0.7)  # wings below, or in every third above
    tail, fin = 0.28 + 0.15 * u[6], 0.25 + 0.2 * u[7]
    parts: list[Convex] = [ellipsoid(np.zeros(3), _points(length, girth, girth))]
    for side in (-1, 1):
        for root, reach, wide, back in ((0.1, span, chord, sweep), (-0.85, tail, 0.5 * chord, 0.5 * sweep)):
            corners = [
                (root * length + wide, 0),
                (root * length + 0.4 * wide - back, side * reach),
                (root * length - 0.4 * wide - back, side * reach),
                (root * length - wide, 0),
            ]
            outline = np.stack([_points(*corner) for corner in corners], 1)
            level = height if root > 0 else 0.5 * girth
            parts.append(prism(outline[:, ::side], level - 0.025, level + 0.025, along=2))
    rudder = [(-0.98 * length, 0.0), (-0.65 * length, 0.0), (-0.9 * length, fin), (-1.02 * length, fin)]
    parts.append(_across(rudder, 0.025))
    for side in (-1, 1):  # engines
        at = _points(0.15 * length - 0.4 * sweep, side * 0.45 * span, height - 0.07)
        parts.append(ellipsoid(at, _points(0.16, 0.02 + 0.06 * u[8], 0.02 + 0.06 * u[8])))
    return parts


def animal(draws: Floats) -> list[Convex]:
    u = draws.T
    length, girth = 0.45 + 0.2 * u[0], 0.17 + 0.13 * u[1]
    legs, neck, head = 0.25 + 0.35 * u[2], 0.4 * u[3], 0.13 + 0.07 * u[4]
    back = legs + girth - (legs + 1.5 * girth + neck + 2 * head) / 2
    top = _points(length + 0.5 * head + 0.3 * neck, 0, back + 0.5 * girth + neck)
    parts: list[Convex] = [
        ellipsoid(_points(0, 0, back), _points(length, girth, girth)),
        ellipsoid(top, _points(1.3 * head, 0.8 * head, head)),
        ellipsoid(
            _points(length - 0.1 + 0.2 * neck, 0, back + 0.25 * girth + neck / 2),
            _points(0.1 + 0.3 * head, 0.1, 0.15 + 0.65 * neck),
        ),
        ellipsoid(_points(-length - 0.12, 0, back + 0.1), _points(0.12 + 0.12 * u[5], 0.04, 0.04 + 0.1 * u[6])),
    ]
    thick = 0.05 + 0.05 * u[7]
    for side in (-1, 1):
        for end in (-0.7, 0.7):
            foot = _points(end * length, 0.6 * side * girth, back - girth - legs / 2 + 0.05)
            parts.append(box(foot, _points(thick, thick, legs / 2 + 0.05)))
        ear = top + _points(-0.7 * head, 0.6 * side * head, 1.1 * head)
        parts.append(ellipsoid(ear, _points(0.04, 0.05, 0.05 + 0.16 * u[8])))
    return parts


def human(draws: Floats) -> list[Convex]:
    u = draws.T
    legs, trunk, head = 0.6 + 0.2 * u[0], 0.33 + 0.06 * u[1], 0.15 + 0.04 * u[2]  # the trunk by its half
    wide, deep = 0.2 + 0.1 * u[3], 0.13 + 0.08 * u[4]
    stride, raised, brim = 0.3 * u[5], u[6], head + 0.12 * u[7]
    hip = legs - (legs + 2 * trunk + 2 * head) / 2
    shoulder = hip + 1.7 * trunk
    parts: list[Convex] = [
        ellipsoid(_points(0, 0, hip + trunk), _points(deep, wide, 1.1 * trunk)),
        ellipsoid(_points(0.03, 0, hip + 2.1 * trunk + head), _points(0.9 * head, 0.85 * head, head)),
        ellipsoid(_points(0, 0, hip + 2.1 * trunk + 1.7 * head), _points(brim, brim, 0.05)),
    ]
    for side in (-1, 1):
        ahead = side * stride
        leg = _points(0.5 * ahead, side * 0.55 * wide, hip - legs / 2 + 0.05)
        shoe = _points(0.5 * ahead + 0.08, side * 0.55 * wide, hip - legs + 0.07)
        parts += [box(leg, _points(0.09, 0.08, legs / 2)), box(shoe, (0.17, 0.08, 0.05))]
        hand = _points(0.1 - ahead, side * (wide + 0.1 + 0.25 * raised), shoulder - 0.28 + 0.45 * raised)
        parts.append(beam(_points(0, side * 0.8 * wide, shoulder), hand, 0.07))
    return parts


KINDS: dict[str, Callable[[Floats], list[Convex]]] = {
    "animal": animal,
    "human": human,
    "aeroplane": aeroplane,
    "truck": truck,
    "car": lambda draws: [part for part, _ in car(draws)],
}


def varnish(draws: Floats) -> Floats:
    """Colours ``(n, 3)`` of cars from uniform numbers ``(n, 3)``: any hue, from dull to bright."""
    hue, saturation, value = draws.T[..., None]
    saturation, value = 0.9 * np.sqrt(saturation), 110 + 145 * value
    return value * (1 - saturation + saturation * hue_colours(hue[:, 0]))


def _across(profile: list[tuple[Floats, Floats]], width: float | Floats) -> Faceted:
    """An outline in x and z, as wide to the left as to the right."""
    return prism(np.stack([_points(*corner) for corner in profile], 1), -width, width, along=1)


def _points(*coordinates: float | Floats) -> Floats:
    return np.stack(np.broadcast_arrays(*coordinates), -1)


def _radians(degrees: ArrayLike) -> tuple[float, ...]:
    return tuple(np.radians(degrees).tolist())


def _check_size(world: str, size: int) -> None:
    if not SMALLEST <= size <= LARGEST:
        raise ValueError(f"{world} have a size of {SMALLEST} to {LARGEST} pixels a side, got {size}: use 64")


def _check_count(what: str, world: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{world} need at least one of {what}, got {count}: the original's number is the default")
