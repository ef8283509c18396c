"""Change between two maps of the same ground: gains, losses and stable areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polariscope.atomic import atomic
from polariscope.mapping.apply import BYTES, NODATA, RasterMap
from polariscope.mapping.exports import writing
from polariscope.mapping.rasters import needs_geo

STABLE, GAIN, LOSS, BACKGROUND = 1, 2, 3, 0
NAMES = ("background", "stable", "gain", "loss")
COLOURS = {0: (255, 255, 255, 255), 1: (120, 120, 120, 255), 2: (214, 62, 52, 255), 3: (60, 130, 200, 255)}
ROWS = 512


@dataclass(frozen=True, eq=False)
class Change:
    """Square metres of stable, gained and lost area, for each class and for all besides the background."""

    names: tuple[str, ...]
    stable: NDArray[np.float64]
    gain: NDArray[np.float64]
    loss: NDArray[np.float64]


def change_of(first: RasterMap, second: RasterMap, names: tuple[str, ...]) -> Change:
    """Areas of change; the last entry is of all classes besides the background together."""
    grid = _same_ground(first, second)
    background = first.settings.background
    counts = np.zeros((3, len(names) + 1), np.int64)
    for a, b, known in _rows(first, second):
        for c in range(len(names)):
            mine, other = (a == c) & known, (b == c) & known
            counts[:, c] += [(mine & other).sum(), (other & ~mine).sum(), (mine & ~other).sum()]
        mine, other = (a != background) & known, (b != background) & known
        counts[:, -1] += [(mine & other).sum(), (other & ~mine).sum(), (mine & ~other).sum()]
    stable, gain, loss = counts * grid
    return Change((*names, "all classes"), stable, gain, loss)


@dataclass(frozen=True, eq=False)
class CommonGround:
    """Pixels that have data in every one of several maps, with the sums of each map over them ``(maps, classes)``."""

    valid: int
    pixels: NDArray[np.int64]
    probability: NDArray[np.float64]


def common_ground(maps: Sequence[RasterMap]) -> CommonGround:
    """The sums of maps of the same pixels over the ground that has data in all of them."""
    for one in maps[1:]:
        _same_ground(maps[0], one)
    classes = maps[0].classes
    pixels, probability = np.zeros((len(maps), classes), np.int64), np.zeros((len(maps), classes))
    for top in range(0, maps[0].shape[0], ROWS):
        rows = slice(top, top + ROWS)
        labels = [one.read_labels(rows) for one in maps]
        known = np.logical_and.reduce([own != NODATA for own in labels])
        for number, (one, own) in enumerate(zip(maps, labels, strict=True)):
            pixels[number] += np.bincount(own[known], minlength=classes)
            shares = one.read_probabilities(rows)
            probability[number] += [share[known].sum(dtype=np.int64) / BYTES for share in shares]
    return CommonGround(int(pixels[0].sum()), pixels, probability)


def write_change(first: RasterMap, second: RasterMap, path: Path | str) -> Path:
    """A GeoTIFF of all classes besides the background: 0 background, 1 stable, 2 gain, 3 loss, 255 no data."""
    rasterio = needs_geo()
    from rasterio.crs import CRS
    from rasterio.transform import Affine
    from rasterio.windows import Window

    _same_ground(first, second)
    path = Path(path)
    if first.grid is None or not first.grid.crs:
        raise ValueError("a GeoTIFF needs a coordinate system, and the rasters have none")
    height, width = first.shape
    background = first.settings.background
    profile = {
        "driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": "uint8", "nodata": NODATA,
        "crs": CRS.from_wkt(first.grid.crs), "transform": Affine(*first.grid.affine), "tiled": True,
        "blockxsize": 256, "blockysize": 256, "compress": "deflate",
    }  # fmt: skip
    with atomic(path) as draft, writing(path), rasterio.open(draft, "w", **profile) as file:
        file.write_colormap(1, COLOURS | {NODATA: (0, 0, 0, 0)})
        file.update_tags(**{f"class_{number}": name for number, name in enumerate(NAMES)})
        top = 0
        for a, b, known in _rows(first, second):
            before, after = a != background, b != background
            out = np.where(before & after, STABLE, np.where(after, GAIN, np.where(before, LOSS, BACKGROUND)))
            out = np.where(known, out, NODATA).astype(np.uint8)
            file.write(out[None], window=Window(0, top, width, len(out)))
            top += len(out)
    return path


def _rows(first: RasterMap, second: RasterMap):  # type: ignore[no-untyped-def]
    for top in range(0, first.shape[0], ROWS):
        a, b = (one.read_labels(slice(top, top + ROWS)) for one in (first, second))
        yield a, b, (a != NODATA) & (b != NODATA)


def _same_ground(first: RasterMap, second: RasterMap) -> float:
    same = first.shape == second.shape and first.grid is not None and second.grid is not None
    if not same or first.grid.affine != second.grid.affine:  # type: ignore[union-attr]
        raise ValueError(
            f"change is between maps of the same pixels; got {first.shape} and {second.shape} pixels, or other "
            "coordinates: warp the images to one grid first"
        )
    assert first.grid is not None
    return first.grid.pixel_area
