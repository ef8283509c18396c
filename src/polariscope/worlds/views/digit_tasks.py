"""Digit tasks of growing difficulty: centred, shifted, shifted and resized, in colour.

A linear function of the pixels reads centred digits well and shifted ones hardly, so the gap between a network and its
linearisation can be watched as it grows with the task (Spec 000, sections 7.3 and 9.5). The tasks are views of any
world of grey digits: the drawn ones, or real ones from a file. Labels are the digit, whether it is a zero, or random.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.registry import Settings, nearest
from polariscope.worlds.factors import Factor
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.targets import Target
from polariscope.worlds.view import View
from polariscope.worlds.world import World, worlds

Variant = Literal["centred", "shifted", "shifted-resized", "colour"]
Labels = Literal["digit", "zero", "random"]
TASKS = ("centred", "shifted", "shifted-resized", "colour")
LABELS = ("digit", "zero", "random")
BORDER = 10
"""Pixels that the shifted-resized task pads on each side, of 28."""


@worlds.register("digit-task")
@dataclass(frozen=True)
class DigitTask(View):
    """A world of grey digits as a task of growing difficulty: centred, shifted, shrunk and shifted, or in colour.

    ``of`` has the digit in its first factor; rendered digits if not given. ``task`` is one of:
    - "centred": the images as they are;
    - "shifted": moved by whole pixels, each axis uniform in −shift..shift, and filled up with zeros;
    - "shifted-resized": padded by 10 pixels a side (of 28), moved by at most as many, and shrunk to the old size;
    - "colour": shifted, then painted in one random colour over a shaded background of others, light on dark or dark on
      light, so that no single pixel has information.

    Everything random about observation i depends on ``(seed, i)`` alone; another seed gives fresh shifts, as training
    on new shifts every epoch needs. Random labels depend on the seed and i but not on the task, so that the same image
    has the same random label in all of them. Factors are the label, which is the target, and the shift down and to the
    right in pixels.

    >>> DigitTask(Digits(100), "colour").observe([0, 1]).shape
    (2, 3, 28, 28)
    """

    examples: ClassVar[tuple[Settings, ...]] = ({"of": {"name": "digits", "count": 60}},)

    of: World = field(default_factory=Digits)
    task: Variant = "shifted"
    labels: Labels = "digit"
    shift: int = 7
    seed: int = 0

    @staticmethod
    def earlier_settings(settings: Settings) -> Settings:
        """Before it was a view it drew its digits itself: how many, how large, and by the same seed."""
        if "of" in settings:
            return settings
        digits = {key: settings[key] for key in ("count", "size", "seed") if key in settings}
        own = {key: value for key, value in settings.items() if key not in ("count", "size")}
        return {**own, "of": {"name": "digits", **digits}}

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"there is no digit task {self.task!r}: {nearest(self.task, TASKS)}")
        if self.labels not in LABELS:
            raise ValueError(f"there are no labels {self.labels!r}: {nearest(self.labels, LABELS)}")
        shape = self.of.shape
        if len(shape) != 3 or shape[0] != 1:
            raise ValueError(f"digit tasks need grey images (1, height, width); these have shape {shape}")
        if not self.of.factors:
            raise ValueError("digit tasks need images whose first factor is the digit; these have no factors")
        if not 0 <= self.shift < min(shape[1:]):
            raise ValueError(f"the shift is {self.shift} pixels; it needs to lie in 0..{min(shape[1:]) - 1}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (3 if self.task == "colour" else 1, *self.of.shape[1:])

    @property
    def factors(self) -> tuple[Factor, ...]:
        label = Factor("zero", 2) if self.labels == "zero" else Factor("label", 10, "categorical")
        return (label, Factor("shift_down", 0), Factor("shift_right", 0))

    @property
    def reach(self) -> int:
        """The largest shift in pixels; that of the resized task is one of the padded image."""
        if self.task == "shifted-resized":
            return self._border
        return 0 if self.task == "centred" else self.shift

    @property
    def targets(self) -> tuple[Target, ...]:
        return (Target.of(self.factors[0]),)

    def target_of(self, index: ArrayLike) -> NDArray[np.int64]:
        return self.factors_of(index)[:, :1].astype(np.int64)

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        index = self.there(index)
        images = self.of.observe(index)
        if self.task == "centred":
            return images
        moves = self._moves[index]
        if self.task == "shifted-resized":
            border = self._border
            padded = np.pad(images, ((0, 0), (0, 0), (border, border), (border, border)))
            return resize(translate(padded, moves), images.shape[2:])
        images = translate(images, moves)
        return images if self.task == "shifted" else paint(images, self._palettes[index])

    def factors_of(self, index: ArrayLike) -> NDArray[np.float64]:
        index = self.there(index)
        digits = np.asarray(self.of.factors_of(index))[:, 0].astype(np.int64)
        label = {"digit": digits, "zero": digits == 0, "random": self._random_labels[index]}[self.labels]
        return np.column_stack([label, self._moves[index]]).astype(np.float64)

    @property
    def _border(self) -> int:
        return round(BORDER * self.of.shape[1] / 28)

    @cached_property
    def _moves(self) -> NDArray[np.int64]:
        rng = np.random.default_rng((self.seed, 2))
        return rng.integers(-self.reach, self.reach + 1, size=(len(self), 2))

    @cached_property
    def _random_labels(self) -> NDArray[np.int64]:
        return np.random.default_rng((self.seed, 3)).integers(10, size=len(self))

    @cached_property
    def _palettes(self) -> NDArray[np.float32]:
        """The colours ``(n, 5, 3)`` of the ink and of the four corners, in 0..1."""
        uniform = np.random.default_rng((self.seed, 4)).random((len(self), 6, 3), dtype=np.float32)
        corners = np.clip(uniform[:, :1] + 0.5 * (uniform[:, 1:5] - 0.5), 0, 1)
        # The ink lies at least 0.35 from the mean background in every channel, to the side that has room for it.
        mean = corners.mean(1)
        room = np.where(mean > 0.5, mean - 0.35, 0.65 - mean)
        ink = np.where(mean > 0.5, uniform[:, 5] * room, 1 - uniform[:, 5] * room)
        return np.concatenate([ink[:, None], corners], axis=1)


def standardise(images: NDArray[Any], like: NDArray[Any] | None = None) -> NDArray[np.float32]:
    """Images with mean 0 and standard deviation 1 a channel, over the images ``like`` (the training set), or these.

    >>> standardise(np.array([[[[0, 2]]]], np.uint8)).tolist()
    [[[[-1.0, 1.0]]]]
    """
    reference = images if like is None else like
    mean, sd = (f(reference, axis=(0, 2, 3), keepdims=True, dtype=np.float64) for f in (np.mean, np.std))
    if not np.all(sd > 0):
        raise ValueError("a channel is constant over all images, so it cannot be standardised")
    return ((images - mean) / sd).astype(np.float32)


def translate(images: NDArray[np.uint8], moves: ArrayLike) -> NDArray[np.uint8]:
    """Each image moved down and right by its own whole numbers of pixels ``(n, 2)``; zeros move in."""
    moves = np.asarray(moves)
    count, channels, height, width = images.shape
    reach = int(np.abs(moves).max(initial=0))
    padded = np.pad(images, ((0, 0), (0, 0), (reach, reach), (reach, reach)))
    rows = np.arange(height) + reach - moves[:, :1]
    columns = np.arange(width) + reach - moves[:, 1:]
    flat = rows[:, :, None] * (width + 2 * reach) + columns[:, None, :]
    picked = np.take_along_axis(padded.reshape(count, channels, -1), flat.reshape(count, 1, -1), axis=2)
    return picked.reshape(images.shape)


def resize(images: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Images of another height and width, by linear interpolation that averages where it shrinks."""
    down, across = (_resampling(old, new) for old, new in zip(images.shape[2:], shape, strict=True))
    resized = down @ images.astype(np.float32) @ across.T
    return np.rint(np.clip(resized, 0, 255)).astype(np.uint8)


