"""Map a raster of any size: predict every pixel once, in constant memory, and continue after a kill.

During the work, the class of every pixel and the probabilities as bytes lie in two memory-mapped files; a journal has a
line for each finished window, with its sums. Areas are sums over the journal in the order of the windows, so they do
not depend on the number of workers, nor on how often the work was interrupted.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from polariscope.atomic import FullDiskError, is_full
from polariscope.grammar import counted
from polariscope.lab.executors import in_parallel
from polariscope.lab.store import fingerprint
from polariscope.mapping.harden import harden, thresholds_of, without_weights
from polariscope.mapping.rasters import Grid, Raster, mask_of, release_pages, valid_pixels
from polariscope.mapping.windows import PixelNetwork, Window, predicted, read_mirrored, windows
from polariscope.strict_json import json_text

NODATA = 255
"""The class of pixels without data."""
BYTES = 250
"""Steps of a probability in a byte: 0.4 % each; 255 is no data."""
WINDOW = 512
EVERY = slice(None)
Progress = Callable[[int, int], None]
"""Windows that are done, of how many."""


@dataclass(frozen=True)
class MapSettings:
    """How a raster is mapped."""

    background: int
    """The class of everything that is not mapped."""
    threshold: float | tuple[float, ...] = 0.5
    """Probability above which a pixel gets a class besides the background: one, or one for each class."""
    weights: tuple[float, ...] = ()
    """Class weights of the training that are undone before anything is read off the probabilities."""
    window: int = WINDOW
    """Pixels a side that are predicted at a time. The map does not depend on it."""
    white: float | None = None
    """Divisor of a raster's numbers; by default 255 for bytes and 1 for floats."""


@dataclass(frozen=True)
class Sums:
    """The contribution of a window to the areas: pixels by class, summed probabilities, and pixels with data."""

    pixels: tuple[int, ...]
    probability: tuple[float, ...]
    valid: int


