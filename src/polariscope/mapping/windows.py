"""Windows over a raster of any size, so that predictions of the windows are exactly those of the whole.

A network with pooling is equivariant only to shifts by 2 pixels for each pooling, and uses pixels around those it
predicts. Windows therefore start at multiples of the pooling factor and read a halo around the pixels they predict;
each pixel is predicted by exactly one window. Nothing is blended, because windows agree exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Read = Callable[[int, int, int, int], NDArray[Any]]
"""Top, left, height and width of a part of a raster, to its pixels ``(bands, height, width)``."""


class PixelNetwork(Protocol):
    """The properties that a network must declare to be stitched, as :class:`~polariscope.nets.unet.UNet` does."""

    padding: str

    @property
    def multiple(self) -> int: ...
    @property
    def margin(self) -> int: ...
    @property
    def halo(self) -> int: ...
    @property
    def receptive_field(self) -> int: ...
    def fitting(self, least: int) -> int: ...


@dataclass(frozen=True)
class Window:
    """Pixels that are predicted, and pixels that are read for them: rows and columns, the ends excluded. The read
    pixels may reach beyond the raster."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    read_rows: tuple[int, int]
    read_columns: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


def windows(
    height: int, width: int, network: PixelNetwork, size: int | None = None, name: str = "the raster"
) -> list[Window]:
    """Windows of at most ``size`` pixels a side that cover a raster, each pixel once; without a size one for all."""
    field = network.receptive_field
    if min(height, width) < field:
        raise ValueError(
            f"{name} has {height} x {width} pixels, and the network needs at least {field} x {field}: give a larger one"
        )
    if size is not None and size < network.multiple:
        raise ValueError(f"a window has {size} pixels a side: it needs at least {network.multiple}")
    rows, columns = (_spans(length, network, size) for length in (height, width))
    return [Window(core, other, seen, also) for core, seen in rows for other, also in columns]


def _spans(length: int, network: PixelNetwork, size: int | None) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    step = length if size is None else size // network.multiple * network.multiple
    ends = [(start, min(start + step, length)) for start in range(0, length, step)]
    if network.padding == "valid":
        return [(core, (core[0] - network.margin, core[0] - network.margin + network.fitting(core[1] - core[0])))
                for core in ends]  # fmt: skip
    # Zeros that a convolution adds belong to the edge of the raster: windows there end where it ends.
    whole = -(-length // network.multiple) * network.multiple
    seen = [(max(0, start - network.halo), min(whole, stop + network.halo)) for start, stop in ends]
    return [(core, (top, _up(bottom, network.multiple))) for core, (top, bottom) in zip(ends, seen, strict=True)]


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Stitched(nn.Module):
    """Any network that maps images to scores of the same size, with the properties for stitching.

    ``halo`` is the number of pixels around a pixel that affect its prediction, ``multiple`` the number of pixels by
    which an image can be shifted so that its prediction shifts with it: the product of the network's strides.
    """

    padding = "same"
    margin = 0

    def __init__(self, network: nn.Module, halo: int, multiple: int = 1) -> None:
        super().__init__()
        if halo < 0 or multiple < 1:
            raise ValueError(f"halo is {halo} and multiple {multiple}: they are at least 0 and 1")
        self.network, self.multiple = network, multiple
        self.halo, self.receptive_field = _up(halo, multiple), 2 * halo + 1

    def fitting(self, least: int) -> int:
        return _up(least, self.multiple)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(x)
        return scores


def read_mirrored(read: Read, window: Window, height: int, width: int) -> NDArray[Any]:
    """The pixels that a window reads; beyond the raster they are mirrored at the edge."""
    rows, columns = _mirrored(window.read_rows, height), _mirrored(window.read_columns, width)
    top, left = int(rows.min()), int(columns.min())
    block = read(top, left, int(rows.max()) - top + 1, int(columns.max()) - left + 1)
    return np.ascontiguousarray(block[:, (rows - top)[:, None], columns - left])


def _mirrored(span: tuple[int, int], length: int) -> NDArray[np.int64]:
    at = np.arange(*span) % (2 * length)
    return np.where(at < length, at, 2 * length - 1 - at)


def predicted(network: Callable[[Tensor], Tensor], sizes: PixelNetwork, pixels: Tensor, window: Window) -> Tensor:
    """Probabilities ``(classes, rows, columns)`` of the pixels that a window predicts, from the pixels it reads
    ``(bands, ...)``."""
    scores = network(pixels[None])[0]
    top = 0 if sizes.padding == "valid" else window.rows[0] - window.read_rows[0]
    left = 0 if sizes.padding == "valid" else window.columns[0] - window.read_columns[0]
    height, width = window.shape
    return torch.softmax(scores[:, top : top + height, left : left + width].double(), 0)
