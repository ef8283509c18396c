"""Labels of a raster's pixels: polygons of any vector file, or another raster, read by windows.

A pixel belongs to the polygon that its centre lies in; where polygons overlap, to the later one. Labels in other
coordinates are converted to those of the image.
"""

from __future__ import annotations

import math
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polariscope.foreign_files import UNREADABLE, check_regular, printable, reading
from polariscope.mapping.rasters import (
    GEOTIFF,
    PICTURES,
    Grid,
    Mask,
    Raster,
    Stack,
    mask_of,
    needs_geo,
    open_beside,
    read_picture,
)

VECTORS = (".gpkg", ".shp", ".geojson", ".json", ".fgb")
FIELDS = ("Class", "class", "CLASS", "label", "Label", "Name", "name")
"""Attributes that can name the class of a polygon, the most specific first."""
UNLABELLED = -1
BACKGROUND = "background"
EMPTY = "0"
"""The value of a raster of classes where there is none."""
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
    and what lies in no polygon is background, as is the value 0 of a raster that does not name it."""
    of_polygons, of_rasters = (
        {value for path in paths if (path.suffix.lower() in VECTORS) == vectors for value in _values_of(path, field)}
        for vectors in (True, False)
    )
    empty = of_rasters & {EMPTY} - of_polygons
    values = (of_polygons | of_rasters) - {BACKGROUND} - empty
    if not values:
        raise ValueError(f"{', '.join(map(str, paths)) or 'no label file'}: no labelled class")
    numbers = all(_is_number(value) for value in values)
    names = sorted(values, key=float if numbers else str)
    codes = {value: number for number, value in enumerate(names)}
    codes |= {value: len(names) for value in (BACKGROUND, *empty)}
    return Legend((*names, BACKGROUND), codes, BACKGROUND, field)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _word_of(value: float) -> str:
    """The name of a class that is a number: all digits of a whole one."""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


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
    return sorted(tags.get(int(value), _word_of(value)) for value in values if not math.isnan(value))


def open_labels(path: Path, raster: Raster, legend: Legend) -> Labels:
    """The labels in a file for the pixels of a raster."""
    suffix = path.suffix.lower()
    if suffix in VECTORS:
        return VectorLabels(path, raster.shape[1:], _grid_of(raster, path), legend, raster.name)
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
    about, geometries, columns = _read_features(path)
    fields = [str(name) for name in about["fields"]]
    name = field or next((one for one in FIELDS if one in fields), "")
    if name not in fields:
        wanted = f"the attribute {field!r}" if field else f"an attribute that names the class ({', '.join(FIELDS)})"
        known = f"its attributes are: {', '.join(fields)}" if fields else "it has no attributes"
        raise ValueError(f"{path}: expected {wanted}; {known}")
    values = [_text(value) for value in columns[fields.index(name)]]
    shapes = _polygons_in(path, about, geometries)
    return list(shapes.values()), [values[n] for n in shapes], str(about["crs"])


def _read_features(path: Path) -> tuple[dict[str, Any], Any, Any]:
    """What a vector file says about itself, its geometries, and the columns of its attributes."""
    needs_geo()
    from pyogrio.raw import read

    check_regular(path)
    with path.open("rb") as file:
        head = file.read(28)
    if path.suffix.lower() == ".shp" and path.stat().st_size < 2 * int.from_bytes(head[24:28], "big"):
        raise ValueError(f"{path}: the file is damaged or cut off")  # GDAL leaves out what is missing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            about, _, geometries, columns = read(path)
    except UNREADABLE as error:
        if "not recognized" in str(error):
            raise ValueError(
                f"{path}: expected a vector file with polygons, and GDAL does not know this one"
            ) from error
        raise ValueError(f"{path}: the file is damaged") from error
    return about, geometries, columns


def _polygons_in(path: Path, about: Mapping[str, Any], geometries: Any) -> dict[int, Any]:
    """Polygons of a file by their place in it; other geometries, and polygons that are not valid, are refused."""
    import shapely

    if about.get("crs") is None:
        raise ValueError(f"{path}: the polygons have no coordinate system: assign one (ogr2ogr -a_srs EPSG:2056)")
    shapes = shapely.from_wkb(geometries)
    kept = {n: shape for n, shape in enumerate(shapes) if shape is not None and not shape.is_empty}
    for n, shape in kept.items():
        if not shape.area and "Polygon" not in shape.geom_type:
            raise ValueError(f"{path}: expected polygons, and feature {n + 1} is a {shape.geom_type}: draw areas")
        if not shape.is_valid:
            why = printable(shapely.is_valid_reason(shape))
            raise ValueError(f"{path}: polygon {n + 1} is not valid ({why}): repair it (ogr2ogr -makevalid)")
    return kept


def _text(value: Any) -> str:
    return _word_of(float(value)) if isinstance(value, float | np.floating) else str(value)


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
    about, geometries, _ = _read_features(path)
    shapes = list(_polygons_in(path, about, geometries).values())
    if not shapes:
        raise ValueError(f"{path}: the file has no polygon")
    return shapes, str(about["crs"])


@dataclass(frozen=True, eq=False)
class VectorLabels:
    """Polygons, drawn onto the pixels of a raster when a window is read."""

    path: Path
    shape: tuple[int, int]
    grid: Grid
    legend: Legend
    image: str = "the image"
    """The name of the raster."""

    def __getstate__(self) -> dict[str, Any]:
        kept = ("path", "shape", "grid", "legend", "image")
        return {name: getattr(self, name) for name in kept}

    @cached_property
    def _polygons(self) -> tuple[list[Any], NDArray[np.int64], Any]:
        from shapely import STRtree
        from shapely.geometry import box

        shapes, values = polygons_of(self.path, self.grid, self.legend.field)
        tree = STRtree(shapes)
        if shapes and not len(tree.query(box(*self.grid.extent(*self.shape)), "intersects")):
            raise ValueError(
                f"{self.path}: no polygon lies on {self.image}: check the coordinate system of both, and that the "
                "labels have the name of their image"
            )
        unknown = sorted(set(values) - set(self.legend.codes))
        if unknown:
            raise ValueError(
                f"{self.path}: class {unknown[0]!r} is not known; the classes are "
                f"{', '.join(sorted(self.legend.codes))}: add it to classes.toml"
            )
        return shapes, np.array([self.legend.codes[value] for value in values], np.int64), tree

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
        own = open_label_raster(self.path, self.image.grid)
        if self.image.grid is not None and own.grid is None and own.shape[1:] != self.image.shape[1:]:
            raise ValueError(f"{self.path}: the labels have no coordinates, and other pixels than {self.image.name}")
        return Stack([self.image, own])

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[np.int64]:
        values = self._stack._aligned(self._stack.layers[1], row, column, height, width)[0]
        tags = class_tags(self.path)
        out = np.full(values.shape, UNLABELLED, np.int64)
        for value in np.unique(values[~np.isnan(values)]):
            word = tags.get(int(value), _word_of(value))
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


def open_label_raster(path: Path, grid: Grid | None = None) -> Raster:
    """A raster of classes, beside an image with this grid."""
    raster = open_beside(path, grid)
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

    def check_overlap(self) -> None:
        """Refuse an area that lies off the raster."""
        from shapely.geometry import box

        _, tree = self._polygons
        if not len(tree.query(box(*_grid_of(self.of, self.area).extent(*self.shape[1:])), "intersects")):
            raise ValueError(
                f"{self.area}: no polygon of the area of interest lies on {self.of.name}: check the coordinate system "
                "of both"
            )

    @property
    def name(self) -> str:
        return f"{self.of.name} in {self.area}"

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.of.files, self.area)

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
    def mask(self) -> Mask | None:
        return mask_of(self.of)

    @property
    def read(self) -> Callable[[int, int, int, int], NDArray[Any]]:
        return self.of.read

    def inside(self, row: int, column: int, height: int, width: int) -> NDArray[np.bool_]:
        """Pixels of a window whose centre lies in the area."""
        shapes, tree = self._polygons
        grid = _grid_of(self.of, self.area).part(row, column)
        return drawn(shapes, np.zeros(len(shapes), np.int64), tree, grid, height, width, UNLABELLED) == 0


def unclipped(raster: Raster) -> Raster:
    """A raster without its area of interest."""
    return raster.of if isinstance(raster, Clipped) else raster
