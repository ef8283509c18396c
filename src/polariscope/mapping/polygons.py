"""Objects of a map as polygons, joined across strips of rows, in memory that does not grow with the raster.

The map is read a strip of rows at a time. Regions that touch the next strip stay open and are joined with what
continues them there; a region that is complete is handed on at once. Sizes are filtered after joining, so an object
that lies across a border is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.mapping.apply import BYTES, NODATA, RasterMap
from polariscope.mapping.objects import regions
from polariscope.mapping.rasters import Grid, needs_geo

STRIP = 1024
"""Rows that are processed together, at most."""
PIXELS = 2**21
"""Pixels that are processed together, at most."""


@dataclass(frozen=True)
class MapObject:
    """A connected region of one class on the ground."""

    label: int
    """The class."""
    pixels: int
    area: float
    """Square metres."""
    perimeter: float
    """Metres."""
    probability: float
    """Mean probability of its class."""
    means: Mapping[str, float]
    """Means of further layers over it, such as slope and elevation."""
    polygon: Any
    """A shapely polygon in the raster's coordinates."""


@dataclass
class _Open:
    """A region that may go on in the next strip."""

    label: int
    pieces: list[Any] = field(default_factory=list)
    pixels: int = 0
    probability: float = 0.0
    layers: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    within: _Open | None = None
    """The region that took it in."""

    @property
    def whole(self) -> _Open:
        """The region that it is a part of by now."""
        part = self
        while part.within is not None:
            part = part.within
        return part

    def take(self, other: _Open) -> None:
        other.within = self
        self.pieces += other.pieces
        self.pixels += other.pixels
        self.probability += other.probability
        self.layers = self.layers + other.layers


def map_objects(
    raster_map: RasterMap,
    *,
    least: float = 4.0,
    layers: Mapping[str, NDArray[Any]] | None = None,
    strip: int | None = None,
) -> Iterator[MapObject]:
    """Objects of a map besides the background, of at least ``least`` square metres. ``layers`` are arrays of the map's
    pixels, in memory or mapped, whose means each object has. The objects do not depend on the strip."""
    needs_geo()
    if raster_map.grid is None:
        raise ValueError("the raster has no coordinates: give the size of a pixel with --pixel")
    grid, background = raster_map.grid, raster_map.settings.background
    layers = layers or {}
    height, width = raster_map.shape
    strip = strip or max(1, min(STRIP, PIXELS // width))
    still_open: dict[int, _Open] = {}
    last_row: NDArray[np.int64] | None = None
    last_labels = np.zeros(0, np.uint8)
    for top in range(0, height, strip):
        labels = raster_map.read_labels(slice(top, top + strip))
        drawn = np.where(labels == NODATA, np.uint8(background), labels)
        numbers = regions(drawn, background)
        parts = _parts(raster_map, drawn, numbers, top, layers, grid, least)
        if last_row is not None:
            _join(still_open, parts, last_row, numbers[0], last_labels, labels[0])
        last = top + strip >= height
        going_on = set() if last else set(np.unique(numbers[-1][numbers[-1] > 0]).tolist())
        still_open, complete = _divided(parts, going_on)
        last_row, last_labels = numbers[-1].copy(), labels[-1].copy()
        yield from (one for part in complete if (one := _object(part, list(layers), grid)).area >= least)


def _parts(
    raster_map: RasterMap,
    drawn: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    top: int,
    layers: Mapping[str, NDArray[Any]],
    grid: Grid,
    least: float,
) -> dict[int, _Open]:
    """The regions of a strip by their number, without those that are complete and too small: of a noisy map they are
    most, and a polygon takes far longer to draw than to leave out."""
    from rasterio.features import shapes
    from rasterio.transform import Affine
    from shapely.geometry import shape

    count = int(numbers.max(initial=0))
    pixels = np.bincount(numbers.ravel(), minlength=count + 1)
    classes = np.zeros(count + 1, np.int64)
    classes[numbers.ravel()] = drawn.ravel()
    rows = slice(top, top + len(drawn))
    own = np.take_along_axis(raster_map.read_probabilities(rows), drawn[None].astype(np.int64), 0)[0] / BYTES
    certain = np.bincount(numbers.ravel(), own.ravel(), minlength=count + 1)
    sums = np.array([np.bincount(numbers.ravel(), np.asarray(layer[rows], float).ravel(), minlength=count + 1)
                     for layer in layers.values()]).reshape(len(layers), count + 1)  # fmt: skip
    wanted = pixels * grid.pixel_area >= least
    wanted[numbers[0]] = wanted[numbers[-1]] = True  # these may go on in the next strip
    wanted[0] = False
    parts = {
        int(n): _Open(int(classes[n]), [], int(pixels[n]), float(certain[n]), sums[:, n])
        for n in np.flatnonzero(wanted)
    }
    place = Affine(*grid.part(top, 0).affine)
    for geometry, number in shapes(numbers.astype(np.int32), mask=wanted[numbers], connectivity=4, transform=place):
        parts[int(number)].pieces.append(shape(geometry))
    return parts


def _join(
    still_open: dict[int, _Open],
    parts: dict[int, _Open],
    above: NDArray[np.int64],
    below: NDArray[np.int64],
    classes_above: NDArray[np.uint8],
    classes_below: NDArray[np.uint8],
) -> None:
    """Join open regions with those that continue them below: ``parts`` then has the joined ones, some under several
    numbers."""
    touching = (above > 0) & (below > 0) & (classes_above == classes_below)
    for upper, lower in np.unique(np.stack([above[touching], below[touching]]), axis=1).T.tolist():
        first, second = still_open[upper].whole, parts[lower].whole
        if first is not second:
            second.take(first)
    for number in np.unique(below[touching]).tolist():
        parts[number] = parts[number].whole
    # What is open above and continued by nothing is complete; it gets a number of its own.
    continued = set(above[touching].tolist())
    finished = {id(part.whole): part.whole for number, part in still_open.items() if number not in continued}
    joined = {id(still_open[number].whole) for number in continued}
    for place, part in enumerate((part for key, part in finished.items() if key not in joined), 1):
        parts[-place] = part


def _divided(parts: dict[int, _Open], going_on: set[int]) -> tuple[dict[int, _Open], list[_Open]]:
    """Regions that reach the last row, and those that are complete."""
    open_ids = {id(parts[number]) for number in going_on}
    remaining = {number: parts[number] for number in going_on}
    complete = {id(part): part for part in parts.values() if id(part) not in open_ids}
    return remaining, list(complete.values())


def _object(part: _Open, names: list[str], grid: Grid) -> MapObject:
    import shapely

    polygon = part.pieces[0] if len(part.pieces) == 1 else shapely.union_all(part.pieces)
    return MapObject(
        part.label,
        part.pixels,
        part.pixels * grid.pixel_area,
        float(polygon.length),
        part.probability / part.pixels,
        dict(zip(names, (part.layers / part.pixels).tolist(), strict=True)),
        polygon,
    )
