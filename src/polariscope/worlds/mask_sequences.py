"""Masks of moving objects: where they are and how large, and which frames make a sequence.

The preparation is that of KITTI Masks: Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in natural
data with temporal sparse coding (2021), appendices D.3 and D.5; Spec 001a, sections 4.4 and 4.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.factors import Factor, numbered

Masks = NDArray[np.bool_]
FEWEST = 30
"""Pixels of an object below which a frame does not show it."""
FACTORS = (Factor("y", 0), Factor("x", 0), Factor("area", 0))
"""Centre of mass in pixels from the top and from the left, and the number of pixels."""


def centre_and_area(masks: ArrayLike) -> NDArray[np.float64]:
    """y and x of the centre of mass, in pixels, and the area of masks ``(n, h, w)`` that are not empty: ``(n, 3)``.

    >>> centre_and_area([[[0, 0, 0], [0, 1, 1]]]).tolist()
    [[1.0, 1.5, 2.0]]
    """
    masks = np.asarray(masks).astype(bool)
    down, across = masks.sum(2, dtype=np.float64), masks.sum(1, dtype=np.float64)
    area = down.sum(1)
    if not area.all():
        raise ValueError(f"an empty mask has no centre of mass; mask {int(np.argmin(area))} has no pixel")
    return np.stack((down @ np.arange(masks.shape[1]) / area, across @ np.arange(masks.shape[2]) / area, area), axis=1)


def visible_runs(masks: Masks, fewest: int = FEWEST) -> list[slice]:
    """Frames in a row, at least two, that show ``fewest`` pixels or more: a frame that does not starts a new sequence.

    >>> shown = np.array([1, 1, 0, 1, 1, 1, 0, 1], bool)
    >>> visible_runs(np.broadcast_to(shown[:, None, None], (8, 6, 6)))
    [slice(0, 2, None), slice(3, 6, None)]
    """
    shown = masks.reshape(len(masks), -1).sum(1) >= fewest
    ends = np.flatnonzero(np.diff(shown, prepend=False, append=False)).reshape(-1, 2)
    return [slice(int(begin), int(end)) for begin, end in ends if end - begin > 1]


@dataclass(frozen=True, eq=False)
class Clips:
    """Sequences of masks, one after the other; one bit per pixel, since there are many."""

    bits: NDArray[np.uint8]
    """``(n, bytes)``."""
    shape: tuple[int, int]
    last: NDArray[np.int64]
    """For each frame the number of the last one of its sequence."""
    factors: NDArray[np.float32]
    """y, x and area."""

    @classmethod
    def of(cls, sequences: Iterable[Masks]) -> Clips:
        """Each sequence is ``(frames, height, width)``; all have the same size."""
        bits, lengths, factors = [], [], []
        shape = (0, 0)
        for masks in sequences:
            bits.append(np.packbits(masks.reshape(len(masks), -1), axis=1))
            lengths.append(len(masks))
            factors.append(centre_and_area(masks).astype(np.float32))
            shape = masks.shape[1:]
        if not bits:
            raise ValueError("there is no sequence of masks")
        last = np.repeat(np.cumsum(lengths) - 1, lengths)
        return cls(np.concatenate(bits), shape, last, np.concatenate(factors))

    def masks(self, index: NDArray[np.int64]) -> Masks:
        height, width = self.shape
        flat = np.unpackbits(self.bits[index], axis=1, count=height * width)
        return flat.astype(bool).reshape(-1, height, width)


class MaskWorld(ABC):
    """Frames of sequences, white masks on black. A new one is a registered frozen dataclass with ``clips``."""

    @property
    @abstractmethod
    def clips(self) -> Clips: ...

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, *self.clips.shape)

    @property
    def factors(self) -> tuple[Factor, ...]:
        return FACTORS

    def __len__(self) -> int:
        return len(self.clips.last)

    def observe(self, index: ArrayLike) -> NDArray[np.uint8]:
        return self.clips.masks(numbered(index, len(self)))[:, None] * np.uint8(255)

    def factors_of(self, index: ArrayLike) -> NDArray[np.float32]:
        return self.clips.factors[numbered(index, len(self))]

    def last_of(self, index: ArrayLike) -> NDArray[np.int64]:
        return self.clips.last[numbered(index, len(self))]
