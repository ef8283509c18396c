"""Maps of pictures without coordinates, where the extra ``[geo]`` is not installed."""

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polariscope.cli import main
from polariscope.mapping.example import _mosaic
from polariscope.worlds.renderers.aerial import Aerial

QUICK = ["--steps", "4", "--size", "32", "--root", "2", "--batch-size", "2", "--share", "0.4", "--threshold", "0.2"]
pytestmark = pytest.mark.xdist_group("plain-maps")  # one folder for all


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of two years, with masks as npy files."""
    place = tmp_path_factory.mktemp("plain")
    world = Aerial(valleys=1, tiles=8, years=(2000, 2016), size=48, labels="analysed")
    for name in ("images", "labels"):
        (place / name).mkdir()
    for number, year in enumerate(world.years):
        factors = np.column_stack([np.zeros(8, int), np.full(8, number), np.arange(8)])
        scene = world.scene(factors)
        Image.fromarray(np.moveaxis(_mosaic(scene.image[:, :3], 4), 0, 2)).save(place / "images" / f"v_{year}.png")
        classes = (_mosaic(scene.analysed[:, None], 4)[0] + 1) % 5  # 0 is the background
        np.save(place / "labels" / f"v_{year}.npy", classes.astype(np.uint8))
    return place


@pytest.fixture(autouse=True)
def no_geo(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rasterio", "pyogrio", "shapely"):
        monkeypatch.setitem(sys.modules, name, None)


def said(words: list[str], code: int = 0) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(words) == code, err.getvalue()
    return out.getvalue() if code == 0 else err.getvalue()


@pytest.mark.parametrize("pixel", [[], ["--pixel", "0.5"]])
def test_pictures_are_mapped_from_end_to_end_without_the_extra(place: Path, tmp_path: Path, pixel: list[str]) -> None:
    answer = json.loads(said(["map", "all", str(place), *QUICK, *pixel, "--runs", str(tmp_path), "--json"]))
    maps = Path(answer["maps"])
    for year in (2000, 2016):
        classes = np.load(maps / f"v_{year}" / "map.npy", mmap_mode="r")
        shares = np.load(maps / f"v_{year}" / "probabilities.npy", mmap_mode="r")
        assert classes.shape == (96, 192)
        assert shares.shape == (5, 96, 192)
        assert classes.tobytes() == (maps / f"v_{year}" / "classes.bin").read_bytes()
        assert shares.tobytes() == (maps / f"v_{year}" / "probabilities.bin").read_bytes()
        areas = [row["area"] for row in answer["areas"] if row["scene"] == f"v_{year}"]
        unit = 1 if not pixel else 0.25 / 1e4
        assert areas == pytest.approx(np.bincount(classes.ravel(), minlength=5) * unit)
    assert any("its map is map.npy" in note for note in answer["notes"])
    assert ("trend" in answer) == bool(pixel), "hectares need the size of a pixel"
    again = json.loads(said(["map", "all", str(place), *QUICK, *pixel, "--runs", str(tmp_path), "--json"]))
    assert again["areas"] == answer["areas"]
    for words, given in ((["--formats", "geojson"], "--formats geojson"), (["--only", "slope:1:2"], "--only")):
        heard = said(["map", "apply", answer["run"], str(place / "images" / "v_2016.png"), *words, *pixel, "--runs",
                      str(tmp_path), "--out", str(tmp_path / "out")], code=2)  # fmt: skip
        assert "v_2016.png has no coordinates, so its map has no objects as polygons" in heard
        assert heard.endswith(f"leave out {given}\n")
        assert not (tmp_path / "out").exists()
