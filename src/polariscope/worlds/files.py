"""Readers of real data: a path in, an :class:`ArrayWorld` out. Nothing is ever downloaded, nothing unpickled.

The kind of file is told by its first bytes, not by its name: IDX (MNIST, Fashion-MNIST; plain or gzip), npz and npy,
HDF5 (Shapes3D), or a folder of images. What is too large to be held is read in place. Whatever cannot be read is
refused in one sentence with the path, what was expected and what came.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds import hdf5, observations
from polariscope.worlds.capacity import check_unpacked
from polariscope.worlds.factors import Factor
from polariscope.worlds.idx import read_idx_pair
from polariscope.worlds.image_folder import read_folder
from polariscope.worlds.labels import DeclaredKind, Kinds, as_factors
from polariscope.worlds.observations import Resized, Rows, as_observations
from polariscope.worlds.world import ArrayWorld, worlds

# Names under which files hold their observations and factors, the more telling first (x_train: the Keras MNIST file).
OBSERVATION_KEYS = ("images", "imgs", "image", "x", "data", "x_train", "arr_0")
FACTOR_KEYS = ("factors", "labels", "latents_classes", "label", "targets", "target", "y", "y_train")
SPRITE_FACTORS: dict[str, DeclaredKind] = {
    "shape": "categorical", "scale": "ordinal", "orientation": "periodic", "x": "ordinal", "y": "ordinal",
}  # fmt: skip
SHAPES3D_FACTORS: dict[str, DeclaredKind] = {
    "floor_hue": "periodic", "wall_hue": "periodic", "object_hue": "periodic",
    "scale": "ordinal", "shape": "categorical", "orientation": "ordinal",
}  # fmt: skip
# What the libraries raise on a file that is cut short, damaged, pickled, or claims more data than there is memory.
UNREADABLE = (ValueError, EOFError, OSError, KeyError, zlib.error, zipfile.BadZipFile, MemoryError, NotImplementedError)


@dataclass(frozen=True, eq=False)
class Found:
    """What a file holds: observations, the table of their factors, and what is known about those."""

    rows: Rows
    table: ArrayLike | None = None
    names: tuple[str, ...] = ()
    kinds: Kinds = field(default_factory=dict)
    values: NDArray[Any] | None = None
    assumed: tuple[str, ...] = ()


def read(
    path: str | Path,
    size: int | None = None,
    *,
    kinds: Kinds | None = None,
    white: float | None = None,
    group: str = "",
    floats: bool = False,
) -> ArrayWorld:
    """The world in a file or a folder of images.

    ``size`` resizes images to ``size`` x ``size``; without it those of a folder need one common size. ``kinds``
    declares kinds of factors by name, ``white`` the number of a white pixel, where the data does not tell them rightly
    (see :class:`ArrayWorld`). ``group`` is the part of an HDF5 file that is meant, if it has parts. Images of
    ``floats`` keep their numbers, in any number of channels.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; data is never downloaded, give its path")
    reader = None if path.is_dir() else _reader_for(path)
    if group and reader is not _read_hdf5:
        raise ValueError(f"{path}: group={group!r} names a part of an HDF5 file, and this is none")
    found = Found(*read_folder(path, size)) if reader is None else _read_hdf5(path, group) if group else reader(path)
    source = str(path)
    if size is not None and reader is not None:
        found, white = _resized(found, size, source, white, floats), None
    if found.table is None:
        return ArrayWorld(found.rows, source=source, white=white, kinds=kinds, assumed=found.assumed, floats=floats)
    declared = {**found.kinds, **(kinds or {})}
    positions, factors, assumed = as_factors(found.table, found.names, declared, found.values, source)
    assumed = [*found.assumed, *assumed]
    return ArrayWorld(found.rows, positions, factors, source, white=white, assumed=tuple(assumed), floats=floats)


@worlds.register("file")
@dataclass(frozen=True)
class File:
    """A file or a folder of images by its path, so that a configuration can name it. It is read when first needed."""

    path: str
    size: int | None = None
    """Resize the images to so many pixels a side."""
    kinds: dict[str, DeclaredKind] = field(default_factory=dict, hash=False)
    """Kinds of factors by name, where their looks deceive: categorical, ordinal, periodic or continuous."""
    white: float | None = None
    """The number of a white pixel, where the data does not tell it."""
    group: str = ""
    """The part of an HDF5 file that is meant."""
    floats: bool = False
    """Keep the numbers of images as they are, in any number of channels: heights, layers of a map."""

    @cached_property
    def world(self) -> ArrayWorld:
        return read(self.path, self.size, kinds=self.kinds, white=self.white, group=self.group, floats=self.floats)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.world.shape

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.world.factors

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was assumed about the data, in sentences."""
        return self.world.assumed

    def __len__(self) -> int:
        return len(self.world)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.observe(index)

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.factors_of(index)

    def __getstate__(self) -> dict[str, Any]:
        """The path and settings: another process reads the file itself."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _resized(found: Found, size: int, source: str, white: float | None, floats: bool) -> Found:
    """What a file holds, its images brought to one size."""
    if size < 1:
        raise ValueError(f"{source}: size={size}; images are at least 1 pixel wide")
    images, assumed = as_observations(found.rows, source, white, floats)
    if len(images.shape) != 4:
        raise ValueError(
            f"{source}: size={size} resizes images, and this file holds points of shape {images.shape[1:]}"
        )
    return replace(found, rows=Resized(images, size), assumed=(*found.assumed, *assumed))


