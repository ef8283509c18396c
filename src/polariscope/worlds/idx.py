"""IDX files, plain or gzip: the format of MNIST and Fashion-MNIST, with the labels in a file beside the images."""

from __future__ import annotations

import gzip
import math
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.worlds import observations
from polariscope.worlds.capacity import check_unpacked

BLOCK = 1 << 22  # bytes unpacked at a time, so that no second copy of a large file comes to be
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | Path) -> NDArray[Any]:
    """The array in an IDX file, plain or gzip; a large plain one is mapped."""
    path = Path(path)
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            return _array(file, path, zipped)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file, but it is cut short or damaged ({error})") from error


def read_idx_pair(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Images, and their labels if these lie beside them."""
    images = read_idx(path)
    if images.ndim == 1:
        raise ValueError(f"{path}: expected images, but these are {len(images)} labels; give the images file beside it")
    beside = _labels_beside(path)
    if beside is None:
        return images, None
    labels = read_idx(beside)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{beside}: expected {len(images)} labels for {path.name}, but the shape is {labels.shape}")
    return images, labels


def _array(file: BufferedIOBase, path: Path, zipped: bool) -> NDArray[Any]:
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
    start = 4 + len(header)
    if wanted > observations.HELD and not zipped and path.stat().st_size == start + wanted:
        return np.memmap(path, dtype, "r", start, shape)
    check_unpacked(wanted, str(path))
    data = np.empty(shape, dtype)
    room, filled = data.reshape(-1).view(np.uint8).data, 0
    while filled < wanted and (came := file.readinto(room[filled : filled + BLOCK])):
        filled += came
    if filled < wanted or file.read(1):
        amount = f"only {filled}" if filled < wanted else "more"
        raise ValueError(f"{path}: expected {wanted} bytes of data for shape {shape}, but {amount} came")
    return data


def _labels_beside(images: Path) -> Path | None:
    """The labels file by the usual name, as ``t10k-images-idx3-ubyte.gz`` and ``t10k-labels-idx1-ubyte``."""
    name = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    candidates = [images.with_name(name + suffix) for suffix in ("", ".gz")]
    return next((file for file in candidates if file != images and file.is_file()), None)
