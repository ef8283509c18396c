"""Which ground is scored, and which ground the areas of several years are of."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from polariscope.mapping.apply import MapSettings, RasterMap, Sums
from polariscope.mapping.rasters import Grid
from polariscope.mapping.scene_maps import MapHow, MapResult, SceneMap
from polariscope.mapping.scenes import scene_of
from polariscope.mapping.tiles import MappedTiles, RasterTiles
from polariscope.mapping.trends import MapTrend, map_trend
from polariscope.worlds.splits import GroupSplit

SIDE = 64


def made(folder: Path, labels: np.ndarray, step: float = 10.0) -> RasterMap:
    """A finished map of these classes, 255 without data, whose probabilities are 1 for the class."""
    folder.mkdir()
    labels.astype(np.uint8).tofile(folder / "classes.bin")
    shares = np.stack([np.where(labels == 255, 255, 250 * (labels == c)) for c in range(2)]).astype(np.uint8)
    shares.tofile(folder / "probabilities.bin")
    pixels = tuple(np.bincount(labels[labels != 255], minlength=2).tolist())
    whole = Sums(pixels, tuple(map(float, pixels)), int((labels != 255).sum()))
    return RasterMap(folder, labels.shape, 2, MapSettings(1), Grid.plain(step), whole)


def trend_of(maps: dict[int, RasterMap]) -> MapTrend:
    scenes = [
        SceneMap(scene_of(Path(f"v_{year}.tif")), one, ("erosion", "background"), one.folder, None, ())
        for year, one in maps.items()
    ]
    return map_trend(MapResult(None, scenes, MapHow()))  # type: ignore[arg-type]


def test_missing_ground_is_no_trend(tmp_path: Path) -> None:
    """The same map in three years, of which later images end earlier."""
    erosion = (np.random.default_rng(0).random((100, 100)) < 0.9).astype(int)
    maps = {}
    for year, share in ((2000, 1.0), (2008, 0.75), (2016, 0.5)):
        labels = np.where(np.arange(100)[:, None] < 100 * share, erosion, 255)
        maps[year] = made(tmp_path / str(year), labels)
    result = trend_of(maps)
    assert result.headline.startswith("Mapped area: v, 2000 to 2016: +0 %")
    (region,) = result.regions
    here = (erosion[:50] == 0).sum() * 100 / 1e4
    np.testing.assert_allclose(region.mapped[:, 0], here)
    np.testing.assert_allclose(region.full[:, 0], here)
    assert "the 50 ha that have data in every year (2000: 100 ha, 2008: 75 ha, 2016: 50 ha)" in result.notes[0]
    whole = trend_of(dict.fromkeys((2000, 2016), maps[2000]))
    assert not any("ground" in note or "data" in note for note in whole.notes)


def test_ground_that_cannot_be_compared_is_in_the_headline(tmp_path: Path) -> None:
    erosion = np.zeros((100, 100), int)
    result = trend_of({2000: made(tmp_path / "a", erosion), 2016: made(tmp_path / "b", erosion[:50])})
    assert result.headline.endswith("(of different ground, see the notes).")
    assert "cover different ground (2000: 100 ha, 2016: 50 ha)" in result.notes[0]


@pytest.fixture
def valley(tmp_path: Path) -> Path:
    """A mask with a class in its upper left quarter only."""
    rasterio = pytest.importorskip("rasterio")
    about = {"driver": "GTiff", "height": SIDE, "width": SIDE, "crs": "EPSG:2056"}
    about["transform"] = rasterio.Affine(1, 0, 2_600_000, 0, -1, 1_200_000)
    pixels = np.random.default_rng(0).integers(1, 255, (3, SIDE, SIDE), dtype=np.uint8)
    classes = np.full((1, SIDE, SIDE), 2, np.uint8)
    classes[:, : SIDE // 2, : SIDE // 2] = 1
    for folder, values in (("images", pixels), ("labels", classes)):
        os.makedirs(tmp_path / folder)
        with rasterio.open(tmp_path / folder / "a_2016.tif", "w", count=len(values), dtype="uint8", **about) as file:
            file.write(values)
    (tmp_path / "classes.toml").write_text('background = "rest"\n[classes]\nerosion = 1\nrest = 2\n')
    return tmp_path


def test_tiles_of_background_are_held_out_although_none_is_trained_on(valley: Path) -> None:
    tiles = RasterTiles(str(valley), 8)
    split = GroupSplit("place", 0.5)
    plain, mapped = split.parts(tiles), MappedTiles(split).parts(tiles)
    classes = tiles.table.counts.argmax(1)
    assert set(classes[plain.train]) == {0, 1}
    assert set(classes[mapped.train]) == {0}
    assert set(mapped.train) == {n for n in plain.train if classes[n] == 0}
    np.testing.assert_array_equal(mapped.held_out, plain.held_out)
    background = np.flatnonzero(classes == 1)
    only = dataclasses.replace(split, share=0.4)
    assert len(background) == 48
    assert set(classes[MappedTiles(only).parts(tiles).held_out]) == {0, 1}


def test_overlapping_tiles_own_their_centres(valley: Path) -> None:
    """With valid convolutions a tile is read with its margins, which are the centres of its neighbours."""
    tiles = RasterTiles(str(valley), 16, 8)
    seen = np.zeros((SIDE, SIDE), int)
    for n in range(len(tiles)):
        rows, columns, inner = tiles.own_ground(n)
        seen[rows, columns] += 1
        assert tiles.target_of([n])[0][inner, inner].shape == (8, 8)
    assert seen.max() == 1
    assert (seen[4:-4, 4:-4] == 1).all()
    rows, columns, inner = RasterTiles(str(valley), 16).own_ground(1)
    assert (rows, columns, inner) == (slice(0, 16), slice(16, 32), slice(0, 16))


def test_large_label_values_are_classes_of_their_own(valley: Path) -> None:
    """In six digits, 1110001 and 1110002 are the same number."""
    rasterio = pytest.importorskip("rasterio")
    file = valley / "labels" / "a_2016.tif"
    with rasterio.open(file) as before:
        about, values = before.profile | {"dtype": "uint32"}, before.read().astype(np.uint32) + 1110000
    with rasterio.open(file, "w", **about) as after:
        after.write(values)
    (valley / "classes.toml").unlink()
    tiles = RasterTiles(str(valley), 16)
    assert tiles.legend.names == ("1110001", "1110002", "background")
    assert tiles.table.counts.sum(0).tolist() == [SIDE**2 / 4, 3 * SIDE**2 / 4, 0]
