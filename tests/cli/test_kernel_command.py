"""``polariscope kernel`` from the command line to the report."""

import gzip
import json
import struct
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from polariscope.cli import main
from polariscope.lab.store import Store
from polariscope.nets.classifiers import mlp
from polariscope.training import load_model

SMALL = ["--count", "60", "--test", "60", "--train", "30"]
PICTURES = ["information.svg", "projections.svg", "scatter.svg", "spectrum.svg"]
FILES = ["arrays.safetensors", "document.json", "findings.json", "report.html"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """``run("kernel", ...)`` in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """No pictures, which are most of the time that a small diagnosis takes: only the first test looks at them."""
    monkeypatch.setattr("polariscope.examination.diagnosis.Diagnosis._charts", lambda *_: [])


@pytest.fixture
def stripe(tmp_path: Path) -> Path:
    """Labelled points in a file, as a user brings them."""
    x = np.random.default_rng(0).standard_normal((900, 4))
    np.savez(tmp_path / "stripe.npz", x=x, y=np.where((x[:, 0] > -0.3) & (x[:, 0] < 1.18549), -1, 1))
    return tmp_path / "stripe.npz"


@pytest.mark.spec("004/F63", "004/F70")
def test_a_built_in_network_is_trained_and_diagnosed(run) -> None:
    code, out, err = run("kernel", "lenet", "digits", "--world.size", "14", "--parity", *SMALL)
    assert code == 0, err
    (result,) = Store(Path("runs")).runs()
    assert (result.status, result.record["kind"]) == ("done", "train"), "a run like any other"
    folder = result.path / "findings" / "kernel"
    assert {*FILES, *PICTURES} == {f.name for f in folder.iterdir()}
    record = json.loads((folder / "findings.json").read_text())
    assert record["settings"]["data"]["of"] == {"name": "digits", "count": 10_000, "size": 14, "seed": 0}
    assert record["settings"]["data"]["form"] == "parity"
    assert (record["settings"]["seed"], record["settings"]["steps"]) == (0, 30)
    assert record["classes"] == ["even", "odd"]
    assert result.result["verdict"] == record["verdict"]
    assert load_file(folder / "arrays.safetensors")["scatter/final"].shape == (60, 2)
    names = ("initial", "final", "last layer, initial", "last layer, final")
    assert tuple(row["name"] for row in record["kernels"]) == names
    assert all(len(row["information"]) == 10 for row in record["kernels"])
    assert "last layer" in out
    assert f"Verdict: {record['verdict']}" in out
    assert f"report: {folder / 'report.html'}" in out
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 1 + 4
    assert f"Verdict: {record['verdict']}" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert all((folder / name).read_text().count("<path") > 10 for name in PICTURES), "something is drawn"
    assert '<a href="findings/kernel/report.html">' in (result.path / "report.html").read_text(), "the run's page"


@pytest.mark.spec("004/F63")
@pytest.mark.usefixtures("undrawn")
def test_the_output_scale_changes_the_verdict(run, stripe: Path) -> None:
    words = ["kernel", "mlp", str(stripe), "--parametrisation", "ntk", "--count", "150", "--test", "50", "--json"]
    words += ["--train", "150", "--batch-size", "150"]
    verdicts = {}
    for alpha, rate in (("0.1", "0.3"), ("1000", "0.3")):
        code, out, err = run(*words, "--alpha", alpha, "--learning-rate", rate, "--out", alpha)
        assert code == 0, err
        result = json.loads(out)
        verdicts[alpha] = result["verdict"]
        assert sorted(f.name for f in Path(alpha).iterdir()) == FILES
    assert verdicts == {"0.1": "learns features", "1000": "lazy"}
    assert result["settings"]["alpha"] == 1000
    assert len(Store(Path("runs")).runs()) == 2, "what was trained is a run, wherever the report goes"


@pytest.mark.usefixtures("undrawn")
def test_a_module_and_weights_of_the_users(run, stripe: Path) -> None:
    Path("mine.py").write_text(
        textwrap.dedent(
            """
            from torch import nn

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner, self.outer = nn.Linear(4, 20), nn.Linear(20, 1)

                def forward(self, x):
                    return self.outer(self.inner(x).tanh()).squeeze(-1)
            """
        )
    )
    words = ["kernel", "mine.py:Net", str(stripe), "--count", "60", "--test", "60"]
    assert run(*words, "--train", "30", "--seed", "3", "--out", "trained")[0] == 0
    code, out, err = run(
        *words, "--initial", "trained/initial.safetensors", "--final", "trained/final.safetensors", "--json"
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["examples"] == {"kernel": 60, "held_out": 60}
    assert result["change"]["distance"] > 0.01
    assert not (Path(result["report"]).parent / "final.safetensors").exists(), "the user has them already"
    weights = load_file("trained/initial.safetensors")
    still = load_file("trained/final.safetensors")
    assert any(not torch.equal(weights[name], still[name]) for name in weights)
    code, out, _ = run(
        *words, "--initial", "trained/final.safetensors", "--final", "trained/final.safetensors", "--json"
    )
    same = json.loads(out)
    assert same["verdict"] == "lazy"
    assert same["change"]["distance"] == 0
    # As everywhere, --out may also name a page; the weights are then not kept, and a note says so.
    code, out, _ = run(*words, "--train", "5", "--out", "only.html", "--json")
    assert (code, json.loads(out)["report"]) == (0, "only.html")
    assert any("a folder would hold them" in note for note in json.loads(out)["notes"])
    assert Path("only.html").is_file()
    assert not list(Path().glob("*.safetensors"))
    # Further training from given weights.
    assert run(*words, "--initial", "trained/final.safetensors", "--train", "5", "--out", "further")[0] == 0
    assert torch.equal(load_file("further/initial.safetensors")["inner.weight"], still["inner.weight"])


@pytest.mark.usefixtures("undrawn")
def test_idx_files_are_read_and_a_small_set_is_divided(run) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(240, dtype=np.uint8) % 3 + 4
    images = rng.integers(0, 40, (240, 12, 12), dtype=np.uint8)
    images[np.arange(240), labels] += 200
    with gzip.open("train-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">4B3I", 0, 0, 8, 3, *images.shape) + images.tobytes())
    Path("train-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 240) + labels.tobytes())
    code, out, err = run("kernel", "mlp", "train-images-idx3-ubyte.gz", "--train", "60", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["examples"] == {"kernel": 80, "held_out": 80}
    assert result["classes"] == ["4", "5", "6"]
    assert json.loads((Path(result["report"]).parent / "findings.json").read_text())["classes"] == ["4", "5", "6"]
    assert result["network_error"] < 0.1


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_classifies_is_diagnosed_by_its_name(run) -> None:
    words = ["--objective", "classify", "--model", "lenet", "--world.size", "14", "--training.steps", "40"]
    assert run("train", "digits", *words, "--split.share", "0.5", "--training.evaluate-every", "0")[0] == 0
    code, out, err = run("kernel", "latest", "--count", "100", "--test", "80", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["examples"] == {"kernel": 100, "held_out": 80}
    assert len(result["classes"]) == 10
    (stored,) = Store(Path("runs")).runs()
    assert stored.result["verdict"] == result["verdict"]
    before = load_model(stored, 0).state_dict()["conv1.weight"]
    assert not torch.equal(before, load_model(stored).state_dict()["conv1.weight"])


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_does_not_classify_is_refused(run) -> None:
    words = ["--model.architecture", "mlp", "--training.steps", "2"]
    assert run("train", "mini-sprites", *words)[0] == 0
    code, _, err = run("kernel", "latest")
    assert code == 2
    assert "--objective classify" in err


@pytest.mark.usefixtures("undrawn")
def test_the_same_seed_gives_the_same_numbers(run, stripe: Path) -> None:
    words = ["kernel", "mlp", str(stripe), *SMALL, "--json", "--out", "found"]
    first, second = (json.loads(run(*words, "--seed", "5")[1]) for _ in range(2))
    for one in (first, second):
        del one["settings"]["run"]
    assert first == second
    assert json.loads(run(*words, "--seed", "6")[1])["change"] != first["change"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "which model?"),
        (["mlp"], "which data?"),
        (["mpl", "digits"], "did you mean 'mlp'?"),
        (["mlp", "digit"], "did you mean"),
        (["mlp", "none.npz"], "there is no file none.npz"),
        (["mlp", "unlabelled.npy"], "this world has no factors"),
        (["mlp", "continuous.npz"], "is continuous"),
        (["lenet", "points.npz"], "for images"),
        (["mlp", "points.npz", "--label", "colour"], "no factor 'colour'"),
        (["mlp", "points.npz", "--count", "5"], "--count is 5"),
        (["mlp", "points.npz", "--train", "0"], "--train is 0"),
        (["mlp", "points.npz", "--alpha", "0"], "output scale is 0"),
        (["mlp", "points.npz", "--final", "w.safetensors"], "--final needs --initial"),
        (
            ["mlp", "points.npz", "--initial", "w.safetensors", "--final", "w.safetensors", "--train", "3"],
            "leave out --train",
        ),
        (["mlp", "points.npz", "--initial", "w.safetensors", "--final", "w.safetensors"], "do not fit"),
        (["mlp", "points.npz", "--initial", "points.npz", "--train", "3"], "are damaged"),
        (["none.py:Net", "points.npz"], "there is no file none.py"),
        (["wide.py:three", "points.npz", "--train", "3"], "3 outputs for 4 classes"),
        (["wide.py:other", "points.npz", "--train", "3"], "the observations have shape"),
        (["mlp", "points.npz", "--out", "points.npz"], "is a file"),
        (["mlp", "points.npz", "--form", "full"], "full"),
    ],
)
def test_bad_words_are_one_sentence(run, words: list[str], problem: str) -> None:
    x = np.random.default_rng(0).standard_normal((400, 3))
    np.save("unlabelled.npy", x)
    np.savez("continuous.npz", x=x, y=x[:, 0])
    np.savez("points.npz", x=x, y=np.arange(400) % 4)
    save_file(mlp(7, (8,)).state_dict(), "w.safetensors")
    Path("wide.py").write_text(
        "from torch import nn\ndef three(): return nn.Linear(3, 3)\ndef other(): return nn.Linear(5, 4)\n"
    )
    code, out, err = run("kernel", *words)
    assert code == 2, out
    assert problem in err
    assert err.count("error:") == 1
    assert len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_training_that_diverges_is_exit_code_3(run, stripe: Path) -> None:
    code, _, err = run("kernel", "mlp", str(stripe), *SMALL, "--learning-rate", "1e20")
    assert code == 3
    assert "diverged at step" in err
    assert "smaller learning rate" in err


def test_grey_convolutions_flattened_by_view_in_half_precision(run, undrawn) -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8), np.uint8)
    np.savez("images.npz", images=images, labels=np.arange(200) % 2)
    Path("V.py").write_text(
        "from torch import nn\n"
        "class V(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv, self.head = nn.Conv2d(1, 4, 4, 2), nn.Linear(36, 2)\n"
        "        self.half()\n"
        "    def forward(self, x):\n"
        "        return self.head(self.conv(x).view(len(x), -1))\n"
    )
    code, _, err = run("kernel", "V.py:V", "images.npz", "--train", "2", "--count", "40", "--test", "20")
    assert code == 0, err
    assert "training V.py:V: step 2 of 2" in err, "and :V: is no picture of a hand"


def test_too_few_examples_are_said_before_anything_is_trained(run) -> None:
    np.savez("points.npz", x=np.random.default_rng(0).standard_normal((400, 3)), y=np.arange(400) % 10)
    code, _, err = run("kernel", "mlp", "points.npz", "--train", "3", "--count", "30", "--test", "20")
    assert code == 2
    assert "more than 5 examples of each" in err
    assert "--count" in err
    assert "step" not in err


def test_outputs_of_a_network_from_elsewhere_are_those_of_the_classes(run, tmp_path) -> None:
    """Five outputs, and data of the classes 1 and 3: the first two outputs had been taken for them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    labels = torch.where(x[:, 0] > 0, 3, 1)
    np.savez("two.npz", x=x.numpy(), labels=labels.numpy())
    Path("mine.py").write_text("from torch import nn\n\n\ndef Net():\n    return nn.Sequential(nn.Linear(4, 5))\n")
    weights = {"0.weight": torch.zeros(5, 4), "0.bias": torch.zeros(5)}
    save_file(weights, "initial.safetensors")
    weights["0.weight"][1, 0], weights["0.weight"][3, 0] = -5.0, 5.0
    save_file(weights, "final.safetensors")
    code, out, err = run("kernel", "mine.py:Net", "two.npz", "--count", "60", "--test", "60", "--initial",
                         "initial.safetensors", "--final", "final.safetensors", "--json")  # fmt: skip
    assert code == 0, err
    document = json.loads(out)
    assert "error 0 %" in document["headline"] or document["network_error"] == 0
    assert any("matched to its outputs by number" in note for note in document["notes"])
