"""Readers of real data: a path in, an :class:`ArrayWorld` out. Nothing is ever downloaded, nothing unpickled.

The kind of file is told by its first bytes, not by its name: IDX (MNIST, Fashion-MNIST; plain or gzip), npz and npy,
HDF5 (Shapes3D), or a folder of images. Whatever cannot be read is refused in one sentence with the path, what was
expected and what came.
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from polariscope.worlds.factors import Factor, Kind
from polariscope.worlds.world import ArrayWorld, worlds

BLOCK = 1 << 22  # bytes unpacked at a time, so that no second copy of a large file comes to be
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
# Names under which files hold their observations and factors, the more telling first (x_train: the Keras MNIST file).
OBSERVATION_KEYS = ("images", "imgs", "x", "data", "x_train", "arr_0")
FACTOR_KEYS = ("factors", "labels", "latents_classes", "label", "targets", "y", "y_train")
SPRITE_FACTORS: dict[str, Kind] = {
    "shape": "categorical", "scale": "ordinal", "orientation": "periodic", "x": "ordinal", "y": "ordinal",
}  # fmt: skip
SHAPES3D_FACTORS: dict[str, Kind] = {
    "floor_hue": "periodic", "wall_hue": "periodic", "object_hue": "periodic",
    "scale": "ordinal", "shape": "categorical", "orientation": "ordinal",
}  # fmt: skip
# What the libraries raise on a file that is cut short, damaged, pickled, or claims more data than there is memory.
UNREADABLE = (ValueError, EOFError, OSError, KeyError, zlib.error, zipfile.BadZipFile, MemoryError, NotImplementedError)


def read(path: str | Path, size: int | None = None) -> ArrayWorld:
    """The world in a file or a folder of images.

    Discrete factors become positions 0, 1, ...; what the positions mean is in ``Factor.values`` where it is a number.
    ``size`` resizes the images of a folder to ``size`` x ``size``; without it they need one common size.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; data is never downloaded, give its path")
    if path.is_dir():
        return _read_folder(path, size)
    if size is not None:
        raise ValueError(f"{path}: size={size} resizes the images of a folder, and this is a file")
    with path.open("rb") as file:
        start = file.read(8)
    for mark, reader in _READERS.items():
        if start.startswith(mark):
            return reader(path)
    found = f"it starts with the bytes {start.hex(' ')}" if start else "it is empty"
    raise ValueError(f"{path}: expected IDX (plain or gzip), npz, npy, HDF5 or a folder of images, but {found}")


@worlds.register("file")
@dataclass(frozen=True)
class File:
    """A file or a folder of images by its path, so that a configuration can name it. It is read when first needed."""

    path: str
    size: int | None = None

    @cached_property
    def world(self) -> ArrayWorld:
        return read(self.path, self.size)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.world.shape

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.world.factors

    def __len__(self) -> int:
        return len(self.world)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.observe(index)

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.factors_of(index)


def read_idx(path: str | Path) -> NDArray[Any]:
    """The array in an IDX file (the format of MNIST), plain or gzip."""
    path = Path(path)
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            return _idx_array(file, path, zipped)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file, but it is cut short or damaged ({error})") from error


