"""HDF5 files: what they hold, and data sets that are read in place."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.worlds.observations import BLOCK, Stored

CACHE = 2**26
"""Bytes of unpacked chunks that HDF5 keeps."""
NEIGHBOURS = 2**16
"""Bytes within which rows of a data set without chunks are read in one go."""


class Hdf5Rows(Stored):
    """The rows of a data set. The file is opened when first needed, and anew in every process, so that a world can be
    sent to workers or inherited by them."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self._opened: tuple[int, Any, Any] | None = None
        dataset = self._dataset()
        self.shape, self.dtype = dataset.shape, dataset.dtype
        self.packed = dataset.chunks is not None
        row = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        # A chunk is unpacked whole anyway, so all that is wanted of it is read at once.
        self._together = max(1, min(dataset.chunks[0], BLOCK // row) if self.packed else NEIGHBOURS // row)

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        wanted, places = np.unique(index, return_inverse=True)
        rows = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        ends = np.flatnonzero(np.diff(wanted // self._together)) + 1
        try:
            for part in np.split(np.arange(len(wanted)), ends) if len(wanted) else []:
                first, last = wanted[part[0]], wanted[part[-1]]
                rows[part] = self._dataset()[first : last + 1][wanted[part] - first]
        except OSError as error:
            raise ValueError(
                f"{self.path}: expected whole rows in {self.key!r}, but one is damaged ({error})"
            ) from error
        return rows[places]

    def _dataset(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            file = h5py_for(self.path).File(self.path, "r", rdcc_nbytes=CACHE)
            self._opened = (os.getpid(), file, file[self.key])
        return self._opened[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


def h5py_for(path: Path) -> ModuleType:
    """h5py, or the sentence that says how to get it."""
    try:
        import h5py
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} is an HDF5 file, and reading those needs h5py: pip install polariscope[hdf5]"
        ) from error
    module: ModuleType = h5py
    return module


def contents(path: Path) -> dict[str, tuple[int, ...]]:
    """Full names and shapes of all data sets of a file."""
    h5py = h5py_for(path)
    found: dict[str, tuple[int, ...]] = {}

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item.shape

    with h5py.File(path, "r") as file:
        file.visititems(look)
    return found


def attributes(path: Path, attribute: str) -> dict[str, str]:
    """A text that data sets have as an attribute, by their full names."""
    h5py = h5py_for(path)
    texts: dict[str, str] = {}

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and attribute in item.attrs:
            text = item.attrs[attribute]
            texts[name] = text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)

    with h5py.File(path, "r") as file:
        file.visititems(look)
    return texts
