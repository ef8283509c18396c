"""Readers of real data: a path in, an :class:`ArrayWorld` out. Nothing is ever downloaded, nothing unpickled.

The first bytes of a file determine its format, not its name: IDX (MNIST, Fashion-MNIST; plain or gzip), npz and npy,
HDF5 (Shapes3D), MATLAB, a folder of images or of the four IDX files of MNIST. Data that is too large for memory is read
in place. A file that cannot be read is refused in one sentence with the path, what was expected and what was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import tyro
from numpy.typing import ArrayLike, NDArray

from polariscope.foreign_files import check_regular, printable, reading
from polariscope.grammar import counted, data_name
from polariscope.registry import Settings
from polariscope.worlds.factors import Factor
from polariscope.worlds.labels import DeclaredKind, Kinds, as_factors
from polariscope.worlds.observations import Arranged, Resized, Rows, as_observations, held, shaped
from polariscope.worlds.readers import hdf5, matlab
from polariscope.worlds.readers.idx import holds_idx, read_idx_pair, read_idx_parts, training_and_test
from polariscope.worlds.readers.image_folder import ImageRows, files_in, images_in, read_folder
from polariscope.worlds.readers.numpy_files import npz, read_npy
from polariscope.worlds.world import ArrayWorld, MadeAgain, worlds

T = TypeVar("T")

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
DATA_SUFFIXES = {".gz", ".npz", ".npy", ".h5", ".hdf5", ".mat"}
Order = Literal["rows", "columns"]
DOWN_COLUMNS = (
    "The numbers of an image are taken to run down its columns, as MATLAB has them; if they run along its rows, say so "
    '(order="rows", --world.order rows).'
)


@dataclass(frozen=True)
class Wanted:
    """Which data of a file to read: the group, the array, and the size of an observation."""

    group: str = ""
    key: str = ""
    numbers: int | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """The content of a file: observations, the table of their factors, and facts about them."""

    rows: Rows
    table: ArrayLike | None = None
    names: tuple[str, ...] = ()
    kinds: Kinds = field(default_factory=dict)
    values: NDArray[Any] | None = None
    assumed: tuple[str, ...] = ()
    order: Order = "rows"
    """How the numbers of an image run, if it is stored as a row of them."""
    held_out: NDArray[np.int64] | None = None
    """Numbers of the data's own test set."""


