"""MATLAB files: named arrays, which count observations along their last axis as often as along their first.

Up to version 7 they are read by SciPy, of version 7.3 they are HDF5 files. Only arrays of numbers are ever loaded:
cells, structures, objects and functions are listed and refused. MATLAB runs down columns first, so the numbers of one
image, stored as a column or a row, do so as well.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat
from scipy.io.matlab import MatReadError

from polariscope.worlds.capacity import check_unpacked
from polariscope.worlds.observations import Rows, Stored
from polariscope.worlds.readers import hdf5

ITEM_BYTES = {
    "logical": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "single": 4,
    "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
"""Classes of arrays that hold numbers, and what one takes."""
MATRIX, PACKED, HEAD = 14, 15, 4096
"""Elements of a file: an array, a packed one; and the bytes at the start of each that have its shape and name."""
NUMERIC_CLASSES, NUMERIC_TYPES = range(6, 16), (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)
"""What arrays of numbers are, and as what numbers may be stored."""
MOST_PACKED = 1032
"""How much deflate shrinks at most."""


@dataclass(frozen=True)
class MatArray:
    """An array of a file by its name: shape and class as MATLAB has them."""

    shape: tuple[int, ...]
    kind: str
    load: Callable[[], NDArray[Any]]
    """The array, its axes in MATLAB's order."""
    rows: Callable[[], Rows]
    """Its parts along the last axis, ``(n, ...)``; large ones of HDF5 files are read in place."""

    @property
    def numeric(self) -> bool:
        return self.kind in ITEM_BYTES


class Reversed(Stored):
    """Rows with their axes in reverse, as HDF5 has those of MATLAB."""

    def __init__(self, rows: Stored) -> None:
        self.rows, self.packed, self.hollow = rows, rows.packed, rows.hollow
        self.shape, self.dtype = (rows.shape[0], *rows.shape[:0:-1]), rows.dtype

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        rows = self.rows[index]
        return rows.transpose(0, *range(rows.ndim - 1, 0, -1))


def contents(path: Path) -> dict[str, MatArray]:
    """The arrays of a file of version 5 to 7, none of them loaded yet."""
    _check_types(path)
    try:
        held = whosmat(path)
    except MatReadError as error:  # which is no ValueError
        raise ValueError(str(error)) from error
    return {name: _of_version_5(path, name, tuple(shape), kind) for name, shape, kind in held}


def contents_of_hdf5(path: Path) -> dict[str, MatArray]:
    """The arrays of a file of version 7.3."""
    kinds = hdf5.attributes(path, "MATLAB_class")
    shapes = {name: shape for name, shape in hdf5.contents(path).items() if not name.startswith("#")}
    return {name: _of_hdf5(path, name, shape, kinds.get(name, "unknown")) for name, shape in shapes.items()}


def observations_of(array: MatArray, name: str, labels: int | None, numbers: int | None) -> tuple[Rows, str]:
    """Rows of an array, and the assumption about the axis that counts them.

    ``labels`` is the number of labels, and ``numbers`` the size of an observation, if they are known.
    """
    first, last = array.shape[0], array.shape[-1]
    matrix = len(array.shape) == 2
    if labels is not None and (labels == first) != (labels == last):
        by_last, why = labels == last, f", since there are {labels:,} labels"
    elif matrix and numbers is not None:
        by_last, why = first == numbers != last, f", since they have {numbers:,} numbers each"
    elif matrix:
        by_last, why = False, "; if its columns are, give the shape of one (shape=, --world.shape)"
    else:
        by_last, why = last >= first, f", since its first axis is {'not longer' if last >= first else 'longer'}"
    where = ("columns" if by_last else "rows") if matrix else f"parts along the {'last' if by_last else 'first'} axis"
    shape = "x".join(map(str, array.shape))
    return (
        array.rows() if by_last else array.load(),
        f"The {where} of {name!r} ({shape}) are taken as observations{why}.",
    )


def _check_types(path: Path) -> None:
    """Refuse arrays with an unknown type of numbers: SciPy looks it up without a check, which ends the process."""
    with path.open("rb") as file:
        order = ">" if file.read(128)[126:] == b"MI" else "<"
        while len(tag := file.read(8)) == 8:
            kind, length = struct.unpack(f"{order}II", tag)
            start = file.tell()
            head = file.read(min(length, HEAD))
            if kind == PACKED:
                head = zlib.decompressobj().decompress(head, HEAD)
                kind, head = struct.unpack(f"{order}I", head[:4])[0], head[8:]
            if kind == MATRIX:
                _check_type(head, order)
            file.seek(start + length)


def _check_type(head: bytes, order: str) -> None:
    """Flags, shape and name come before the numbers; each says its type and length, short ones in half the room."""
    place, array_class = 0, 0
    for part in range(4):
        kind, length = struct.unpack_from(f"{order}II", head, place)
        short = kind >> 16 != 0
        if part == 0:
            array_class = struct.unpack_from(f"{order}I", head, place + 8)[0] & 0xFF
        if part == 3 and array_class in NUMERIC_CLASSES and (kind & 0xFFFF if short else kind) not in NUMERIC_TYPES:
            raise ValueError(f"an array has numbers of the unknown type {kind}")
        place += 8 if short else 8 + -(-length // 8) * 8
        if array_class not in NUMERIC_CLASSES:
            return


def _of_version_5(path: Path, name: str, shape: tuple[int, ...], kind: str) -> MatArray:
    def load() -> NDArray[Any]:
        size = math.prod(shape) * ITEM_BYTES[kind]
        if size > MOST_PACKED * path.stat().st_size:
            raise ValueError(f"it claims {size} bytes for shape {shape}, which the file is too short for")
        check_unpacked(size, f"{path}: {name}")
        try:
            return np.asarray(loadmat(path, variable_names=[name])[name])
        except MatReadError as error:
            raise ValueError(str(error)) from error

    return MatArray(shape, kind, load, lambda: np.moveaxis(load(), -1, 0))


def _of_hdf5(path: Path, name: str, stored: tuple[int, ...], kind: str) -> MatArray:
    def load() -> NDArray[Any]:
        return hdf5.Hdf5Rows(path, name).whole().T

    return MatArray(stored[::-1], kind, load, lambda: Reversed(hdf5.Hdf5Rows(path, name)))
