"""IDX files, plain or gzip: the format of MNIST and Fashion-MNIST, with the labels in a file beside the images."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.foreign_files import check_regular, reading
from polariscope.worlds import observations
from polariscope.worlds.capacity import check_unpacked
from polariscope.worlds.observations import Stored
from polariscope.worlds.readers.numpy_files import filled

IMAGES_FILE = re.compile(r"(?P<set>.*?)[-_.]?(?P<part>train|t10k|test)[-_.]images[-_.]idx3([-_.]ubyte)?")
LABELS_FILE = re.compile(r".*labels[-_.]idx1([-_.]ubyte)?")
IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | Path) -> NDArray[Any]:
    """The array in an IDX file, plain or gzip; a large plain one is mapped."""
    path = Path(path)
    check_regular(path)
    with reading(path, "IDX data"):
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
    beside = labels_beside(path)
    if beside is None:
        return images, None
    labels = read_idx(beside)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{beside}: expected {len(images)} labels for {path.name}, but the shape is {labels.shape}")
    return images, labels


class Joined(Stored):
    """The rows of several arrays, one after the other."""

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = parts
        self._ends = np.cumsum([len(part) for part in parts])
        self.shape, self.dtype = (int(self._ends[-1]), *parts[0].shape[1:]), parts[0].dtype

    def fetch(self, index: NDArray[np.int64]) -> NDArray[Any]:
        rows = np.empty((len(index), *self.shape[1:]), self.dtype)
        which = np.searchsorted(self._ends, index, side="right")
        for number, (part, end) in enumerate(zip(self.parts, self._ends, strict=True)):
            here = which == number
            rows[here] = part[index[here] - (end - len(part))]
        return rows


def holds_idx(path: Path) -> bool:
    """Whether a file begins like IDX data, plain or gzip."""
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            start = file.read(4)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
    return len(start) == 4 and start[:2] == b"\0\0" and start[2] in IDX_TYPES and 1 <= start[3] <= 4


def training_and_test(files: Sequence[Path]) -> tuple[Path, Path] | None:
    """The images to train and to test on, if these files are the images and labels of one data set such as MNIST.

    Of a file that lies there plain and packed, the plain one is taken.

    >>> names = ["t10k-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte"]
    >>> [file.name for file in training_and_test([Path(name) for name in names])]
    ['train-images-idx3-ubyte.gz', 't10k-images-idx3-ubyte']
    """
    plain = {file.with_name(file.name.removesuffix(".gz")): file for file in sorted(files, reverse=True)}
    images = {IMAGES_FILE.fullmatch(file.name.lower()): path for file, path in plain.items()}
    parts = {(match["set"], match["part"]): path for match, path in images.items() if match}
    labels = [file for file in plain if LABELS_FILE.fullmatch(file.name.lower())]
    if len(parts) != 2 or len(parts) + len(labels) != len(plain):
        return None
    (one, first), (other, second) = sorted(parts)
    return (parts[other, second], parts[one, first]) if one == other and second == "train" else None


def read_idx_parts(files: Sequence[Path]) -> tuple[Joined, NDArray[Any] | None, list[int]]:
    """Images of several files as one, their labels if all have them, and how many each file has."""
    pairs = [read_idx_pair(file) for file in files]
    (images, labels), *others = pairs
    for file, (more, named) in zip(files[1:], others, strict=True):
        if (more.shape[1:], more.dtype) != (images.shape[1:], images.dtype):
            raise ValueError(
                f"{file}: expected images of shape {images.shape[1:]} and {images.dtype} as in {files[0].name}, but "
                f"they are {more.shape[1:]} and {more.dtype}; give one of the files"
            )
        if (named is None) != (labels is None):
            bare = files[0] if labels is None else file
            raise ValueError(f"{bare}: expected labels beside both files or neither, but here there are none")
    table = None if labels is None else np.concatenate([named for _, named in pairs if named is not None])
    return Joined([part for part, _ in pairs]), table, [len(part) for part, _ in pairs]


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
    check_unpacked(wanted, str(path), path.stat().st_size if zipped else None)
    data = filled(file, wanted)
    if len(data) < wanted or file.read(1):
        amount = f"only {len(data)}" if len(data) < wanted else "more"
        raise ValueError(f"{path}: expected {wanted} bytes of data for shape {shape}, but {amount} came")
    return data.view(dtype).reshape(shape)


def labels_beside(images: Path) -> Path | None:
    """The labels file by the usual name, as ``t10k-images-idx3-ubyte.gz`` and ``t10k-labels-idx1-ubyte``."""
    name = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    candidates = [images.with_name(name + suffix) for suffix in ("", ".gz")]
    return next((file for file in candidates if file != images and file.is_file()), None)
