"""Augmentation: images flipped, rotated, sheared, shifted, cropped, blurred, brightened, made noisy and partly erased,
anew at every block of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from polariscope.registry import Settings
from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.targets import UNLABELLED
from polariscope.worlds.view import View, drawn
from polariscope.worlds.world import World, worlds

DRAWS = 15
"""Numbers that are drawn for an image, besides its noise."""


@dataclass(frozen=True, eq=False)
class Changes:
    """The changes of each image, in this order: flip, rotation, shear, shift, crop, blur, brightness, noise,
    erasing."""

    upside_down: NDArray[np.bool_]
    mirrored: NDArray[np.bool_]
    moves: NDArray[np.int64]
    """Down and right, ``(n, 2)``."""
    corners: NDArray[np.int64]
    """Top and left of the crop, ``(n, 2)``."""
    turns: NDArray[np.float64]
    """Counter-clockwise about the middle, in radians."""
    factors: NDArray[np.float64]
    offsets: NDArray[np.float64]
    """Offset added after the factor: for bytes as a share of white, for floats as it is."""
    slants: NDArray[np.float64]
    """Pixels to the right for each pixel up, seen from the middle."""
    blurs: NDArray[np.float64]
    """Standard deviations of the blur, in pixels."""
    noise: NDArray[np.float32]
    """Noise added to each pixel, ``(n, channels, height, width)``, in the units of the offsets; of one pixel if it is
    the same for all."""
    holes: NDArray[np.int64]
    """Top, left, height and width of the erased rectangle, ``(n, 4)``."""


@worlds.register("augmented")
@dataclass(frozen=True)
class Augmented(View):
    """A world with random flips, rotations, shears, shifts, crops, blur, brightness, noise and holes of its images.

    Every block of training steps has draws of its own, a function of the run's seed, the block and the number of the
    observation. Held-out losses, examinations and contact sheets use the unchanged images, cropped to the centre. Bytes
    stay bytes, floats stay floats. Both images of a pair are changed in the same way, so that the transition between
    them does not change (Spec 001a, section 4.6).

    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> world = Augmented(MiniSprites(), flip="horizontal", crop=12)
    >>> world.shape, bool((world.drawn(0, 1).observe([5]) == world.drawn(0, 1).observe([4, 5])[1]).all())
    ((1, 12, 12), True)
    """

    examples: ClassVar[tuple[Settings, ...]] = (
        {"of": "mini-sprites", "flip": "both", "shift": 2, "crop": 12, "brightness": 0.2},
    )

    of: World
    flip: Literal["none", "horizontal", "vertical", "both"] = "none"
    """Mirror every second image left to right, top to bottom, or each of the two."""
    shift: int = 0
    """Shift images by up to this many pixels, vertically and horizontally."""
    turn: float = 0.0
    """Rotate images by up to this many degrees, to the nearest pixels: masks remain masks."""
    shear: float = 0.0
    """Shear images by up to this many degrees, about their middle and to the nearest pixels."""
    fill: Literal["zero", "edge"] = "zero"
    """Pixels that fill the gaps: zeros, or copies of the edge."""
    crop: int | None = None
    """Crop a random square of this side in pixels from each image."""
    brightness: float = 0.0
    """Multiply each image by a factor of up to so much above or below 1."""
    offset: float = 0.0
    """Add up to so much to each image or take it away: a share of white, or of floats in their own units."""
    blur: float = 0.0
    """Blur images by a Gaussian with a standard deviation of up to this many pixels."""
    noise: float = 0.0
    """Add Gaussian noise of so large a standard deviation to each pixel: a share of white, or in floats' own units."""
    erase: float = 0.0
    """Erase a rectangle of up to so large a share of each image: it becomes zero."""
    seed: int = 0
    """Makes the draws of one view differ from those of another within it."""
    moment: tuple[int, int] | None = field(default=None, init=False, repr=False)
    """Seed and time of the draws that are shown; None for unchanged images."""

    def __post_init__(self) -> None:
        if self.shift < 0 or (self.crop is not None and self.crop < 1):
            raise ValueError(f"shift is {self.shift} and crop {self.crop}: pixels are at least 0 and 1")
        if not 0 <= self.brightness <= 1 or not 0 <= self.offset < np.inf:
            raise ValueError(
                f"brightness is {self.brightness} and offset {self.offset}: the former is 0 to 1, the latter at least 0"
            )
        if not 0 <= self.turn <= 180:
            raise ValueError(f"turn is {self.turn}: images can be rotated by 0 to 180 degrees")
        if not 0 <= self.shear <= 60:
            raise ValueError(f"shear is {self.shear}: images can be sheared by 0 to 60 degrees")
        if not 0 <= self.blur <= 100 or not 0 <= self.noise < np.inf:
            raise ValueError(
                f"blur is {self.blur} and noise {self.noise}: the former is 0 to 100, the latter at least 0"
            )
        if not 0 <= self.erase <= 1:
            raise ValueError(f"erase is {self.erase}: it is a share of the image from 0 to 1")

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.of.shape
        if len(inner) != 3:
            raise ValueError(f"augmentation needs images, but this world has points of shape {inner}")
        if self.crop is None:
            return inner
        if self.crop > min(inner[1:]):
            raise ValueError(f"crop is {self.crop}, which does not fit into images of {inner[1]}x{inner[2]} pixels")
        return (inner[0], self.crop, self.crop)

    @property
    def draws(self) -> bool:
        numbers = (self.shift, self.turn, self.shear, self.brightness, self.offset, self.blur, self.noise, self.erase)
        return self.flip != "none" or self.crop is not None or any(numbers) or super().draws

    def drawn(self, seed: int, time: int) -> Augmented:
        later = replace(self, of=drawn(self.of, seed, time))
        object.__setattr__(later, "moment", (seed, time))
        return later

    def shown(self, observations: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        return changed(observations, self.changes(index), self.shape, self.fill) if self.draws else observations

    def shown_target(self, target: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        """Masks move with their pixels; new pixels are unlabelled unless the edge is repeated."""
        if target.ndim == 2 or not self.draws:
            return target
        changes = self.changes(index)
        return moved(target[:, None], changes, (1, *self.shape[1:]), self.fill, blank=UNLABELLED)[:, 0]

    def changes(self, index: ArrayLike) -> Changes:
        """The changes of observations by number, at the current step."""
        numbers = self.there(index)
        spare = np.subtract(self.of.shape[1:], self.shape[1:])
        none = np.zeros(len(numbers), bool)
        if self.moment is None:
            middle = np.broadcast_to(spare // 2, (len(numbers), 2))
            same, whole = np.zeros(len(numbers)), np.zeros((len(numbers), 4), np.int64)
            still = np.zeros((len(numbers), 1, 1, 1), np.float32)
            return Changes(none, none, np.zeros_like(middle), middle, same, same + 1, same, same, same, still, whole)
        key = np.random.SeedSequence((self.seed, *self.moment)).generate_state(1, np.uint64)[0]
        grain = self.shape if self.noise else (1, 1, 1)
        u = uniform(int(key), numbers, DRAWS + math.prod(grain))
        return Changes(
            u[:, 0] < 0.5 if self.flip in ("vertical", "both") else none,
            u[:, 1] < 0.5 if self.flip in ("horizontal", "both") else none,
            np.floor(u[:, 2:4] * (2 * self.shift + 1)).astype(np.int64) - self.shift,
            np.floor(u[:, 4:6] * (spare + 1)).astype(np.int64),
            np.radians(self.turn) * (2 * u[:, 8] - 1),
            1 + self.brightness * (2 * u[:, 6] - 1),
            self.offset * (2 * u[:, 7] - 1),
            np.tan(np.radians(self.shear) * (2 * u[:, 9] - 1)),
            self.blur * u[:, 10],
            # No uniform number is 1, but one may be 0.
            (self.noise * ndtri(np.maximum(u[:, DRAWS:], 2.0**-54))).astype(np.float32).reshape(-1, *grain),
            _holes(self.erase * u[:, 11], u[:, 12:15], self.shape[1:]),
        )


def changed(images: NDArray[Any], changes: Changes, shape: tuple[int, ...], fill: str) -> NDArray[Any]:
    """Images ``(n, channels, height, width)`` after their changes, of the given shape: all of them at once."""
    images = moved(images, changes, shape, fill)
    if (changes.factors != 1).any() or any(what.any() for what in (changes.blurs, changes.offsets, changes.noise)):
        white = 255 if images.dtype == np.uint8 else 1
        factors, offsets = (v.astype(np.float32)[:, None, None, None] for v in (changes.factors, changes.offsets))
        bright = _blurred(images, changes.blurs, fill) * factors
        bright += white * offsets
        bright += white * changes.noise
        images = bright if images.dtype != np.uint8 else np.rint(bright, out=bright).clip(0, 255).astype(np.uint8)
    if changes.holes.any():
        top, left, high, wide = changes.holes.T[:, :, None]
        rows, columns = np.arange(shape[1]), np.arange(shape[2])
        down, across = (top <= rows) & (rows < top + high), (left <= columns) & (columns < left + wide)
        images = images * ~(down[:, None, :, None] & across[:, None, None, :])
    return images


def moved(images: NDArray[Any], changes: Changes, shape: tuple[int, ...], fill: str, blank: int = 0) -> NDArray[Any]:
    """Images flipped, turned, slanted, shifted and cut out, to the nearest pixels; ``blank`` moves in."""
    count, channels, height, width = images.shape
    flips, steps = (changes.upside_down, changes.mirrored), changes.corners - changes.moves
    bent = changes.turns.any() or changes.slants.any()
    if not (flips[0].any() or flips[1].any() or steps.any() or bent or images.shape[1:] != shape):
        return images
    rows, columns = _sources((height, width), shape[1:], flips, steps, changes)
    places = rows.clip(0, height - 1) * width + columns.clip(0, width - 1)
    places = (places + np.arange(count)[:, None, None] * (channels * height * width))[:, None]
    picked = images.reshape(-1).take(places + np.arange(channels)[:, None, None] * (height * width))
    if fill == "zero" and (changes.moves.any() or bent):
        inside = ((rows >= 0) & (rows < height) & (columns >= 0) & (columns < width))[:, None]
        if blank:
            return np.where(inside, picked, np.asarray(blank, picked.dtype))
        picked *= inside
    return picked


def _blurred(images: NDArray[Any], blurs: NDArray[np.float64], fill: str) -> NDArray[Any]:
    """Images under Gaussians of their own widths, rows after columns; each is cut off at three deviations."""
    if not blurs.any():
        return images
    reach = np.ceil(3 * blurs)
    radius = int(reach.max())
    steps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (steps / np.maximum(blurs, 1e-9)[:, None]) ** 2) * (np.abs(steps) <= reach[:, None])
    weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)[:, :, None, None, None]
    for axis in (2, 3):
        margins = [(radius, radius) if axis == one else (0, 0) for one in range(4)]
        padded = np.pad(images, margins, mode="edge" if fill == "edge" else "constant")
        kept = np.arange(images.shape[axis])
        images = sum(weights[:, i] * padded.take(kept + i, axis) for i in range(len(steps)))
    return images


def _holes(shares: NDArray[np.float64], u: NDArray[np.float64], sides: tuple[int, ...]) -> NDArray[np.int64]:
    """Rectangles of shares of an image, up to three times as high as wide or the reverse, anywhere within it."""
    ratio = 3 ** (2 * u[:, 0] - 1)
    area = shares * math.prod(sides)
    lengths = [np.minimum(np.rint(np.sqrt(area * r)), side) for r, side in zip((ratio, 1 / ratio), sides, strict=True)]
    starts = [np.floor(u[:, i + 1] * (sides[i] - lengths[i] + 1)) for i in range(2)]
    return np.column_stack([*starts, *lengths]).astype(np.int64)


def _sources(
    sides: tuple[int, int],
    kept: tuple[int, ...],
    flips: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    steps: NDArray[np.int64],
    changes: Changes,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns each of the ``kept`` pixels comes from, which broadcast to ``(n, height, width)``; outside the
    image where it is new."""
    rows = (np.arange(kept[0]) + steps[:, :1])[:, :, None]
    columns = (np.arange(kept[1]) + steps[:, 1:])[:, None, :]
    if changes.turns.any() or changes.slants.any():
        cosine, sine = np.cos(changes.turns)[:, None, None], np.sin(changes.turns)[:, None, None]
        down, right = rows - (sides[0] - 1) / 2, columns - (sides[1] - 1) / 2
        right = right + changes.slants[:, None, None] * down
        rows, columns = (
            np.rint(at + (side - 1) / 2).astype(np.int64)
            for at, side in zip((cosine * down + sine * right, cosine * right - sine * down), sides, strict=True)
        )
    rows, columns = (
        np.where(flip[:, None, None], side - 1 - at, at)
        for flip, side, at in zip(flips, sides, (rows, columns), strict=True)
    )
    return rows, columns
