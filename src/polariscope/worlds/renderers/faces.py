"""Painted faces: a rendered sibling of CelebGlow, persons who smile, go blond and grow old in steps.

The original decoded the latent space of a generative model (Spec 001a, section 8.6); these are painted, layer over
layer, from a person's features and three factors. Each factor has its own marks in the picture, which change in one
direction only: the hair becomes brighter with ``blond``, the corners of the mouth rise with ``smile``, and with ``age``
wrinkles darken, hair turns grey and the jaw widens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, FactorGrid
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.world import GridWorld, worlds

Floats = NDArray[np.floating[Any]]

SMALLEST, LARGEST = 24, 256  # side of an image in pixels
_PIXELS = 1 << 18  # painted at a time: what they need stays in the processor's cache

SKINS = ((255, 226, 205), (238, 196, 164), (205, 152, 115), (150, 102, 72), (98, 66, 48))  # from light to dark
HAIRS = ((20, 18, 20), (50, 32, 24), (82, 48, 28), (96, 40, 22))
BLOND, GREY, WHITE, PUPIL = (240, 205, 125), (196, 196, 200), (246, 246, 244), (18, 16, 18)
IRISES = ((62, 96, 150), (70, 120, 84), (96, 64, 40), (52, 36, 28))
LIMITS = {  # of lengths in a person's face, in halves of the picture
    "wide": (0.4, 0.5),
    "high": (0.56, 0.66),
    "taper": (0.16, 0.3),
    "hair_volume": (0.06, 0.16),
    "hair_length": (0.0, 1.0),
    "hairline": (0.55, 0.8),
    "parting": (-0.2, 0.2),
    "eye_height": (-0.12, -0.04),
    "eye_apart": (0.16, 0.23),
    "eye_open": (0.045, 0.07),
    "brow_arch": (0.0, 0.06),
    "nose": (0.14, 0.22),
    "nostrils": (0.05, 0.085),
    "mouth": (0.16, 0.21),
}
FEATURES = len(LIMITS) + 9  # uniform numbers that make a person: nine more for the colours
FROWN, SMILE = -0.05, 0.13  # by how much the corners of the mouth are above its middle; the face is about 1.3 high
WRINKLE = 0.5  # share of the light that the deepest wrinkles take
GREYING = 0.6  # share of grey in old hair


@worlds.register("faces")
@dataclass(frozen=True)
class Faces(GridWorld):
    """A thousand rendered faces with 6 levels each of smile, blond hair and age.

    A person is a function of (``seed``, number): head, eyes, nose, skin, hair, clothes and background.

    >>> world = Faces()
    >>> len(world), world.shape, world.grid.sizes
    (216000, (3, 64, 64), (1000, 6, 6, 6))
    """

    channels: ClassVar[int] = 3

    size: int = 64
    """Side of the images in pixels."""
    persons: int = 1000
    levels: int = 6
    """Steps of each factor."""
    seed: int = 0
    """Draws the persons."""

    def __post_init__(self) -> None:
        if not SMALLEST <= self.size <= LARGEST:
            raise ValueError(f"faces have a size of {SMALLEST} to {LARGEST} pixels a side, got {self.size}: use 64")
        if self.persons < 1:
            raise ValueError(f"faces need at least 1 person; got {self.persons}: the original has 1000")
        if not 2 <= self.levels <= 20:
            raise ValueError(f"faces change in 2 to 20 levels, got {self.levels}: the original has 6")

    @cached_property
    def grid(self) -> FactorGrid:
        steps = tuple(np.linspace(0, 1, self.levels).tolist())
        changing = (Factor(name, self.levels, "ordinal", steps) for name in ("smile", "blond", "age"))
        return FactorGrid((Factor("person", self.persons, "categorical"), *changing))

    def render(self, factors: ArrayLike) -> NDArray[np.uint8]:
        factors = self.grid.check(factors)
        images = np.empty((len(factors), *self.shape), np.uint8)
        count = max(1, _PIXELS // self.size**2)
        for begin in range(0, len(factors), count):
            some = factors[begin : begin + count]
            features = uniform(self.seed, some[:, 0], FEATURES)
            smile, blond, age = some[:, 1:].T / (self.levels - 1)
            images[begin : begin + count] = np.rint(paint(Person.of(features), smile, blond, age, self.size))
        return images


@dataclass(frozen=True)
class Person:
    """What does not change about ``n`` persons: colours ``(n, 3)``, and lengths ``(n, 1, 1)`` (see :data:`LIMITS`).

    Heights count downwards from the middle of the picture, as rows do.
    """

    wide: Floats
    high: Floats
    taper: Floats
    hair_volume: Floats
    hair_length: Floats
    hairline: Floats
    parting: Floats
    eye_height: Floats
    eye_apart: Floats
    eye_open: Floats
    brow_arch: Floats
    nose: Floats
    nostrils: Floats
    mouth: Floats
    skin: Floats
    hair: Floats
    iris: Floats
    cloth: Floats
    wall: Floats

    @classmethod
    def of(cls, features: Floats) -> Person:
        """Persons from uniform numbers ``(n, FEATURES)``."""
        lengths = {
            name: np.asarray(low + (high - low) * column, np.float32)[:, None, None]
            for (name, (low, high)), column in zip(LIMITS.items(), features.T, strict=False)
        }
        rest = features[:, len(LIMITS) :]
        return cls(
            **lengths,
            skin=_mixed(SKINS, rest[:, 0]),
            hair=_mixed(HAIRS, rest[:, 1]),
            iris=np.asarray(IRISES)[(rest[:, 2] * len(IRISES)).astype(np.int64)],
            cloth=40 + 180 * rest[:, 3:6],
            wall=120 + 120 * rest[:, 6:9],
        )


class Painting:
    """Pictures ``(n, 3, size, size)`` that layers are laid on; edges are one pixel wide.

    ``x`` and ``y`` point right and down from the middle; ``side`` is x on either half of the face, which are alike.
    """

    def __init__(self, wall: Floats, size: int) -> None:
        line = (2 * np.arange(size, dtype=np.float32) + 1) / size - 1
        self.x, self.y = line[None, None, :], line[None, :, None]
        self.side = np.abs(self.x)
        self.pixels = np.float32(size / 2)  # in a unit of length
        self.picture = np.repeat(wall.astype(np.float32), size**2, axis=1).reshape(-1, 3, size, size)

    def lay(self, colour: ArrayLike, share: Floats) -> None:
        """Cover a share of each pixel with a colour, the same for all or ``(n, 3)``."""
        self.picture += share[:, None] * (np.asarray(colour, np.float32).reshape(-1, 3, 1, 1) - self.picture)

    def darken(self, share: Floats) -> None:
        self.picture *= 1 - share[:, None]

    def inside(self, distance: Floats) -> Floats:
        """Share of each pixel by its distance to an edge, negative inside."""
        return np.clip(0.5 - self.pixels * distance, 0, 1)

    def oval(self, x: Floats, y: Floats, wide: float | Floats, high: float | Floats) -> Floats:
        """Share within an ellipse, by places from its middle and its two radii."""
        return self.inside((np.sqrt((x / wide) ** 2 + (y / high) ** 2) - 1) * np.minimum(wide, high))

    def stroke(self, distance: Floats, thick: float | Floats) -> Floats:
        """Share within a line, by the distance from its middle and half its thickness."""
        return self.inside(np.abs(distance) - thick)


def paint(person: Person, smile: Floats, blond: Floats, age: Floats, size: int) -> Floats:
    """Pictures ``(n, 3, size, size)`` of persons, by factors ``(n,)`` in [0, 1]. What is in front comes last."""
    smile, blond, age = (np.asarray(factor, np.float32)[:, None, None] for factor in (smile, blond, age))
    hair = person.hair + (np.asarray(BLOND) - person.hair) * blond[:, 0]
    hair = hair + (np.asarray(GREY) - hair) * GREYING * age[:, 0]
    painting = Painting(person.wall, size)
    _hair_behind(painting, person, hair)
    face = _head(painting, person, age)
    _eyes(painting, person, hair)
    _nose(painting, person)
    _mouth(painting, person, smile)
    _wrinkles(painting, person, WRINKLE * age * face)
    _hair_above(painting, person, hair)
    return painting.picture


def _hair_behind(painting: Painting, person: Person, hair: Floats) -> None:
    width, down = person.wide + person.hair_volume, 0.45 * person.hair_length
    around = painting.oval(painting.x, painting.y + 0.1, width, person.high + 0.6 * person.hair_volume)
    around = around * painting.inside(painting.y - 0.33)
    hanging = painting.inside(painting.side - width) * painting.inside(np.abs(painting.y - down) - down)
    painting.lay(hair, np.maximum(around, hanging * (person.hair_length > 0.35)))


def _head(painting: Painting, person: Person, age: Floats) -> Floats:
    """Shoulders, neck, ears and face; the share of each pixel that the face covers."""
    x, y, side, skin = painting.x, painting.y, painting.side, person.skin
    painting.lay(person.cloth, painting.oval(x, y - 1.2, 0.8, 0.5))
    painting.lay(0.86 * skin, painting.inside(side - 0.2) * painting.inside(np.abs(y - 0.6) - 0.2))
    painting.lay(0.92 * skin, painting.oval(side - person.wide, y, 0.07, 0.13))
    narrower = person.taper * (1 - 0.55 * age) * np.maximum(y / person.high, 0) ** 2  # the jaw, less so with age
    face = painting.oval(x / (1 - narrower), y, person.wide, person.high)
    painting.lay(skin, face)
    return face


def _eyes(painting: Painting, person: Person, hair: Floats) -> None:
    x, y = painting.side - person.eye_apart, painting.y - person.eye_height
    painting.lay(WHITE, painting.oval(x, y, 0.1, person.eye_open))
    painting.lay(person.iris, painting.oval(x, y, 0.052, np.minimum(person.eye_open, 0.052)))
    painting.lay(PUPIL, painting.oval(x, y, 0.024, 0.024))
    brow = painting.stroke(y + 0.13 + person.brow_arch - 4 * x**2, 0.022) * painting.inside(np.abs(x) - 0.12)
    painting.lay(0.55 * hair + 10, brow)


def _nose_tip(person: Person) -> Floats:
    return person.eye_height + 0.06 + person.nose


def _nose(painting: Painting, person: Person) -> None:
    y = painting.y - _nose_tip(person)
    bridge = painting.side - 0.35 * person.nostrils - 0.1 * (painting.y - person.eye_height)
    painting.darken(0.22 * painting.stroke(bridge, 0.014) * painting.inside(np.abs(y + 0.1) - 0.1))
    painting.darken(0.45 * painting.oval(painting.x, y, person.nostrils, 0.022))


def _mouth(painting: Painting, person: Person, smile: Floats) -> None:
    """A parabola: the higher the corners, the lower its middle."""
    rise = FROWN + (SMILE - FROWN) * smile
    outwards = (painting.side / person.mouth) ** 2
    y = painting.y - (_nose_tip(person) + 0.19 + rise * (0.4 - outwards))
    ends = painting.inside(painting.side - person.mouth)
    lips = painting.stroke(y, 0.035 * np.sqrt(np.maximum(1 - 0.8 * outwards, 0)))
    painting.lay(person.skin * (0.78, 0.5, 0.52), lips * ends)
    painting.darken(0.5 * painting.stroke(y, 0.008) * ends)


def _wrinkles(painting: Painting, person: Person, depth: Floats) -> None:
    """From the nose to the mouth, on the forehead, beside the eyes and below them."""
    x, y, side = painting.x, painting.y, painting.side
    below_tip, beside_eye, below_eye = y - _nose_tip(person), side - person.eye_apart, y - person.eye_height
    fold = painting.stroke(side - 0.15 - 0.5 * below_tip, 0.014) * painting.inside(np.abs(below_tip - 0.05) - 0.12)
    painting.darken(depth * fold)
    for height in (0.48, 0.6, 0.72):
        furrow = painting.stroke(y + person.high * height - 0.25 * x**2, 0.011)
        painting.darken(depth * furrow * painting.inside(side - 0.6 * person.wide))
    crow = painting.stroke(np.abs(below_eye) - 0.5 * (beside_eye - 0.12), 0.01)
    painting.darken(depth * crow * painting.inside(np.abs(beside_eye - 0.17) - 0.05))
    bag = painting.stroke(below_eye - person.eye_open - 0.035 + 1.5 * beside_eye**2, 0.012)
    painting.darken(depth * bag * painting.inside(np.abs(beside_eye) - 0.09))


def _hair_above(painting: Painting, person: Person, hair: Floats) -> None:
    edge = person.high * (0.25 * np.abs(painting.x - person.parting) / person.wide - person.hairline)
    top = painting.oval(painting.x, painting.y + 0.05, person.wide + 0.03, person.high + 0.06)
    painting.lay(hair, top * painting.inside(painting.y - edge))


def _mixed(colours: tuple[tuple[int, int, int], ...], place: Floats) -> Floats:
    """Colours ``(n, 3)`` at places ``(n,)`` in [0, 1] along a line of colours."""
    steps = np.linspace(0, 1, len(colours))
    return np.stack([np.interp(place, steps, channel) for channel in zip(*colours, strict=True)], 1)
