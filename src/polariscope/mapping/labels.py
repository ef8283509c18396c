"""Labels of a raster's pixels: polygons of any vector file, or another raster, read by windows.

A pixel belongs to the polygon that its centre lies in; where polygons overlap, to the later one. Labels in other
coordinates are converted to those of the image.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polariscope.foreign_files import check_regular, printable, reading
from polariscope.mapping.rasters import GEOTIFF, PICTURES, Grid, Raster, Stack, needs_geo, open_raster, read_picture

VECTORS = (".gpkg", ".shp", ".geojson", ".json", ".fgb")
FIELDS = ("Class", "class", "CLASS", "label", "Label", "Name", "name")
"""Attributes that can name the class of a polygon, the most specific first."""
UNLABELLED = -1
BACKGROUND = "background"
Codes = Mapping[str, int]
"""Number of the class by its name in a file."""


class Labels(Protocol):
    """The class of every pixel, read by windows."""

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[np.int64]:
        """Classes ``(height, width)``, -1 for unlabelled pixels."""


@dataclass(frozen=True)
class Legend:
    """Names of the classes, and their names in files."""

    names: tuple[str, ...]
    codes: Codes
    background: str = BACKGROUND
    """The class of what lies in no polygon; empty if that is unlabelled."""
    field: str = ""
    """The attribute of a polygon that names its class; by default the first of the usual ones."""

    @property
    def outside(self) -> int:
        return self.names.index(self.background) if self.background else UNLABELLED


def read_legend(path: Path) -> Legend:
    """A legend from a TOML file: ``background``, ``field``, and ``[classes]`` with what files call each class: a value,
    a colour "#rrggbb", or a list of them."""
    check_regular(path)
    with reading(path, "a legend in TOML"):
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = set(given) - {"background", "field", "classes"}
    classes = given.get("classes")
    if unknown or not isinstance(classes, dict) or not classes:
        raise ValueError(
            f"{path}: expected background, field and a table [classes] with at least one class; got "
            f"{', '.join(sorted(unknown)) or 'no classes'}"
        )
    background = str(given.get("background", "" if BACKGROUND not in classes else BACKGROUND))
    names = [*classes, *([background] if background and background not in classes else [])]
    codes: dict[str, int] = {}
    for number, name in enumerate(names):
        values = classes.get(name, [])
        for value in values if isinstance(values, list) else [values]:
            codes[str(value).lower() if str(value).startswith("#") else str(value)] = number
    return Legend(tuple(names), codes, background, str(given.get("field", "")))


def legend_of(paths: Sequence[Path], field: str = "") -> Legend:
    """The legend that follows from label files: every value that they have is a class, in the order of the alphabet,
    and what lies in no polygon is background."""
    values: set[str] = set()
    for path in paths:
        values |= set(_values_of(path, field))
    values -= {BACKGROUND}
    if not values:
        raise ValueError(f"{', '.join(map(str, paths)) or 'no label file'}: no labelled class")
    numbers = all(_is_number(value) for value in values)
    names = sorted(values, key=float if numbers else str)
    codes = {value: number for number, value in enumerate(names)}
    return Legend((*names, BACKGROUND), codes | {BACKGROUND: len(names)}, BACKGROUND, field)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _values_of(path: Path, field: str) -> list[str]:
    if path.suffix.lower() in VECTORS:
        return sorted(set(_read_vector(path, field)[1]))
    raster = open_label_raster(path)
    tags = class_tags(path)
    values: set[int] = set()
    for top in range(0, raster.shape[1], 512):
        part = raster.read(top, 0, min(512, raster.shape[1] - top), raster.shape[2])
        values |= set(np.unique(part).tolist())
    values -= set() if raster.nodata is None else {raster.nodata}
    return sorted(tags.get(int(value), f"{value:g}") for value in values if not math.isnan(value))


def open_labels(path: Path, raster: Raster, legend: Legend) -> Labels:
    """The labels in a file for the pixels of a raster."""
    suffix = path.suffix.lower()
    if suffix in VECTORS:
        return VectorLabels(path, raster.shape[1:], _grid_of(raster, path), legend)
    if suffix in PICTURES and any(code.startswith("#") for code in legend.codes):
        return ColourLabels(path, raster.shape[1:], legend)
    if suffix in (*GEOTIFF, ".npy", *PICTURES):
        return RasterLabels(path, raster, legend)
    raise ValueError(f"{path}: labels are {', '.join((*VECTORS, *GEOTIFF, '.npy', *PICTURES))}")


def _grid_of(raster: Raster, path: Path) -> Grid:
    if raster.grid is None or not raster.grid.crs:
        raise ValueError(f"{path}: polygons need an image with coordinates, and {raster.name} has none")
    return raster.grid


def _read_vector(path: Path, field: str) -> tuple[Any, list[str], str]:
    """Geometries, the class of each as text, and their coordinate system."""
    needs_geo()
    import shapely
    from pyogrio.raw import read

    check_regular(path)
    with reading(path, "a vector file with polygons"):
        about, _, geometries, columns = read(path)
    fields = [str(name) for name in about["fields"]]
    name = field or next((one for one in FIELDS if one in fields), "")
    if name not in fields:
        wanted = f"the attribute {field!r}" if field else f"an attribute that names the class ({', '.join(FIELDS)})"
        raise ValueError(f"{path}: expected {wanted}; it has {', '.join(fields) or 'none'}: name it with --field")
    if about.get("crs") is None:
        raise ValueError(f"{path}: the polygons have no coordinate system: assign one (ogr2ogr -a_srs EPSG:2056)")
    values = [_text(value) for value in columns[fields.index(name)]]
    shapes = shapely.from_wkb(geometries)
    kept = [n for n, shape in enumerate(shapes) if shape is not None and not shape.is_empty]
    for n in kept:
        if not shapes[n].is_valid:
            why = printable(shapely.is_valid_reason(shapes[n]))
            raise ValueError(f"{path}: polygon {n + 1} is not valid ({why}): repair it (ogr2ogr -makevalid)")
    return [shapes[n] for n in kept], [values[n] for n in kept], str(about["crs"])


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def polygons_of(path: Path, grid: Grid, field: str = "") -> tuple[list[Any], list[str]]:
    """Polygons in the coordinates of a grid, and the class of each; without a class where ``field`` is "-"."""
    import shapely
    from rasterio.crs import CRS
    from rasterio.warp import transform

    if field == "-":
        shapes, crs = _shapes_only(path)
        values = [""] * len(shapes)
    else:
        shapes, values, crs = _read_vector(path, field)
    with reading(path, "a coordinate system"):
        own, wanted = CRS.from_user_input(crs), CRS.from_wkt(grid.crs)
    if own != wanted:

        def moved(points: NDArray[Any]) -> NDArray[Any]:
            x, y = transform(own, wanted, points[:, 0], points[:, 1])
            return np.column_stack([x, y])

        shapes = [shapely.transform(shape, moved) for shape in shapes]
    return shapes, values


def _shapes_only(path: Path) -> tuple[list[Any], str]:
    needs_geo()
    import shapely
    from pyogrio.raw import read

    check_regular(path)
    with reading(path, "a vector file with polygons"):
        about, _, geometries, _ = read(path)
    if about.get("crs") is None:
        raise ValueError(f"{path}: the polygons have no coordinate system: assign one (ogr2ogr -a_srs EPSG:2056)")
    shapes = [shape for shape in shapely.from_wkb(geometries) if shape is not None and not shape.is_empty]
    if not shapes:
        raise ValueError(f"{path}: the file has no polygon")
    for n, shape in enumerate(shapes):
        if not shape.is_valid:
            why = printable(shapely.is_valid_reason(shape))
            raise ValueError(f"{path}: polygon {n + 1} is not valid ({why}): repair it (ogr2ogr -makevalid)")
    return shapes, str(about["crs"])


@dataclass(frozen=True, eq=False)
class VectorLabels:
    """Polygons, drawn onto the pixels of a raster when a window is read."""

    path: Path
    shape: tuple[int, int]
    grid: Grid
    legend: Legend

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "shape": self.shape, "grid": self.grid, "legend": self.legend}

    @cached_property
    def _polygons(self) -> tuple[list[Any], NDArray[np.int64], Any]:
        from shapely import STRtree

        shapes, values = polygons_of(self.path, self.grid, self.legend.field)
        unknown = sorted(set(values) - set(self.legend.codes))
        if unknown:
            raise ValueError(
                f"{self.path}: class {unknown[0]!r} is not known; the classes are "
                f"{', '.join(sorted(self.legend.codes))}: add it to classes.toml"
            )
        return shapes, np.array([self.legend.codes[value] for value in values], np.int64), STRtree(shapes)

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[np.int64]:
        shapes, classes, tree = self._polygons
        return drawn(shapes, classes, tree, self.grid.part(row, column), height, width, self.legend.outside)


def drawn(
    shapes: Sequence[Any], classes: NDArray[np.int64], tree: Any, grid: Grid, height: int, width: int, outside: int
) -> NDArray[np.int64]:
    """Polygons on the pixels of a window."""
    from rasterio.features import rasterize
    from rasterio.transform import Affine
    from shapely.geometry import box

    out = np.full((height, width), outside, np.int64)
    near = np.sort(tree.query(box(*grid.extent(height, width)))) if len(shapes) else ()
    if len(near):
        pairs = [(shapes[n], int(classes[n]) + 2) for n in near]
        burnt = rasterize(pairs, (height, width), fill=0, transform=Affine(*grid.affine), dtype="int32")
        out = np.where(burnt > 0, burnt.astype(np.int64) - 2, out)
    return out


@dataclass(frozen=True, eq=False)
class RasterLabels:
    """Classes in another raster, aligned to the image by coordinates."""

    path: Path
    image: Raster
    legend: Legend

    @cached_property
    def _stack(self) -> Stack:
        own = open_label_raster(self.path)
        if self.image.grid is not None and own.grid is None and own.shape[1:] != self.image.shape[1:]:
            raise ValueError(f"{self.path}: the labels have no coordinates, and other pixels than {self.image.name}")
        return Stack([self.image, own])

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[np.int64]:
        values = self._stack._aligned(self._stack.layers[1], row, column, height, width)[0]
        tags = class_tags(self.path)
        out = np.full(values.shape, UNLABELLED, np.int64)
        for value in np.unique(values[~np.isnan(values)]):
            word = tags.get(int(value), f"{value:g}")
            if word not in self.legend.codes:
                raise ValueError(
                    f"{self.path}: class {word!r} is not known; the classes are "
                    f"{', '.join(sorted(self.legend.codes))}: add it to classes.toml"
                )
            out[values == value] = self.legend.codes[word]
        return out


@dataclass(frozen=True, eq=False)
class ColourLabels:
    """A picture whose colours are classes; other colours are unlabelled."""

    path: Path
    shape: tuple[int, int]
    legend: Legend

    @cached_property
    def _classes(self) -> NDArray[np.int64]:
        pixels = read_picture(self.path).astype(np.int64)
        if len(pixels) != 3 or pixels.shape[1:] != self.shape:
            raise ValueError(f"{self.path}: expected colours of {self.shape} pixels; got {pixels.shape}")
        code = (pixels[0] << 16) + (pixels[1] << 8) + pixels[2]
        out = np.full(self.shape, UNLABELLED, np.int64)
        for colour, number in self.legend.codes.items():
            if colour.startswith("#"):
                out[code == int(colour[1:], 16)] = number
        return out

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[np.int64]:
        return self._classes[row : row + height, column : column + width]


def open_label_raster(path: Path) -> Raster:
    raster = open_raster(path)
    if raster.shape[0] != 1 or raster.dtype.kind not in "ui":
        raise ValueError(f"{path}: labels are one band of whole numbers; got {raster.shape[0]} of {raster.dtype}")
    return raster


def class_tags(path: Path) -> dict[int, str]:
    """Names of classes that a GeoTIFF of ours has among its tags."""
    if path.suffix.lower() not in GEOTIFF:
        return {}
    rasterio = needs_geo()
    with reading(path, "a GeoTIFF"), rasterio.open(path) as file:
        tags = file.tags()
    return {int(key[6:]): str(value) for key, value in tags.items() if key.startswith("class_") and key[6:].isdigit()}


@dataclass(frozen=True, eq=False)
class Clipped:
    """A raster that is mapped only inside an area of interest; the network also sees its surroundings."""

    of: Raster
    area: Path

    def __getstate__(self) -> dict[str, Any]:
        return {"of": self.of, "area": self.area}

    @cached_property
    def _polygons(self) -> tuple[list[Any], Any]:
        from shapely import STRtree

        shapes, _ = polygons_of(self.area, _grid_of(self.of, self.area), "-")
        return shapes, STRtree(shapes)

    @property
    def name(self) -> str:
        return f"{self.of.name} in {self.area}"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.of.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.of.dtype

    @property
    def grid(self) -> Grid | None:
        return self.of.grid

    @property
    def nodata(self) -> float | None:
        return self.of.nodata

    @property
    def read(self) -> Callable[[int, int, int, int], NDArray[Any]]:
        return self.of.read

    def inside(self, row: int, column: int, height: int, width: int) -> NDArray[np.bool_]:
        """Pixels of a window whose centre lies in the area."""
        shapes, tree = self._polygons
        grid = _grid_of(self.of, self.area).part(row, column)
        return drawn(shapes, np.zeros(len(shapes), np.int64), tree, grid, height, width, UNLABELLED) == 0
