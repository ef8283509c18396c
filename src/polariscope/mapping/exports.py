"""Maps as files that a GIS opens: GeoTIFF, GeoPackage, Shapefile and GeoJSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as numbers_from
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from polariscope.atomic import FullDiskError, atomic, is_full
from polariscope.foreign_files import printable
from polariscope.mapping.apply import NODATA, RasterMap, reserve
from polariscope.mapping.polygons import MapObject
from polariscope.mapping.rasters import needs_geo, release_pages

TILE = 256
BLOCK = 512
"""Rows that are written at a time."""
CACHE = 64
"""Megabytes of a file that GDAL keeps in memory; by default it keeps 5 % of the memory of the machine."""
BATCH = 5000
"""Objects that are written at a time."""
COLOURS = (
    (214, 62, 52),
    (240, 200, 40),
    (240, 130, 40),
    (130, 80, 190),
    (60, 130, 200),
    (90, 160, 90),
    (150, 150, 150),
)
SHAPEFILE = (".shp", ".shx", ".dbf", ".prj", ".cpg")
SPARE, SPARE_AFTER_FAILURE = 2**20, 2**24
"""Bytes that a disk has left if it is not full: after a file was written, and after the last part of one was removed
again because it failed."""
KINDS: dict[str, type] = {"Class": int, "Name": object}
"""Types of columns that are not floats."""
DRIVERS = {".gpkg": "GPKG", ".shp": "ESRI Shapefile"}
WGS84 = "EPSG:4326"


def write_geotiff(
    raster_map: RasterMap, path: Path | str, names: Sequence[str], *, probabilities: bool = False
) -> Path:
    """The classes as one band with a colour table and names, or the probabilities as a band for each class, in steps of
    1/250: tiled, compressed, with overviews, 255 without data."""
    rasterio = needs_geo()
    from rasterio.crs import CRS
    from rasterio.enums import Resampling
    from rasterio.transform import Affine
    from rasterio.windows import Window

    if raster_map.grid is None or not raster_map.grid.crs:
        raise ValueError("a GeoTIFF needs a coordinate system, and the raster has none: take write_npy")
    path = _new(Path(path))
    height, width = raster_map.shape
    bands = raster_map.classes if probabilities else 1
    profile = {
        "driver": "GTiff", "height": height, "width": width, "count": bands, "dtype": "uint8", "nodata": NODATA,
        "crs": CRS.from_wkt(raster_map.grid.crs), "transform": Affine(*raster_map.grid.affine), "tiled": True,
        "blockxsize": TILE, "blockysize": TILE, "compress": "deflate", "bigtiff": "if_safer", "interleave": "band",
    }  # fmt: skip
    with atomic(path) as draft, writing(path), rasterio.Env(GDAL_CACHEMAX=CACHE):
        with rasterio.open(draft, "w", **profile) as file:
            # First what stands before the pixels: later, overviews would be built without the colours.
            for number, name in enumerate(names if probabilities else ["class"], 1):
                file.set_band_description(number, name)
            if not probabilities:
                file.write_colormap(1, colour_table(raster_map.classes, raster_map.settings.background))
                file.update_tags(**{f"class_{number}": name for number, name in enumerate(names)})
            for top in range(0, height, BLOCK):
                rows = slice(top, min(top + BLOCK, height))
                part = raster_map.read_probabilities(rows) if probabilities else raster_map.read_labels(rows)[None]
                file.write(part, window=Window(0, top, width, rows.stop - top))
        with rasterio.open(draft, "r+") as file:
            levels = [2**level for level in range(1, 6) if min(height, width) >> level >= TILE]
            if levels:
                file.build_overviews(levels, Resampling.average if probabilities else Resampling.mode)
    return path


def write_npy(raster_map: RasterMap, path: Path | str, *, probabilities: bool = False) -> Path:
    """The classes ``(height, width)`` as an npy file, or the probabilities ``(classes, height, width)`` in steps of
    1/250, for maps without coordinates; 255 without data. It needs no extra."""
    path = _new(Path(path))
    height, width = raster_map.shape
    shape = (raster_map.classes, height, width) if probabilities else (height, width)
    source = raster_map.probabilities if probabilities else raster_map.labels[None]
    with atomic(path) as draft, writing(path), draft.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": shape}
        )
        for band in source:
            for top in range(0, height, BLOCK):
                file.write(np.ascontiguousarray(band[top : top + BLOCK]).tobytes())
                release_pages(band)
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what GDAL raises when it cannot write a file into one sentence. It does not always raise when a file is
    closed on a full disk, so the space that is left is looked at in any case."""
    try:
        yield
        check_space(path, SPARE)
    except (ValueError, TypeError):
        raise
    except Exception as error:
        full = is_full(error) or "No space left" in f"{error} {error.__cause__}"
        if not full:
            try:
                check_space(path, SPARE_AFTER_FAILURE)
            except FullDiskError:
                full = True
        if full:
            raise FullDiskError(
                f"the disk is full: {path} could not be written; free some space, then run the command again"
            ) from error
        raise OSError(f"{path}: the file could not be written: {printable(str(error.__cause__ or error))}") from error


