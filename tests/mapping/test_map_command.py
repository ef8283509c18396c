"""From a folder of GeoTIFFs and polygons to maps, hectares and a trend, through the command line."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from polariscope.cli import main
from polariscope.findings import Records
from polariscope.lab.store import Run, Store
from polariscope.mapping.example import CORNER, write_example
from polariscope.mapping.scene_maps import MapHow, map_scenes, read_how
from polariscope.mapping.scenes import SceneFolder, scene_of
from polariscope.mapping.scores import Agreement
from polariscope.mapping.tiles import RasterTiles, tiles_inside
from polariscope.mapping.whole import evaluate_run
from polariscope.strict_json import json_text
from polariscope.training.run import config_of, load_model
from polariscope.worlds.renderers.aerial import Aerial

rasterio = pytest.importorskip("rasterio")
pyogrio = pytest.importorskip("pyogrio")
shapely = pytest.importorskip("shapely")
WORLD = Aerial(valleys=1, tiles=8, years=(2000, 2010, 2016), size=48, labels="analysed")
QUICK = ["--size", "32", "--root", "2", "--batch-size", "2", "--threshold", "0.2", "--hold-out", "places", "--share",
         "0.4", "--json"]  # fmt: skip


pytestmark = pytest.mark.xdist_group("map-command")  # the map is made once, and each test goes on with it


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valley of which the last year has no labels, mapped by one command."""
    place = tmp_path_factory.mktemp("map")
    write_example(place / "valley", WORLD, labelled=2)
    (place / "answer.json").write_text(said(place, ["map", "all", str(place / "valley"), "--steps", "6", *QUICK,
                                                    "--formats", "gpkg", "shp", "geojson"]))  # fmt: skip
    return place


def said(place: Path | None, words: list[str], code: int = 0) -> str:
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main([*words, *([] if place is None else ["--runs", str(place / "runs")])]) == code, err.getvalue()
    return out.getvalue() if code == 0 else err.getvalue()


def the_run(place: Path) -> Run:
    """The run of ``map all``: other tests leave runs without maps beside it."""
    (run,) = (run for run in Store(place / "runs").runs() if (run.path / "maps").exists())
    return run


def test_one_command_makes_maps_hectares_and_trend_that_others_can_open(place: Path) -> None:
    answer = json.loads((place / "answer.json").read_text())
    run = the_run(place)
    assert answer["headline"].startswith("Corrected area: valley0, 2000 to 2016")
    assert {row["year"] for row in answer["areas-by-year"]} == {2000, 2010, 2016}
    page = Path(answer["report"])
    assert page == run.path / "findings" / "map" / "report.html"
    html = page.read_text()
    assert 'src="map-valley0_2016.png"' in html, "beside the page, not in it"
    maps = run.path / "maps"
    assert (page.parent / "map-valley0_2016.png").stat().st_size > 10_000
    with (
        rasterio.open(maps / "valley0_2016" / "map.tif") as file,
        rasterio.open(place / "valley" / "images" / "valley0_2016.tif") as image,
    ):
        assert file.crs.to_epsg() == 2056
        assert file.transform == image.transform
        classes = file.read(1)
        assert (classes[:24, :24] == 255).all(), "nodata stays nodata"
        assert ((classes == 255) == (image.read() == 0).all(0)).all()
    rows = [row for row in answer["areas"] if row["scene"] == "valley0_2016"]
    hectares = {row["class"]: row["area"] for row in rows}
    for number, row in enumerate(rows):
        assert row["area"] * 1e4 == pytest.approx((classes == number).sum() * 0.25)
    assert sum(hectares.values()) * 1e4 == pytest.approx((classes != 255).sum() * 0.25)
    for suffix in ("gpkg", "shp", "geojson"):
        about = pyogrio.read_info(maps / "valley0_2016" / f"objects.{suffix}")
        assert {"Class", "Name", "Area_m2", "elevation", "slope"} <= set(about["fields"])
    with rasterio.open(maps / "change-valley0.tif") as file:
        change = file.read(1)
        assert set(np.unique(change)) <= {0, 1, 2, 3, 255}
    with rasterio.open(maps / "valley0_2000" / "map.tif") as file:
        before = file.read(1)
    assert ((change == 2) == ((before == 4) & (classes < 4))).all()


