"""Labels from polygons, rasters and colours, areas of interest, and every bad input in a sentence."""

from pathlib import Path

import numpy as np
import pytest

from polariscope.mapping.labels import Clipped, legend_of, open_labels, read_legend
from polariscope.mapping.rasters import ArrayRaster, Grid, TerrainLayers
from polariscope.mapping.scenes import SceneFolder, scene_of
from polariscope.mapping.terrain import terrain

rasterio = pytest.importorskip("rasterio")
pyogrio = pytest.importorskip("pyogrio")
shapely = pytest.importorskip("shapely")
CORNER = (2_690_000.0, 1_160_000.0)


def image(height: int = 60, width: int = 80, pixel: float = 0.5) -> ArrayRaster:
    wkt = rasterio.crs.CRS.from_epsg(2056).to_wkt()
    grid = Grid(pixel, CORNER[0], -pixel, CORNER[1], wkt)
    return ArrayRaster(np.ones((3, height, width), np.uint8), grid)


def write(path: Path, shapes: list, names: list, field: str = "Class", crs: str | None = "EPSG:2056") -> Path:
    driver = {".gpkg": "GPKG", ".shp": "ESRI Shapefile", ".geojson": "GeoJSON"}[path.suffix]
    pyogrio.raw.write(
        path, np.array([shapely.to_wkb(s) for s in shapes], dtype=object), [np.array(names, dtype=object)], [field],
        driver=driver, geometry_type="Unknown" if path.suffix == ".gpkg" else "Polygon", crs=crs,
    )  # fmt: skip
    return path


def blob(east: float, south: float, radius: float):
    return shapely.Point(CORNER[0] + east, CORNER[1] - south).buffer(radius, quad_segs=32)


@pytest.mark.spec("000/F119")
@pytest.mark.parametrize("suffix", [".gpkg", ".shp"])
def test_polygons_become_pixels_of_the_same_area(tmp_path: Path, suffix: str) -> None:
    shapes = [blob(10, 10, 6.3), blob(28, 15, 8.1)]
    path = write(tmp_path / f"l{suffix}", shapes, ["trail", "landslide"], "kind")
    legend = legend_of([path], "kind")
    assert legend.names == ("landslide", "trail", "background")
    labels = open_labels(path, image(), legend)
    whole = labels.read(0, 0, 60, 80)
    for name, shape in (("trail", shapes[0]), ("landslide", shapes[1])):
        mask = whole == legend.names.index(name)
        assert abs(mask.sum() * 0.25 - shape.area) <= shape.length * 0.5, "within one pixel of the perimeter"
        pixels = rasterio.features.shapes(
            mask.astype(np.uint8), mask=mask, transform=rasterio.Affine(*image().grid.affine)
        )
        back = shapely.union_all([shapely.geometry.shape(geometry) for geometry, _ in pixels])
        assert abs(back.area - shape.area) <= shape.length * 0.5
        assert back.symmetric_difference(shape).area <= shape.length * 0.5
    np.testing.assert_array_equal(labels.read(7, 11, 30, 40), whole[7:37, 11:51])


def test_labels_in_other_coordinates_are_brought_to_the_image(tmp_path: Path) -> None:
    shape = blob(20, 15, 8)
    there = write(tmp_path / "a.gpkg", [shape], ["soil"])
    x, y = rasterio.warp.transform("EPSG:2056", "EPSG:4326", *shape.exterior.xy)
    degrees = write(tmp_path / "b.geojson", [shapely.Polygon(list(zip(x, y, strict=True)))], ["soil"], crs="EPSG:4326")
    legend = legend_of([there])
    first, second = (open_labels(path, image(), legend).read(0, 0, 60, 80) for path in (there, degrees))
    assert (first != second).mean() < 0.005
    assert (first == 0).sum() > 500


