"""Maps as pictures: classes over the image, with a legend, a scale bar and coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from polariscope.atomic import atomic
from polariscope.findings import Map
from polariscope.mapping.apply import BYTES, RasterMap
from polariscope.mapping.exports import COLOURS
from polariscope.mapping.rasters import Raster, mask_of, valid_pixels
from polariscope.report.mapping_figures import draw_heat, draw_map

MOST = 1200
"""Pixels a side of a picture."""
ROWS = 256


def overview(
    read: Callable[[int, int, int, int], NDArray[Any]], height: int, width: int, most: int = MOST
) -> NDArray[Any]:
    """Every n-th pixel ``(bands, h, w)`` of a raster that is read by windows, in little memory."""
    step = max(1, math.ceil(max(height, width) / most))
    rows = max(step, ROWS // step * step)
    parts = [read(top, 0, min(rows, height - top), width)[:, ::step, ::step] for top in range(0, height, rows)]
    return np.concatenate(parts, axis=1)


def picture_of(raster: Raster, most: int = MOST) -> NDArray[np.float64]:
    """A raster\'s first three bands (or its first) as colours ``(h, w, 3)`` from 0 to 1; white without data."""
    bands, height, width = raster.shape
    small = overview(raster.read, height, width, most)
    known, mask = valid_pixels(small, raster.nodata), mask_of(raster)
    if mask is not None:
        known &= overview(lambda *part: mask(*part)[None], height, width, most)[0]
    shown = small[:3] if bands >= 3 else small[:1].repeat(3, 0)
    values = shown.astype(float)
    if small.dtype == np.uint8:
        values /= 255
    elif known.any():
        low, high = np.quantile(values[:, known], [0.02, 0.98])
        values = (values - low) / max(high - low, 1e-9)
    values[:, ~known] = 1
    return np.asarray(np.moveaxis(np.clip(values, 0, 1), 0, 2))


def write_map_picture(
    raster_map: RasterMap, raster: Raster | None, names: Sequence[str], path: Path, title: str
) -> Path:
    """The map over its image as a PNG."""
    height, width = raster_map.shape
    classes = overview(
        lambda r, c, h, w: raster_map.read_labels(slice(r, r + h), slice(c, c + w))[None], height, width
    )[0]
    extent, unit = _extent(raster_map)
    image = None if raster is None else picture_of(raster)
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    figure = draw_map(image, classes, names, colours, raster_map.settings.background, extent, title, unit)
    return _saved(figure, path)


def write_heat_picture(raster_map: RasterMap, raster: Raster | None, path: Path, title: str) -> Path:
    """The probability of each pixel's most probable class besides the background, as a PNG with contours at two
    thresholds: that of the map (the least if each class has its own) and 0.5 (0.3 if that of the map is 0.5)."""
    height, width = raster_map.shape
    classes = [number for number in range(raster_map.classes) if number != raster_map.settings.background]

    def mapped(row: int, column: int, rows: int, columns: int) -> NDArray[Any]:
        part = raster_map.read_probabilities(slice(row, row + rows), slice(column, column + columns))
        steps = part[classes].max(0, keepdims=True)
        return np.where(steps > BYTES, np.nan, steps / BYTES)

    shares = overview(mapped, height, width)[0]
    image = np.ones((*shares.shape, 3)) if raster is None else picture_of(raster)
    threshold = float(np.min(raster_map.settings.threshold))
    figure = draw_heat(
        image, shares, sorted({threshold, 0.3 if threshold == 0.5 else 0.5}), title, *_extent(raster_map)
    )
    return _saved(figure, path)


def _extent(raster_map: RasterMap) -> tuple[tuple[float, float, float, float], str]:
    """Left, bottom, right and top of a map, and their unit."""
    height, width = raster_map.shape
    if raster_map.grid is None:
        return (0.0, 0.0, float(width), float(height)), "pixels"
    return raster_map.grid.extent(height, width), "m"


def heat_part(raster_map: RasterMap, picture: Path, name: str) -> Map:
    """The probability picture of a map as a part of a document."""
    return Map(
        name=f"probability-{name}", title=f"Probability on {name}", **_placed(raster_map, picture),
        says=f"the probability of the most probable class on {name}, with contours at two thresholds and a scale bar",
    )  # fmt: skip


def map_part(raster_map: RasterMap, picture: Path, names: Sequence[str], name: str) -> Map:
    """The picture of a map as a part of a document: the page has it in a file beside it."""
    background = raster_map.settings.background
    legend = {one: "#{:02x}{:02x}{:02x}".format(*COLOURS[c % len(COLOURS)]) for c, one in enumerate(names)}
    legend.pop(names[background])
    return Map(
        name=f"map-{name}", title=f"Map of {name}", legend=legend, **_placed(raster_map, picture),
        says=f"classes of {name} over its image, with a scale bar and coordinates",
    )  # fmt: skip


def _saved(figure: Figure, path: Path) -> Path:
    with atomic(path) as draft:
        figure.savefig(draft, format="png", dpi=130, bbox_inches="tight")
    return path


def _placed(raster_map: RasterMap, picture: Path) -> dict[str, Any]:
    """A picture with its place on the ground, as a part of a document has them."""
    with Image.open(picture) as opened:
        image = np.asarray(opened.convert("RGB"))
    if raster_map.grid is None:
        return {"image": image}
    extent = raster_map.grid.extent(*raster_map.shape)
    return {"image": image, "extent": extent, "reference": "metres in the coordinates of the image"}
