"""Finished maps of a run as layers that lie over each other: image, classes and probabilities, by place and year.

The explorer shows them. Everything is read from the folders that ``polariscope map`` writes; nothing is predicted here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.foreign_files import reading
from polariscope.mapping.apply import BYTES, NODATA
from polariscope.mapping.exports import COLOURS
from polariscope.mapping.labels import BACKGROUND
from polariscope.mapping.pictures import overview, picture_of
from polariscope.mapping.rasters import Raster, open_raster

FOLDER = "maps"
RECORD = "map.json"
NAME = re.compile(r"[^/\\\x00.][^/\\\x00]{0,200}")
HECTARE = 10_000.0
MOST = 1000
"""Pixels a side of a layer."""
HEAT = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]], float)
"""Colours of probabilities from 0 to 1, in equal steps."""


@dataclass(frozen=True)
class MapLayers:
    """One mapped image."""

    folder: Path
    region: str
    year: int | None
    names: tuple[str, ...]
    """Names of the classes, in the order of their numbers."""
    background: int | None
    image: Path | None
    """The image that was mapped, if its file is still there."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def classes(self) -> list[int]:
        """Numbers of the classes besides the background."""
        return [number for number in range(len(self.names)) if number != self.background]

    def colour(self, number: int) -> tuple[int, int, int]:
        return COLOURS[number % len(COLOURS)]

    @cached_property
    def labels(self) -> Raster:
        """The class of each pixel."""
        return self._written("map")

    @property
    def shape(self) -> tuple[int, int]:
        return self.labels.shape[1], self.labels.shape[2]

    @cached_property
    def areas(self) -> tuple[list[float], str]:
        """Areas of the classes as mapped, and their unit: ha, or pixels for an image without coordinates."""
        height, width = self.shape
        counts = np.zeros(256, np.int64)
        for top in range(0, height, 256):
            part = self.labels.read(top, 0, min(256, height - top), width)
            counts += np.bincount(part.ravel(), minlength=256)
        grid = self.labels.grid
        size = 1.0 if grid is None else grid.pixel_area / HECTARE
        return (counts[: len(self.names)] * size).tolist(), "pixels" if grid is None else "ha"

    def image_picture(self, most: int = MOST) -> NDArray[np.uint8]:
        """The image ``(h, w, 3)``."""
        if self.image is None:
            raise ValueError(f"the image of the map {self.name} was moved or deleted")
        return (picture_of(open_raster(self.image), most) * 255).round().astype(np.uint8)

    def class_picture(self, number: int, most: int = MOST) -> NDArray[np.uint8]:
        """The pixels of one class in its colour ``(h, w, 4)``; everything else is transparent."""
        self._check(number)
        height, width = self.shape
        mapped = overview(self.labels.read, height, width, most)[0]
        shown = np.zeros((*mapped.shape, 4), np.uint8)
        shown[mapped == number] = (*self.colour(number), 255)
        return shown

    def probability_picture(self, number: int, most: int = MOST) -> NDArray[np.uint8]:
        """The probability of one class ``(h, w, 4)``, from violet (0) to yellow (1); no data is transparent."""
        self._check(number)
        height, width = self.shape
        raster = self._written("probabilities")
        steps = overview(lambda *part: raster.read(*part)[number : number + 1], height, width, most)[0]
        share = np.minimum(steps, BYTES) / BYTES * (len(HEAT) - 1)
        low = np.minimum(share.astype(int), len(HEAT) - 2)
        between = (share - low)[..., None]
        shown = np.zeros((*steps.shape, 4), np.uint8)
        shown[..., :3] = ((1 - between) * HEAT[low] + between * HEAT[low + 1]).round()
        shown[..., 3] = np.where(steps == NODATA, 0, 255)
        return shown

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.names):
            raise ValueError(f"the classes of {self.name} are numbered 0 to {len(self.names) - 1}; got {number}")

    def _written(self, name: str) -> Raster:
        files = [self.folder / f"{name}{suffix}" for suffix in (".tif", ".npy")]
        return open_raster(next((file for file in files if file.is_file()), files[0]))


def map_layers(folder: Path) -> list[MapLayers]:
    """The finished maps in a folder, such as ``maps`` of a run, by place and year. Links are not followed."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    places = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and not path.is_symlink()]
    maps = [_read(path) for path in sorted(places) if (path / RECORD).is_file()]
    return sorted(maps, key=lambda one: (one.region, one.year or 0, one.name))


def _read(folder: Path) -> MapLayers:
    with reading(folder / RECORD, "the record of a map"):
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        names = tuple(str(name) for name in record["names"])
        year = record["year"]
        image = Path(str(record["image"]))
        return MapLayers(
            folder,
            str(record["region"]),
            None if year is None else int(year),
            names,
            _background(record.get("background"), names),
            image if image.is_file() else None,
        )


def _background(number: Any, names: Sequence[str]) -> int | None:
    """A record of an earlier version does not have the number."""
    if isinstance(number, int):
        return number
    return names.index(BACKGROUND) if BACKGROUND in names else None