def test_raster_and_colour_labels(tmp_path: Path) -> None:
    values = np.zeros((60, 80), np.uint8)
    values[10:20, 10:30], values[40:, :5] = 3, 255
    with rasterio.open(tmp_path / "l.tif", "w", driver="GTiff", height=60, width=80, count=1, dtype="uint8", nodata=255,
                       crs="EPSG:2056", transform=rasterio.Affine(*image().grid.affine)) as file:  # fmt: skip
        file.write(values[None])
    legend = legend_of([tmp_path / "l.tif"])
    assert legend.names == ("3", "background")
    result = open_labels(tmp_path / "l.tif", image(), legend).read(0, 0, 60, 80)
    assert (result[10:20, 10:30] == 0).all()
    assert (result[:10] == 1).all(), "0 is the background of a raster that does not name it"
    assert (result[40:, :5] == -1).all()
    from PIL import Image

    colours = np.zeros((60, 80, 3), np.uint8)
    colours[:30], colours[30:40] = (60, 16, 152), (155, 155, 155)
    Image.fromarray(colours).save(tmp_path / "m.png")
    (tmp_path / "classes.toml").write_text('[classes]\nbuilding = "#3C1098"\nblack = "#000000"\n')
    legend = read_legend(tmp_path / "classes.toml")
    assert legend.outside == -1
    result = open_labels(tmp_path / "m.png", image(), legend).read(20, 0, 30, 80)
    assert [int(v) for v in (result[0, 0], result[15, 0], result[25, 0])] == [0, -1, 1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: write(p / "l.gpkg", [blob(9, 9, 3)], ["soil"], crs=None), "have no coordinate system"),
        (
            lambda p: write(p / "l.gpkg", [shapely.Polygon([(0, 0), (9, 9), (9, 0), (0, 9)])], ["soil"]),
            "polygon 1 is not valid .Self-intersection",
        ),
        (lambda p: write(p / "l.gpkg", [blob(9, 9, 3)], ["soil"], "what"), "an attribute that names the class"),
        (lambda p: write(p / "l.gpkg", [blob(9, 9, 3)], ["rock"]), "class 'rock' is not known; the classes are"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bad_polygons_are_one_sentence(tmp_path: Path, make, words: str) -> None:
    legend = legend_of([write(tmp_path / "good.gpkg", [blob(9, 9, 3)], ["soil"])])
    with pytest.raises(ValueError, match=words):
        open_labels(make(tmp_path), image(), legend).read(0, 0, 60, 80)


def test_bad_folders_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder with images/ and labels/"):
        _ = SceneFolder(tmp_path).scenes
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "images" / "a_2000.tif").write_bytes(b"II*\0")
    with pytest.raises(ValueError, match="no label file with the name of an image"):
        _ = SceneFolder(tmp_path).labelled
    (tmp_path / "labels" / "b.gpkg").write_bytes(b"")
    with pytest.raises(ValueError, match="there is no image of this name"):
        _ = SceneFolder(tmp_path).scenes
    with pytest.raises(ValueError, match="a_2000.tif: expected a GeoTIFF"):
        scene_of(tmp_path / "images" / "a_2000.tif").open()
    (tmp_path / "classes.toml").write_text("colour = 1")
    with pytest.raises(ValueError, match="expected background, field and a table"):
        read_legend(tmp_path / "classes.toml")
    assert (scene_of(Path("urseren_2016.tif")).region, scene_of(Path("urseren_2016.tif")).year) == ("urseren", 2016)


def test_an_area_of_interest_clips_the_map_and_not_what_the_network_sees(tmp_path: Path) -> None:
    path = write(tmp_path / "area.gpkg", [blob(20, 15, 10)], ["x"])
    clipped = Clipped(image(), path)
    inside = clipped.inside(0, 0, 60, 80)
    assert inside.sum() * 0.25 == pytest.approx(np.pi * 100, rel=0.02)
    np.testing.assert_array_equal(clipped.inside(10, 20, 30, 40), inside[10:40, 20:60])
    assert (clipped.read(0, 0, 60, 80) == 1).all()


@pytest.mark.spec("000/F039")
def test_terrain_of_a_window_is_that_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    z = np.cumsum(np.cumsum(rng.normal(size=(1, 40, 50)), 1), 2).astype(np.float32)
    layers = TerrainLayers(ArrayRaster(z, Grid(2.0, 0.0, -2.0, 80.0)))
    whole = layers.read(0, 0, 40, 50)
    np.testing.assert_array_equal(layers.read(7, 11, 20, 30), whole[:, 7:27, 11:41])
    np.testing.assert_array_equal(layers.read(0, 0, 10, 50), whole[:, :10])
    result = terrain(z[0], 2.0)
    np.testing.assert_allclose(whole[1], result.slope, rtol=1e-5)
    np.testing.assert_allclose(np.hypot(whole[2], whole[3]), 1, rtol=1e-5)