def test_undefined_scores_and_classes_without_labels_are_said(place: Path) -> None:
    run = the_run(place)
    maps = run.path / "maps"
    evaluation = evaluate_run(run, maps, read_how(maps) or MapHow())
    first = next(iter(evaluation.areas))
    areas = {
        name: dataclasses.replace(one, unknown=("trail", "sheet") if name == first else ("trail",), doubtful=())
        for name, one in evaluation.areas.items()
    }
    odd = dataclasses.replace(evaluation, objects=[("trail", Agreement(0, 0, 0))], areas=areas)
    (scores,) = (part for part in odd.parts() if part.name == "object-scores")
    assert scores.plain() == [{"class": "trail", "precision": None, "recall": None, "f1": None}]
    assert "NaN" not in json_text([part.plain() for part in odd.parts() if isinstance(part, Records)])
    assert len(areas) > 1
    assert any(note.endswith(f"were not corrected: sheet ({first}), trail.") for note in odd.notes)
    assert not any("too narrow for" in note for note in odd.notes)


@pytest.mark.spec("000/F054")
def test_figures_of_areas_increases_and_thresholds_are_files(place: Path) -> None:
    folder = the_run(place).path / "findings" / "map"
    for name in ("areas-valley0", "increases-valley0", "threshold-curves"):
        assert any(file.stat().st_size > 1000 for file in folder.glob(f"{name}.*")), name
    html = (folder / "report.html").read_text()
    assert "landslide" in html
    for name in ("threshold-curves", "training-curves"):
        assert html.count(f'<section id="{name}"') == 1, name
    from polariscope.report.mapping_figures import draw_heat

    shares = np.linspace(0, 1, 400).reshape(20, 20)
    heat = draw_heat(np.full((20, 20, 3), 0.5), shares, (0.3, 0.5), "landslide", (0.0, 0.0, 100.0, 100.0))
    assert any(text.get_text() == "20 m" for text in heat.axes[1].texts), "the scale bar"
    assert len(heat.axes) == 3
    assert [text.get_text() for text in heat.axes[0].get_legend().get_texts()] == ["threshold 0.3", "threshold 0.5"]
    assert (folder / "probability-valley0_2016.png").stat().st_size > 10_000


def test_the_same_command_again_finds_everything_done(place: Path) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in (the_run(place).path / "maps").rglob("*.bin")}
    said(place, ["map", "all", str(place / "valley"), "--steps", "6", *QUICK, "--formats", "gpkg", "shp", "geojson"])
    assert len(stamps) == 6
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert len(Store(place / "runs").runs()) == 1


