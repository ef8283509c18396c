"""Images of floats from the command line: trained on, gone on with, examined, shown."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from polariscope import Store, load_model
from polariscope.training import checkpoint, loop

SMALL = [
    "--model.latents",
    "2",
    "--training.steps",
    "6",
    "--training.batch-size",
    "8",
    "--training.checkpoint-every",
    "3",
]
CONV = [*SMALL, "--model.likelihood", "gaussian"]


@pytest.fixture
def land(run, tmp_path):
    """Seven layers with a hill of four heights, channels last."""
    hill = np.arange(48) % 4
    layers = np.random.default_rng(0).normal(size=(48, 16, 16, 7)) + hill[:, None, None, None] * np.linspace(-1, 2, 7)
    np.savez("land.npz", images=layers.astype(np.float32), labels=hill)
    return tmp_path / "land.npz"


def test_seven_channels_are_trained_on_resumed_and_examined(run, land, tmp_path, monkeypatch) -> None:
    words = ["train", "land.npz", "--world.floats", *CONV, "--json"]
    code, out, err = run(*words, "--runs", "whole")
    assert code == 0, err
    whole = Store(tmp_path / "whole").open(json.loads(out)["id"])

    step = loop._step

    def killed(state, objective, batches, number, config):
        if number == 4:
            raise RuntimeError("power cut")
        return step(state, objective, batches, number, config)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", killed)
        with pytest.raises(RuntimeError):
            run(*words)
    code, out, err = run("train", "--resume", "latest", "--json")
    assert code == 0, err
    resumed = Store(tmp_path / "runs").open("latest")
    assert resumed.config["world"]["floats"] is True
    for name, value in checkpoint.read(whole.checkpoint)[0].items():
        assert torch.equal(value, checkpoint.read(resumed.checkpoint)[0][name]), name
    assert load_model("latest").shape == (7, 16, 16)

    code, out, err = run("examine", "latest", "--json")
    assert code == 0, err
    page = (resumed.path / "findings" / "examine" / "report.html").read_text(encoding="utf-8")
    for text in (out, page):
        assert "Pictures show the first 3 of 7 channels, numbers from" in text
        assert "their 7 channels are assumed to come last" in text


def test_what_floats_are_for_is_said(run, land) -> None:
    np.savez("metres.npz", images=np.arange(4 * 49).reshape(4, 7, 7, 1) * 10)
    code, _, err = run("train", "metres.npz", *SMALL)
    assert code == 2
    assert "(floats=True, --world.floats)" in err
    code, _, err = run("train", "land.npz", *SMALL)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "a Bernoulli likelihood needs observations in [0, 1]" in err
    assert "--model.likelihood gaussian" in err


def test_standardised_images_are_trained_on_and_examined_as_they_are(run, tmp_path) -> None:
    pixels = np.random.default_rng(0).random((90, 16, 16)).astype(np.float32)
    np.savez("norm.npz", images=(pixels - 0.1307) / 0.3081)
    code, _, err = run("train", "norm.npz", *SMALL)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "from -0.42" in err
    assert '(likelihood="gaussian", --model.likelihood gaussian)' in err
    code, out, err = run("train", "norm.npz", *CONV)
    assert code == 0, err
    assert "note: Images keep their numbers, which go from -0.42" in out
    code, out, err = run("examine", "latest", "--part", "held-out", "--json")
    assert code == 0, err
    assert any(note.startswith("Images keep their numbers, which go from -0.42") for note in json.loads(out)["notes"])


def test_a_single_number_outside_is_no_probability(run, tmp_path) -> None:
    pixels = np.random.default_rng(0).random((90, 16, 16))
    pixels[80, 3, 3] = 1.5
    np.savez("a.npz", images=pixels)
    code, _, err = run("train", "a.npz", *SMALL)
    assert code == 2
    assert "a Bernoulli likelihood needs observations in [0, 1], but these go from" in err
    assert "to 1.5" in err


def test_a_sheet_is_drawn_of_the_first_three_channels(run, land, tmp_path) -> None:
    code, out, err = run("worlds", "show", "land.npz", "--world.floats", "--rows", "4", "--columns", "12", "--json")
    assert code == 0, err
    assert "first 3 of 7 channels" in json.loads(out)["notes"][0]
    sheet = np.asarray(Image.open(tmp_path / "world.png"))
    assert sheet.ndim == 3
    assert (sheet.min(), sheet.max()) == (0, 255), "from the least to the greatest number shown"


def test_views_are_chosen_and_set_by_flags(run, land, tmp_path) -> None:
    words = ["--world.of", "land.npz", "--world.of.floats", *CONV, "--json"]
    code, out, err = run("train", "augmented", "--world.flip", "both", "--world.crop", "12", *words)
    assert code == 0, err
    config = Store(tmp_path / "runs").open(json.loads(out)["id"]).config["world"]
    assert config["of"]["floats"] is True
    assert (config["flip"], config["crop"], "moment" in config) == ("both", 12, False)
    code, out, err = run("train", "manipulated", "--world.by", "local", "--world.by.epsilon", "0.5", *words)
    assert code == 0, err
    config = Store(tmp_path / "runs").open(json.loads(out)["id"]).config["world"]
    assert (config["by"]["name"], config["by"]["epsilon"]) == ("local", 0.5)
    code, _, err = run("train", "manipulated", "--world.by", "learned", *words)
    assert code != 0
    assert "run 'polariscope manipulate --kind learned'" in err
    code, out, _ = run("worlds", "--json")
    assert code == 0
    assert {"augmented", "manipulated"} <= {row["name"] for row in json.loads(out)}
