"""What raw numbers mean as observations: one rule, whether they come from memory, a file, a folder or a data set.

The shape of the data tells points from images, its numbers tell which of them is white. Images whose numbers are no
brightnesses (heights in metres, layers of a map) are declared to be ``floats``, and stay what they are. Small data is
brought into the house's form at once; large data stays where it is (see :class:`Stored`) and comes into it batch by
batch, so that no data set is too large for the memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from polariscope.memory import available_memory

HELD = 2**30
"""Bytes up to which a data set is read once and held; a larger one is read in place."""
BLOCK = 2**24
"""Bytes brought into the house's form at a time, so that no second copy of large data comes to be in floats."""
SAMPLED = 256
"""Rows that tell what the numbers mean where there are too many to look at all of them."""
HAIR = 0.01
"""How far floats may lie outside black and white, as a share of white: rounding and resizing leave such values."""
CHANNELS = (1, 2, 3, 4)
"""How many an image of bytes may have; one of floats has any number."""
LARGEST = float(np.finfo(np.float32).max)

Layout = Literal["points", "grey", "channels first", "channels last"]


class Stored(ABC):
    """Rows that do not lie in memory: those asked for are fetched, never all of them.

    A new kind has ``shape`` (rows first) and ``dtype``, and defines ``fetch``.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    packed: bool = False
    """Rows that are dear to fetch one by one are held where they take no more than half of the free memory."""

    @abstractmethod
    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by number, in that order."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: ArrayLike | slice) -> NDArray[Any]:
        numbers = np.arange(len(self))[index] if isinstance(index, slice) else np.asarray(index, dtype=np.int64)
        return self.fetch(numbers)


Rows = NDArray[Any] | Stored


@dataclass(frozen=True)
class Meaning:
    """How rows become observations: where their channels are, and which number is white."""

    layout: Layout
    white: float = 255.0
    floats: bool = False
    """Whether the numbers of images stay as they are, in any number of channels."""

    @property
    def bytes(self) -> bool:
        """Whether observations are bytes."""
        return not self.floats and self.layout != "points"

    def of(self, rows: NDArray[Any], source: str) -> NDArray[Any]:
        """``uint8 (n, channels, height, width)`` images, ``float32`` ones if declared, or ``float32 (n, m)`` points."""
        if rows.dtype != np.uint8 or not self.kept(rows.dtype):
            self.check(*extremes(rows, source), rows.dtype, source)
        rows = self.arranged(rows)
        if not self.bytes:
            return np.ascontiguousarray(rows, dtype=np.float32)
        return np.ascontiguousarray(rows if self.kept(rows.dtype) else self._bytes(rows))

    def _bytes(self, pixels: NDArray[Any]) -> NDArray[np.uint8]:
        scale = 255 / self.white
        if pixels.dtype.kind != "f" and scale.is_integer():  # exact, and much faster than by way of floats
            return pixels.astype(np.uint8) * np.uint8(scale)
        scaled = pixels * scale
        np.rint(scaled, out=scaled)
        return np.clip(scaled, 0, 255, out=scaled).astype(np.uint8)

    def arranged(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Channels first, as a view."""
        if self.layout == "grey":
            return rows[:, None]
        return np.moveaxis(rows, -1, 1) if self.layout == "channels last" else rows

    def kept(self, dtype: np.dtype[Any]) -> bool:
        """Whether numbers of this type stay what they are."""
        return dtype == np.uint8 and self.white == 255 if self.bytes else dtype == np.float32

    def check(self, low: float, high: float, dtype: np.dtype[Any], source: str) -> None:
        """Refuse pixels outside black and white, and numbers that are infinite in single precision."""
        if not self.bytes:
            if max(-low, high) > LARGEST:
                raise ValueError(
                    f"{source}: expected numbers up to {LARGEST:.3g}, which single precision holds, but they go from "
                    f"{low:g} to {high:g}; scale them"
                )
            return
        slack = HAIR * self.white if dtype.kind == "f" else 0.0
        if not -slack <= low <= high <= self.white + slack:
            raise ValueError(
                f"{source}: expected pixels from 0 to {self.white:g}, but they go from {low:g} to {high:g}; scale "
                "them, or give as white the number that is white"
            )


