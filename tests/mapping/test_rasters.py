"""Which pixels of a raster have data, and layers in other coordinates."""

from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.mapping.apply import MapSettings, map_raster
from polariscope.mapping.labels import RasterLabels, legend_of
from polariscope.mapping.pictures import picture_of
from polariscope.mapping.rasters import ArrayRaster, Grid, Stack, TerrainLayers, WarpedRaster, known_pixels, open_raster
from polariscope.mapping.scenes import open_layer, scene_of
from polariscope.mapping.windows import Stitched

rasterio = pytest.importorskip("rasterio")
warp = pytest.importorskip("rasterio.warp")
GRID = Grid(0.5, 2_690_000.0, -0.5, 1_160_000.0)


def written(
    path: Path, values: np.ndarray, crs: str | None = "EPSG:2056", mask: np.ndarray | None = None, **more
) -> Path:
    transform = more.pop("transform", rasterio.Affine(*GRID.affine))
    profile = {"driver": "GTiff", "count": len(values), "height": values.shape[1], "width": values.shape[2],
               "dtype": values.dtype, "crs": crs, "transform": transform, **more}  # fmt: skip
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "w", **profile) as file:
        file.write(values)
        if mask is not None:
            file.write_mask(mask)
    return path


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pixels_without_data_are_the_same_alone_and_in_a_stack(dtype: type) -> None:
    pixels = np.full((3, 4, 5), 7, dtype)
    pixels[0, 0], pixels[:, 1], pixels[1, 2] = 0, 0, 0
    layer = ArrayRaster(np.ones((1, 4, 5), np.float32), GRID)
    alone = ArrayRaster(pixels, GRID, nodata=0)
    stack = Stack([alone, layer])
    window = 0, 0, 4, 5
    first, second = (known_pixels(raster, raster.read(*window), *window) for raster in (alone, stack))
    np.testing.assert_array_equal(first, second)
    dark = np.issubdtype(dtype, np.integer)  # black in one band is a colour; a float without data is none
    assert first[:, 0].tolist() == [dark, False, dark, True]


@pytest.mark.parametrize("kind", ["mask", "alpha"])
def test_the_mask_in_a_file_is_no_data(tmp_path: Path, kind: str) -> None:
    pixels = np.random.default_rng(0).integers(1, 256, (3, 40, 40), dtype=np.uint8)
    mask = np.full((40, 40), 255, np.uint8)
    mask[:, 30:] = 0
    if kind == "alpha":
        path = written(tmp_path / "a.tif", np.concatenate([pixels, mask[None]]), photometric="RGB", alpha="yes")
    else:
        path = written(tmp_path / "a.tif", pixels, mask=mask)
    image = open_raster(path)
    net = Stitched(torch.nn.Conv2d(image.shape[0], 2, 1), halo=0)
    for name, raster in (("alone", image), ("single", Stack([image]))):
        found = map_raster(net, raster, tmp_path / name, MapSettings(1, window=16))
        np.testing.assert_array_equal(found.labels == 255, mask == 0)
    stack = Stack([image, ArrayRaster(np.ones((1, 40, 40), np.float32), image.grid)])
    assert np.isnan(stack.read(0, 0, 40, 40)[0, :, 30:]).all()
    assert np.isfinite(stack.read(0, 0, 40, 30)).all()
    assert (picture_of(image)[:, 30:] == 1).all()


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:21781"])
def test_a_layer_in_other_coordinates_is_aligned_to_the_image(tmp_path: Path, crs: str) -> None:
    """A plane of heights in degrees, or in the older Swiss coordinates: each image pixel gets the height of its place,
    and the slope is that of the plane."""
    image = open_raster(written(tmp_path / "image.tif", np.ones((1, 100, 120), np.uint8)))
    middle = [axis[0] for axis in warp.transform("EPSG:2056", crs, [2_690_030.0], [1_159_975.0])]
    step = 2e-5 if crs == "EPSG:4326" else 2.0
    x, y = middle[0] + (np.arange(120) - 60) * step, middle[1] - (np.arange(120) - 60) * step
    _, north = warp.transform(crs, "EPSG:2056", np.tile(x, 120), np.repeat(y, 120))
    heights = (0.5 * (np.array(north) - 1_159_975.0) + 1000).reshape(1, 120, 120).astype(np.float32)
    transform = rasterio.Affine(step, 0, x[0] - step / 2, 0, -step, y[0] + step / 2)
    path = written(tmp_path / "dem.tif", heights, crs, transform=transform)
    layer = open_layer(path, image.grid)
    assert isinstance(layer, TerrainLayers)
    assert isinstance(layer.heights, WarpedRaster)
    stack = scene_of(tmp_path / "image.tif", None, [path]).open()
    values = stack.read(10, 20, 60, 80)
    expected = 1000 + 0.5 * (1_160_000 - 0.5 * (np.arange(10, 70) + 0.5) - 1_159_975.0)
    assert np.abs(values[1] - expected[:, None]).max() < 0.5 * step * (7e4 if crs == "EPSG:4326" else 1) + 0.01
    assert values[2].mean() == pytest.approx(np.degrees(np.arctan(0.5)), abs=0.5)
    np.testing.assert_array_equal(stack.read(20, 30, 10, 10), values[:, 10:20, 10:20])


