"""npy and npz files: headers are checked against the stored data before any memory is allocated, and nothing is
unpickled."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from polariscope.foreign_files import check_regular, reading
from polariscope.worlds import observations
from polariscope.worlds.capacity import check_unpacked

BLOCK = 1 << 22
"""Bytes unpacked at a time, so that a large file is never copied as a whole."""
WHOLE_NPY = "a whole npy file without pickled objects"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_PACKED_AS_NUMPY_DOES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Header(NamedTuple):
    """The header of an npy file."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """The arrays of an npz file by name; each is read on demand."""

    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self.path, self._file = path, file
        self._members = {member.filename.removesuffix(".npy"): member for member in file.infolist()}

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """An array: memory-mapped if it is large and not compressed, else unpacked."""
        member = self._members[name]
        with reading(self.path, f"numbers in {name!r}"):
            self._check(name, member)
            with self._file.open(member) as file:
                header = _header(file, member.file_size)
                if member.file_size > observations.HELD and member.compress_type == zipfile.ZIP_STORED:
                    return self._mapped(member, header)
                check_unpacked(header.nbytes, f"{self.path}: {name}", member.compress_size)
                return _array(file, header)

    def _check(self, name: str, member: zipfile.ZipInfo) -> None:
        if member.flag_bits & 1:
            raise ValueError("it is encrypted; save it without a password")
        if member.compress_type not in _PACKED_AS_NUMPY_DOES:
            raise ValueError("it is compressed in another way than NumPy does; save it with np.savez_compressed")

    def _mapped(self, member: zipfile.ZipInfo, header: Header) -> NDArray[Any]:
        with self.path.open("rb") as file:
            file.seek(member.header_offset + 26)
            file.seek(sum(struct.unpack("<HH", file.read(4))), 1)  # beyond the name and the extra field
            if _header(file, member.file_size) != header:
                raise ValueError("its place in the archive holds something else")
            order = "F" if header.columns_first else "C"
            return np.memmap(self.path, header.dtype, "r", file.tell(), header.shape, order)  # type: ignore[call-overload]


@contextmanager
def npz(path: Path) -> Iterator[Archive]:
    """The arrays of an npz file."""
    check_regular(path)
    with reading(path, "a whole npz file"), zipfile.ZipFile(path) as file:
        yield Archive(path, file)


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an npy file, mapped if it is large."""
    check_regular(path)
    with reading(path, WHOLE_NPY), path.open("rb") as file:
        size = path.stat().st_size
        header = _header(file, size)
        if size > observations.HELD:
            return np.memmap(path, header.dtype, "r", file.tell(), header.shape, "F" if header.columns_first else "C")
        return _array(file, header)


def filled(file: IO[bytes] | BufferedIOBase, count: int) -> NDArray[np.uint8]:
    """Bytes of a file, at most so many; fewer if it ends before."""
    data = np.empty(count, np.uint8)
    came = 0
    while came < count and (more := file.readinto(data[came : came + BLOCK].data)):  # type: ignore[union-attr]
        came += more
    return data[:came]


def _header(file: IO[bytes], size: int) -> Header:
    """The header at the start of a file of ``size`` bytes, refused if the array does not fit into these."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format is version {version[0]}.{version[1]}, and arrays of numbers have 1.0 or 2.0")
    start = file.tell()
    header = Header(*_HEADERS[version](file))
    if header.dtype.hasobject:
        raise ValueError("it holds pickled objects, which are never loaded")
    if not header.dtype.itemsize or min(header.shape, default=0) < 0:
        raise ValueError(f"its header says {header.dtype} of shape {header.shape}")
    if header.nbytes > size - (file.tell() - start):
        raise ValueError(f"its header says {header.dtype} of shape {header.shape}, and the data is too short for that")
    return header


def _array(file: IO[bytes], header: Header) -> NDArray[Any]:
    data = filled(file, header.nbytes)
    if len(data) < header.nbytes:
        raise ValueError(f"it has {len(data)} of {header.nbytes} bytes")
    file.read(1)  # a member of an archive is held against its checksum at its end
    flat = data != 0 if header.dtype == np.bool_ else data.view(header.dtype)  # a byte that is neither 0 nor 1 is true
    return flat.reshape(header.shape, order="F" if header.columns_first else "C")