def paint(masks: NDArray[np.uint8], palettes: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Grey images ``(n, 1, h, w)`` as ink of the first colour of each palette ``(n, 5, 3)``, over a background that
    runs between the other four at the corners."""
    height, width = masks.shape[2:]
    down, right = np.linspace(0, 1, height, dtype=np.float32), np.linspace(0, 1, width, dtype=np.float32)
    rows, columns = np.stack([1 - down, down]), np.stack([1 - right, right])
    corners = palettes[:, 1:].reshape(-1, 2, 2, 3)
    background = np.einsum("nabc,ah,bw->nchw", corners, rows, columns, optimize=True)
    cover = masks.astype(np.float32) / 255
    image = background + cover * (palettes[:, 0, :, None, None] - background)
    return np.rint(255 * image).astype(np.uint8)


@cache
def _resampling(old: int, new: int) -> NDArray[np.float32]:
    """The matrix ``(new, old)`` of a triangle filter as wide as the coarser of the two grids."""
    scale = old / new
    centres = (np.arange(new) + 0.5) * scale - 0.5
    weight = np.clip(1 - np.abs(np.arange(old) - centres[:, None]) / max(scale, 1), 0, None)
    matrix: NDArray[np.float32] = (weight / weight.sum(1, keepdims=True)).astype(np.float32)
    return matrix
