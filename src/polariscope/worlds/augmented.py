"""Augmentation: images flipped, turned, shifted, cropped and brightened a little, anew at every block of steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.numbered_draws import uniform
from polariscope.worlds.view import View, drawn
from polariscope.worlds.world import World, worlds


@dataclass(frozen=True, eq=False)
class Changes:
    """What is done to each image: to be mirrored, then turned, then moved, then cut out, then brightened."""

    upside_down: NDArray[np.bool_]
    mirrored: NDArray[np.bool_]
    moves: NDArray[np.int64]
    """Down and right, ``(n, 2)``."""
    corners: NDArray[np.int64]
    """Top and left of what is cut out, ``(n, 2)``."""
    turns: NDArray[np.float64]
    """Counter-clockwise about the middle, in radians."""
    factors: NDArray[np.float64]
    offsets: NDArray[np.float64]
    """What is added after the factor: a share of white to bytes, to floats as it is."""


@worlds.register("augmented")
@dataclass(frozen=True)
class Augmented(View):
    """A world with random flips, turns, shifts, crops and brightness of its images.

    Every block of training steps has draws of its own, a function of the run's seed, the block and the number of the
    observation. Whoever looks at the world otherwise (held-out losses, examinations, contact sheets) sees the images
    as they are, cut out of the middle where they are cropped. Bytes stay bytes, floats stay floats. Both images of a
    pair are changed alike, so that what happens between them is as it was (Spec 001a, section 4.6).

    >>> from polariscope.worlds.mini_sprites import MiniSprites
    >>> world = Augmented(MiniSprites(), flip="horizontal", crop=12)
    >>> world.shape, bool((world.drawn(0, 1).observe([5]) == world.drawn(0, 1).observe([4, 5])[1]).all())
    ((1, 12, 12), True)
    """

    of: World
    flip: Literal["none", "horizontal", "vertical", "both"] = "none"
    """Mirror every second image left to right, turn it upside down, or each of both."""
    shift: int = 0
    """Move images by up to so many pixels, down or up and right or left."""
    turn: float = 0.0
    """Turn images by up to so many degrees, either way, to the nearest pixels: masks remain masks."""
    fill: Literal["zero", "edge"] = "zero"
    """What moves in: zeros, or the pixels of the edge again."""
    crop: int | None = None
    """Cut a square of so many pixels a side out of each image, anywhere in it."""
    brightness: float = 0.0
    """Multiply each image by a factor of up to so much above or below 1."""
    offset: float = 0.0
    """Add up to so much to each image or take it away: a share of white, or of floats in their own units."""
    seed: int = 0
    """Makes the draws of one view differ from those of another within it."""
    moment: tuple[int, int] | None = field(default=None, init=False, repr=False)
    """Seed and time of the draws that are shown; without one images are as they are."""

    def __post_init__(self) -> None:
        if self.shift < 0 or (self.crop is not None and self.crop < 1):
            raise ValueError(f"shift is {self.shift} and crop {self.crop}: pixels are at least 0 and 1")
        if not 0 <= self.brightness <= 1 or not 0 <= self.offset < np.inf:
            raise ValueError(
                f"brightness is {self.brightness} and offset {self.offset}: the former is 0 to 1, the latter at least 0"
            )
        if not 0 <= self.turn <= 180:
            raise ValueError(f"turn is {self.turn}: images are turned by up to 0 to 180 degrees")

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.of.shape
        if len(inner) != 3:
            raise ValueError(f"augmentation is of images, and this world has points of shape {inner}")
        if self.crop is None:
            return inner
        if self.crop > min(inner[1:]):
            raise ValueError(f"crop is {self.crop}, which does not fit into images of {inner[1]}x{inner[2]} pixels")
        return (inner[0], self.crop, self.crop)

    @property
    def draws(self) -> bool:
        own = (self.flip != "none", self.shift, self.turn, self.crop is not None, self.brightness, self.offset)
        return any(own) or super().draws

    def drawn(self, seed: int, time: int) -> Augmented:
        later = replace(self, of=drawn(self.of, seed, time))
        object.__setattr__(later, "moment", (seed, time))
        return later

    def shown(self, observations: NDArray[Any], index: ArrayLike) -> NDArray[Any]:
        return changed(observations, self.changes(index), self.shape, self.fill) if self.draws else observations

    def changes(self, index: ArrayLike) -> Changes:
        """What is done to observations by number, at this moment."""
        numbers = self.there(index)
        spare = np.subtract(self.of.shape[1:], self.shape[1:])
        none = np.zeros(len(numbers), bool)
        if self.moment is None:
            middle = np.broadcast_to(spare // 2, (len(numbers), 2))
            same = np.zeros(len(numbers))
            return Changes(none, none, np.zeros_like(middle), middle, same, same + 1, same)
        key = np.random.SeedSequence((self.seed, *self.moment)).generate_state(1, np.uint64)[0]
        u = uniform(int(key), numbers, 9)
        return Changes(
            u[:, 0] < 0.5 if self.flip in ("vertical", "both") else none,
            u[:, 1] < 0.5 if self.flip in ("horizontal", "both") else none,
            np.floor(u[:, 2:4] * (2 * self.shift + 1)).astype(np.int64) - self.shift,
            np.floor(u[:, 4:6] * (spare + 1)).astype(np.int64),
            np.radians(self.turn) * (2 * u[:, 8] - 1),
            1 + self.brightness * (2 * u[:, 6] - 1),
            self.offset * (2 * u[:, 7] - 1),
        )


def changed(images: NDArray[Any], changes: Changes, shape: tuple[int, ...], fill: str) -> NDArray[Any]:
    """Images ``(n, channels, height, width)`` after their changes, of the given shape: all of them at once."""
    count, channels, height, width = images.shape
    flips, steps = (changes.upside_down, changes.mirrored), changes.corners - changes.moves
    if flips[0].any() or flips[1].any() or steps.any() or changes.turns.any() or images.shape[1:] != shape:
        rows, columns = _sources((height, width), shape[1:], flips, steps, changes.turns)
        places = rows.clip(0, height - 1) * width + columns.clip(0, width - 1)
        places = (places + np.arange(count)[:, None, None] * (channels * height * width))[:, None]
        picked = images.reshape(-1).take(places + np.arange(channels)[:, None, None] * (height * width))
        if fill == "zero" and (changes.moves.any() or changes.turns.any()):
            picked *= ((rows >= 0) & (rows < height) & (columns >= 0) & (columns < width))[:, None]
        images = picked
    if (changes.factors != 1).any() or changes.offsets.any():
        white = 255 if images.dtype == np.uint8 else 1
        factors, offsets = (v.astype(np.float32)[:, None, None, None] for v in (changes.factors, changes.offsets))
        bright = images * factors
        bright += white * offsets
        images = bright if images.dtype != np.uint8 else np.rint(bright, out=bright).clip(0, 255).astype(np.uint8)
    return images


def _sources(
    sides: tuple[int, int],
    kept: tuple[int, ...],
    flips: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    steps: NDArray[np.int64],
    turns: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns each of the ``kept`` pixels comes from, which broadcast to ``(n, height, width)``; outside the
    image where it is new."""
    rows = (np.arange(kept[0]) + steps[:, :1])[:, :, None]
    columns = (np.arange(kept[1]) + steps[:, 1:])[:, None, :]
    if turns.any():
        cosine, sine = np.cos(turns)[:, None, None], np.sin(turns)[:, None, None]
        down, right = rows - (sides[0] - 1) / 2, columns - (sides[1] - 1) / 2
        rows, columns = (
            np.rint(at + (side - 1) / 2).astype(np.int64)
            for at, side in zip((cosine * down + sine * right, cosine * right - sine * down), sides, strict=True)
        )
    rows, columns = (
        np.where(flip[:, None, None], side - 1 - at, at)
        for flip, side, at in zip(flips, sides, (rows, columns), strict=True)
    )
    return rows, columns
