"""Rasters: images too large for memory, read by windows, and where their pixels lie on the ground.

GeoTIFFs need the extra ``[geo]`` (rasterio); npy files and pictures do not, and have no place on the ground unless a
pixel size is given.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polariscope.foreign_files import UNREADABLE, check_regular, reading
from polariscope.worlds.readers.numpy_files import read_npy

GEOTIFF = (".tif", ".tiff")
PICTURES = (".png", ".jpg", ".jpeg")
NORTH_UP = 1e-9
"""Rotation terms of a transform up to which its rows run from west to east."""
TRUE_AREA = 0.01
"""Share by which areas in the coordinates may differ from those on the ground."""
SQUARE = 1e-6
"""Relative difference of a pixel's sides up to which it is square."""
Affine = tuple[float, float, float, float, float, float]
Mask = Callable[[int, int, int, int], NDArray[np.bool_]]
"""Top, left, height and width of a part of a raster, to which of its pixels ``(height, width)`` its mask has."""


@dataclass(frozen=True)
class Grid:
    """Where pixels lie: x = c + a · column, y = f + e · row, in the units of a coordinate system."""

    a: float
    c: float
    e: float
    f: float
    crs: str = ""
    """The coordinate system as WKT; empty for plain pixels of a given size."""

    @property
    def pixel(self) -> float:
        """Metres a side."""
        return self.a

    @property
    def pixel_area(self) -> float:
        """Square metres."""
        return self.a * -self.e

    @classmethod
    def plain(cls, pixel: float) -> Grid:
        """Pixels of a size, without a place on the ground."""
        if not pixel > 0:
            raise ValueError(f"the pixel size is {pixel}: it needs to be above 0 metres")
        return cls(pixel, 0.0, -pixel, 0.0)

    @property
    def affine(self) -> Affine:
        return (self.a, 0.0, self.c, 0.0, self.e, self.f)

    def part(self, row: int, column: int) -> Grid:
        """The grid of a part that begins at a pixel."""
        return Grid(self.a, self.c + column * self.a, self.e, self.f + row * self.e, self.crs)

    def extent(self, height: int, width: int) -> tuple[float, float, float, float]:
        """Left, bottom, right and top of a raster."""
        return self.c, self.f + height * self.e, self.c + width * self.a, self.f


class Raster(Protocol):
    """Bands of numbers on pixels, read by windows."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int, int]:
        """Bands, height and width."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def grid(self) -> Grid | None: ...
    @property
    def nodata(self) -> float | None:
        """The number of pixels without data; NaN means none in any raster of floats."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the numbers come from; none for an array in memory."""

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[Any]:
        """Pixels ``(bands, height, width)`` of a window inside the raster."""


@dataclass(frozen=True, eq=False)
class ArrayRaster:
    """A raster in an array ``(bands, height, width)``, in memory or mapped from a file."""

    pixels: NDArray[Any]
    grid: Grid | None = None
    nodata: float | None = None
    name: str = "array"

    def __post_init__(self) -> None:
        if self.pixels.ndim != 3 or not self.pixels.size:
            raise ValueError(f"{self.name}: expected pixels (bands, height, width); got shape {self.pixels.shape}")

    @property
    def shape(self) -> tuple[int, int, int]:
        bands, height, width = self.pixels.shape
        return bands, height, width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.pixels.dtype

    @property
    def files(self) -> tuple[Path, ...]:
        return (Path(self.name),) if Path(self.name).is_file() else ()

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[Any]:
        window = self.pixels[:, row : row + height, column : column + width]
        if not isinstance(window, np.memmap):
            return np.asarray(window)
        copied = np.array(window)
        release_pages(self.pixels)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """A whole mapped file goes to another process by its path; other pixels are copied."""
        pixels, rest = self.pixels, (self.grid, self.nodata, self.name)
        if isinstance(pixels, np.memmap) and isinstance(pixels.base, mmap.mmap) and pixels.flags.c_contiguous:
            return _mapped, (str(pixels.filename), pixels.dtype, pixels.shape, pixels.offset, *rest)
        return ArrayRaster, (np.asarray(pixels), *rest)


def release_pages(array: NDArray[Any]) -> None:
    """Let the system take back the memory of pages that were read or written; a mapped file keeps its numbers.

    Without this the process holds every page it has touched, so that its memory grows with the raster."""
    mapped = getattr(array, "_mmap", None)
    private = getattr(array, "mode", "c") == "c"  # changes of a copy-on-write map are not in its file
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and not private:
        mapped.madvise(mmap.MADV_DONTNEED)


