"""``polariscope worlds show`` on files: what they hold, what was assumed, and a picture of any size of image."""

import json

import numpy as np
import pytest
from PIL import Image

from polariscope.cli import main
from polariscope.report.contact_sheet import contact_sheet
from polariscope.worlds import ArrayWorld

IMAGES = np.random.default_rng(0).integers(0, 2, (7, 8, 20)).astype(bool)


@pytest.fixture
def show(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        assert main(["worlds", "show", *words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_what_was_assumed_about_a_file_is_shown(show, tmp_path) -> None:
    np.savez("a.npz", images=IMAGES, labels=np.array([-1, 1, 1, -1, 1, 1, -1]))
    lines = show("a.npz").splitlines()
    assert lines[0] == "observations of 1x8x20; label (2 values, categorical)"
    assert "note: Pixels go from 0 to 1: 1 is taken as white." in lines
    assert "note: The kinds of factors are inferred from their values: label as categorical (2 values)." in lines
    assert lines[-1] == "7 of 7 observations of a.npz in world.png"
    result = json.loads(show("a.npz", "--json", "--world.kinds", "label", "ordinal", "--world.white", "2"))
    assert result["factors"] == ["label (2 values, ordinal)"]
    assert result["assumed"] == ["Observations are 'images' and factors 'labels'."]
    assert np.asarray(Image.open(tmp_path / "world.png")).max() == 128


def test_points_are_told_of_and_not_drawn(show, tmp_path) -> None:
    np.savez("a.npz", x=np.zeros((7, 3)), y=np.arange(7) / 2)
    out = show("a.npz")
    assert "observations of 3; label (continuous)" in out
    assert "nothing to draw" in out
    assert json.loads(show("gaussian", "--json"))["out"] is None
    assert not (tmp_path / "world.png").exists()


def test_a_sheet_of_images_that_are_not_square() -> None:
    sheet = np.asarray(contact_sheet(ArrayWorld(IMAGES), 2, 5, seed=0, gap=0)[0])
    assert sheet.shape == (2 * 8 * 8, 5 * 20 * 8), "two rows for seven images, each pixel eight wide"
    tiles = sheet[::8, ::8].reshape(2, 8, 5, 20).transpose(0, 2, 1, 3).reshape(10, 8, 20)
    shown = {tile.tobytes() for tile in tiles[:7]}
    assert shown == {(image * np.uint8(255)).tobytes() for image in IMAGES}, "every image once"
    assert (tiles[7:] == 96).all()


def test_large_images_are_shrunk_one_at_a_time() -> None:
    asked = []

    class Large(ArrayWorld):
        def observe(self, index):
            asked.append(len(index))
            return super().observe(index)

    world = Large(np.broadcast_to(np.uint8(200), (9, 600, 900, 3)))
    sheet = np.asarray(contact_sheet(world, 2, 3, seed=0)[0])
    assert sheet.shape == (2 * 87, 3 * 130, 3)
    assert (sheet[2:87, 2:130] == 200).all()
    assert (sheet[:, [0, 1, 130, 131]] == 96).all(), "the gaps are left"
    assert asked == [1] * 6
