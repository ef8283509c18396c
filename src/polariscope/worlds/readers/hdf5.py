"""HDF5 files: their content, and data sets that are read in place.

A file may name others as the place of its data (external storage, virtual data sets, external links), which could show
any file of this machine in a picture: these are refused. A data set that claims far more than the file stores is never
loaded into memory as a whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.foreign_files import check_regular, reading
from polariscope.worlds.capacity import LARGE, MOST_PACKED, check_unpacked, gigabytes
from polariscope.worlds.observations import BLOCK, Stored

CACHE = 2**26
"""Bytes of unpacked chunks that HDF5 keeps."""
NEIGHBOURS = 2**16
"""Bytes within which rows of a data set without chunks are read in one go."""
SMALL = 2**24
"""Bytes that any data set may claim."""
DEFLATE = 1032
"""How many times deflate shrinks at most."""


class Hdf5Rows(Stored):
    """The rows of a data set. The file is opened when first needed, and anew in every process, so that a world can be
    sent to workers or inherited by them."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self._opened: tuple[int, Any, Any] | None = None
        with reading(path, f"a data set {key!r} of numbers"):
            dataset = self._dataset()
            self.shape, self.dtype, chunks = dataset.shape, dataset.dtype, dataset.chunks
            stored = dataset.id.get_storage_size()
        self.packed = chunks is not None
        # What was never written reads as zeros and takes no room in the file.
        self.hollow = self.nbytes > min(max(SMALL, DEFLATE * stored), max(LARGE, MOST_PACKED * stored))
        row = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        check_unpacked(row, f"{path}: a row of {key}")
        if chunks is not None:  # each is unpacked whole
            check_unpacked(math.prod(chunks) * self.dtype.itemsize, f"{path}: a chunk of {key}")
        # A chunk is unpacked whole anyway, so all that is wanted of it is read at once.
        self._together = max(1, NEIGHBOURS // row if chunks is None else min(chunks[0], BLOCK // row))

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        wanted, places = np.unique(index, return_inverse=True)
        rows = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        ends = np.flatnonzero(np.diff(wanted // self._together)) + 1
        with reading(self.path, f"whole rows in {self.key!r}"):
            for part in np.split(np.arange(len(wanted)), ends) if len(wanted) else []:
                first, last = wanted[part[0]], wanted[part[-1]]
                rows[part] = self._dataset()[first : last + 1][wanted[part] - first]
        return rows[places]

    def __getitem__(self, index: ArrayLike | slice) -> NDArray[Any]:
        if not isinstance(index, slice) or index.step not in (None, 1):
            return super().__getitem__(index)
        with reading(self.path, f"whole rows in {self.key!r}"):
            return np.asarray(self._dataset()[index])

    def whole(self) -> NDArray[Any]:
        """All of it in memory, if the file stores about as much."""
        if self.hollow:
            raise ValueError(
                f"{self.path}: expected all numbers of {self.key!r}, but the file stores next to nothing of the "
                f"{gigabytes(self.nbytes)} for its shape {self.shape}: they were never written"
            )
        check_unpacked(self.nbytes, f"{self.path}: {self.key}")
        return self[:]

    def _dataset(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            check_regular(self.path)
            file = h5py_for(self.path).File(self.path, "r", rdcc_nbytes=CACHE)
            self._opened = (os.getpid(), file, _own(file[self.key], self.path, self.key))
        return self._opened[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


def h5py_for(path: Path) -> ModuleType:
    """h5py, or an error that says how to install it."""
    try:
        import h5py
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} is an HDF5 file, and reading those needs h5py: pip install polariscope[hdf5]"
        ) from error
    module: ModuleType = h5py
    return module


COPY = "other files are never read through it; copy the data into it"


def _own(dataset: Any, path: Path, key: str) -> Any:
    """A data set whose numbers are in its own file; one that names other files is refused."""
    if dataset.is_virtual or dataset.external:
        held = "is virtual" if dataset.is_virtual else f"names the file {dataset.external[0][0]!r}"
        raise ValueError(f"{path}: expected data in this file, but {key!r} {held}; {COPY}")
    return dataset


def contents(path: Path) -> dict[str, tuple[int, ...]]:
    """Full names and shapes of all data sets of a file."""
    return {name: item.shape for name, item in _datasets(path) if item.shape is not None}


def attributes(path: Path, attribute: str) -> dict[str, str]:
    """A text attribute of data sets, by their full names."""
    texts = {name: item.attrs[attribute] for name, item in _datasets(path) if attribute in item.attrs}
    return {
        name: text.decode("ascii", "replace") if isinstance(text, bytes) else str(text) for name, text in texts.items()
    }


def _datasets(path: Path) -> Iterator[tuple[str, Any]]:
    """All data sets of a file by their full names. Links to other files are refused."""
    h5py = h5py_for(path)
    check_regular(path)
    names: list[str] = []
    links: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        # HDF5 calls back from C, where nothing may be raised: names are gathered first, and looked at then.
        file.visititems_links(links.__setitem__)
        file.visit(names.append)
        for name, link in links.items():
            if isinstance(link, h5py.ExternalLink):
                raise ValueError(
                    f"{path}: expected data in this file, but {name!r} is a link to {link.filename!r}; {COPY}"
                )
        for name in names:
            item = file[name]
            if isinstance(item, h5py.Dataset):
                yield name, item
