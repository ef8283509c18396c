"""Examining a run is a function: what the command does, from Python."""

import json

import numpy as np
import pytest

import polariscope
from polariscope.cli import main
from polariscope.examination.examine import examine_run
from polariscope.lab import Run, Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import LeNet
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.predict import Classify
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.worlds import ArrayWorld
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit, SplitPart

SMALL = AutoencoderConfig(latents=3, architecture=MLP((8,), (8,)))
OTHER = SplitPart(MiniSprites(), RandomSplit(0.5))
TRAINING = TrainingConfig(steps=2, batch_size=8, evaluate_every=0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Run:
    """A run that nobody writes to: tests that do have their own."""
    store = tmp_path_factory.mktemp("runs")
    return train(RunConfig(MiniSprites(), BetaVAE(4.0), SMALL, TRAINING, RandomSplit(0.25)), store, quiet=True)


def files(run: Run) -> set[str]:
    return {path.name for path in run.path.iterdir()}


@pytest.mark.parametrize(
    ("part", "sentence", "most"),
    [
        ("all", "both training and held-out", 1296),
        ("held-out", "was not trained on", 324),
        ("training", "training data.", 972),
    ],
)
def test_a_part_of_the_data_is_looked_at_and_said(kept, part, sentence, most) -> None:
    before = files(kept)
    result = examine_run(kept, part=part, measured=[], keep=False)
    assert result.representation.count == most
    assert sentence in result.notes[0]
    assert files(kept) == before, "nothing is kept unless it is asked for"


def test_python_and_the_command_give_the_same_document(kept, monkeypatch, capsys) -> None:
    monkeypatch.chdir(kept.path.parent)
    words = [
        "examine",
        kept.id,
        "--runs",
        ".",
        "--count",
        "200",
        "--measures",
        "mig,total*",
        "--json",
        "--out",
        "p.html",
    ]
    monkeypatch.setattr("polariscope.findings.save", lambda *_, **__: "p.html")
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    result = examine_run(kept.id, count=200, measured=["mig", "total*"], keep=False, store=".")
    own = json.loads(json.dumps(result.findings().json()))
    for key in ("report", "command"):
        answer.pop(key, None)
    assert own == answer
    assert own["settings"]["objective"] == {"name": "beta-vae", "beta": 4.0}
    assert {"mig", "total-correlation"} == own["measures"].keys()


def test_a_run_by_its_name_is_examined_the_same_way_and_keeps_nothing(kept) -> None:
    before = files(kept)
    result = polariscope.examine(kept, count=100, measured=[])
    same = examine_run(kept, count=100, measured=[], keep=False)
    assert np.array_equal(result.representation.mean, same.representation.mean)
    assert (result.notes, result.records()) == (same.notes, same.records())
    assert result.findings().settings == kept.config
    assert files(kept) == before


def test_what_is_kept_is_in_the_record_and_on_the_shelf(tmp_path) -> None:
    run = train(RunConfig(MiniSprites(), BetaVAE(), SMALL, TRAINING), tmp_path, quiet=True)
    result = examine_run(run, count=100, measured=["mig"])
    examine_run(run, data=OTHER, count=50, measured=["mig"])
    entries = Store(tmp_path).open(run.id).record["examinations"]
    assert [entry["on"]["count"] for entry in entries] == [100, 50]
    assert entries[0]["on"]["data"] == "own"
    assert entries[1]["on"]["data"].startswith("part ")
    assert entries[0]["measures"]["mig"] == result.measures["mig"]
    assert len(list((run.path / "representations").iterdir())) == 2


def test_other_data_is_said_and_has_no_parts(kept) -> None:
    result = examine_run(kept, data=OTHER, count=50, measured=[], keep=False)
    assert result.notes[0] == "The examples are not from the data that the run was trained on."
    with pytest.raises(ValueError, match="other data is given"):
        examine_run(kept, data=OTHER, part="held-out", keep=False)


def test_a_run_on_data_in_memory_knows_it_by_its_hash(tmp_path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    run = train(RunConfig(ArrayWorld(images), BetaVAE(), SMALL, TRAINING), tmp_path, quiet=True)
    opened = Store(tmp_path).open(run.id)
    own = examine_run(opened, data=images, part="held-out", measured=[], keep=False)
    assert own.representation.count == 6
    other = examine_run(opened, data=255 - images, measured=[], keep=False)
    assert "not from the data" in other.notes[0]
    assert examine_run(run, measured=[], keep=False).representation.count == 60, "who trained it has the data still"
    with pytest.raises(ValueError, match="give the same data again"):
        examine_run(opened, measured=[], keep=False)


def test_what_gives_no_codes_is_refused_with_what_can_be_done(tmp_path) -> None:
    run = train(RunConfig(MiniSprites(), Classify(), LeNet(), TRAINING), tmp_path, quiet=True)
    with pytest.raises(
        ValueError, match=rf"does not encode.* commands for this run: .*polariscope robustness {run.id}"
    ):
        examine_run(run)


def test_a_single_example_says_nothing(kept) -> None:
    with pytest.raises(ValueError, match=r"--count \(count= in Python\) is 1: at least 2"):
        examine_run(kept, count=1)