def _reader_for(path: Path) -> Callable[[Path], Found]:
    with path.open("rb") as file:
        start = file.read(8)
    for mark, reader in _READERS.items():
        if start.startswith(mark):
            return reader
    found = f"it starts with the bytes {start.hex(' ')}" if start else "it is empty"
    raise ValueError(f"{path}: expected IDX (plain or gzip), npz, npy, HDF5 or a folder of images, but {found}")


def _read_idx(path: Path) -> Found:
    return Found(*read_idx_pair(path))


def _read_npy(path: Path) -> Found:
    try:
        mapped = path.stat().st_size > observations.HELD
        return Found(np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False))
    except UNREADABLE as error:
        raise ValueError(f"{path}: expected a whole npy file without pickled objects, but {_reason(error)}") from error


def _read_npz(path: Path) -> Found:
    with path.open("rb") as file:  # opened here, because NumPy leaves a file open that is no archive
        try:
            archive = np.load(file, allow_pickle=False)
        except UNREADABLE as error:
            raise ValueError(f"{path}: expected a whole npz file, but {_reason(error)}") from error
        with closing(archive):
            held = ", ".join(archive.files)
            return _by_name(archive.files, path, held, lambda key: _member(archive, key, path))


def _member(archive: Any, key: str, path: Path) -> NDArray[Any]:
    """An array of an archive: mapped if it is large and was stored as it is, else unpacked."""
    names = archive.zip.namelist()
    member = archive.zip.getinfo(key if key in names else f"{key}.npy")
    if member.file_size > observations.HELD:
        if member.compress_type == zipfile.ZIP_STORED:
            return _mapped(path, member)
        check_unpacked(member.file_size, f"{path}: {key}")
    return np.asarray(archive[key])


def _mapped(path: Path, member: zipfile.ZipInfo) -> NDArray[Any]:
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)  # beyond the name and the extra field
        header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, fortran_order, dtype = header(file)
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran_order else "C")


def _read_hdf5(path: Path, group: str = "") -> Found:
    try:
        datasets = hdf5.contents(path)
    except OSError as error:
        raise ValueError(f"{path}: expected a whole HDF5 file, but {_reason(error)}") from error
    within = f"{group.strip('/')}/" if group else ""
    keys = [name.removeprefix(within) for name in datasets if name.rpartition("/")[0] == within.rstrip("/")]
    held = ", ".join(f"{name} {shape}" for name, shape in datasets.items())
    if groups := sorted({name.rpartition("/")[0] for name in datasets} - {""}):
        held += f"; give as group (--world.group) {' or '.join(groups)}"
    return _by_name(keys, path, held, lambda key: hdf5.Hdf5Rows(path, within + key))


def _by_name(keys: Iterable[str], path: Path, held: str, load: Callable[[str], Rows]) -> Found:
    """What named arrays hold, by the names that are usual for observations and factors."""
    names = {key.lower(): key for key in keys}
    observed = next((names[key] for key in OBSERVATION_KEYS if key in names), None)
    if observed is None and len(names) == 1:
        (observed,) = names.values()
    if observed is None:
        wanted = ", ".join(OBSERVATION_KEYS)
        raise ValueError(f"{path}: expected an array called {wanted}, but the file holds {held or 'nothing'}")
    known = next((names[key] for key in FACTOR_KEYS if key in names and names[key] != observed), None)

    def array(key: str) -> Rows:
        try:
            return load(key)
        except UNREADABLE as error:
            raise ValueError(f"{path}: expected numbers in {key!r}, but {_reason(error)}") from error

    rows = array(observed)
    if known is None:
        return Found(rows)
    table = np.asarray(array(known)[:])
    columns = table.shape[1] if table.ndim == 2 else 1
    if known == "latents_classes" and columns in (5, 6):
        return _sprites(
            rows, table, np.asarray(array("latents_values")[:]) if "latents_values" in names else None, path
        )
    if columns == 6 and known == "labels" and tuple(rows.shape[1:]) in ((64, 64, 3), (3, 64, 64)):
        return Found(rows, table, tuple(SHAPES3D_FACTORS), SHAPES3D_FACTORS)
    called: tuple[str, ...] = ()
    if "factor_names" in names:
        called = tuple(str(name) for name in np.asarray(array(names["factor_names"])[:]).ravel())
    return Found(rows, table, called, assumed=(f"Observations are {observed!r} and factors {known!r}.",))


def _sprites(rows: Rows, table: NDArray[Any], values: NDArray[Any] | None, path: Path) -> Found:
    """dSprites and its parts. Its colour is always white: no factor."""
    if values is not None and values.shape != table.shape:
        raise ValueError(f"{path}: expected latents_values of shape {table.shape}, but it is {values.shape}")
    values = None if values is None else values[:, -5:]
    return Found(rows, table[:, -5:], tuple(SPRITE_FACTORS), SPRITE_FACTORS, values)


def _reason(error: BaseException) -> str:
    """What a library said, as the end of our own sentence: one line, without its final stop."""
    return f"reading it failed: {' '.join(str(error).split()).rstrip('.') or type(error).__name__}"


_READERS: dict[bytes, Callable[[Path], Found]] = {
    b"\x1f\x8b": _read_idx,
    b"\0\0": _read_idx,
    b"PK\x03\x04": _read_npz,
    b"\x93NUMPY": _read_npy,
    b"\x89HDF\r\n\x1a\n": _read_hdf5,
}
