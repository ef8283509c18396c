"""How raw numbers become observations: one rule for memory, files, folders and data sets.

The shape of the data separates points from images, and its numbers show which number is white. Brightnesses become
bytes. Images with other numbers (standardised images, heights in metres, layers of a map) keep them as ``float32``: if
the numbers show it, or if they are declared as ``floats``. A model therefore receives the given numbers, divided by the
stated white; other data is refused. Small data is converted at once; large data stays on disk (see :class:`Stored`) and
is converted batch by batch, so that no data set is too large for memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from polariscope.grammar import counted
from polariscope.memory import available_memory

HELD = 2**30
"""Bytes up to which a data set is read once and held; a larger one is read in place."""
BLOCK = 2**24
"""Bytes converted at a time, so that large data is never copied to floats as a whole."""
SAMPLED = 256
"""Rows from which the meaning of the numbers is inferred, if there are too many to read all."""
HAIR = 0.01
"""Tolerance for floats below black or above white, as a share of white; rounding and resizing cause such values."""
DIM = 128
"""The least maximum of numbers that are taken to go up to 255; below it, 255 would be a guess."""
FINEST = 0.02
"""Share of their spread that numbers may lose by rounding, on average; numbers that would lose more are not rounded."""
VALUES = 2**18
"""Numbers from which the rounding error is estimated."""
ROUNDING = 1e-6
"""Rounding error of single precision as a share of white; it is not reported."""
CHANNELS = (1, 2, 3, 4)
"""Numbers of channels that an image of bytes may have; an image of floats may have any number."""
LARGEST = float(np.finfo(np.float32).max)

DECLARE = (
    "give as white the number that is white (white=, --world.white), or declare them as floats (floats=True, "
    "--world.floats) to keep them"
)

Layout = Literal["points", "grey", "channels first", "channels last"]


class Stored(ABC):
    """Rows outside memory; only the requested ones are loaded.

    A new kind has ``shape`` (rows first) and ``dtype``, and defines ``fetch``.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    packed: bool = False
    """Whether single rows are slow to fetch; such rows are kept in memory if they take at most half of the free
    memory."""
    hollow: bool = False
    """Whether the rows claim to be far larger than the stored data; such rows are never kept in memory."""

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
        """Whether numbers of this type are kept unchanged."""
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
                f"them, or {DECLARE}"
            )


class Converted(Stored):
    """Rows that are converted to observations on demand."""

    def __init__(self, rows: Rows, meaning: Meaning, source: str) -> None:
        self.rows, self.meaning, self.source = rows, meaning, source
        self.hollow = isinstance(rows, Stored) and rows.hollow
        one = meaning.arranged(np.empty((1, *rows.shape[1:]), np.bool_))
        self.shape = (len(rows), *one.shape[1:])
        self.dtype = np.dtype(np.uint8 if meaning.bytes else np.float32)

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        return self.meaning.of(self.rows[index], self.source)


class Resized(Stored):
    """Images brought to ``size`` x ``size`` pixels on demand."""

    packed = True

    def __init__(self, images: Rows, size: int) -> None:
        self.images = images
        self.hollow = isinstance(images, Stored) and images.hollow
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
    """Observations of a world, which need no conversion."""

    rows: Rows


class Shaped(Stored):
    """Rows of numbers as images, converted on demand."""

    def __init__(self, rows: Stored, shape: tuple[int, ...], by_columns: bool) -> None:
        self.rows, self.by_columns, self.packed, self.hollow = rows, by_columns, rows.packed, rows.hollow
        self.shape, self.dtype = (len(rows), *shape), rows.dtype

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        return _folded(self.rows[index], self.shape[1:], self.by_columns)


def shaped(rows: Rows, shape: Sequence[int], source: str, by_columns: bool = False) -> Rows:
    """Rows of numbers as images ``(channels, height, width)`` or ``(height, width)``, or as points ``(m,)``.

    The numbers of an image run along its rows, or down its columns, one channel after the other.

    >>> shaped(np.arange(6)[None], (2, 3), "array")[0].tolist()
    [[[0, 1, 2], [3, 4, 5]]]
    >>> shaped(np.arange(6)[None], (2, 3), "array", by_columns=True)[0].tolist()
    [[[0, 2, 4], [1, 3, 5]]]
    """
    text = "x".join(map(str, shape))
    if len(shape) not in (1, 2, 3) or min(shape) < 1:
        raise ValueError(
            f"{source}: expected a shape of an image (height, width or channels, height, width), or of a point, but it "
            f"is {text or 'empty'} (shape=, --world.shape)"
        )
    if len(rows.shape) != 2:
        raise ValueError(
            f"{source}: expected rows of numbers to give the shape {text}, but observations already have the shape "
            f"{'x'.join(map(str, rows.shape[1:]))}; leave it out (shape=, --world.shape)"
        )
    if math.prod(shape) != rows.shape[1]:
        raise ValueError(
            f"{source}: expected a shape of {rows.shape[1]} numbers, as many as an observation has, but {text} are "
            f"{math.prod(shape)}; give another (shape=, --world.shape)"
        )
    image = (1, *shape) if len(shape) == 2 else tuple(shape)
    if isinstance(rows, Stored):
        return Shaped(rows, image, by_columns)
    return _folded(rows, image, by_columns)