def test_beyond_a_warped_layer_there_is_no_data(tmp_path: Path) -> None:
    image = open_raster(written(tmp_path / "image.tif", np.ones((1, 100, 100), np.uint8)))
    classes = np.full((1, 20, 20), 5, np.uint8)
    x, y = (axis[0] for axis in warp.transform("EPSG:2056", "EPSG:21781", [2_690_010.0], [1_159_990.0]))
    path = written(tmp_path / "cover.tif", classes, "EPSG:21781", transform=rasterio.Affine(1, 0, x, 0, -1, y))
    values = Stack([image, open_layer(path, image.grid)]).read(0, 0, 100, 100)[1]
    assert (values[22:58, 22:58] == 5).all()
    assert np.isnan(values[:18]).all()
    assert np.isnan(values[:, 62:]).all()
    labels = RasterLabels(path, image, legend_of([path])).read(0, 0, 100, 100)
    np.testing.assert_array_equal(labels == 0, values == 5)


def test_a_layer_without_coordinates_is_refused(tmp_path: Path) -> None:
    image = open_raster(written(tmp_path / "image.tif", np.ones((1, 40, 40), np.uint8)))
    path = written(tmp_path / "bare.tif", np.ones((1, 40, 40), np.uint8), None)
    with pytest.raises(ValueError, match=r"bare.tif: the layer has no coordinate system: assign one"):
        open_layer(path, image.grid)


def test_a_layer_is_heights_by_a_whole_word(tmp_path: Path) -> None:
    for name, heights in (("demography.tif", False), ("dem.tif", True), ("DTM_2m.tif", True), ("heights2.tif", True)):
        path = written(tmp_path / name, np.ones((1, 40, 40), np.float32))
        assert isinstance(open_layer(path), TerrainLayers) == heights, name


def test_a_damaged_file_and_odd_units_are_one_sentence(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 200, 200), dtype=np.uint8)
    path = written(tmp_path / "cut.tif", pixels)
    path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(ValueError, match=r"cut.tif: the file is damaged or cut off \(rows 100 to 149 cannot be read\)"):
        open_raster(path).read(100, 0, 50, 200)
    feet = written(tmp_path / "feet.tif", pixels, "EPSG:2263")
    with pytest.raises(ValueError, match=r"are in units of 0.3048 m: project it"):
        open_raster(feet)


def test_coordinates_that_stretch_areas_are_refused(tmp_path: Path) -> None:
    """Web Mercator has metres as its unit, which are .69 m of ground at 46.6 degrees: areas are twice too large."""
    pixels = np.full((3, 20, 20), 9, np.uint8)
    (x,), (y,) = warp.transform("EPSG:4326", "EPSG:3857", [8.5], [46.6])
    path = written(tmp_path / "web.tif", pixels, "EPSG:3857", transform=rasterio.Affine(1, 0, x, 0, -1, y))
    with pytest.raises(ValueError, match=r"\(EPSG:3857\) are 2\.12 times those on the ground here"):
        open_raster(path)
    for crs in ("EPSG:32632", "EPSG:3035", "EPSG:2056"):
        (x,), (y,) = warp.transform("EPSG:4326", crs, [8.5], [46.6])
        path = written(tmp_path / "local.tif", pixels, crs, transform=rasterio.Affine(1, 0, x, 0, -1, y))
        assert open_raster(path).grid.pixel_area == 1