def _mapped(
    path: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int,
    grid: Grid | None,
    nodata: float | None,
    name: str,
) -> ArrayRaster:
    return ArrayRaster(np.memmap(path, dtype, "r", offset, shape), grid, nodata, name)


@dataclass(frozen=True)
class GeoRaster:
    """A GeoTIFF, opened when it is first read, in each process for itself."""

    path: Path

    def __post_init__(self) -> None:
        check_regular(self.path)
        _ = self.grid  # refuse what cannot be mapped now

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path, *(Path(file) for file in self._file.files if file.endswith(".msk")))

    @cached_property
    def _file(self) -> Any:
        rasterio = needs_geo()
        with reading(self.path, "a GeoTIFF"):
            return rasterio.open(self.path)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._file.count, self._file.height, self._file.width

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return _dtype_of(self.path, self._file)

    @cached_property
    def grid(self) -> Grid | None:
        file = self._file
        if file.crs is None:
            raise ValueError(
                f"{self.path}: the raster has no coordinate system, so its pixels have no area: assign one (gdal_edit "
                "-a_srs EPSG:2056), or give an npy file with --pixel"
            )
        if file.crs.is_geographic:
            raise ValueError(
                f"{self.path}: the raster is in degrees ({file.crs.to_string()}), whose pixels have no single area: "
                "project it first (gdalwarp -t_srs EPSG:2056)"
            )
        a, b, c, d, e, f = file.transform[:6]
        if max(abs(b), abs(d)) > NORTH_UP * abs(a) or not (a > 0 > e):
            raise ValueError(f"{self.path}: its rows do not run from west to east: warp it north up first")
        factor = file.crs.linear_units_factor[1]
        if not math.isclose(factor, 1.0):
            raise ValueError(f"{self.path}: its coordinates are in units of {factor:.4g} m: project it to metres first")
        if abs(a + e) > SQUARE * a:
            raise ValueError(f"{self.path}: the pixels are {a:g} x {-e:g} m, and square ones are needed: resample it")
        stretched = _area_scale(file)
        if abs(stretched - 1) > TRUE_AREA:
            raise ValueError(
                f"{self.path}: areas in its coordinates ({file.crs.to_string()}) are {stretched:.3g} times those on "
                "the ground here: project it first, for example to its UTM zone (gdalwarp -t_srs)"
            )
        return Grid(a, c, e, f, file.crs.to_wkt())

    @property
    def nodata(self) -> float | None:
        value = self._file.nodata
        return None if value is None else float(value)

    @property
    def mask(self) -> Mask | None:
        """The mask or transparency in the file; None if it has none."""
        from rasterio.enums import MaskFlags

        flags = self._file.mask_flag_enums[0]
        return self._masked if MaskFlags.per_dataset in flags or MaskFlags.alpha in flags else None

    def _masked(self, row: int, column: int, height: int, width: int) -> NDArray[np.bool_]:
        return _read_mask(self.path, self._file, row, column, height, width)

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[Any]:
        return _read_window(self.path, self._file, row, column, height, width)


def _area_scale(file: Any) -> float:
    """How many times larger areas are in the coordinates of a raster than on the ground, at its centre; 1 if that is
    not known. Web Mercator stretches areas twofold at 45 degrees."""
    from rasterio.crs import CRS
    from rasterio.errors import RasterioError
    from rasterio.warp import transform

    left, bottom, right, top = file.bounds
    x, y = (left + right) / 2, (bottom + top) / 2
    try:
        (longitude,), (latitude,) = transform(file.crs, CRS.from_epsg(4326), [x], [y])
        if not (math.isfinite(longitude) and abs(latitude) < 90):
            return 1.0
        equal = CRS.from_dict(proj="laea", lat_0=latitude, lon_0=longitude, datum="WGS84", units="m")
        corners = transform(file.crs, equal, [x - 50, x + 50, x + 50, x - 50], [y - 50, y - 50, y + 50, y + 50])
    except RasterioError:
        return 1.0
    east, north = np.asarray(corners)
    area = 0.5 * abs(east @ np.roll(north, -1) - north @ np.roll(east, -1))
    return 100.0**2 / float(area) if math.isfinite(area) and area > 0 else 1.0