class Converted(Stored):
    """Rows that become observations when they are asked for."""

    def __init__(self, rows: Rows, meaning: Meaning, source: str) -> None:
        self.rows, self.meaning, self.source = rows, meaning, source
        one = meaning.arranged(np.empty((1, *rows.shape[1:]), np.bool_))
        self.shape = (len(rows), *one.shape[1:])
        self.dtype = np.dtype(np.uint8 if meaning.bytes else np.float32)

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        return self.meaning.of(self.rows[index], self.source)


class Resized(Stored):
    """Images brought to ``size`` x ``size`` pixels when they are asked for."""

    packed = True

    def __init__(self, images: Rows, size: int) -> None:
        self.images = images
        self.shape = (len(images), images.shape[1], size, size)
        self.dtype = images.dtype

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        pixels = torch.from_numpy(np.ascontiguousarray(self.images[index])).float()
        resized = interpolate(pixels, self.shape[2:], mode="bilinear", antialias=True)
        if self.dtype != np.uint8:
            return resized.numpy()
        return resized.round_().clamp_(0, 255).to(torch.uint8).numpy()


@dataclass(frozen=True)
class Arranged:
    """Observations of a world, in the house's form already: there is nothing to be told about them."""

    rows: Rows


def as_observations(
    data: ArrayLike | Rows | Arranged, source: str = "array", white: float | None = None, floats: bool = False
) -> tuple[Rows, list[str]]:
    """Data in the house's form and what was assumed about it, or a sentence that says why it cannot be.

    Pixels are 0 and 1, floats from 0 to 1, or go from 0 to 255, which the numbers themselves tell, unless ``white``
    says which of them is. Images of ``floats`` keep their numbers, as ``float32`` in any number of channels.

    >>> images, assumed = as_observations(np.eye(4, dtype=bool)[None])
    >>> images.shape, int(images.max()), assumed
    ((1, 1, 4, 4), 255, ['Pixels go from 0 to 1: 1 is taken as white.'])
    """
    if isinstance(data, Arranged):
        return data.rows, []
    if isinstance(data, Converted):
        return data, []
    rows: Rows = data if isinstance(data, Stored) else as_array(data)
    if floats and white is not None:
        raise ValueError(f"{source}: floats keep their numbers, so none of them is white; give one of both")
    layout = _layout(rows, source, floats)
    if white is not None and not 0 < white < math.inf:
        raise ValueError(f"{source}: white is {white:g}; it is the number of a white pixel, above 0")
    if isinstance(rows, Stored) and rows.nbytes <= max(HELD, available_memory() // 2 if rows.packed else 0):
        rows = in_memory(rows)
    in_place = isinstance(rows, Stored) or (isinstance(rows, np.memmap) and rows.nbytes > HELD)
    seen = np.asarray(_some(rows) if in_place else rows)
    low, high = extremes(seen, source)
    assumed = []
    meaning = Meaning(layout, white or 255.0, floats)
    if floats and layout != "points":
        meaning.check(low, high, rows.dtype, source)
        assumed.append(_kept_as(rows, layout, low, high))
    elif layout != "points" and white is None:
        white = _white(low, high, rows.dtype, source)
        few = f" (told from {len(seen)} of {len(rows):,} images)" if in_place else ""
        assumed.append(f"Pixels go from {low:g} to {high:g}: {white:g} is taken as white{few}.")
        meaning = Meaning(layout, white)
    if not floats and len(rows.shape) == 4 and layout == "channels first" and rows.shape[-1] in CHANNELS:
        assumed.append(f"Images of shape {'x'.join(map(str, rows.shape[1:]))} are taken to have their channels first.")
    meaning.check(low, high, rows.dtype, source)
    converted = Converted(rows, meaning, source)
    # Bytes are what they are, whereas floats that nobody has looked at may still be none.
    if isinstance(rows, np.ndarray) and meaning.kept(rows.dtype) and (not in_place or rows.dtype == np.uint8):
        arranged = meaning.arranged(rows)
        if arranged.flags.c_contiguous:
            return arranged, assumed
    return converted if in_place or converted.nbytes > HELD else in_memory(converted), assumed


def as_array(data: Any) -> NDArray[Any]:
    """An array of whatever has numbers. Tensors come off their device and graph, mapped files stay mapped."""
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, Tensor):
        data = data.detach().cpu()
        data = data.float() if data.dtype == torch.bfloat16 else data  # which NumPy does not know
    return np.asarray(data)


