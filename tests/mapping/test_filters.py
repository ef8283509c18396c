"""Objects are filtered by the ground they lie on, after they were mapped."""

from pathlib import Path

import numpy as np
import pytest

from polariscope.mapping.apply import MapSettings, RasterMap, Sums
from polariscope.mapping.filters import ObjectFilter, check_filters, kept, layer_bands
from polariscope.mapping.polygons import map_objects
from polariscope.mapping.rasters import ArrayRaster, Grid
from polariscope.worlds.renderers.aerial import BACKGROUND, LANDSLIDE, Aerial

rasterio = pytest.importorskip("rasterio")
HIGH = 0.6


def side_by_side(tiles: np.ndarray) -> np.ndarray:
    return np.concatenate(list(tiles), axis=1)


@pytest.mark.spec("000/F113")
def test_a_limit_of_elevation_removes_rocks_and_leaves_the_grassland_as_it_was(tmp_path: Path) -> None:
    """Whatever is bare is mapped, so rocks high up are false positives. The limit comes as a layer of 2 m cells."""
    world = Aerial(valleys=1, tiles=24, years=(2016,))
    scene = world.scene(world.grid.to_factors(np.arange(24)))
    image = side_by_side(scene.image.transpose(0, 2, 3, 1)).astype(float)
    truth = side_by_side(scene.mask)
    elevation = np.repeat(scene.elevation, world.size)[None].repeat(world.size, 0)
    bare = image[..., 0] > 0.95 * image[..., 1]
    labels = np.where(bare, LANDSLIDE, BACKGROUND).astype(np.uint8)
    labels.tofile(tmp_path / "classes.bin")
    np.full((5, *labels.shape), 200, np.uint8).tofile(tmp_path / "probabilities.bin")
    grid = Grid(0.5, 0.0, -0.5, 24.0)
    result = RasterMap(tmp_path, labels.shape, 5, MapSettings(BACKGROUND), grid, Sums((0,) * 5, (0.0,) * 5, 0))
    cells = ArrayRaster(elevation[None, ::4, ::4].astype(np.float32), Grid(2.0, 0.0, -2.0, 24.0))
    bands = layer_bands(ArrayRaster(labels[None], grid), [("height", cells)])
    objects = list(map_objects(result, layers=bands))
    low = list(kept(objects, [ObjectFilter("height", 0, HIGH)]))
    assert 0 < len(low) < len(objects)

    def drawn(several: list) -> np.ndarray:
        place = rasterio.Affine(*grid.affine)
        return rasterio.features.rasterize([o.polygon for o in several], labels.shape, transform=place).astype(bool)

    before, after = drawn(objects), drawn(low)
    rocky, grassland, eroded = elevation > HIGH, elevation < HIGH, truth != BACKGROUND
    assert (after & rocky & ~eroded).sum() < 0.1 * (before & rocky & ~eroded).sum(), "false positives on rocks fall"
    recall = [(one & eroded & grassland).sum() / (eroded & grassland).sum() for one in (before, after)]
    assert recall[1] == pytest.approx(recall[0], abs=0.01)
    assert recall[0] > 0.2


def test_filters_that_make_no_sense_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="a filter is LAYER:LOW:HIGH"):
        ObjectFilter.spelled("slope:steep")
    with pytest.raises(ValueError, match="with LOW up to HIGH"):
        ObjectFilter.spelled("slope:9:1")

    class Thing:
        means = {"slope": 1.0}

    with pytest.raises(ValueError, match="there is no layer 'slop' to filter by: did you mean 'slope'"):
        list(kept([Thing()], [ObjectFilter("slop", 0, 1)]))
    with pytest.raises(ValueError, match="there is no layer 'slope' to filter by, and none at all: give its raster"):
        check_filters([ObjectFilter("slope", 0, 1)], {})
