"""An example to try: valleys of the world ``aerial`` as GeoTIFFs with polygons, as a user has them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.mapping.exports import SPARE, check_space, writing
from polariscope.mapping.rasters import Grid, needs_geo
from polariscope.worlds.renderers.aerial import BACKGROUND, CLASSES, Aerial

CRS = "EPSG:2056"
CORNER = (2_690_000.0, 1_160_000.0)
GAP = 24
"""Pixels a side of the corner that the camera did not see."""


def write_example(
    folder: Path | str, world: Aerial | None = None, *, across: int = 4, labelled: int | None = None
) -> Path:
    """Write the valleys of a world as ``images/valley0_2000.tif`` and so on: tiles side by side, ``across`` in a row,
    in Swiss coordinates, with nodata in a corner; polygons of the analysis as ``labels/*.gpkg`` for the first
    ``labelled`` years (all if not given); heights of 2 m as ``layers/heights.tif`` where there is one valley."""
    needs_geo()
    folder = Path(folder)
    if (folder / "images").exists():
        raise ValueError(f"{folder / 'images'} already exists: take another folder, or remove it")
    world = world or Aerial(valleys=1, tiles=16, size=96, labels="analysed")
    if world.tiles % across:
        raise ValueError(f"{world.tiles} tiles do not make rows of {across}: take a number that does")
    with _whole_or_none([folder / name for name in ("images", "labels", "layers")]):
        _write_valleys(folder, world, across, labelled)
    return folder


@contextmanager
def _whole_or_none(folders: list[Path]) -> Iterator[None]:
    """New folders to fill, which are removed again if that fails, so that the same command can be given again."""
    new = [folder for folder in folders if not folder.exists()]
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_valleys(folder: Path, world: Aerial, across: int, labelled: int | None) -> None:
    from pyogrio.raw import write
    from rasterio.features import shapes
    from rasterio.transform import Affine
    from shapely import to_wkb
    from shapely.geometry import shape

    down = world.tiles // across
    height, width = down * world.size, across * world.size
    for valley in range(world.valleys):
        left = CORNER[0] + valley * (width + 200) * world.pixel
        grid = Grid(world.pixel, left, -world.pixel, CORNER[1], CRS)
        profile = {"driver": "GTiff", "height": height, "width": width, "crs": CRS, "tiled": True, "blockxsize": 256,
                   "blockysize": 256, "compress": "deflate", "transform": Affine(*grid.affine)}  # fmt: skip
        for number, year in enumerate(world.years):
            factors = np.column_stack([
                np.full(world.tiles, valley), np.full(world.tiles, number), np.arange(world.tiles)
            ])  # fmt: skip
            scene = world.scene(factors)
            colours = np.maximum(_mosaic(scene.image[:, :3], across), 1)
            colours[:, :GAP, :GAP] = 0
            stem = f"valley{valley}_{year}"
            _write_raster(folder / "images" / f"{stem}.tif", colours, nodata=0, **profile)
            if labelled is None or number < labelled:
                mask = scene.mask if world.labels == "true" else scene.analysed
                classes = _mosaic(mask[:, None], across)[0]
                polygons = shapes(classes, mask=classes != BACKGROUND, connectivity=4, transform=Affine(*grid.affine))
                pairs = [(shape(geometry), CLASSES[int(value)]) for geometry, value in polygons]
                path = folder / "labels" / f"{stem}.gpkg"
                with writing(path):
                    write(
                        path,
                        np.array([to_wkb(polygon) for polygon, _ in pairs], dtype=object),
                        [np.array([name for _, name in pairs], dtype=object)],
                        ["Class"],
                        driver="GPKG",
                        geometry_type="Polygon",
                        crs=CRS,
                    )
            if number == 0 and world.valleys == 1:
                block = max(1, round(2 / world.pixel))
                base = 1500 + 800 * scene.elevation[:, None, None] + scene.heights
                z = _mosaic(base[:, None], across)[0]
                z = z[: height // block * block, : width // block * block]
                coarse = z.reshape(height // block, block, width // block, block).mean((1, 3)).astype(np.float32)
                where = Affine(block * world.pixel, 0, left, 0, -block * world.pixel, CORNER[1])
                about = profile | {"height": coarse.shape[0], "width": coarse.shape[1], "transform": where}
                _write_raster(folder / "layers" / "heights.tif", coarse[None], **about)


def _write_raster(path: Path, bands: NDArray[Any], **profile: Any) -> None:
    rasterio = needs_geo()
    with writing(path):
        check_space(path, bands.nbytes + SPARE)  # GDAL would print messages of its own
        with rasterio.open(path, "w", count=len(bands), dtype=bands.dtype, **profile) as file:
            file.write(bands)


def _mosaic(tiles: NDArray[np.generic], across: int) -> NDArray[np.generic]:
    """Tiles ``(n, bands, h, w)`` as one image ``(bands, ...)``, ``across`` in a row."""
    n, bands, h, w = tiles.shape
    rows = tiles.reshape(n // across, across, bands, h, w)
    return np.ascontiguousarray(rows.transpose(2, 0, 3, 1, 4).reshape(bands, n // across * h, across * w))