def _idx_array(file: BufferedIOBase, path: Path, zipped: bool) -> NDArray[Any]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES or not 1 <= magic[3] <= 4:
        raise ValueError(
            f"{path}: expected IDX data (00 00, a type from 08 to 0e, 1 to 4 dimensions), "
            f"but it starts with {magic.hex(' ') or 'nothing'}"
        )
    header = file.read(4 * magic[3])
    shape = tuple(int(n) for n in np.frombuffer(header[: len(header) // 4 * 4], ">u4"))
    dtype = np.dtype(IDX_TYPES[magic[2]])
    wanted = math.prod(shape) * dtype.itemsize
    # Deflate shrinks at most 1032 times, so a header that claims more is wrong, and no memory is taken for it.
    possible = path.stat().st_size * (1032 if zipped else 1)
    if len(shape) < magic[3] or wanted > possible:
        raise ValueError(f"{path}: expected {wanted} bytes of data for shape {shape}, but the file is too short for it")
    data = np.empty(shape, dtype)
    room, filled = data.reshape(-1).view(np.uint8).data, 0
    while filled < wanted and (came := file.readinto(room[filled : filled + BLOCK])):
        filled += came
    if filled < wanted or file.read(1):
        amount = f"only {filled}" if filled < wanted else "more"
        raise ValueError(f"{path}: expected {wanted} bytes of data for shape {shape}, but {amount} came")
    return data


def _read_idx_world(path: Path) -> ArrayWorld:
    images = read_idx(path)
    if images.ndim == 1:
        raise ValueError(f"{path}: expected images, but these are {len(images)} labels; give the images file beside it")
    beside = _labels_beside(path)
    if beside is None:
        return ArrayWorld(images, source=str(path))
    labels = read_idx(beside)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{beside}: expected {len(images)} labels for {path.name}, but the shape is {labels.shape}")
    return ArrayWorld(images, *_factors(labels, beside), source=str(path))


def _labels_beside(images: Path) -> Path | None:
    """The labels file by the usual name, as ``t10k-images-idx3-ubyte.gz`` and ``t10k-labels-idx1-ubyte``."""
    name = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    candidates = [images.with_name(name + suffix) for suffix in ("", ".gz")]
    return next((file for file in candidates if file != images and file.is_file()), None)


def _read_npy(path: Path) -> ArrayWorld:
    try:
        data = np.load(path, allow_pickle=False)
    except UNREADABLE as error:
        raise ValueError(f"{path}: expected a whole npy file without pickled objects, but {_reason(error)}") from error
    return ArrayWorld(_full_range(data), source=str(path))


def _read_npz(path: Path) -> ArrayWorld:
    with path.open("rb") as file:  # opened here, because NumPy leaves a file open that is no archive
        try:
            archive = np.load(file, allow_pickle=False)
        except UNREADABLE as error:
            raise ValueError(f"{path}: expected a whole npz file, but {_reason(error)}") from error
        with closing(archive):
            return _read_arrays(archive, path, lambda key: np.asarray(archive[key]))


def _read_hdf5(path: Path) -> ArrayWorld:
    try:
        import h5py
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} is an HDF5 file, and reading those needs h5py: pip install polariscope[hdf5]"
        ) from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path}: expected a whole HDF5 file, but {_reason(error)}") from error
    with file:
        datasets = {key: item for key, item in file.items() if isinstance(item, h5py.Dataset)}
        return _read_arrays(datasets, path, lambda key: _channels_first(datasets[key]))


def _channels_first(dataset: Any) -> NDArray[Any]:
    """A data set in memory; colour images a block at a time, so that all of Shapes3D is never there twice."""
    if dataset.ndim != 4 or dataset.dtype != np.uint8 or dataset.shape[-1] > 4 or 0 in dataset.shape:
        return np.asarray(dataset[()])
    count, height, width, channels = dataset.shape
    images = np.empty((count, channels, height, width), np.uint8)
    for start in range(0, count, 4096):
        images[start : start + 4096] = np.moveaxis(dataset[start : start + 4096], -1, 1)
    return images


def _read_arrays(arrays: Mapping[str, Any], path: Path, load: Callable[[str], NDArray[Any]]) -> ArrayWorld:
    """The world in named arrays, by the names that are usual for observations and factors."""
    names = {key.lower(): key for key in arrays}
    observed = next((names[key] for key in OBSERVATION_KEYS if key in names), None)
    if observed is None and len(names) == 1:
        (observed,) = names.values()
    if observed is None:
        held = ", ".join(arrays) or "nothing"
        raise ValueError(f"{path}: expected an array called {', '.join(OBSERVATION_KEYS)}, but the file holds {held}")
    known = next((names[key] for key in FACTOR_KEYS if key in names and names[key] != observed), None)

    def array(key: str) -> NDArray[Any]:
        try:
            return load(key)
        except UNREADABLE as error:
            raise ValueError(f"{path}: expected numbers in {key!r}, but {_reason(error)}") from error

    images = _full_range(array(observed))
    if known is None:
        return ArrayWorld(images, source=str(path))
    table = array(known)
    kinds: dict[str, Kind] = {}
    values = None
    columns = table.shape[1] if table.ndim == 2 else 1
    if known == "latents_classes" and columns in (5, 6):
        kinds = SPRITE_FACTORS
        values = array("latents_values") if "latents_values" in arrays else None
        if values is not None and values.shape != table.shape:
            raise ValueError(f"{path}: expected latents_values of shape {table.shape}, but it is {values.shape}")
        if columns == 6:  # the colour of dSprites is always white: no factor
            table, values = table[:, 1:], None if values is None else values[:, 1:]
    elif columns == 6 and images.ndim == 4 and images.shape[1:] == (3, 64, 64) and known == "labels":
        kinds = SHAPES3D_FACTORS
        values = table
        table = _ranks(table, path)
    elif "factor_names" in names:
        called = [str(name) for name in array(names["factor_names"]).ravel()]
        if len(set(called)) != columns:
            raise ValueError(f"{path}: expected {columns} different factor_names, but they are {called}")
        kinds = dict.fromkeys(called, "ordinal")
    return ArrayWorld(images, *_factors(table, path, kinds, values), source=str(path))


def _full_range(data: NDArray[Any]) -> NDArray[Any]:
    """Binary images (dSprites and the like are 0 and 1) as 0 and 255, in place where they own their memory."""
    if data.ndim < 3 or data.dtype.kind not in "bui" or not data.size or data.max() != 1 or data.min() < 0:
        return data
    data = data.astype(np.uint8, copy=False)
    return np.multiply(data, 255, out=data if data.flags.writeable else None)