@dataclass(frozen=True)
class RasterMap:
    """A finished map: its files, and its sums."""

    folder: Path
    shape: tuple[int, int]
    classes: int
    settings: MapSettings
    grid: Grid | None
    sums: Sums
    made: str = ""
    """Identifies the work and the state of its files."""

    @cached_property
    def labels(self) -> NDArray[np.uint8]:
        """The class of every pixel, mapped from the file; 255 without data."""
        return np.memmap(self.folder / "classes.bin", np.uint8, "r", shape=self.shape)

    @cached_property
    def probabilities(self) -> NDArray[np.uint8]:
        """Probabilities ``(classes, height, width)`` in steps of 1/250; 255 without data."""
        return np.memmap(self.folder / "probabilities.bin", np.uint8, "r", shape=(self.classes, *self.shape))

    def read_labels(self, rows: slice, columns: slice = EVERY) -> NDArray[np.uint8]:
        """Classes of a part of the map, in memory of their own: the file has no page in memory afterwards."""
        return _copied(self.labels, (rows, columns))

    def read_probabilities(self, rows: slice, columns: slice = EVERY) -> NDArray[np.uint8]:
        """Probabilities of a part of the map, in memory of their own."""
        return _copied(self.probabilities, (EVERY, rows, columns))

    def areas(self, pixel_area: float | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Square metres of each class: by the map, and by the full probabilities."""
        if pixel_area is None:
            if self.grid is None:
                raise ValueError("the raster has no pixel size: give the area of a pixel in square metres")
            pixel_area = self.grid.pixel_area
        return np.array(self.sums.pixels) * pixel_area, np.array(self.sums.probability) * pixel_area


def map_raster(
    network: nn.Module,
    raster: Raster,
    folder: Path | str,
    settings: MapSettings,
    *,
    made_with: str = "",
    workers: int = 1,
    progress: Progress | None = None,
) -> RasterMap:
    """Predict every pixel of a raster into ``folder``. Work that was started there continues, or starts again if the
    files of the raster have changed since; a folder with other work is refused. ``made_with`` identifies the weights,
    so that another network does not continue this work."""
    sizes = stitching_sizes(network)
    bands, height, width = raster.shape
    _check_bands(network, raster, bands)
    _check_numbers(raster, settings.white)
    folder = Path(folder)
    classes = _classes(network, bands, sizes)
    thresholds_of(settings.threshold, classes, settings.background)
    plan = windows(height, width, sizes, settings.window, raster.name)
    files = [str(file.expanduser().resolve()) for file in raster.files]
    work = {"made_with": made_with, "raster": files or raster.name, "settings": repr(settings)}
    earlier = work | {"raster": raster.name, "shape": raster.shape}
    state = fingerprint({"shape": raster.shape, "files": [_stamp(file) for file in raster.files]})
    journal = Journal(folder / "journal.jsonl", fingerprint(work), state, len(plan), fingerprint(earlier))
    finished = journal.read()
    if not finished:
        folder.mkdir(parents=True, exist_ok=True)
        for name, count in (("classes.bin", 1), ("probabilities.bin", classes)):
            reserve(folder / name, count * height * width)
        journal.begin()
    left = [number for number in range(len(plan)) if number not in finished]
    strips = [Strip(network, raster, folder, settings, tuple((n, plan[n]) for n in part), classes)
              for part in _strips(left, workers)]  # fmt: skip

    def report(_: int, what: tuple[int, Sums]) -> None:
        number, sums = what
        journal.add(number, sums)
        finished[number] = sums
        if progress is not None:
            progress(len(finished), len(plan))

    in_parallel(predict_strip, strips, workers, report)
    total = [finished[number] for number in range(len(plan))]
    sums = Sums(
        tuple(int(n) for n in np.sum([one.pixels for one in total], axis=0)),
        tuple(math.fsum(column) for column in zip(*(one.probability for one in total), strict=True)),
        sum(one.valid for one in total),
    )
    made = fingerprint({"work": journal.identity, "state": state})
    return RasterMap(folder, (height, width), classes, settings, raster.grid, sums, made)


def _copied(mapped: NDArray[np.uint8], part: tuple[slice, ...]) -> NDArray[np.uint8]:
    copied = np.array(mapped[part])
    release_pages(mapped)
    return copied


def _stamp(file: Path) -> tuple[int, int]:
    """The size of a file and when it was changed."""
    about = file.expanduser().stat()
    return about.st_size, about.st_mtime_ns


def reserve(path: Path, size: int) -> None:
    """A file of this size that is allocated at once: if the disk filled up later, writing into a mapped file would end
    the process without a message."""
    path.unlink(missing_ok=True)  # whoever has mapped an earlier file keeps it
    with path.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if is_full(error):
                path.unlink(missing_ok=True)
                raise FullDiskError(
                    f"the disk is full: {path} needs {max(size / 1e6, 0.1):,.1f} MB; free some space, or choose "
                    "another folder with --out, then run the command again"
                ) from error
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            file.truncate(size)  # file systems that cannot reserve


@dataclass(frozen=True, eq=False)
class Strip:
    """Windows that one process predicts one after the other."""

    network: nn.Module
    raster: Raster
    folder: Path
    settings: MapSettings
    windows: tuple[tuple[int, Window], ...]
    classes: int


def predict_strip(strip: Strip, tell: Callable[[Any], None]) -> None:
    """Predict windows into the files, and report the sums of each once it is on the disk."""
    _, height, width = strip.raster.shape
    labels = np.memmap(strip.folder / "classes.bin", np.uint8, "r+", shape=(height, width))
    shares = np.memmap(strip.folder / "probabilities.bin", np.uint8, "r+", shape=(strip.classes, height, width))
    training = strip.network.training
    strip.network.eval()
    try:
        for number, window in strip.windows:
            p, valid = window_probabilities(strip.network, strip.raster, window, strip.settings)
            hard = np.where(valid, harden(p, strip.settings.threshold, strip.settings.background), np.uint8(NODATA))
            rows, columns = slice(*window.rows), slice(*window.columns)
            labels[rows, columns] = hard
            shares[:, rows, columns] = np.where(valid, np.rint(p * BYTES).astype(np.uint8), np.uint8(NODATA))
            for mapped in (labels, shares):
                mapped.flush()
                release_pages(mapped)
            pixels = np.bincount(hard[valid], minlength=strip.classes)
            sums = (p * valid).reshape(len(p), -1).sum(1)
            tell((number, Sums(tuple(pixels.tolist()), tuple(sums.tolist()), int(valid.sum()))))
    finally:
        strip.network.train(training)


def window_probabilities(
    network: nn.Module, raster: Raster, window: Window, settings: MapSettings
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Probabilities ``(classes, rows, columns)`` of a window, and which of its pixels have data. Windows without data
    are not predicted."""
    _, height, width = raster.shape
    rows, columns = window.rows, window.columns
    pixels = read_mirrored(raster.read, window, height, width)
    known, mask = valid_pixels(pixels, raster.nodata), mask_of(raster)
    if mask is not None:
        known &= read_mirrored(lambda *part: mask(*part)[None], window, height, width)[0]
    top, left = rows[0] - window.read_rows[0], columns[0] - window.read_columns[0]
    valid = known[top : top + window.shape[0], left : left + window.shape[1]]
    inside = getattr(raster, "inside", None)
    if inside is not None:  # an area of interest
        valid = valid & inside(rows[0], columns[0], *window.shape)
    sizes = stitching_sizes(network)
    if not valid.any():
        empty = np.zeros((_classes(network, len(pixels), sizes), *window.shape))
        return empty, valid
    x = as_input(pixels, settings.white)
    if np.isinf(x[:, known]).any():
        raise ValueError(
            f"{raster.name}: there are infinite numbers in rows {rows[0]} to {rows[1]}: mark them as nodata"
        )
    x[:, ~known] = fill_of(network, len(x))[:, None]
    with torch.no_grad():
        scores = predicted(network, sizes, torch.from_numpy(x), window)
    p = scores.numpy()
    return (without_weights(p, settings.weights) if settings.weights else p), valid


def as_input(pixels: NDArray[Any], white: float | None = None) -> NDArray[np.float32]:
    """Pixels as a network takes them: bytes from 0 to 1, other numbers divided by ``white`` or as they are."""
    divisor = white if white is not None else 255.0 if pixels.dtype == np.uint8 else 1.0
    return np.asarray(pixels, np.float32) / np.float32(divisor)


def fill_of(network: nn.Module, bands: int) -> NDArray[np.float32]:
    """The value of pixels without data: the mean that the network subtracts, or 0."""
    means = [mean for module in network.modules() if isinstance(mean := getattr(module, "mean", None), torch.Tensor)]
    if not means:
        return np.zeros(bands, np.float32)
    return np.broadcast_to(means[0].detach().cpu().numpy().astype(np.float32).ravel(), (bands,))


def stitching_sizes(network: nn.Module) -> PixelNetwork:
    """The part of a network that declares its halo; a network without one is refused."""
    if any(getattr(module, "whole_image", False) for module in network.modules()):
        raise ValueError(
            f"{type(network).__name__} uses the whole image for each pixel, so windows of a raster would not fit "
            "together: map with a plain unet"
        )
    for module in network.modules():
        if all(hasattr(module, name) for name in ("halo", "margin", "multiple", "fitting", "padding")):
            return module  # type: ignore[return-value]
    raise ValueError(
        f"{type(network).__name__} does not declare its halo: wrap it in "
        "polariscope.mapping.windows.Stitched(network, halo=..., multiple=...)"
    )


class Journal:
    """Finished windows of a map, one line each, after a first line that identifies the work and the state of the files
    it reads. ``earlier`` is the identity in versions that did not write the state."""

    def __init__(self, path: Path, identity: str, state: str, count: int, earlier: str = "") -> None:
        self.path, self.identity, self.state, self.count, self.earlier = path, identity, state, count, earlier

    def read(self) -> dict[int, Sums]:
        """Windows that are done: none if the files have changed since. A last line that a kill cut short does not
        count, and is cut off."""
        if not self.path.exists():
            return {}
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        first = json.loads(whole[0]) if whole else {}
        if first.get("identity") != (self.identity if "state" in first else self.earlier):
            raise ValueError(
                f"{self.path.parent} holds another map, or the same with other settings: take another folder with "
                "--out, or remove it"
            )
        if first.get("state") != self.state:
            return {}
        if len(whole) < len(lines):
            os.truncate(self.path, sum(map(len, whole)))
        entries = [json.loads(line) for line in whole[1:]]
        return {
            entry["window"]: Sums(tuple(entry["pixels"]), tuple(entry["probability"]), entry["valid"])
            for entry in entries
        }

    def begin(self) -> None:
        self._append({"identity": self.identity, "state": self.state, "windows": self.count}, "wb")

    def add(self, number: int, sums: Sums) -> None:
        self._append({"window": number, "pixels": sums.pixels, "probability": sums.probability, "valid": sums.valid})

    def _append(self, entry: dict[str, Any], mode: str = "ab") -> None:
        with self.path.open(mode) as file:
            file.write(json_text(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _strips(numbers: Sequence[int], workers: int) -> Iterator[Sequence[int]]:
    """Windows in a row for each worker: a few strips each, so that none waits long for the last."""
    if numbers:
        size = max(1, math.ceil(len(numbers) / (workers if workers == 1 else 4 * workers)))
        for start in range(0, len(numbers), size):
            yield numbers[start : start + size]


def _classes(network: nn.Module, bands: int, sizes: PixelNetwork) -> int:
    """How many classes a network predicts, found by asking it once."""
    known = getattr(sizes, "classes", None)
    if isinstance(known, int):
        return known
    side = sizes.fitting(1)
    with torch.no_grad():
        return int(network(torch.zeros(1, bands, side, side)).shape[1])


def _check_bands(network: nn.Module, raster: Raster, bands: int) -> None:
    first = next((m for m in network.modules() if isinstance(m, nn.Conv2d)), None)
    if first is not None and first.in_channels != bands:
        raise ValueError(
            f"{raster.name} has {counted(bands, 'band')}, and the network was trained on {first.in_channels}: "
            "give the layers it was trained on, in their order"
        )


def _check_numbers(raster: Raster, white: float | None) -> None:
    if white is not None and not white > 0:
        raise ValueError(f"white is {white}: it needs to be above 0")
    if white is None and raster.dtype != np.uint8 and raster.dtype.kind != "f":
        raise ValueError(
            f"{raster.name} has numbers of type {raster.dtype}, whose scale is not known: convert it to bytes or "
            "floats, as in training, or set white in MapSettings"
        )
