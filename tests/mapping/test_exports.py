"""Objects joined across strips, and files that independent readers open."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from polariscope.mapping.apply import MapSettings, RasterMap, Sums
from polariscope.mapping.change import change_of
from polariscope.mapping.exports import write_geotiff, write_npy, write_objects
from polariscope.mapping.objects import regions
from polariscope.mapping.pictures import write_heat_picture, write_map_picture
from polariscope.mapping.polygons import map_objects
from polariscope.mapping.rasters import Grid, open_raster

rasterio = pytest.importorskip("rasterio")
pyogrio = pytest.importorskip("pyogrio")
NAMES = ("landslide", "trail", "background")


def wkt(code: int = 2056) -> str:
    return rasterio.crs.CRS.from_epsg(code).to_wkt()


def finished(folder: Path, labels: np.ndarray, crs: str = "") -> RasterMap:
    labels.astype(np.uint8).tofile(folder / "classes.bin")
    shares = np.stack([np.where(labels == c, 200, 25) for c in range(3)]).astype(np.uint8)
    shares.tofile(folder / "probabilities.bin")
    grid = Grid(0.5, 2_690_000.0, -0.5, 1_160_000.0, crs)
    pixels = tuple(np.bincount(labels[labels < 3].ravel(), minlength=3).tolist())
    return RasterMap(folder, labels.shape, 3, MapSettings(2), grid, Sums(pixels, (0.0,) * 3, labels.size))


@pytest.fixture
def labels() -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = rng.choice(3, (20, 15), p=(0.25, 0.25, 0.5))
    out = np.kron(coarse, np.ones((5, 5), int))
    out[::7] = rng.choice(3, out[::7].shape)  # ragged, with bridges
    out[:, 40:43] = 0  # one object from top to bottom
    out[60:70, 60:70] = 255
    return out


def described(objects: list) -> list[tuple]:
    rows = [(o.label, o.pixels, round(o.perimeter, 6), round(o.means["row"], 6), o.polygon.bounds) for o in objects]
    return sorted(rows)


@pytest.mark.spec("000/F045")
@pytest.mark.parametrize("strip", [1, 7, 33])
def test_objects_do_not_depend_on_the_strip(tmp_path: Path, labels: np.ndarray, strip: int) -> None:
    result = finished(tmp_path, labels)
    layers = {"row": np.broadcast_to(np.arange(100.0)[:, None], labels.shape)}
    whole = list(map_objects(result, least=0, layers=layers, strip=1000))
    parts = list(map_objects(result, least=0, layers=layers, strip=strip))
    drawn = np.where(labels == 255, 2, labels)
    assert len(whole) == regions(drawn, 2).max()
    assert described(parts) == described(whole)
    assert sum(one.area for one in parts) == pytest.approx((drawn != 2).sum() * 0.25)
    for one in parts:
        assert one.polygon.is_valid
        assert one.polygon.area == pytest.approx(one.area)
        assert one.probability == pytest.approx(0.8)


@pytest.mark.spec("000/F045")
def test_small_objects_are_dropped_after_joining(tmp_path: Path) -> None:
    labels = np.full((40, 40), 2)
    labels[8:12, 0:4] = 0  # 16 pixels, 4 m², across the border of two strips
    labels[20:23, 0:5] = 1  # 15 pixels
    kept = list(map_objects(finished(tmp_path, labels), strip=10))
    assert [(one.label, one.pixels) for one in kept] == [(0, 16)]


def test_the_geotiff_opens_with_its_place_colours_and_gaps(tmp_path: Path, labels: np.ndarray) -> None:
    result = finished(tmp_path, labels, wkt())
    path = write_geotiff(result, tmp_path / "map.tif", NAMES)
    with rasterio.open(path) as file:
        assert file.crs.to_epsg() == 2056
        assert file.transform[:6] == (0.5, 0, 2_690_000, 0, -0.5, 1_160_000)
        assert (file.read(1) == labels).all()
        assert file.nodata == 255
        assert file.colormap(1)[0][:3] == (214, 62, 52)
        assert file.tags()["class_1"] == "trail"
        assert file.profile["compress"] == "deflate"
    bands = write_geotiff(result, tmp_path / "p.tif", NAMES, probabilities=True)
    with rasterio.open(bands) as file:
        assert file.count == 3
        assert file.descriptions == NAMES
        assert (file.read() == result.probabilities).all()
    again = open_raster(path)
    assert again.grid == result.grid or again.grid.affine == result.grid.affine
    assert (again.read(5, 7, 20, 30)[0] == labels[5:25, 7:37]).all()
    with pytest.raises(ValueError, match="already exists"):
        write_geotiff(result, path, NAMES)


@pytest.mark.parametrize("probabilities", [False, True])
def test_a_large_geotiff_has_overviews_and_colours(tmp_path: Path, probabilities: bool) -> None:
    labels = np.full((1100, 1300), 2)
    labels[200:600, 300:900], labels[:64] = 1, 255
    path = write_geotiff(finished(tmp_path, labels, wkt()), tmp_path / "a.tif", NAMES, probabilities=probabilities)
    with rasterio.open(path) as file:
        assert all(file.overviews(band) == [2, 4] for band in file.indexes)
        assert file.block_shapes[0] == (256, 256)
        if not probabilities:
            assert file.colormap(1)[1] == (240, 200, 40, 255)
            assert file.colormap(1)[2] == (255, 255, 255, 255)
            assert file.colormap(1)[255][3] == 0, "one sees through what has no data"
    with rasterio.open(path, overview_level=1) as file:
        assert file.shape == (275, 325)
        small = file.read()
        if probabilities:
            assert small[:, 100, 150].tolist() == [25, 200, 25]
        else:
            np.testing.assert_array_equal(small[0], labels[2::4, 2::4])
            assert file.colormap(1)[1] == (240, 200, 40, 255)


@pytest.mark.parametrize("suffix", [".gpkg", ".shp", ".geojson"])
def test_objects_open_in_an_independent_reader(tmp_path: Path, labels: np.ndarray, suffix: str) -> None:
    result = finished(tmp_path, labels, wkt())
    objects = list(map_objects(result))
    path = tmp_path / f"objects{suffix}"
    assert write_objects(iter(objects), path, result.grid.crs, NAMES) == len(objects)
    about, _, geometries, columns = pyogrio.raw.read(path)
    table = dict(zip(about["fields"], columns, strict=True))
    assert len(geometries) == len(objects)
    assert sorted(table["Area_m2"]) == pytest.approx(sorted(one.area for one in objects))
    assert set(table["Name"]) == {"landslide", "trail"}
    left, bottom, right, top = pyogrio.read_info(path)["total_bounds"]
    if suffix == ".geojson":
        assert 5 < left < right < 11
        assert 45 < bottom < top < 48, "Switzerland, in degrees"
        assert json.loads(path.read_text())["features"][0]["geometry"]["type"] == "Polygon"
    else:
        assert 2_690_000 <= left < right <= 2_690_037.5


def test_an_object_without_data_in_a_layer_has_no_number_there(tmp_path: Path, labels: np.ndarray) -> None:
    result = finished(tmp_path, labels, wkt())
    objects = list(map_objects(result, layers={"slope": np.full(labels.shape, np.nan)}))
    write_objects(objects, tmp_path / "objects.geojson", result.grid.crs, NAMES)
    assert json.loads((tmp_path / "objects.geojson").read_text())["features"][0]["properties"]["slope"] is None


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="pages of a mapped file are counted by Linux")
def test_exports_release_the_pages_of_the_map(tmp_path: Path) -> None:
    """Otherwise the memory of a process grows with the raster."""
    result = finished(tmp_path, np.kron(np.arange(3)[:, None], np.ones((600, 1200), int)), wkt())

    def resident() -> int:
        ours, kilobytes = False, 0
        for line in Path("/proc/self/smaps").read_text().splitlines():
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                ours = str(tmp_path) in line
            elif words[0] == "Rss:" and ours:
                kilobytes += int(words[1])
        return kilobytes

    assert result.labels.sum() > 0
    assert result.probabilities.sum() > 0
    assert resident() > 8000, "the two files have 8.6 MB"
    for write in (
        lambda: write_geotiff(result, tmp_path / "map.tif", NAMES),
        lambda: write_geotiff(result, tmp_path / "p.tif", NAMES, probabilities=True),
        lambda: write_npy(result, tmp_path / "p.npy", probabilities=True),
        lambda: write_objects(map_objects(result), tmp_path / "o.gpkg", result.grid.crs, NAMES),
        lambda: change_of(result, result, NAMES),
        lambda: write_map_picture(result, None, NAMES, tmp_path / "map.png", "a map"),
        lambda: write_heat_picture(result, None, tmp_path / "heat.png", "a map"),
    ):
        write()
    assert resident() < 600


@pytest.mark.parametrize("suffix", [".gpkg", ".shp", ".geojson"])
def test_a_map_without_objects_is_a_file_with_its_columns(tmp_path: Path, suffix: str) -> None:
    result = finished(tmp_path, np.full((40, 40), 2), wkt())
    path = tmp_path / f"objects{suffix}"
    assert write_objects(map_objects(result), path, result.grid.crs, NAMES, ["slope"]) == 0
    about = pyogrio.read_info(path)
    assert about["features"] == 0
    if suffix == ".geojson":
        assert json.loads(path.read_text()) == {"type": "FeatureCollection", "features": []}
    else:
        kinds = dict(zip(about["fields"], about["dtypes"], strict=True))
        assert kinds == {"Class": "int64", "Name": "object", "Area_m2": "float64", "Perim_m": "float64",
                         "MeanProb": "float64", "slope": "float64"}  # fmt: skip
        assert about["geometry_type"] == "Polygon"
        assert about["crs"] == "EPSG:2056"


def test_layers_that_begin_alike_have_a_column_each(tmp_path: Path, labels: np.ndarray) -> None:
    result = finished(tmp_path, labels, wkt())
    layers = {f"infrared{year}": np.full(labels.shape, float(year)) for year in (2016, 2017)}
    write_objects(map_objects(result, layers=layers), tmp_path / "objects.shp", result.grid.crs, NAMES)
    about, _, _, columns = pyogrio.raw.read(tmp_path / "objects.shp")
    table = dict(zip(about["fields"], columns, strict=True))
    assert set(table["infrared20"]) == {2016.0}
    assert set(table["infrared22"]) == {2017.0}


def test_rasters_that_cannot_be_mapped_are_refused_in_a_sentence(tmp_path: Path) -> None:
    def written(name: str, crs: str | None, transform: tuple) -> Path:
        path = tmp_path / name
        profile = {"driver": "GTiff", "height": 40, "width": 40, "count": 1, "dtype": "uint8"}
        with rasterio.open(path, "w", crs=crs, transform=rasterio.Affine(*transform), **profile) as file:
            file.write(np.zeros((1, 40, 40), np.uint8))
        return path

    square = (0.5, 0, 2.69e6, 0, -0.5, 1.16e6)
    for name, crs, transform, words in (
        ("none.tif", None, square, "has no coordinate system"),
        ("degrees.tif", "EPSG:4326", (1e-5, 0, 8, 0, -1e-5, 46), "is in degrees"),
        ("turned.tif", "EPSG:2056", (0.4, 0.3, 2.69e6, 0.3, -0.4, 1.16e6), "do not run from west to east"),
        ("oblong.tif", "EPSG:2056", (0.5, 0, 2.69e6, 0, -1.0, 1.16e6), "0.5 x 1 m, and square ones are needed"),
    ):
        with pytest.raises(ValueError, match=words):
            open_raster(written(name, crs, transform))
    whole = written("good.tif", "EPSG:2056", square)
    assert open_raster(whole).shape == (1, 40, 40)
    cut = tmp_path / "cut.tif"
    cut.write_bytes(whole.read_bytes()[:200])
    with pytest.raises(ValueError, match="cut.tif"):
        open_raster(cut).read(0, 0, 40, 40)


@pytest.mark.parametrize("name", ["map.tif", "objects.gpkg", "objects.shp"])
@pytest.mark.parametrize("how", ["raised", "by the text", "silent"])
def test_a_full_disk_is_one_sentence_and_leaves_no_half_file(
    tmp_path: Path, labels: np.ndarray, name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GDAL raises errors of its own, some of which do not say why, and none at all when a file is closed."""
    result = finished(tmp_path, labels, wkt())
    out = tmp_path / "out" / name
    open_file, write_file = rasterio.open, pyogrio.raw.write
    says = "No space left on device" if how == "by the text" else "Write failed. See previous exception for details."

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fails(error: Exception, usual):
        def write(path: Path, *words: object, **more: object) -> object:
            if how == "silent":
                return usual(path, *words, **more)
            Path(path).write_bytes(b"half")
            raise error

        return write

    if how != "by the text":
        monkeypatch.setattr(os, "posix_fallocate", no_room)
    monkeypatch.setattr(rasterio, "open", fails(rasterio.errors.RasterioIOError(says), open_file))
    monkeypatch.setattr(pyogrio.raw, "write", fails(pyogrio.errors.FeatureError(says), write_file))
    with pytest.raises(OSError, match=rf"^the disk is full: .*{name} could not be written"):
        if name == "map.tif":
            write_geotiff(result, out, NAMES)
        else:
            write_objects(map_objects(result), out, result.grid.crs, NAMES)
    assert list(out.parent.iterdir()) == []


def test_a_file_that_cannot_be_written_for_another_reason_is_named(
    tmp_path: Path, labels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise pyogrio.errors.DataSourceError("the layer is locked")

    monkeypatch.setattr(pyogrio.raw, "write", fails)
    result = finished(tmp_path, labels, wkt())
    with pytest.raises(OSError, match=r"objects.gpkg: the file could not be written: the layer is locked"):
        write_objects(map_objects(result), tmp_path / "objects.gpkg", result.grid.crs, NAMES)