def check_space(path: Path, size: int) -> None:
    """Refuse to write a file where the disk has no room for this many bytes."""
    probe = path.with_name(f".{path.name}.space")
    try:
        reserve(probe, size)
    finally:
        probe.unlink(missing_ok=True)


def colour_table(classes: int, background: int) -> dict[int, tuple[int, int, int, int]]:
    """A colour for each class. The background is white, and pixels without data are transparent; a TIFF keeps no other
    transparency."""
    colours = {number: (*COLOURS[number % len(COLOURS)], 255) for number in range(classes)}
    return colours | {background: (255, 255, 255, 255), NODATA: (0, 0, 0, 0)}


def write_objects(
    objects: Iterable[MapObject], path: Path | str, crs: str, names: Sequence[str], layers: Sequence[str] = ()
) -> int:
    """Objects into a GeoPackage (.gpkg) or Shapefile (.shp) in the map's coordinates, or into GeoJSON (.geojson) in
    WGS84, where areas and perimeters stay those of the map's coordinates. A file without any object has the same
    columns, with those of the ``layers``. Returns how many."""
    path = Path(path)
    if path.suffix == ".geojson":
        return _geojson(objects, _new(path), crs, names, layers)
    if path.suffix not in DRIVERS:
        raise ValueError(f"{path}: objects are written as .gpkg, .shp or .geojson")
    needs_geo()
    import shapely
    from pyogrio.raw import write

    _new(path)
    count = 0
    try:
        for batch in _batches(objects, empty=True):
            columns = _columns(batch, names, layers)
            with writing(path):
                write(
                    path,
                    np.array([shapely.to_wkb(one.polygon) for one in batch], dtype=object),
                    [np.array(values, None if batch else KINDS.get(name, float)) for name, values in columns.items()],
                    list(columns),
                    driver=DRIVERS[path.suffix],
                    geometry_type="Polygon",
                    crs=crs,
                    append=count > 0,
                )
            count += len(batch)
    except BaseException:
        remove_objects(path)
        raise
    return count


def remove_objects(path: Path) -> None:
    """Remove a file of objects; a Shapefile is several files."""
    for suffix in SHAPEFILE if path.suffix == ".shp" else (path.suffix,):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _columns(batch: Sequence[MapObject], names: Sequence[str], layers: Sequence[str]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "Class": [one.label for one in batch],
        "Name": [names[one.label] for one in batch],
        "Area_m2": [one.area for one in batch],
        "Perim_m": [one.perimeter for one in batch],
        "MeanProb": [one.probability for one in batch],
    }
    for layer in batch[0].means if batch else layers:
        short = next(name for name in _short(layer) if name not in columns)
        columns[short] = [one.means[layer] for one in batch]
    return columns


def _short(layer: str) -> Iterator[str]:
    """Names of a column of up to 10 characters, which a Shapefile can have: the second and later ones have a number,
    for layers that begin alike."""
    yield layer[:10]
    for number in numbers_from(2):
        yield f"{layer[: 10 - len(str(number))]}{number}"


def _geojson(objects: Iterable[MapObject], path: Path, crs: str, names: Sequence[str], layers: Sequence[str]) -> int:
    needs_geo()
    import shapely
    from rasterio.warp import transform_geom

    count = 0
    with atomic(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        for batch in _batches(objects):
            columns = _columns(batch, names, layers)
            for number, one in enumerate(batch):
                geometry = transform_geom(crs, WGS84, shapely.geometry.mapping(one.polygon), precision=8)
                properties = {name: _number(values[number]) for name, values in columns.items()}
                feature = {"type": "Feature", "geometry": geometry, "properties": properties}
                file.write(("," if count else "") + "\n" + json.dumps(feature, allow_nan=False))
                count += 1
        file.write("\n]}\n")
    return count


def _number(value: Any) -> Any:
    """JSON has no NaN: the mean of a layer without data is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _batches(objects: Iterable[MapObject], *, empty: bool = False) -> Iterator[list[MapObject]]:
    """Objects to write at a time; with ``empty`` an empty list where there is none at all."""
    several = iter(objects)
    while batch := list(islice(several, BATCH)):
        empty = False
        yield batch
    if empty:
        yield []


def _new(path: Path) -> Path:
    if path.exists():
        raise ValueError(f"{path} already exists: take another name, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
