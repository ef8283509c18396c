"""Tiles of large rasters as a world to train on; each tile is read when it is used."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.grammar import counted, data_name
from polariscope.mapping.labels import UNLABELLED, Clipped, Legend, unclipped
from polariscope.mapping.rasters import Raster, band_types, known_pixels
from polariscope.mapping.scenes import SceneFolder
from polariscope.registry import Settings
from polariscope.worlds.factors import Factor, numbered
from polariscope.worlds.splits import GroupSplit, Parts, Split, splits
from polariscope.worlds.targets import Target
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, worlds

MOST_EMPTY = 0.6
"""Share of pixels without data up to which a tile is taken (Spec 000, section 5.2)."""
STATISTICS_TILES = 512


@dataclass(frozen=True, eq=False)
class TileTable:
    """Location and content of the tiles, one row each."""

    scene: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    place: NDArray[np.int64]
    """A number for each piece of ground: that of two years is the same."""
    counts: NDArray[np.int64]
    """Labelled pixels of each class ``(n, classes)``."""


@worlds.register("raster-tiles")
@dataclass(frozen=True)
class RasterTiles:
    """Tiles of the labelled images in a folder, with a mask of their classes.

    The folder has images/, labels/ (polygons or rasters of the same names), and optionally layers/, area.gpkg and
    classes.toml. Tiles lie side by side. Pixels without data, and pixels outside the area, are unlabelled; ``fill`` is
    the value of the image there.
    """

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs a folder of yours

    path: str
    size: int = 128
    """Pixels a side."""
    stride: int = 0
    """Pixels from one tile to the next; the size if 0. Valid convolutions need the size less their margins."""
    keep: Literal["all", "mapped"] = "all"
    """All tiles with a label, or only tiles with a class besides the background. Scores on held-out tiles of the latter
    are those of such tiles alone; the split mapped-tiles leaves tiles of background out of the training only."""
    field: str = ""
    """The attribute of polygons that names their class."""
    fill: tuple[float, ...] = ()
    """Values of the bands where there is no data, in the numbers of the raster; by default 0."""
    pixel: float | None = None
    """Size of a pixel in metres, for images without coordinates."""
    classes: tuple[str, ...] = ()
    """Names of the classes in their order; by default those of the labels."""

    def __post_init__(self) -> None:
        if self.size < 8 or self.stride < 0:
            raise ValueError(f"tiles have at least 8 pixels a side and a stride of at least 0; got {self.size} and "
                             f"{self.stride}")  # fmt: skip

    @property
    def called(self) -> str:
        return data_name(self.path)

    @cached_property
    def folder(self) -> SceneFolder:
        path = Path(self.path).expanduser()
        if not path.is_dir():
            raise ValueError(f"there is no folder {path}")
        return SceneFolder(path, self.field, self.pixel, self.classes)

    @property
    def legend(self) -> Legend:
        return self.folder.legend

    @cached_property
    def rasters(self) -> list[Raster]:
        found = [scene.open() for scene in self.folder.labelled]
        first = found[0]
        types = [kind for _, kind in band_types(unclipped(first))]
        for other in found[1:]:
            own = band_types(unclipped(other))
            if len(own) != len(types):
                raise ValueError(
                    f"{other.name} has {counted(len(own), 'band')}, and {first.name} has {len(types)}: all images of a "
                    "training need the same"
                )
            for (name, kind), wanted in zip(own, types, strict=True):
                if kind != wanted:
                    raise ValueError(
                        f"{name} has numbers of type {kind}, and {first.name} has {wanted}: all images of a training "
                        "need the same"
                    )
        return found

    @cached_property
    def _labels(self) -> list[Any]:
        return [s.open_labels(r, self.legend) for s, r in zip(self.folder.labelled, self.rasters, strict=True)]

    @cached_property
    def table(self) -> TileTable:
        """All tiles that have data and a label; labels are read once for it."""
        rows: list[tuple[int, int, int, tuple[Any, ...]]] = []
        counts: list[NDArray[np.int64]] = []
        step = self.stride or self.size
        names = self.legend.names
        background = names.index(self.legend.background) if self.legend.background else None
        for number, raster in enumerate(self.rasters):
            _, height, width = raster.shape
            if min(height, width) < self.size:
                raise ValueError(
                    f"{raster.name} has {height} x {width} pixels, and a tile {self.size} a side: take smaller tiles"
                )
            for row in range(0, height - self.size + 1, step):
                for column in range(0, width - self.size + 1, step):
                    mask = self._mask(number, row, column)
                    count = np.bincount(mask[mask >= 0], minlength=len(names))
                    if not count.sum() or (mask < 0).mean() > MOST_EMPTY:
                        continue
                    if self.keep == "mapped" and not np.delete(count, background or []).sum():
                        continue
                    rows.append((number, row, column, self._ground(number, row, column)))
                    counts.append(count)
        if not rows:
            for raster in self.rasters:
                if isinstance(raster, Clipped):
                    raster.check_overlap()
            raise ValueError(f"{self.path}: no tile of {self.size} pixels has both data and a label")
        grounds = {ground: place for place, ground in enumerate(dict.fromkeys(row[3] for row in rows))}
        return TileTable(
            np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), np.array([row[2] for row in rows]),
            np.array([grounds[row[3]] for row in rows]), np.array(counts),
        )  # fmt: skip

    def _ground(self, number: int, row: int, column: int) -> tuple[Any, ...]:
        """The piece of ground that a tile shows: by coordinates where there are any."""
        grid = self.rasters[number].grid
        region = self.folder.labelled[number].region
        if grid is None or not grid.crs:
            return region, row, column
        side = self.size * grid.pixel
        return "", math.floor((grid.f + row * grid.e) / side + 0.5), math.floor((grid.c + column * grid.a) / side + 0.5)

    def _mask(self, number: int, row: int, column: int) -> NDArray[np.int64]:
        raster = self.rasters[number]
        window = row, column, self.size, self.size
        mask = np.array(self._labels[number].read(*window))
        mask[~known_pixels(raster, raster.read(*window), *window)] = UNLABELLED
        inside = getattr(raster, "inside", None)
        if inside is not None:
            mask[~inside(*window)] = UNLABELLED
        return mask

    @property
    def years(self) -> tuple[int, ...]:
        return tuple(sorted({scene.year for scene in self.folder.labelled if scene.year is not None}))

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(sorted({scene.region for scene in self.folder.labelled}))

    @property
    def factors(self) -> tuple[Factor, ...]:
        years = self.years or (0,)
        return (
            Factor("region", len(self.regions), "categorical"),
            Factor("year", len(years), values=tuple(map(float, years))),
            Factor("place", int(self.table.place.max()) + 1, "categorical"),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rasters[0].shape[0], self.size, self.size)

    @property
    def targets(self) -> tuple[Target, ...]:
        return (Target("class", "mask", len(self.legend.names), self.legend.names),)

    def __len__(self) -> int:
        return len(self.table.scene)

    def observe(self, index: ArrayLike) -> NDArray[Any]:
        return np.stack([self._tile(n)[0] for n in numbered(index, len(self))])

    def target_of(self, index: ArrayLike) -> NDArray[np.int64]:
        table = self.table
        return np.stack([
            self._mask(int(table.scene[n]), int(table.row[n]), int(table.column[n]))
            for n in numbered(index, len(self))
        ])  # fmt: skip

    def own_ground(self, n: int) -> tuple[slice, slice, slice]:
        """Rows and columns of the ground that belongs to one tile alone, and their place in the tile: its centre where
        tiles overlap (``stride``), because the rest is the ground of its neighbours."""
        margin = max(0, self.size - (self.stride or self.size)) // 2
        inner = slice(margin, self.size - margin)
        row, column = int(self.table.row[n]), int(self.table.column[n])
        return slice(row + inner.start, row + inner.stop), slice(column + inner.start, column + inner.stop), inner

    def _tile(self, n: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The pixels of a tile as a network takes them, and which of them have data."""
        table = self.table
        raster = self.rasters[int(table.scene[n])]
        window = int(table.row[n]), int(table.column[n]), self.size, self.size
        pixels = np.array(raster.read(*window))
        known = known_pixels(raster, pixels, *window)
        fill = np.asarray(self.fill or (0.0,) * len(pixels))
        if len(fill) != len(pixels):
            raise ValueError(f"fill has {len(fill)} numbers, and the images have {counted(len(pixels), 'band')}")
        if pixels.dtype == np.uint8:
            pixels[:, ~known] = np.rint(fill).astype(np.uint8)[:, None]
            return pixels, known
        pixels = pixels.astype(np.float32)
        pixels[:, ~known] = fill.astype(np.float32)[:, None]
        if not np.isfinite(pixels).all():
            raise ValueError(f"{raster.name}: there are infinite numbers in it: mark them as nodata")
        return pixels, known

    def factors_of(self, index: ArrayLike) -> NDArray[np.int64]:
        n = numbered(index, len(self))
        scenes = self.folder.labelled
        region = np.array([self.regions.index(scene.region) for scene in scenes])
        year = np.array([self.years.index(scene.year) if scene.year in self.years else 0 for scene in scenes])
        return np.column_stack([region[self.table.scene[n]], year[self.table.scene[n]], self.table.place[n]])

    def statistics(self, index: ArrayLike, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each band over pixels with data of some of the tiles, in the numbers of the
        raster."""
        numbers = numbered(index, len(self))
        if len(numbers) > STATISTICS_TILES:
            numbers = np.sort(np.random.default_rng(seed).choice(numbers, STATISTICS_TILES, replace=False))
        total, squares, count = 0.0, 0.0, 0
        for n in numbers:
            pixels, known = self._tile(int(n))
            values = pixels[:, known].astype(np.float64)
            total, squares, count = total + values.sum(1), squares + (values**2).sum(1), count + values.shape[1]
        if not count:
            raise ValueError(f"{self.path}: no pixel of the training tiles has data")
        mean = np.asarray(total / count)
        sd = np.sqrt(np.maximum(squares / count - mean**2, 0))
        return mean, np.where(sd > 1e-6 * np.maximum(np.abs(mean), 1), sd, 1.0)


@splits.register("mapped-tiles")
@dataclass(frozen=True)
class MappedTiles:
    """Train only on tiles with a class besides the background; tiles of all kinds are held out, as a map has them."""

    examples: ClassVar[tuple[Settings, ...]] = ()  # it needs tiles of rasters

    of: Split = field(default_factory=lambda: GroupSplit("place"))

    def parts(self, world: World) -> Parts:
        parts = self.of.parts(world)
        tiles = tiles_inside(world)
        there = inside(world, RasterTiles, parts.train)
        assert there is not None
        names, background = tiles.legend.names, tiles.legend.background
        others = [c for c, name in enumerate(names) if name != background]
        mapped = tiles.table.counts[there[1]][:, others].sum(1) > 0
        if not mapped.any():
            raise ValueError(f"{tiles.path}: no training tile has a class besides {background}: train on all tiles")
        return Parts(parts.train[mapped], parts.held_out)


def tiles_inside(world: World) -> RasterTiles:
    """The tiles that a world of a map is made of; a sentence for another world."""
    found = inside(world, RasterTiles)
    if found is None:
        raise ValueError("this run was not trained on tiles of rasters: train one with polariscope map train FOLDER")
    tiles: RasterTiles = found[0]
    return tiles
