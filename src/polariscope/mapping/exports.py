"""Maps as files that a GIS opens: GeoTIFF, GeoPackage, Shapefile and GeoJSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from polariscope.atomic import atomic
from polariscope.mapping.apply import NODATA, RasterMap
from polariscope.mapping.polygons import MapObject
from polariscope.mapping.rasters import needs_geo

TILE = 256
BLOCK = 512
"""Rows that are written at a time."""
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
        raise ValueError("a GeoTIFF needs a coordinate system, and the raster has none: take the npy files of the map")
    path = _new(Path(path))
    height, width = raster_map.shape
    bands = raster_map.classes if probabilities else 1
    profile = {
        "driver": "GTiff", "height": height, "width": width, "count": bands, "dtype": "uint8", "nodata": NODATA,
        "crs": CRS.from_wkt(raster_map.grid.crs), "transform": Affine(*raster_map.grid.affine), "tiled": True,
        "blockxsize": TILE, "blockysize": TILE, "compress": "deflate", "bigtiff": "if_safer",
    }  # fmt: skip
    with atomic(path) as draft:
        with rasterio.open(draft, "w", **profile) as file:
            for top in range(0, height, BLOCK):
                rows = slice(top, min(top + BLOCK, height))
                part = raster_map.probabilities[:, rows] if probabilities else raster_map.labels[None, rows]
                file.write(np.asarray(part), window=Window(0, top, width, rows.stop - top))
            for number, name in enumerate(names if probabilities else ["class"], 1):
                file.set_band_description(number, name)
            if not probabilities:
                file.write_colormap(1, colour_table(raster_map.classes, raster_map.settings.background))
                file.update_tags(**{f"class_{number}": name for number, name in enumerate(names)})
        with rasterio.open(draft, "r+") as file:
            levels = [2**level for level in range(1, 6) if min(height, width) >> level >= TILE]
            if levels:
                file.build_overviews(levels, Resampling.average if probabilities else Resampling.mode)
    return path


def colour_table(classes: int, background: int) -> dict[int, tuple[int, int, int, int]]:
    """A colour for each class; the background and pixels without data are transparent."""
    colours = {number: (*COLOURS[number % len(COLOURS)], 255) for number in range(classes)}
    return colours | {background: (255, 255, 255, 0), NODATA: (0, 0, 0, 0)}


def write_objects(objects: Iterable[MapObject], path: Path | str, crs: str, names: Sequence[str]) -> int:
    """Objects into a GeoPackage (.gpkg) or Shapefile (.shp) in the map's coordinates, or into GeoJSON (.geojson) in
    WGS84, where areas and perimeters stay those of the map's coordinates. Returns how many."""
    path = Path(path)
    if path.suffix == ".geojson":
        return _geojson(objects, _new(path), crs, names)
    if path.suffix not in DRIVERS:
        raise ValueError(f"{path}: objects are written as .gpkg, .shp or .geojson")
    needs_geo()
    import shapely
    from pyogrio.raw import write

    _new(path)
    several, count = iter(objects), 0
    while batch := list(islice(several, BATCH)):
        columns = _columns(batch, names)
        write(
            path,
            np.array([shapely.to_wkb(one.polygon) for one in batch], dtype=object),
            [np.asarray(values) for values in columns.values()],
            list(columns),
            driver=DRIVERS[path.suffix],
            geometry_type="Polygon",
            crs=crs,
            append=count > 0,
        )
        count += len(batch)
    return count


def _columns(batch: Sequence[MapObject], names: Sequence[str]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "Class": [one.label for one in batch],
        "Name": [names[one.label] for one in batch],
        "Area_m2": [one.area for one in batch],
        "Perim_m": [one.perimeter for one in batch],
        "MeanProb": [one.probability for one in batch],
    }
    for layer in batch[0].means:
        columns[layer[:10]] = [one.means[layer] for one in batch]
    return columns


def _geojson(objects: Iterable[MapObject], path: Path, crs: str, names: Sequence[str]) -> int:
    needs_geo()
    import shapely
    from rasterio.warp import transform_geom

    count = 0
    with atomic(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        for batch in _batches(objects):
            columns = _columns(batch, names)
            for number, one in enumerate(batch):
                geometry = transform_geom(crs, WGS84, shapely.geometry.mapping(one.polygon), precision=8)
                properties = {name: values[number] for name, values in columns.items()}
                feature = {"type": "Feature", "geometry": geometry, "properties": properties}
                file.write(("," if count else "") + "\n" + json.dumps(feature, allow_nan=False))
                count += 1
        file.write("\n]}\n")
    return count


def _batches(objects: Iterable[MapObject]) -> Iterator[list[MapObject]]:
    several = iter(objects)
    while batch := list(islice(several, BATCH)):
        yield batch


def _new(path: Path) -> Path:
    if path.exists():
        raise ValueError(f"{path} is there already: take another name, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
