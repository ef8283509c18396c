"""Filters for the objects of a map: by size, and by layers at their location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.mapping.polygons import MapObject
from polariscope.mapping.rasters import Raster, Stack, TerrainLayers
from polariscope.registry import nearest


@dataclass(frozen=True)
class ObjectFilter:
    """Objects whose mean of a layer lies in a range are kept: slopes of a class, elevations below the rocks, or a share
    of a land cover, as the mean of a layer of zeros and ones."""

    layer: str
    low: float
    high: float

    @classmethod
    def spelled(cls, words: str) -> ObjectFilter:
        """
        >>> ObjectFilter.spelled("slope:15:90")
        ObjectFilter(layer='slope', low=15.0, high=90.0)
        """
        parts = words.split(":")
        try:
            layer, low, high = parts[0], float(parts[1]), float(parts[2])
        except (IndexError, ValueError):
            raise ValueError(f"a filter is LAYER:LOW:HIGH, such as slope:15:90; got {words!r}") from None
        if len(parts) != 3 or not low <= high:
            raise ValueError(f"a filter is LAYER:LOW:HIGH with LOW up to HIGH; got {words!r}")
        return cls(layer, low, high)


def check_filters(filters: Sequence[ObjectFilter], layers: Iterable[str]) -> None:
    """Refuse filters by layers that are not there."""
    known = list(layers)
    for rule in filters:
        if rule.layer in known:
            continue
        if not known:
            raise ValueError(
                f"there is no layer {rule.layer!r} to filter by, and none at all: give its raster with --layers, or "
                "put it into layers/ of the folder"
            )
        raise ValueError(f"there is no layer {rule.layer!r} to filter by: {nearest(rule.layer, known)}")


def kept(objects: Iterable[MapObject], filters: Sequence[ObjectFilter]) -> Iterator[MapObject]:
    """The objects that pass every filter. An object without data in a layer passes no filter of that layer."""
    for one in objects:
        check_filters(filters, one.means)
        if all(rule.low <= one.means[rule.layer] <= rule.high for rule in filters):
            yield one


@dataclass(frozen=True, eq=False)
class LayerBand:
    """A band of a layer on the pixels of an image; rows are read when they are used."""

    stack: Stack
    band: int

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        _, height, width = self.stack.shape
        first, last, _ = rows.indices(height)
        layer = self.stack.layers[1]
        return np.asarray(self.stack._aligned(layer, first, 0, last - first, width)[self.band])


def layer_bands(image: Raster, layers: Sequence[tuple[str, Raster]]) -> dict[str, Any]:
    """Bands of layers by name: bands derived from heights have their own names (slope, ...), others the name of their
    file, with a number if it has several bands."""
    bands_by_name: dict[str, Any] = {}
    for name, layer in layers:
        stack = Stack([image, layer])
        if isinstance(layer, TerrainLayers):
            bands_by_name |= {"elevation": LayerBand(stack, 0), "slope": LayerBand(stack, 1)}
            continue
        bands = layer.shape[0]
        bands_by_name |= {name if bands == 1 else f"{name}{band + 1}": LayerBand(stack, band) for band in range(bands)}
    return bands_by_name