@dataclass(frozen=True)
class WarpedRaster:
    """A GeoTIFF in any coordinates, seen in those of another raster, at about its own resolution: the nearest pixel of
    whole numbers, which may be classes, and a mean of the nearest four of floats, such as heights."""

    path: Path
    crs: str
    """The coordinate system as WKT."""

    def __post_init__(self) -> None:
        _ = self._file

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "crs": self.crs}

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @cached_property
    def _source(self) -> Any:
        rasterio = needs_geo()
        with reading(self.path, "a GeoTIFF"):
            return rasterio.open(self.path)

    @cached_property
    def _file(self) -> Any:
        from rasterio.crs import CRS
        from rasterio.enums import MaskFlags, Resampling
        from rasterio.vrt import WarpedVRT

        source = self._source
        how = Resampling.bilinear if self.dtype.kind == "f" else Resampling.nearest
        alpha = not any(MaskFlags.alpha in flags for flags in source.mask_flag_enums) and source.nodata is None
        with reading(self.path, "a raster that can be seen in the coordinates of the image"):
            return WarpedVRT(source, crs=CRS.from_wkt(self.crs), resampling=how, add_alpha=alpha)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._source.count, self._file.height, self._file.width

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return _dtype_of(self.path, self._source)

    @cached_property
    def grid(self) -> Grid | None:
        a, _, c, _, e, f = self._file.transform[:6]
        return Grid(a, c, e, f, self.crs)

    @property
    def nodata(self) -> float | None:
        value = self._source.nodata
        return None if value is None else float(value)

    @property
    def mask(self) -> Mask | None:
        return self._masked if self.nodata is None else None

    def _masked(self, row: int, column: int, height: int, width: int) -> NDArray[np.bool_]:
        return _read_mask(self.path, self._file, row, column, height, width)

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[Any]:
        return _read_window(self.path, self._file, row, column, height, width, self._source.count)


@contextmanager
def _rows_of(path: Path, row: int, height: int) -> Iterator[None]:
    """Turn the exceptions of GDAL on a damaged file into one sentence."""
    try:
        yield
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: the file is damaged or cut off (rows {row} to {row + height - 1} cannot be read)"
        ) from error


def _read_window(
    path: Path, file: Any, row: int, column: int, height: int, width: int, bands: int | None = None
) -> NDArray[Any]:
    from rasterio.windows import Window

    several = list(range(1, (bands or file.count) + 1))
    with _rows_of(path, row, height):
        return np.asarray(file.read(several, window=Window(column, row, width, height)))


def _read_mask(path: Path, file: Any, row: int, column: int, height: int, width: int) -> NDArray[np.bool_]:
    from rasterio.windows import Window

    with _rows_of(path, row, height):
        return np.asarray(file.dataset_mask(window=Window(column, row, width, height)) > 0)


def _dtype_of(path: Path, file: Any) -> np.dtype[Any]:
    kinds = set(file.dtypes)
    if len(kinds) > 1:
        raise ValueError(f"{path}: the bands have different types ({', '.join(sorted(kinds))}): convert them")
    return np.dtype(kinds.pop())


def open_beside(path: Path, grid: Grid | None) -> Raster:
    """A raster to be read beside an image with this grid; a GeoTIFF in other coordinates is seen in those of the
    image."""
    if path.suffix.lower() not in GEOTIFF or grid is None or not grid.crs:
        return open_raster(path)
    rasterio = needs_geo()
    check_regular(path)
    with reading(path, "a GeoTIFF"), rasterio.open(path) as file:
        crs, (a, b, _, d, e, _) = file.crs, file.transform[:6]
    if crs is None:
        raise ValueError(f"{path}: the layer has no coordinate system: assign one (gdal_edit -a_srs EPSG:2056)")
    straight = max(abs(b), abs(d)) <= NORTH_UP * abs(a) and a > 0 > e and abs(a + e) <= SQUARE * a
    return GeoRaster(path) if straight and _same_crs(crs.to_wkt(), grid.crs) else WarpedRaster(path, grid.crs)