def _folded(rows: NDArray[Any], shape: tuple[int, ...], by_columns: bool) -> NDArray[Any]:
    if not by_columns or len(shape) == 1:
        return rows.reshape(len(rows), *shape)
    return rows.reshape(len(rows), shape[0], shape[2], shape[1]).swapaxes(2, 3)


def as_observations(
    data: ArrayLike | Rows | Arranged,
    source: str = "array",
    white: float | None = None,
    floats: bool = False,
    channels_first: bool = False,
) -> tuple[Rows, list[str]]:
    """Data as observations, and the assumptions about it; other data is refused.

    Pixels are 0 and 1, fractions up to 1, or go from 0 to 255; this is inferred from the numbers, unless ``white`` is
    given. Images of other numbers, and images declared as ``floats``, keep their numbers as ``float32`` in any number
    of channels. ``channels_first`` means that channels come first, if the shape was declared and not inferred.

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
        raise ValueError(f"{source}: floats are kept as they are, so white has no meaning: give either floats or white")
    if white is not None and not 0 < white < math.inf:
        raise ValueError(f"{source}: white is {white:g}; it must be the value of a white pixel, above 0")
    _check_form(rows, source)
    rows = held(rows)
    in_place = isinstance(rows, Stored) or (isinstance(rows, np.memmap) and rows.nbytes > HELD)
    seen = np.asarray(_some(rows) if in_place else rows)
    few = f" (inferred from {len(seen)} of {len(rows):,} images)" if in_place else ""
    meaning, assumed = _meaning(rows, seen, source, white, floats, few, channels_first)
    converted = Converted(rows, meaning, source)
    # Bytes are what they are, whereas floats that nobody has looked at may still be none.
    if isinstance(rows, np.ndarray) and meaning.kept(rows.dtype) and (not in_place or rows.dtype == np.uint8):
        arranged = meaning.arranged(rows)
        if arranged.flags.c_contiguous:
            return arranged, assumed
    return converted if in_place or converted.nbytes > HELD else in_memory(converted), assumed


def _meaning(
    rows: Rows,
    seen: NDArray[Any],
    source: str,
    white: float | None,
    floats: bool,
    few: str,
    channels_first: bool,
) -> tuple[Meaning, list[str]]:
    """The meaning of rows, inferred from some of them, also in sentences; numbers that it would destroy are refused."""
    low, high = extremes(seen, source)
    if len(rows.shape) == 2:
        meaning = Meaning("points")
        meaning.check(low, high, rows.dtype, source)
        _check_precision(_some(seen) if seen.size > VALUES else seen, source)
        return meaning, []
    guessed = white is None and not floats
    values = _sampled(seen)
    if guessed:
        white = _white(low, high, values, source)
    if white is None:
        meaning = Meaning(_layout(rows, source, True, channels_first), floats=True)
        meaning.check(low, high, rows.dtype, source)
        _check_precision(values[:, None], source)
        doubt = f"{few}{_undeclared(low)}" if guessed else ""
        return meaning, [f"{_kept_as(rows, meaning.layout, low, high, channels_first)}{doubt}."]
    meaning = Meaning(_layout(rows, source, False, channels_first), white)
    meaning.check(low, high, rows.dtype, source)
    lost, spread = _lost(values, white)
    if lost > FINEST * spread > 0 and values.dtype.kind == "f":  # possible only where white was declared
        raise ValueError(
            f"{source}: expected pixels that 256 steps from 0 to {white:g} can hold, but they go from {low:g} to "
            f"{high:g}; give another white (white=, --world.white), or none"
        )
    assumed = []
    if guessed:
        steps = " They are rounded to 256 steps." if lost > ROUNDING * white else ""
        cut = ", and what lies outside is cut off" if low < -ROUNDING * white or high > (1 + ROUNDING) * white else ""
        assumed.append(f"Pixels go from {low:g} to {high:g}: {white:g} is taken as white{few}{cut}.{steps}")
    ambiguous = meaning.layout == "channels first" and rows.shape[-1] in CHANNELS and not channels_first
    if len(rows.shape) == 4 and ambiguous:
        assumed.append(f"Images of shape {'x'.join(map(str, rows.shape[1:]))} are taken to have their channels first.")
    return meaning, assumed


def held(rows: Rows) -> Rows:
    """Small data is loaded into memory, large data stays where it is."""
    if not isinstance(rows, Stored) or rows.hollow:
        return rows
    return in_memory(rows) if rows.nbytes <= max(HELD, available_memory() // 2 if rows.packed else 0) else rows


def as_array(data: Any) -> NDArray[Any]:
    """Anything with numbers as an array. Tensors come off their device and graph, mapped files stay mapped."""
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


def _check_form(rows: Rows, source: str) -> None:
    """Refuse what has neither the shape nor the numbers of points or images."""
    shape = rows.shape
    if rows.dtype.kind not in "uifb":
        raise ValueError(f"{source}: observations must be numbers; got {rows.dtype}")
    if len(shape) not in (2, 3, 4):
        raise ValueError(
            f"{source}: observations need shape (n, m) for points or (n, h, w), (n, h, w, c), (n, c, h, w) for images; "
            f"got {shape}"
        )
    if 0 in shape:
        raise ValueError(f"{source}: the data set is empty (shape {shape})")


def _layout(rows: Rows, source: str, floats: bool, channels_first: bool) -> Layout:
    """Where images have their channels."""
    shape = rows.shape
    if len(shape) == 3:
        return "grey"
    if channels_first and (floats or shape[1] in CHANNELS):
        return "channels first"
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


def _kept_as(rows: Rows, layout: Layout, low: float, high: float, declared: bool) -> str:
    """What was assumed about images of floats."""
    where = layout.removeprefix("channels ")
    channels = 1 if layout == "grey" else rows.shape[1 if where == "first" else 3]
    if layout == "grey" or (channels == 1 and (declared or where == "last")):
        return f"Images keep their numbers, which go from {low:g} to {high:g}, in one channel"
    clear = declared or where == "last" or rows.shape[1] < min(rows.shape[2:])
    doubt = "" if clear else ", which their shape does not show"
    shape = "x".join(map(str, rows.shape[1:]))
    placed = f"{counted(channels, 'channel')} {'is' if channels == 1 else 'are'}"
    return (
        f"Images of shape {shape} keep their numbers, which go from {low:g} to {high:g}; their {placed} assumed to "
        f"come {where}{doubt}"
    )


def _undeclared(low: float) -> str:
    """How to declare that numbers are brightnesses."""
    if low < 0:
        return "; if they are brightnesses, bring them to 0..1 first"
    return "; if they are brightnesses, give the number of white (white=, --world.white)"


def _white(low: float, high: float, values: NDArray[Any], source: str) -> float | None:
    """The number of a white pixel, or None if the numbers are not brightnesses and stay unchanged.

    White is 255 for bytes, and 1 for truth values and for data of only 0 and 1. For wider integers and floats it is 255
    if their maximum is at least half of that; for floats of at most 1 it is 1. Other data has no white: negative
    numbers, numbers with a maximum between 1 and 128, and numbers that 256 steps cannot represent.
    """
    if values.dtype.kind == "f":
        white = 1.0 if high <= 1 + HAIR else 255.0
        bright = -HAIR * white <= low and (white == 1 or DIM <= high <= white * (1 + HAIR))
        if not bright:
            return None
        lost, spread = _lost(values, white)
        return white if lost <= FINEST * spread else None
    if low < 0 or high > 255:
        raise ValueError(
            f"{source}: expected pixels in 0..1 or 0..255, but they go from {low:g} to {high:g}; scale them, or "
            f"{DECLARE}"
        )
    if values.dtype.kind == "b" or high == 1:
        return 1.0
    return 255.0 if values.dtype == np.uint8 or high >= DIM or high == 0 else None


def _sampled(rows: NDArray[Any]) -> NDArray[Any]:
    """Numbers of some rows, always the same ones; enough to estimate the rounding error."""
    some = (_some(rows) if rows.size > VALUES else rows).reshape(-1)
    return some if some.size <= VALUES else some[np.random.default_rng(0).integers(some.size, size=VALUES)]


def _lost(values: NDArray[Any], white: float) -> tuple[float, float]:
    """The mean rounding error of pixels in 256 steps from black to white, and their mean deviation."""
    exact = values.astype(np.float64)
    steps = np.clip(np.rint(exact * (255 / white)), 0, 255) * (white / 255)
    return float(np.abs(exact - steps).mean()), float(np.abs(exact - exact.mean()).mean())


def _check_precision(values: NDArray[Any], source: str) -> None:
    """Refuse columns whose numbers differ by less than single precision can show."""
    exact = values.astype(np.float64)
    lost = np.abs(exact - exact.astype(np.float32)).mean(0)
    spread = np.abs(exact - exact.mean(0)).mean(0)
    low, high = exact.min(0), exact.max(0)
    bad = np.flatnonzero((lost > FINEST * spread) & (low < high))
    if len(bad):
        column = f", column {bad[0]}" if len(lost) > 1 else ""
        raise ValueError(
            f"{source}{column}: expected numbers that differ by more than single precision rounds away, but they go "
            f"from {low[bad[0]]:.12g} to {high[bad[0]]:.12g}; subtract their mean first"
        )


def _some(rows: Rows) -> NDArray[Any]:
    """The first row, the last and some between: always the same ones, and few enough to be read quickly."""
    count = max(2, min(SAMPLED, 4 * BLOCK // max(1, rows.nbytes // len(rows))))
    between = np.random.default_rng(0).integers(len(rows), size=count - 2)
    return rows[np.unique([0, len(rows) - 1, *between])]