def in_memory(rows: Stored) -> NDArray[Any]:
    """All rows, a block at a time."""
    held = np.empty(rows.shape, rows.dtype)
    step = max(1, BLOCK // max(1, rows.nbytes // len(rows)))
    for start in range(0, len(rows), step):
        held[start : start + step] = rows[start : start + step]
    return held


def extremes(rows: NDArray[Any], source: str) -> tuple[float, float]:
    """The least and the greatest number; NaN and infinity are refused."""
    if not rows.size:
        return 0.0, 0.0
    low, high = float(rows.min()), float(rows.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~np.isfinite(rows)).sum())
        raise ValueError(f"{source}: {bad} values are NaN or infinite; clean the data first")
    return low, high


def _layout(rows: Rows, source: str, floats: bool) -> Layout:
    shape = rows.shape
    if rows.dtype.kind not in "uifb":
        raise ValueError(f"{source}: observations need numbers, got {rows.dtype}")
    if len(shape) not in (2, 3, 4):
        raise ValueError(
            f"{source}: observations need shape (n, m) for points or (n, h, w), (n, h, w, c), (n, c, h, w) for images; "
            f"got {shape}"
        )
    if 0 in shape:
        raise ValueError(f"{source}: the data set is empty (shape {shape})")
    if len(shape) < 4:
        return "points" if len(shape) == 2 else "grey"
    if floats:  # any number of channels, so only an axis that is shorter than both others tells where they are
        return "channels last" if shape[3] < min(shape[1:3]) else "channels first"
    if shape[1] in CHANNELS:
        return "channels first"
    if shape[-1] in CHANNELS:
        return "channels last"
    raise ValueError(
        f"{source}: images need 1 to 4 channels first or last; got shape {shape}; if they have more, declare them as "
        "floats (floats=True, --world.floats)"
    )


def _kept_as(rows: Rows, layout: Layout, low: float, high: float) -> str:
    """What was assumed about images of floats."""
    if layout == "grey":
        return f"Images keep their numbers, which go from {low:g} to {high:g}, in one channel."
    where = layout.removeprefix("channels ")
    channels = rows.shape[1 if where == "first" else 3]
    doubt = "" if where == "last" or rows.shape[1] < min(rows.shape[2:]) else ", which their shape does not tell"
    shape = "x".join(map(str, rows.shape[1:]))
    return (
        f"Images of shape {shape} keep their numbers, which go from {low:g} to {high:g}; their {channels} channels are "
        f"taken to come {where}{doubt}."
    )


def _white(low: float, high: float, dtype: np.dtype[Any], source: str) -> float:
    """The number of a white pixel: 1 for 0 and 1 and for floats up to it, else 255."""
    fractions = dtype.kind == "f"
    white = 1.0 if (high <= 1 + HAIR if fractions else high == 1) else 255.0
    slack = HAIR * white if fractions else 0.0
    between = fractions and white == 255 and high < 2  # fractions are not that bright, and bytes not that dark
    if low < -slack or high > white + slack or between:
        raise ValueError(
            f"{source}: expected pixels in 0..1 or 0..255, but they go from {low:g} to {high:g}; scale them, or give "
            "as white the number that is white, or declare them as floats (floats=True, --world.floats) to keep them"
        )
    return white


def _some(rows: Rows) -> NDArray[Any]:
    """The first row, the last and some between: always the same, and few enough to be read quickly."""
    count = max(2, min(SAMPLED, 4 * BLOCK // (rows.nbytes // len(rows))))
    between = np.random.default_rng(0).integers(len(rows), size=count - 2)
    return rows[np.unique([0, len(rows) - 1, *between])]
