"""``polariscope corruptions``: a run, a classifier of the user's, references, and what is refused."""

import json

import numpy as np
import pytest
import torch

from polariscope.examination.corruptions import withstand_run
from polariscope.examination.robustness import robustness_run
from polariscope.lab import Store
from polariscope.worlds.views.corruptions import SUITES

SOURCE = """
import torch
from torch import nn

def bright(x):
    return x.mean((1, 2, 3)) - 0.5

def dark(x):
    return -torch.ones(len(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(144, 2)
    def forward(self, x):
        return self.last(x.flatten(1))
"""
QUICK = ["--kinds", "brightness", "contrast", "--json"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    values = np.repeat(np.arange(0.05, 1, 0.1), 4)
    x = np.broadcast_to(np.rint(255 * values)[:, None, None], (40, 12, 12)).astype(np.uint8)
    y, shade = (values > 0.5).astype(int), np.arange(40) % 4
    np.savez(tmp_path / "greys.npz", x=x, y=y)
    np.savez(tmp_path / "factors.npz", x=x, y=np.stack([shade, y], 1), factor_names=["shade", "bright"])
    np.savez(tmp_path / "bare.npz", x=x)
    np.savez(tmp_path / "points.npz", x=np.zeros((40, 3), np.float32), y=y)
    return tmp_path


def told(result: tuple[int, str, str]) -> dict:
    code, out, err = result
    assert code == 0, err
    return json.loads(out)


def test_a_function_of_ones_own_on_a_file(place, run) -> None:
    result = told(run("corruptions", "mine.py:bright", "greys.npz", *QUICK))
    assert [row["accuracy"] for row in result["kinds"]] == pytest.approx([0.7, 1.0])
    assert result["scores"] == pytest.approx({"clean": 1.0, "mean": 0.85, "without_noise": 0.85})
    assert result["worst"] == "brightness"
    assert result["examples"] == 40
    page = (place / "corruptions.html").read_text(encoding="utf-8")
    assert "accuracy 85.0 % under 2 corruptions" in page
    assert "Accuracy over severity" in page
    assert "Corrupted images, severity 3" in page
    assert not (place / "runs").exists()


def test_held_against_another_and_written_to_a_folder(place, run) -> None:
    asked = ["--against", "mine.py:dark", "--severities", "1", "5", "--out", "found"]
    result = told(run("corruptions", "mine.py:bright", "factors.npz", "--label", "bright", *QUICK, *asked))
    assert result["scores"]["mce"] == pytest.approx(30.0)
    assert result["settings"]["against"] == "mine.py:dark"
    assert {file.name for file in (place / "found").iterdir()} == {
        *("report.html", "findings.json", "document.json", "arrays.safetensors"),
        *("accuracies.png", "accuracies.svg", "gallery.png", "gallery.svg"),
    }


def test_a_module_takes_its_weights_and_so_does_what_it_is_held_against(place, run) -> None:
    """The sum of all pixels, above one half of white or below it; the other way round is always wrong."""
    weights = {"last.weight": torch.stack([torch.zeros(144), torch.ones(144)]), "last.bias": torch.tensor([0.0, -72.0])}
    torch.save(weights, place / "right.pt")
    torch.save({name: -value for name, value in weights.items()}, place / "wrong.pt")
    asked = ["--weights", "right.pt", "--against", "mine.py:Net", "--against-weights", "wrong.pt"]
    result = told(run("corruptions", "mine.py:Net", "greys.npz", *QUICK, *asked))
    assert [row["accuracy"] for row in result["kinds"]] == pytest.approx([0.7, 1.0])
    assert [row["reference"] for row in result["kinds"]] == pytest.approx([0.3, 0.0])
    assert [row["ce"] for row in result["kinds"]] == pytest.approx([100 * 0.3 / 0.7, 0.0])


def test_a_run_is_shown_what_it_kept_from_training(place, run) -> None:
    train = ["train", "mini-sprites", "--objective", "classify", "--model", "mlp", "--model.hidden", "8"]
    code, out, err = run(*train, "--training.steps", "4", "--training.batch-size", "8", "--json")
    assert code == 0, err
    name = json.loads(out)["id"]
    asked = ["--suite", "mnist-c", "--count", "500", "--against", name, "--json", "--out", "bars.png"]
    result = told(run("corruptions", "latest", *asked))
    assert (place / "bars.png").stat().st_size
    kept = 130  # a tenth of 1296
    assert result["examples"] == kept
    assert [row["kind"] for row in result["kinds"]] == list(SUITES["mnist-c"].benchmark)
    assert result["scores"]["mce"] == pytest.approx(100.0)
    record = Store(place / "runs").open(name).record["result"]
    assert record["accuracy"] == result["scores"]["clean"]
    same = withstand_run(name, suite="mnist-c", count=500, store=place / "runs")
    assert (same.clean, same.mean) == (result["scores"]["clean"], result["scores"]["mean"]), "in Python, too"
    card = robustness_run(name, only=["corruptions"], suite="mnist-c", corrupted=500, store=place / "runs")
    assert card.corruptions.mean == same.mean
    assert record["accuracy_corrupted"] == result["scores"]["mean"]
    code, out, err = run("corruptions", name, "--kinds", "fog", "--severities", "2", "--count", "20")
    assert code == 0, err
    assert "fog" in out
    assert f"runs/{name}/findings/corruptions/report.html" in out
    code, _, err = run("corruptions", name, "--against-weights", "a.pt")
    assert code == 2
    assert "needs --against" in err


@pytest.mark.parametrize("way", [["{}"], ["--data", "{}"], ["--world", "{}"]], ids=lambda way: way[0])
def test_a_run_is_shown_other_data_where_that_is_named(way, place, run) -> None:
    train = ["train", "greys.npz", "--objective", "classify", "--model", "mlp", "--model.hidden", "8", "--json"]
    name = told(run(*train, "--training.steps", "4", "--training.batch-size", "8"))["id"]
    images = np.load("greys.npz")
    np.savez("others.npz", **{key: images[key][:7] for key in images.files})
    result = told(run("corruptions", name, *(word.format("others.npz") for word in way), "--kinds", "fog", "--json"))
    assert result["examples"] == 7, "all of it, and not the held-out part of its own data"
    assert result["settings"]["data"]["path"].endswith("others.npz")
    assert "accuracy" not in Store(place / "runs").open(name).record["result"], "which is that on its own data"
    code, _, err = run("corruptions", name, "others.npz", "--weights", "a.pt")
    assert (code, "a run has its own weights" in err) == (2, True)


def test_a_run_that_does_not_classify_is_refused(trained, run) -> None:
    other = trained()
    code, _, err = run("corruptions", other.id)
    assert code == 2
    assert err.strip() == (
        f"error: run {other.id} was not trained to predict one class: train it with --objective classify"
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([], "which classifier?"),
        (["mine.py:bright"], "which data?"),
        (["mine.py:bright", "greys.npz", "--kinds", "frog"], "no corruption 'frog': did you mean 'fog'"),
        (["mine.py:bright", "greys.npz", "--severities", "7"], "severity is 7"),
        (["mine.py:bright", "greys.npz", "--suite", "cifar-c"], "no suite 'cifar-c'"),
        (["mine.py:bright", "greys.npz", "--count", "0"], "at least 1 example"),
        (["mine.py:bright", "greys.npz", "--label", "lable"], "no factor 'lable': did you mean 'label'"),
        (["mine.py:bright", "bare.npz"], "give data with labels"),
        (["mine.py:bright", "points.npz"], "corruptions need images"),
        (
            ["mine.py:bright", "factors.npz", "--label", "shade"],
            "bright has 2 classes, and the data has 4",
        ),
        (["mine.py:nothing", "greys.npz"], "nothing"),
        (["mine.py:bright", "greys.npz", "--weights", "a.pt"], "--weights is for an nn.Module"),
        (["mine.py:bright", "greys.npz", "--against", "no-run"], "no-run"),
        (["nothing"], "nothing"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_a_sentence(place, run, asked, words) -> None:
    code, _, err = run("corruptions", *asked)
    assert code == 2
    (message,) = err.strip().splitlines()
    assert words in message