def read(
    path: str | Path,
    size: int | None = None,
    *,
    kinds: Kinds | None = None,
    white: float | None = None,
    group: str = "",
    floats: bool = False,
    key: str = "",
    shape: Sequence[int] = (),
    order: Order | None = None,
    table: ArrayLike | None = None,
) -> ArrayWorld:
    """The world in a file or a folder of images.

    ``size`` resizes images to ``size`` x ``size``; without it those of a folder need one common size. ``kinds``
    declares kinds of factors by name, ``white`` the number of a white pixel, if they cannot be inferred (see
    :class:`ArrayWorld`). ``group`` is the group of an HDF5 file to read, if it has several, and ``key`` the array that
    holds the observations, if its name does not show it. Images of ``floats`` keep their numbers, in any number of
    channels. ``shape`` makes images of rows of numbers, which run along their rows or, as in files of MATLAB, down
    their columns, unless ``order`` says otherwise. ``table`` has factors that replace the file's own.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {str(path)!r}; data is never downloaded, give its path")
    source = str(path)
    reader = None if path.is_dir() else _reader_for(path)
    if group and reader is not _read_hdf5:
        raise ValueError(f"{path}: group={group!r} names a group of an HDF5 file, and this is not one")
    if key and reader not in (_read_npz, _read_hdf5, _read_mat, _read_mat_hdf5):
        raise ValueError(f"{path}: key={key!r} names an array of an npz, HDF5 or MATLAB file, and this is not one")
    if order is not None and not shape:
        raise ValueError(f"{path}: order={order!r} is the order of rows that become images; give their shape too")
    wanted = Wanted(group, key, math.prod(shape) if shape else None)
    with reading(path, "data that can be read"):
        contents = _read_directory(path, size) if reader is None else reader(path, wanted)
    if table is not None:
        contents = replace(contents, table=table, names=(), kinds={}, values=None)
    assumed = list(contents.assumed)
    rows = contents.rows
    if shape:
        rows = shaped(rows, shape, source, (order or contents.order) == "columns")
        if order is None and contents.order == "columns" and len(shape) > 1:
            assumed.append(DOWN_COLUMNS)
    images, about_them = as_observations(rows, source, white, floats, channels_first=len(shape) > 1)
    if size is not None and not isinstance(rows, ImageRows):
        images = _resized(images, size, source)
    if contents.table is None:
        assumed += about_them
        return ArrayWorld(
            Arranged(images), source=source, kinds=kinds, assumed=tuple(assumed), held_out=contents.held_out
        )
    declared = {**contents.kinds, **(kinds or {})}
    positions, factors, about_factors = as_factors(contents.table, contents.names, declared, contents.values, source)
    assumed += [*about_factors, *about_them]
    return ArrayWorld(Arranged(images), positions, factors, source, assumed=tuple(assumed), held_out=contents.held_out)


@worlds.register("file")
@dataclass(frozen=True)
class File(MadeAgain):
    """A file or a folder of images by its path, so that a configuration can name it. It is read when first needed."""

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs a file of yours

    path: str
    size: int | None = None
    """Resize the images to this side in pixels."""
    kinds: dict[str, DeclaredKind] = field(default_factory=dict, hash=False)
    """Kinds of factors by name, if they are not inferred correctly: categorical, ordinal, periodic or continuous."""
    white: float | None = None
    """The number of a white pixel, if it cannot be inferred."""
    group: str = ""
    """The group of an HDF5 file to read."""
    floats: bool = False
    """Keep the numbers of images as they are, in any number of channels: heights, layers of a map."""
    key: str = ""
    """The array of an npz, HDF5 or MATLAB file that holds the observations, if its name does not show it."""
    image_shape: Annotated[tuple[int, ...], tyro.conf.arg(name="shape")] = ()
    """Shape of the images that rows of numbers are: height and width, or channels, height and width."""
    order: Order | None = None
    """How the numbers of such an image run: along its rows, or down its columns, as in MATLAB files if not given."""

    @cached_property
    def world(self) -> ArrayWorld:
        return read(
            self.path,
            self.size,
            kinds=self.kinds,
            white=self.white,
            group=self.group,
            floats=self.floats,
            key=self.key,
            shape=self.image_shape,
            order=self.order,
        )

    @property
    def called(self) -> str:
        """The name of the data, for tables and headlines."""
        return data_name(self.path)

    @property
    def held_out(self) -> NDArray[np.int64] | None:
        """Numbers of the data's own test set; only a folder of IDX files has one."""
        return self.world.held_out if Path(self.path).expanduser().is_dir() else None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.world.shape

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.world.factors

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumptions about the data, in sentences."""
        return self.world.assumed

    def __len__(self) -> int:
        return len(self.world)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.observe(index)

    def factors_of(self, index: ArrayLike) -> NDArray[Any]:
        return self.world.factors_of(index)


def _resized(images: Rows, size: int, source: str) -> Rows:
    """Images brought to one size."""
    if size < 1:
        raise ValueError(f"{source}: size={size}; images must be at least 1 pixel wide")
    if len(images.shape) != 4:
        raise ValueError(
            f"{source}: size={size} resizes images, and this file holds points of shape {images.shape[1:]}; if they "
            "are images, give their shape too (shape=, --world.shape)"
        )
    return held(Resized(images, size))


def _reader_for(path: Path) -> Reader:
    check_regular(path)
    with reading(path, "a file that can be read"), path.open("rb") as file:
        start = file.read(8)
    for mark, reader in _READERS.items():
        if start.startswith(mark):
            return reader
    start_words = f"it starts with the bytes {start.hex(' ')}" if start else "it is empty"
    if start and all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in start):
        start_words = "it is text: read a table of numbers with numpy.loadtxt (CSV: delimiter=','), then numpy.save it"
    raise ValueError(
        f"{path}: expected IDX (plain or gzip), npz, npy, HDF5, MATLAB (version 5 or later) or a folder of images, but "
        f"{start_words}"
    )


def _read_directory(folder: Path, size: int | None) -> Found:
    """A folder of images, or of the IDX files of one data set."""
    images, data = images_in(folder), _data_in(folder)
    if images and data:
        raise ValueError(
            f"{folder}: expected images or files of data, but it holds both, such as {images[0]} and {data[0]}; give "
            f"the file {folder / data[0]}, or move it out of the folder of images"
        )
    if not data:
        pictures, kinds = read_folder(folder, size)
        return Found(pictures, kinds, assumed=pictures.assumed(folder, ordered=kinds is None))
    parts = training_and_test([folder / file for file in data if len(file.parts) == 1])
    if parts is None or any(len(file.parts) > 1 for file in data):
        # Labels alone are no data, so what is offered is the rest.
        offered = [file for file in data if "labels" not in file.name.lower()] or data
        shown = " or ".join(str(folder / file) for file in offered[:4])
        raise ValueError(
            f"{folder}: expected images, or the IDX images and labels of one training and one test set (as "
            f"train-images-idx3-ubyte, t10k-images-idx3-ubyte), but it holds {counted(len(data), 'file')} of data; "
            f"give one of them: {shown}{' ...' if len(offered) > 4 else ''}"
        )
    rows, labels, (train, test) = read_idx_parts(parts)
    sentence = (
        f"{parts[0].name} ({train:,} images) and {parts[1].name} ({test:,}) are read as one; the latter are held out "
        "from training, unless another split is named (split=, --split)."
    )
    return Found(rows, labels, assumed=(sentence,), held_out=np.arange(train, train + test))


def _data_in(folder: Path) -> list[Path]:
    """Files of data in a folder and its sub-folders, by their paths within it; their first bytes identify them."""
    named = files_in(folder, lambda file: file.suffix.lower() in DATA_SUFFIXES or "idx" in file.name.lower())
    return [file for file in named if _is_data(folder / file)]


def _is_data(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(8)
    reader = next((reader for mark, reader in _READERS.items() if start.startswith(mark)), None)
    return holds_idx(path) if reader is _read_idx else reader is not None


def _read_idx(path: Path, wanted: Wanted) -> Found:
    return Found(*read_idx_pair(path))


def _read_npz(path: Path, wanted: Wanted) -> Found:
    with npz(path) as archive:
        return _by_name(archive.names, path, ", ".join(archive.names), archive.__getitem__, wanted.key)


def _read_hdf5(path: Path, wanted: Wanted) -> Found:
    with reading(path, "a whole HDF5 file"):
        datasets = hdf5.contents(path)
    group, _, key = wanted.key.strip("/").rpartition("/")
    within = "/".join(filter(None, [wanted.group.strip("/"), group]))
    prefix = f"{within}/" if within else ""
    keys = [name.removeprefix(prefix) for name in datasets if name.rpartition("/")[0] == within]
    names = ", ".join(f"{name} {shape}" for name, shape in datasets.items())
    if groups := sorted({name.rpartition("/")[0] for name in datasets} - {""}):
        names += f"; give as group (group=, --world.group) {' or '.join(groups)}"
    return _by_name(keys, path, names, lambda key: hdf5.Hdf5Rows(path, prefix + key), key)


def _read_mat(path: Path, wanted: Wanted) -> Found:
    with reading(path, "a whole MATLAB file"):
        arrays = matlab.contents(path)
    return _mat(path, wanted, arrays)


def _read_mat_hdf5(path: Path, wanted: Wanted) -> Found:
    with reading(path, "a whole MATLAB file"):
        arrays = matlab.contents_of_hdf5(path)
    return _mat(path, wanted, arrays)


def _mat(path: Path, wanted: Wanted, arrays: Mapping[str, matlab.MatArray]) -> Found:
    """The content of a MATLAB file; the number of labels and the size of an observation identify its axes."""
    named = ", ".join(f"{name} {array.shape} {array.kind}" for name, array in arrays.items())
    numeric = {name: array for name, array in arrays.items() if array.numeric}
    if wanted.key in arrays and wanted.key not in numeric:
        raise ValueError(
            f"{path}: expected numbers in {wanted.key!r}, but it is of the class {arrays[wanted.key].kind}, which is "
            "never loaded; save an array of numbers"
        )
    observed, known = _keys(numeric, path, named, wanted.key)
    table = None if known is None else _loaded(numeric[known].load, known, path)
    table = table.reshape(-1) if table is not None and 1 in table.shape else table
    rows, sentence = _loaded(
        lambda: matlab.observations_of(
            numeric[observed], observed, None if table is None else len(table), wanted.numbers
        ),
        observed,
        path,
    )
    return Found(rows, table, assumed=(sentence,), order="columns")


def _keys(keys: Iterable[str], path: Path, listing: str, key: str) -> tuple[str, str | None]:
    """The names of the observations and of the factors, by usual names; ``key`` is the name of the observations."""
    listing = printable(listing, 1000)
    names = {name.lower(): name for name in keys}
    if key and key.lower() not in names:
        raise ValueError(f"{path}: expected an array called {key}, but the file holds {listing or 'nothing'}")
    observed = names[key.lower()] if key else next((names[name] for name in OBSERVATION_KEYS if name in names), None)
    if observed is None and len(names) == 1:
        (observed,) = names.values()
    if observed is None:
        usual = ", ".join(OBSERVATION_KEYS)
        advice = "" if "--world.group" in listing else "; name the one with the observations (key=, --world.key)"
        raise ValueError(f"{path}: expected an array called {usual}, but the file holds {listing or 'nothing'}{advice}")
    known = next((names[name] for name in FACTOR_KEYS if name in names and names[name] != observed), None)
    return observed, known


def _loaded(load: Callable[[], T], key: str, path: Path) -> T:
    with reading(path, f"numbers in {key!r}"):
        return load()


def _by_name(keys: Iterable[str], path: Path, listing: str, load: Callable[[str], Rows], key: str) -> Found:
    """The observations and factors among named arrays, by usual names."""
    names = {name.lower(): name for name in keys}
    observed, known = _keys(names.values(), path, listing, key)

    def array(key: str) -> NDArray[Any]:
        return _loaded(lambda: _whole(_rows_of(load(key))), key, path)

    rows = _loaded(lambda: _rows_of(load(observed)), observed, path)
    if known is None:
        return Found(rows)
    table = array(known)
    columns = table.shape[1] if table.ndim == 2 else 1
    if known == "latents_classes" and columns in (5, 6):
        return _sprites(rows, table, array(names["latents_values"]) if "latents_values" in names else None, path)
    if columns == 6 and known == "labels" and tuple(rows.shape[1:]) in ((64, 64, 3), (3, 64, 64)):
        return Found(rows, table, tuple(SHAPES3D_FACTORS), SHAPES3D_FACTORS)
    called: tuple[str, ...] = ()
    if "factor_names" in names:
        called = tuple(str(name) for name in array(names["factor_names"]).ravel())
    return Found(rows, table, called, assumed=(f"Observations are {observed!r} and factors {known!r}.",))


def _rows_of(array: Rows) -> Rows:
    """An array that has rows: a single number has none."""
    if not len(array.shape):
        raise ValueError("it is a single number, but each observation needs its own")
    return array


def _whole(rows: Rows) -> NDArray[Any]:
    return rows.whole() if isinstance(rows, hdf5.Hdf5Rows) else np.asarray(rows)


def _sprites(rows: Rows, table: NDArray[Any], values: NDArray[Any] | None, path: Path) -> Found:
    """dSprites and its parts. Its colour is always white: no factor."""
    if values is not None and values.shape != table.shape:
        raise ValueError(f"{path}: expected latents_values of shape {table.shape}, but it is {values.shape}")
    values = None if values is None else values[:, -5:]
    return Found(rows, table[:, -5:], tuple(SPRITE_FACTORS), SPRITE_FACTORS, values)


Reader = Callable[[Path, Wanted], Found]
_READERS: dict[bytes, Reader] = {
    b"\x1f\x8b": _read_idx,
    b"\0\0": _read_idx,
    b"PK\x03\x04": _read_npz,
    b"\x93NUMPY": lambda path, wanted: Found(read_npy(path)),
    b"\x89HDF\r\n\x1a\n": _read_hdf5,
    b"MATLAB 5": _read_mat,
    b"MATLAB 7": _read_mat_hdf5,
}
