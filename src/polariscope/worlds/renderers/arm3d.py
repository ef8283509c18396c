"""A robot arm that holds an object up: a rendered sibling of MPI3D (Gondal et al. 2019), 1,036,800 images.

The grid and its order are those of the original. What makes it harder than a room with one object in the middle is
kept: the object has to be found before its colour, size and shape can be read, and where it is found depends on three
factors at once, two joints and the height of the camera (Spec 001a, section 8.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import nearest
from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.numbered_draws import random_words
from polariscope.worlds.renderers.bodies import (
    Canvas,
    Convex,
    Floats,
    applied,
    beam,
    camera,
    chunks,
    ellipsoid,
    polygon,
    prism,
    pyramid,
)
from polariscope.worlds.world import GridWorld, worlds

Style = Literal["real", "toy"]
SMALLEST, LARGEST = 16, 256  # side of an image in pixels

SHAPES = ("cone", "cube", "cylinder", "hexagonal", "pyramid", "sphere")
COLOURS = ((236, 236, 230), (60, 170, 70), (205, 45, 45), (50, 80, 200), (125, 75, 40), (150, 150, 40))
BACKGROUNDS = ((120, 85, 150), (70, 150, 130), (225, 135, 115))  # purple, sea green, salmon
SIZES = (0.14, 0.2)  # half the height of the object

# Lengths are in units of the scene: x points right, y away from the camera, z up, and the arm stands at the origin.
REACH = 1.2  # half the side of the view
SHOULDER, UPPER_ARM, FOREARM = 0.55, 0.6, 0.45
SWEEP = np.radians(80)  # the arm turns this far to either side of the camera
LOWEST, HIGHEST = np.radians(-10), np.radians(75)  # of the upper arm above the horizon
BEND = np.radians(70)  # at the elbow, downwards: the arm hangs its object
ELEVATIONS = tuple(np.radians((10, 20, 30)).tolist())
AIM = (0.25, 0.45, 0.65)  # height of the point of the axis that is in the middle of the view: it rises with the camera
BACK = 1.6  # where the floor meets the wall

LIGHT = (-0.48, 0.6, 0.64)  # a window, up on the left
DIMMEST, BRIGHTEST = 0.75, 1.15  # light of the window over the picture, from the corner that is furthest from it
NOISE = 7.5  # grey levels that the sensor adds or takes at most

WALL, FLOOR, ARM, JOINT, OBJECT = range(5)  # paints
_ARM, _JOINT = (178, 182, 190), (70, 74, 84)


@worlds.register("arm3d")
@dataclass(frozen=True)
class Arm3D(GridWorld):
    """A robot arm with two joints, seen from three heights, holds one of six shapes in one of six colours.

    ``horizontal_axis`` turns the arm about its foot, from left to right; ``vertical_axis`` raises the upper arm. A
    higher camera looks down more steeply, and all it sees is lower in the picture, the object included.

    >>> world = Arm3D()
    >>> len(world), world.shape, world.grid.sizes
    (1036800, (3, 64, 64), (6, 6, 2, 3, 3, 40, 40))
    """

    channels: ClassVar[int] = 3

    size: int = 64
    """Side of the images in pixels."""
    style: Style = "real"
    """real: shaded, lit from the upper left and noisy, each image with a noise of its own; toy: flat colours."""
    positions: int = 40
    """Positions of each joint; fewer show the same range in larger steps."""
    seed: int = 0
    """Draws the noise."""

    def __post_init__(self) -> None:
        if not SMALLEST <= self.size <= LARGEST:
            raise ValueError(f"arm3d has a size of {SMALLEST} to {LARGEST} pixels a side, got {self.size}: use 64")
        if self.style not in get_args(Style):
            raise ValueError(f"arm3d has no style {self.style!r}: {nearest(str(self.style), get_args(Style))}")
        if not 2 <= self.positions <= 40:
            raise ValueError(f"the joints of arm3d have 2 to 40 positions each, got {self.positions}: use 40")

    @cached_property
    def grid(self) -> FactorGrid:
        def spread(low: float, high: float) -> tuple[float, ...]:
            return tuple(np.linspace(low, high, self.positions).tolist())

        return FactorGrid(
            (
                Factor("object_colour", len(COLOURS)),
                Factor("object_shape", len(SHAPES), "categorical"),
                Factor("object_size", len(SIZES), "ordinal", SIZES),
                Factor("camera_height", len(ELEVATIONS), "ordinal", ELEVATIONS),
                Factor("background_colour", len(BACKGROUNDS)),
                Factor("horizontal_axis", self.positions, "ordinal", spread(-SWEEP, SWEEP)),
                Factor("vertical_axis", self.positions, "ordinal", spread(LOWEST, HIGHEST)),
            )
        )

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        factors = self.grid.check(factors)
        images = np.empty((len(factors), *self.shape), np.uint8)
        for some in chunks(len(factors), self.size):
            light = self._light(factors[some])
            images[some] = np.rint(np.clip(light, 0, 255, out=light), out=light)
        return images

    def tip(self, factors: ArrayLike) -> Floats:
        """Column and row ``(n, 2)`` of the middle of the object, in pixels from the upper left corner of the image."""
        turn, *_, tip = self._joints(self.grid.check(factors))
        return (applied(turn, tip)[:, :2] * (1, -1) / REACH + 1) * self.size / 2

    def _joints(self, factors: NDArray[np.int64]) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """How the camera is turned; foot, shoulder, elbow and tip, from the point that it looks at."""
        height = factors[:, 3]
        across, up = (np.asarray(self.factors[k].values)[factors[:, k]] for k in (5, 6))

        def ahead(angle: Floats) -> Floats:
            """Unit vectors at these angles above the horizon."""
            return np.stack([np.cos(angle) * np.sin(across), -np.cos(angle) * np.cos(across), np.sin(angle)], 1)

        foot = np.asarray(AIM)[height, None] * (0, 0, -1)
        shoulder = foot + np.array((0, 0, SHOULDER))
        elbow = shoulder + UPPER_ARM * ahead(up)
        return camera(np.asarray(ELEVATIONS)[height]), foot, shoulder, elbow, elbow + FOREARM * ahead(up - BEND)

    def _light(self, factors: NDArray[np.int64]) -> Floats:
        """Images before they are rounded to bytes."""
        turn, foot, shoulder, elbow, tip = self._joints(factors)
        count = len(factors)
        canvas = Canvas(count, self.size, REACH, LIGHT)
        corner = applied(turn, foot + np.array((0, BACK, 0)))[:, 1]
        canvas.paint[-canvas.line < corner[:, None]] = FLOOR
        for part, paint in (
            (prism(polygon(12, 0.26, count), 0, 0.12, along=2).moved(foot), JOINT),
            (prism(polygon(8, 0.13, count), 0, SHOULDER, along=2).moved(foot), ARM),
            (beam(shoulder, elbow, 0.17), ARM),
            (beam(elbow, tip, 0.12), ARM),
            (ellipsoid(shoulder, 3 * [0.17]), JOINT),
            (ellipsoid(elbow, 3 * [0.13]), JOINT),
        ):
            canvas.draw(part.turned(turn), paint)
        for kind, name in enumerate(SHAPES):
            number = np.flatnonzero(factors[:, 1] == kind)
            half = np.asarray(SIZES)[factors[number, 2]]
            canvas.draw(held(name, half).moved(tip[number]).turned(turn[number]), OBJECT, number)
        colours = np.empty((count, 5, 3), np.float32)
        colours[:, WALL] = np.asarray(BACKGROUNDS)[factors[:, 4]]
        colours[:, FLOOR] = 0.7 * colours[:, WALL]
        colours[:, ARM], colours[:, JOINT] = _ARM, _JOINT
        colours[:, OBJECT] = np.asarray(COLOURS)[factors[:, 0]]
        images = canvas.images(colours, shaded=self.style == "real")
        if self.style == "real":
            images *= self._window
            images += self._noise(self.grid.to_index(factors))
        return images

    @cached_property
    def _window(self) -> Floats:
        """Light over the picture, which falls off from the upper left."""
        line = np.linspace(0, 1, self.size, dtype=np.float32)
        return BRIGHTEST - (BRIGHTEST - DIMMEST) * (line + line[:, None]) / 2

    def _noise(self, index: NDArray[np.int64]) -> Floats:
        """Noise ``(n, 3, size, size)`` in 16 levels from -NOISE to NOISE, that belongs to the number of the image."""
        words = random_words(self.seed, index, -(-3 * self.size**2 // 16)).astype("<u8", copy=False).view(np.uint8)
        levels = np.concatenate([words & 15, words >> 4], 1)[:, : 3 * self.size**2]
        return (levels * np.float32(NOISE / 7.5) - np.float32(NOISE)).reshape(-1, *self.shape)


def held(shape: str, half: Floats) -> Convex:
    """Objects of one shape about the origin, by half their heights ``(n,)``."""
    count = len(half)
    if shape == "sphere":
        return ellipsoid(np.zeros(3), np.repeat(half[:, None], 3, axis=1))
    if shape == "cone":
        return pyramid(16, half, 2 * half, count)
    if shape == "pyramid":
        return pyramid(4, 1.4 * half, 2 * half, count)
    if shape == "cube":
        return prism(polygon(4, 1.2 * half, count), -0.85 * half, 0.85 * half, along=2)
    if shape == "cylinder":
        return prism(polygon(12, 0.7 * half, count), -half, half, along=2)
    return prism(polygon(6, half, count), -0.5 * half, 0.5 * half, along=1)  # a nut that faces the camera