def test_the_folder_by_another_name_is_the_same_training_and_map(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run finds its folder from any other."""
    stamps = {path: path.stat().st_mtime_ns for path in (the_run(place).path / "maps").rglob("*.bin")}
    monkeypatch.chdir(place)
    said(place, ["map", "all", "valley", "--steps", "6", *QUICK, "--formats", "gpkg", "shp", "geojson"])
    assert len(Store(place / "runs").runs()) == 1
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    monkeypatch.chdir(tmp_path)
    assert RasterTiles(config_of(the_run(place)).world.path, 32).folder.path.is_absolute()


def test_a_replaced_image_is_mapped_and_exported_again(place: Path, tmp_path: Path) -> None:
    image = tmp_path / "copy_2000.tif"
    image.write_bytes((place / "valley" / "images" / "valley0_2000.tif").read_bytes())
    heights = str(place / "valley" / "layers" / "heights.tif")
    words = ["map", "apply", the_run(place).id, str(image), "--layers", heights, "--threshold", "0.2", "--out",
             str(tmp_path / "out"), "--json"]  # fmt: skip
    answers = [json.loads(said(place, words))]
    with rasterio.open(image, "r+") as file:
        pixels = file.read()
        pixels[:, 50:, 50:] = 0
        file.write(pixels)
    answers.append(json.loads(said(place, words)))
    first, second = (sum(row["area"] for row in answer["areas"]) for answer in answers)
    assert second < first
    with rasterio.open(tmp_path / "out" / "maps" / "copy_2000" / "map.tif") as file:
        assert (file.read(1)[50:, 50:] == 255).all()


def test_maps_are_evaluated_and_followed_as_they_were_made(place: Path) -> None:
    """The threshold of the maps, 0.2, need not be said again."""
    run = the_run(place)
    answer = json.loads(said(place, ["map", "evaluate", run.id, "--json"]))
    assert answer["threshold"] == [0.2]
    config = config_of(run)
    tiles = config.split.parts(config.world).held_out
    assert answer["blocks"] == len(tiles)
    total = next(row for row in answer["pixel-scores"] if row["class"] == "all classes")
    maps = {year: rasterio.open(run.path / "maps" / f"valley0_{year}" / "map.tif").read(1) for year in (2000, 2010)}
    hits = mapped = 0
    for n in tiles:
        row, column = (int(getattr(config.world.table, side)[n]) for side in ("row", "column"))
        part = maps[(2000, 2010)[int(config.world.table.scene[n])]][row : row + 32, column : column + 32]
        truth = config.world.target_of([n])[0]
        mine = (part < 4) & (truth >= 0)
        hits, mapped = hits + (mine & (truth < 4)).sum(), mapped + mine.sum()
    assert float(total["precision"].split()[0]) == pytest.approx(hits / mapped, abs=6e-3), "a byte may round"
    answer = json.loads(said(place, ["map", "trend", run.id, str(place / "valley"), "--json"]))
    assert {row["class"] for row in answer["trend"]} >= {"all classes", "sheet"}


def test_normalisation_is_fixed_by_the_training_tiles_and_kept_with_the_run(place: Path) -> None:
    config = config_of(the_run(place))
    tiles = RasterTiles(str(place / "valley"), 32)
    train = config.split.parts(config.world).train
    mean, sd = tiles.statistics(train)
    np.testing.assert_allclose(config.model.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(config.model.sd, sd, rtol=1e-6)
    assert config.world.fill == tuple(mean.tolist())
    everything, _ = tiles.statistics(np.arange(len(tiles)))
    assert np.abs(everything - mean).max() > 0.01, "held-out tiles have no part in it"
    held_out = config.split.parts(config.world).held_out
    places = tiles.factors_of(np.arange(len(tiles)))[:, 2]
    assert not set(places[train]) & set(places[held_out]), "no place is in both, in any year"


@pytest.mark.spec("000/F114")
def test_a_run_goes_on_in_another_valley_with_a_further_band(place: Path, tmp_path: Path) -> None:
    """The further band begins at zero: before any training the prediction is that of the first run."""
    first = the_run(place)
    write_example(tmp_path / "new", Aerial(valleys=1, tiles=8, years=(2000,), size=48, labels="analysed", seed=7))
    with rasterio.open(tmp_path / "new" / "images" / "valley0_2000.tif") as file:
        profile, grey = file.profile, file.read(1)[None]
    (tmp_path / "new" / "layers").mkdir(exist_ok=True)
    with rasterio.open(tmp_path / "new" / "layers" / "infrared.tif", "w", **{**profile, "count": 1}) as file:
        file.write(grey)
    words = ["map", "train", str(tmp_path / "new"), "--steps", "1", "--size", "32", "--batch-size", "2", "--start",
             first.id, "--json", "--root", "2", "--share", "0.4", "--learning-rate", "1e-12"]  # fmt: skip
    answer = json.loads(said(place, words))
    wider = load_model(Store(place / "runs").open(answer["run"]))
    x = torch.rand(1, 10, 32, 32)
    order = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    with torch.no_grad():
        expected = load_model(first)(x[:, order])
        assert torch.allclose(wider(x), expected, atol=1e-4)
    again = json.loads(said(place, ["map", "train", str(place / "valley"), "--steps", "2", "--size", "32",
                                    "--batch-size", "2", "--root", "2", "--share", "0.4", "--start", first.id,
                                    "--json"]))  # fmt: skip
    assert [row["score"] for row in again["forgetting"]] == ["accuracy", "mean_iou"]
    assert again["forgetting"][0]["before"] == pytest.approx(first.result["held_out_accuracy"], abs=1e-6)


@pytest.mark.deep
def test_kill_9_in_the_middle_of_apply_goes_on_to_the_same_bytes(place: Path, tmp_path: Path) -> None:
    run = the_run(place)
    image = place / "valley"
    words = [sys.executable, "-m", "polariscope", "map", "apply", run.id, str(image), "--window", "12", "--json",
             "--runs", str(place / "runs"), "--threshold", "0.2", "--out", str(tmp_path / "killed")]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    journal = tmp_path / "killed" / "maps" / "valley0_2000" / "journal.jsonl"
    deadline = time.monotonic() + 300
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 5) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = journal.read_bytes().count(b"\n") - 1
    assert 0 < done < 128, "killed in the middle"
    scene = SceneFolder(image).scenes[0]
    seen: list[float] = []
    how = MapHow((0.2,), window=12)
    resumed = map_scenes(run, [scene], tmp_path / "killed" / "maps", how, lambda _, share: seen.append(share))
    assert len(seen) <= 128 - done + 1
    whole = map_scenes(run, [scene], tmp_path / "whole", how)
    for name in ("classes.bin", "probabilities.bin"):
        assert (resumed.maps[0].folder / name).read_bytes() == (whole.maps[0].folder / name).read_bytes()
    assert resumed.maps[0].map.sums == whole.maps[0].map.sums


def test_bad_input_is_one_sentence_on_the_command_line(place: Path, tmp_path: Path) -> None:
    run = the_run(place)
    good = place / "valley" / "images" / "valley0_2000.tif"
    with rasterio.open(good) as file:
        profile, pixels = file.profile, file.read()

    def raster(name: str, values: np.ndarray, **changes: object) -> str:
        about = {**profile, "count": len(values), "dtype": values.dtype, "height": values.shape[1],
                 "width": values.shape[2], **changes}  # fmt: skip
        if values.shape[1] < 256:
            about |= {"tiled": False, "blockxsize": None, "blockysize": None}
        about = {key: value for key, value in about.items() if value is not None}
        with rasterio.open(tmp_path / name, "w", **about) as opened:
            opened.write(values)
        return str(tmp_path / name)

    cut = tmp_path / "cut.tif"
    cut.write_bytes(good.read_bytes()[:3000])
    degrees = rasterio.Affine(1e-5, 0, 8, 0, -1e-5, 46)
    turned, oblong = (rasterio.Affine(a, b, 2.69e6, b, e, 1.16e6) for a, b, e in ((0.4, 0.3, -0.4), (0.5, 0, -1)))
    layers = ["--layers", str(place / "valley" / "layers" / "heights.tif")]
    for words, sentence in (
        ([raster("nowhere.tif", pixels, crs=None), *layers], "nowhere.tif: the raster has no coordinate system"),
        ([raster("degrees.tif", pixels, crs="EPSG:4326", transform=degrees), *layers], "is in degrees (EPSG:4326)"),
        ([raster("turned.tif", pixels, transform=turned), *layers], "rows do not run from west to east"),
        ([raster("oblong.tif", pixels, transform=oblong), *layers], "0.5 x 1 m, and square ones are needed"),
        ([raster("large.tif", pixels.astype(np.uint16) * 40), *layers],
         "large.tif has numbers of type uint16, and the run was trained on uint8"),
        ([raster("floats.tif", pixels / np.float32(255)), *layers],
         "floats.tif has numbers of type float, and the run was trained on uint8"),
        ([raster("bands.tif", pixels[:2]), *layers], "has 8 bands, and the run was trained on 9"),
        ([raster("small.tif", pixels[:, :20, :20]), *layers], "small.tif"),
        ([str(cut), *layers], "cut.tif: the file is damaged or cut off (rows 0 to 95 cannot be read)"),
        ([str(tmp_path / "none.tif"), *layers], "none.tif: expected a file that can be read"),
        ([str(good)], "has 3 bands, and the run was trained on 9"),
        ([str(good), *layers, "--formats", "kml"], "objects are written as gpkg, shp or geojson; got kml"),
        ([str(good), *layers, "--threshold", "2"], "expected one threshold from 0 to below 1"),
        ([str(good), *layers, "--only", "steep:1:2"], "there is no layer 'steep' to filter by: known: elevation"),
        ([str(good), *layers, "--least", "-1"], "the smallest object has -1 square metres: give a number from 0 on"),
    ):  # fmt: skip
        heard = said(place, ["map", "apply", run.id, *words, "--out", str(tmp_path / "out"), "--json"], code=2)
        assert sentence in heard
        assert heard.startswith("error: ")
        assert heard.count("\n") == 1
        assert not (tmp_path / "out" / "maps" / "valley0_2000").exists(), "refused before anything is mapped"
    heard = said(place, ["map", "apply", run.id, str(good), *layers, "--threshold", "0.4", "--json"], code=2)
    assert "holds another map, or the same with other settings" in heard
    empty = raster("empty_2000.tif", np.zeros_like(pixels))
    answer = json.loads(said(place, ["map", "apply", run.id, empty, *layers, "--out", str(tmp_path / "e"), "--json"]))
    assert [row["area"] for row in answer["areas"]] == [None] * 5, "nothing was found, and nothing was seen"
    assert answer["headline"] == "1 scene mapped: no pixel has data."
    assert "empty_2000: no pixel has data, so there are no areas." in answer["notes"]
    area = tmp_path / "area.gpkg"
    corner = shapely.box(0, 0, 100, 100)
    pyogrio.raw.write(
        area, np.array([shapely.to_wkb(corner)], object), [], [], geometry_type="Polygon", crs="EPSG:2056"
    )
    heard = said(place, ["map", "apply", run.id, str(good), *layers, "--area", str(area), "--out", str(tmp_path / "x")],
                 code=2)  # fmt: skip
    assert "area.gpkg: no polygon of the area of interest lies on" in heard
    assert heard.count("\n") == 1
    heard = said(place, ["map", "apply", run.id, str(place / "valley"), "--area", str(area)], code=2)
    assert "--area is for single images" in heard
    assert "there is no action 'aply'" in said(place, ["map", "aply"], code=2)
    assert "no image in" in said(place, ["map", "train", str(tmp_path)], code=2)
    assert scene_of(good).year == 2000


def test_bad_labels_and_mixed_images_are_one_sentence_on_the_command_line(place: Path, tmp_path: Path) -> None:
    def folder(name: str) -> Path:
        shutil.copytree(place / "valley", tmp_path / name)
        return tmp_path / name

    def refused(where: Path, sentence: str) -> None:
        heard = said(place, ["map", "train", str(where), "--steps", "2", *QUICK[:6]], code=2)
        assert sentence in heard
        assert heard.startswith("error: ")
        assert heard.count("\n") == 1

    def labelled(where: Path, polygon: object, name: str) -> None:
        path = where / "labels" / "valley0_2000.gpkg"
        path.unlink()
        pyogrio.raw.write(path, np.array([shapely.to_wkb(polygon)], object), [np.array([name], object)], ["Class"],
                          geometry_type="Polygon", crs="EPSG:2056")  # fmt: skip

    x, y = CORNER
    crossed, unknown, mixed, empty, cut = (folder(name) for name in ("crossed", "unknown", "mixed", "empty", "cut"))
    labelled(crossed, shapely.Polygon([(x, y), (x + 9, y - 9), (x + 9, y), (x, y - 9)]), "sheet")
    refused(crossed, "valley0_2000.gpkg: polygon 1 is not valid (Self-intersection")
    labelled(unknown, shapely.box(x, y - 20, x + 20, y), "lava")
    (unknown / "classes.toml").write_text('background = "background"\n[classes]\nsheet = "sheet"\n')
    refused(unknown, "valley0_2000.gpkg: class 'lava' is not known; the classes are")
    for where, year, change in ((mixed, 2010, lambda pixels: pixels.astype(np.uint16)), (empty, 0, np.zeros_like)):
        for image in sorted((where / "images").glob(f"*{year or ''}.tif")):
            with rasterio.open(image) as file:
                profile, pixels = file.profile, change(file.read())
            with rasterio.open(image, "w", **{**profile, "dtype": pixels.dtype}) as file:
                file.write(pixels)
    refused(mixed, "valley0_2010.tif has numbers of type uint16, and")
    refused(empty, "no tile of 32 pixels has both data and a label")
    image = cut / "images" / "valley0_2000.tif"
    image.write_bytes(image.read_bytes()[:3000])
    refused(cut, "valley0_2000.tif: the file is damaged or cut off")


def test_a_full_disk_and_a_missing_extra_are_one_sentence_on_the_command_line(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    image = str(place / "valley" / "images" / "valley0_2000.tif")
    apply = ["map", "apply", the_run(place).id, image, "--layers", str(place / "valley" / "layers" / "heights.tif"),
             "--out", str(tmp_path / "out")]  # fmt: skip
    example = ["map", "example", str(tmp_path / "new"), "--tiles", "4", "--size", "48"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_room)
        for heard in (said(place, apply, code=2), said(None, example, code=2)):
            assert heard.startswith("error: the disk is full: ")
            assert heard.count("\n") == 1
    assert not any((tmp_path / "new").iterdir()), "the same command can be given again"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "rasterio", None)
        for heard in (said(place, apply, code=2), said(None, example, code=2)):
            assert heard.startswith("error: GeoTIFFs and polygons need the library rasterio, which is not installed")
            assert heard.count("\n") == 1
    write_example(tmp_path / "new", dataclasses.replace(WORLD, tiles=4, years=(2000,)))


def test_integers_of_sixteen_bits_are_trained_on_and_mapped_as_they_are(tmp_path: Path) -> None:
    write_example(tmp_path / "v", Aerial(valleys=1, tiles=4, years=(2000,), size=48, labels="true"))
    (tmp_path / "v" / "layers" / "heights.tif").unlink()
    path = tmp_path / "v" / "images" / "valley0_2000.tif"
    with rasterio.open(path) as file:
        profile, pixels = file.profile, file.read()
    with rasterio.open(path, "w", **{**profile, "dtype": "uint16"}) as file:
        file.write(pixels.astype(np.uint16) * 40)
    words = ["map", "train", str(tmp_path / "v"), "--steps", "2", "--size", "32", "--batch-size", "2", "--root", "2",
             "--share", "0.4", "--sampling", "balanced", "--augment", "--weights", "--json"]  # fmt: skip
    run = Store(tmp_path / "runs").open(json.loads(said(tmp_path, words))["run"])
    config = config_of(run)
    assert max(config.model.mean) > 1000
    assert len(config.objective.weights) == len(config.world.of.of.legend.names)
    assert sum(config.objective.weights) == pytest.approx(1)
    maps = map_scenes(run, SceneFolder(tmp_path / "v").scenes, tmp_path / "maps", MapHow((0.5,)))
    assert maps.maps[0].map.settings.white == 1.0
    assert maps.maps[0].map.settings.weights == config.objective.weights, "which the map undoes"


def test_a_map_is_scored_as_it_was_made_at_any_threshold(place: Path, tmp_path: Path) -> None:
    """At 5 %, scores had been those of a map at 4 %."""
    run = the_run(place)
    said(place, ["map", "apply", run.id, str(place / "valley"), "--threshold", "0.05", "--out", str(tmp_path / "low"),
                 "--json"])  # fmt: skip
    answer = json.loads(said(place, ["map", "evaluate", run.id, "--out", str(tmp_path / "low"), "--json"]))
    assert answer["threshold"] == [0.05]
    config = config_of(run)
    tiles = tiles_inside(config.world)
    maps = {year: rasterio.open(tmp_path / "low" / "maps" / f"valley0_{year}" / "map.tif").read(1)
            for year in (2000, 2010)}  # fmt: skip
    hits = mapped = 0
    for n in config.split.parts(config.world).held_out:
        row, column = (int(getattr(tiles.table, side)[n]) for side in ("row", "column"))
        part = maps[(2000, 2010)[int(tiles.table.scene[n])]][row : row + 32, column : column + 32]
        truth = tiles.target_of([n])[0]
        mine = (part < 4) & (truth >= 0)
        hits, mapped = hits + (mine & (truth < 4)).sum(), mapped + mine.sum()
    total = next(row for row in answer["pixel-scores"] if row["class"] == "all classes")
    assert float(total["precision"].split()[0]) == pytest.approx(hits / mapped, abs=6e-4)
