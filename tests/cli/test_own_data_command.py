"""Data of the user's own on the command line: it has its name, its shape and its own split."""

import json

import numpy as np
import pytest

from polariscope import Store
from polariscope.examination.examination import said_of
from polariscope.lab.listing import summary
from polariscope.lab.store import write_record
from polariscope.training.run import config_of

QUICK = ["--model.latents", "2", "--training.steps", "2", "--training.batch-size", "8", "--model.architecture", "mlp"]
ROWS = np.random.default_rng(0).integers(0, 256, (40, 256), dtype=np.uint8)


@pytest.fixture
def store(run, tmp_path):
    np.savez("my digits.npz", x=ROWS, y=np.arange(40) % 4)
    code, _, err = run("train", "my digits.npz", "--world.shape", "16", "16", *QUICK)
    assert code == 0, err
    return Store(tmp_path / "runs")


def test_rows_become_images_by_a_flag(run, store) -> None:
    trained = store.open("latest")
    assert trained.config["world"]["image_shape"] == [16, 16]
    assert config_of(trained).world.shape == (1, 16, 16)
    code, _, err = run("train", "my digits.npz", "--world.shape", "16", "15", *QUICK)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "expected a shape of 256 numbers, as many as an observation has, but 16x15 are 240" in err


def test_data_is_called_by_its_file(run, store) -> None:
    trained = store.open("latest")
    assert "-my-digits-vae-" in trained.id
    code, out, err = run("runs", "--columns", "data", "--json")
    assert code == 0, err
    assert json.loads(out) == [{"data": "my digits"}]
    assert store.where("data = 'my digits'")[0]["id"] == trained.id
    words = ["--world.of", "my digits.npz", "--world.of.shape", "16", "16", "--world.flip", "both", *QUICK]
    code, _, err = run("train", "augmented", *words)
    assert code == 0, err
    of_view = store.open("latest")
    assert "-augmented-my-digits-vae-" in of_view.id
    assert summary(of_view)["data"] == "augmented of my digits"
    assert said_of(trained.config, "One") == "One; trained on the data “my digits” for 2 steps."
    assert said_of(of_view.config, "One") == "One; trained on the data “my digits” as “augmented” for 2 steps."


def test_runs_that_were_made_before_there_were_these_settings_load(store) -> None:
    trained = store.open("latest")
    config = {key: value for key, value in trained.config.items() if key != "split"}
    config["world"] = {"name": "file", "path": "my digits.npz", "size": None, "kinds": {}, "white": None, "group": ""}
    write_record(trained.path, {**trained.record, "config": config})
    trained = store.open("latest")
    assert config_of(trained).world.shape == (256,)
    assert summary(trained)["data"] == "my digits"


def test_the_test_part_of_a_folder_is_held_out_unless_another_split_is_named(run, tmp_path) -> None:
    folder = tmp_path / "tiny-mnist"
    folder.mkdir()
    for part, count in (("train", 30), ("t10k", 10)):
        header = bytes([0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 16, 0, 0, 0, 16])
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + ROWS[:count].tobytes())
    for flags, split in (([], "own"), (["--split", "random"], "random")):
        code, out, err = run("train", str(folder), *flags, *QUICK)
        assert code == 0, err
        assert "train-images-idx3-ubyte (30 images) and t10k-images-idx3-ubyte (10) are read as one" in out
        trained = Store(tmp_path / "runs").open("latest")
        assert "-tiny-mnist-vae-" in trained.id
        assert trained.config["split"]["name"] == split