def open_raster(path: Path | str, pixel: float | None = None) -> Raster:
    """A raster by its path: a GeoTIFF, an npy file ``(bands, height, width)`` or ``(height, width)``, or a picture.
    ``pixel`` is the size of a pixel in metres, for files without coordinates."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in GEOTIFF:
        if pixel is not None:
            raise ValueError(f"{path}: a GeoTIFF has the size of its pixels: leave --pixel out")
        return GeoRaster(path)
    grid = None if pixel is None else Grid.plain(pixel)
    if suffix == ".npy":
        values = read_npy(path)
        if values.dtype.kind not in "uif" or values.ndim not in (2, 3):
            raise ValueError(f"{path}: expected numbers (bands, height, width); got {values.dtype} of {values.shape}")
        return ArrayRaster(values if values.ndim == 3 else values[None], grid, None, str(path))
    if suffix in PICTURES:
        return ArrayRaster(read_picture(path), grid, None, str(path))
    raise ValueError(
        f"{path}: expected a GeoTIFF, an npy file or a picture ({', '.join((*GEOTIFF, '.npy', *PICTURES))})"
    )


def read_picture(path: Path) -> NDArray[np.uint8]:
    """The pixels ``(bands, height, width)`` of a picture of one or three bands."""
    from PIL import Image

    check_regular(path)
    with reading(path, "a picture"), Image.open(path) as picture:
        whole = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
        values = np.asarray(whole)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(np.moveaxis(values, 2, 0))


@dataclass(frozen=True, eq=False)
class Stack:
    """Layers of several rasters on the pixels of the first: terrain of a coarser grid, near-infrared of another extent.

    A pixel of the first takes what lies at its centre in the others (their nearest pixel), or is without data where one
    of them ends. Places follow from coordinates alone, so a window has the pixels of the whole.
    """

    layers: Sequence[Raster]

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("a stack needs at least one raster")
        first = self.layers[0]
        for other in self.layers[1:]:
            if first.grid is None or other.grid is None:
                if first.shape[1:] != other.shape[1:]:
                    raise ValueError(
                        f"{other.name} has {other.shape[1]} x {other.shape[2]} pixels and {first.name} "
                        f"{first.shape[1]} x {first.shape[2]}, and without coordinates they cannot be aligned"
                    )
            elif first.grid.crs != other.grid.crs and not _same_crs(first.grid.crs, other.grid.crs):
                raise ValueError(
                    f"{other.name} has another coordinate system than {first.name}, so it cannot be aligned: give both "
                    "as GeoTIFFs with a coordinate system"
                )

    @property
    def name(self) -> str:
        return " + ".join(layer.name for layer in self.layers)

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for layer in self.layers for file in layer.files)

    @property
    def shape(self) -> tuple[int, int, int]:
        _, height, width = self.layers[0].shape
        return sum(layer.shape[0] for layer in self.layers), height, width

    @property
    def dtype(self) -> np.dtype[Any]:
        kinds = {layer.dtype for layer in self.layers}
        return kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)

    @property
    def grid(self) -> Grid | None:
        return self.layers[0].grid

    @property
    def nodata(self) -> float | None:
        return self.layers[0].nodata if len(self.layers) == 1 else math.nan

    @property
    def mask(self) -> Mask | None:
        """That of a single raster; several are floats, and have NaN where a mask is empty."""
        return mask_of(self.layers[0]) if len(self.layers) == 1 else None

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[Any]:
        if len(self.layers) == 1:
            return self.layers[0].read(row, column, height, width)
        parts = [self._aligned(layer, row, column, height, width) for layer in self.layers]
        return np.concatenate(parts)

    def _aligned(self, layer: Raster, row: int, column: int, height: int, width: int) -> NDArray[np.float32]:
        first = self.grid
        rows, columns = np.arange(row, row + height), np.arange(column, column + width)
        if layer is not self.layers[0] and first is not None and layer.grid is not None:
            own = layer.grid
            rows = np.floor((first.f + (rows + 0.5) * first.e - own.f) / own.e).astype(np.int64)
            columns = np.floor((first.c + (columns + 0.5) * first.a - own.c) / own.a).astype(np.int64)
        bands, most_rows, most_columns = layer.shape
        out = np.full((bands, height, width), np.nan, np.float32)
        inside_rows = (rows >= 0) & (rows < most_rows)
        inside_columns = (columns >= 0) & (columns < most_columns)
        if inside_rows.any() and inside_columns.any():
            r, c = rows[inside_rows], columns[inside_columns]
            top, left = int(r.min()), int(c.min())
            window = top, left, int(r.max()) - top + 1, int(c.max()) - left + 1
            pixels = layer.read(*window)
            block = pixels.astype(np.float32)
            block[:, ~known_pixels(layer, pixels, *window)] = np.nan
            at = np.ix_(np.arange(bands), np.flatnonzero(inside_rows), np.flatnonzero(inside_columns))
            out[at] = block[:, (r - top)[:, None], c - left]
        return out


@dataclass(frozen=True, eq=False)
class TerrainLayers:
    """Layers that follow from heights: height, slope, the direction downhill (north and east parts), and two
    curvatures. A window reads a rim around it, so it has the values of the whole."""

    heights: Raster

    NAMES = ("height", "slope", "north", "east", "profile", "plan")

    def __post_init__(self) -> None:
        if self.heights.shape[0] != 1:
            raise ValueError(f"{self.heights.name}: heights are one band; got {self.heights.shape[0]}")
        if self.heights.grid is None:
            raise ValueError(f"{self.heights.name}: heights need coordinates to have a slope")

    @property
    def name(self) -> str:
        return f"terrain of {self.heights.name}"

    @property
    def files(self) -> tuple[Path, ...]:
        return self.heights.files

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.NAMES), *self.heights.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def grid(self) -> Grid | None:
        return self.heights.grid

    @property
    def nodata(self) -> float | None:
        return math.nan

    def read(self, row: int, column: int, height: int, width: int) -> NDArray[np.float32]:
        from polariscope.mapping.terrain import HALO, terrain

        _, rows, columns = self.heights.shape
        top, left = max(0, row - 2 * HALO), max(0, column - 2 * HALO)
        bottom, right = min(rows, row + height + 2 * HALO), min(columns, column + width + 2 * HALO)
        window = top, left, bottom - top, right - left
        pixels = self.heights.read(*window)
        z = np.where(known_pixels(self.heights, pixels, *window), pixels[0].astype(float), np.nan)
        assert self.heights.grid is not None
        derived = terrain(z, self.heights.grid.pixel)
        aspect = np.radians(derived.aspect)
        level = np.isnan(derived.aspect) & ~np.isnan(derived.slope)
        north, east = (np.where(level, 0.0, part) for part in (np.cos(aspect), np.sin(aspect)))
        layers = np.stack([z, derived.slope, north, east, derived.profile_curvature, derived.plan_curvature])
        return layers[:, row - top : row - top + height, column - left : column - left + width].astype(np.float32)


def band_types(raster: Raster) -> list[tuple[str, str]]:
    """For each band of a raster, the layer that it comes from and the type of its numbers: a stack of bytes and heights
    has floats, and so has one of larger numbers. Floats of any width are one type."""
    if isinstance(raster, Stack):
        return [band for layer in raster.layers for band in band_types(layer)]
    return [(raster.name, "float" if raster.dtype.kind == "f" else str(raster.dtype))] * raster.shape[0]


def valid_pixels(pixels: NDArray[Any], nodata: float | None) -> NDArray[np.bool_]:
    """Pixels ``(height, width)`` that have data. A float pixel has none if any band is nodata or NaN. Whole numbers
    are often colours, which may contain the number of nodata (0 in a dark band), so there all bands must be nodata."""
    valid = np.ones(pixels.shape[1:], bool)
    floats = pixels.dtype.kind == "f"
    if nodata is not None and not math.isnan(nodata):
        empty = pixels == nodata
        valid &= ~(empty.any(0) if floats else empty.all(0))
    if floats:
        valid &= ~np.isnan(pixels).any(0)
    return valid


def mask_of(raster: Raster) -> Mask | None:
    """The mask that a raster has beside its numbers, if any."""
    mask: Mask | None = getattr(raster, "mask", None)
    return mask


def known_pixels(
    raster: Raster, pixels: NDArray[Any], row: int, column: int, height: int, width: int
) -> NDArray[np.bool_]:
    """Pixels of a window of a raster that have data, by their numbers and by its mask."""
    known, mask = valid_pixels(pixels, raster.nodata), mask_of(raster)
    return known if mask is None else known & mask(row, column, height, width)


def needs_geo() -> Any:
    """The library rasterio; a sentence where the extra is not installed."""
    try:
        import pyogrio  # noqa: F401
        import rasterio
        import shapely  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"GeoTIFFs and polygons need the library {error.name}, which is not installed: pip install "
            "'polariscope[geo]'"
        ) from error
    return rasterio


def _same_crs(first: str, second: str) -> bool:
    if not first or not second:
        return False
    from rasterio.crs import CRS

    return bool(CRS.from_wkt(first) == CRS.from_wkt(second))