def _ranks(table: NDArray[Any], path: Path) -> NDArray[np.int64]:
    """Each column's values replaced by their rank among its distinct values."""
    if table.dtype.kind == "f" and not np.isfinite(table).all():
        raise ValueError(f"{path}: expected finite factors, but some are NaN or infinite")
    return np.stack([np.unique(column, return_inverse=True)[1] for column in table.T], axis=1)


def _factors(
    table: NDArray[Any], path: Path, kinds: Mapping[str, Kind] | None = None, values: NDArray[Any] | None = None
) -> tuple[NDArray[Any], tuple[Factor, ...]]:
    """Positions and factors of a table with a row an observation: floats are continuous, all else is discrete.

    ``kinds`` names the columns; ``values`` (like the table) says what the discrete entries mean.
    """
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "biufUS":
        raise ValueError(f"{path}: expected factors of shape (n, k), but they are {table.dtype} of shape {table.shape}")
    single: dict[str, Kind] = {"label": "categorical"}
    kinds = kinds or (single if table.shape[1] == 1 else {f"factor_{j}": "ordinal" for j in range(table.shape[1])})
    if table.dtype.kind == "f":
        return table, tuple(Factor(name, 0) for name in kinds)
    if values is None and table.dtype.kind not in "US":
        values = table
    positions = _ranks(table, path)
    factors = []
    for j, (name, kind) in enumerate(kinds.items()):
        _, first = np.unique(positions[:, j], return_index=True)
        meaning = tuple(map(float, values[first, j])) if values is not None else ()
        # A position that means itself needs no table of meanings.
        factors.append(Factor(name, len(first), kind, () if meaning == tuple(range(len(first))) else meaning))
    return positions, tuple(factors)


def _read_folder(folder: Path, size: int | None) -> ArrayWorld:
    """The images in a folder or its sub-folders, in the order of their names; sub-folders, sorted, are the labels."""
    if size is not None and size < 1:
        raise ValueError(f"{folder}: size is {size}; images need at least 1 pixel")
    within = [file.relative_to(folder) for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES]
    files = sorted(file for file in within if not any(part.startswith(".") for part in file.parts))
    if not files:
        kinds = ", ".join(sorted(suffix[1:] for suffix in IMAGE_SUFFIXES))
        raise ValueError(f"{folder}: expected a folder with images ({kinds}), but it holds none")
    labels = np.array([file.parts[0] if len(file.parts) > 1 else "" for file in files])
    if "" in labels and (labels != "").any():
        raise ValueError(f"{folder}: expected all images in sub-folders or none, but {files[0]} and others are mixed")
    images = _read_images([folder / file for file in files], size)
    if labels[0] == "":
        return ArrayWorld(images, source=str(folder))
    return ArrayWorld(images, *_factors(labels, folder), source=str(folder))


def _read_images(files: Sequence[Path], size: int | None) -> NDArray[np.uint8]:
    """Images ``(n, channels, height, width)``: grey if all of them are, else RGB."""
    seen = [_open_image(file, lambda image: (image.mode, image.size)) for file in files]
    for file, (mode, extent) in zip(files, seen, strict=True):
        if mode[0] in "IF":
            raise ValueError(f"{file}: expected 8-bit pixels, but they are {mode}; convert the image first")
        if size is None and extent != seen[0][1]:
            raise ValueError(
                f"{file}: expected {seen[0][1][0]}x{seen[0][1][1]} pixels like {files[0].name}, but it has "
                f"{extent[0]}x{extent[1]}; give a size to resize them all"
            )
    colour = "L" if all(mode in ("1", "L", "LA") for mode, _ in seen) else "RGB"
    width, height = (size, size) if size is not None else seen[0][1]

    def pixels(image: Image.Image) -> NDArray[np.uint8]:
        image = image.convert(colour)
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.LANCZOS)
        return np.moveaxis(np.asarray(image).reshape(height, width, -1), -1, 0)

    images = np.empty((len(files), len(colour), height, width), np.uint8)
    for row, file in enumerate(files):
        images[row] = _open_image(file, pixels)
    return images


def _open_image(file: Path, look: Callable[[Image.Image], Any]) -> Any:
    try:
        with Image.open(file) as image:
            return look(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file}: expected a whole image, but {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """What a library said, as the end of our own sentence: one line, without its final stop."""
    return f"reading it failed: {' '.join(str(error).split()).rstrip('.') or type(error).__name__}"


_READERS: dict[bytes, Callable[[Path], ArrayWorld]] = {
    b"\x1f\x8b": _read_idx_world,
    b"\0\0": _read_idx_world,
    b"PK\x03\x04": _read_npz,
    b"\x93NUMPY": _read_npy,
    b"\x89HDF\r\n\x1a\n": _read_hdf5,
}
