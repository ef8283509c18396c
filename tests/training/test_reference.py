"""Models that come with the package: they are shipped, taken into a store, and taken apart by the demo."""

import json
import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from polariscope.cli import main
from polariscope.examination.examine import examine_run
from polariscope.findings import Findings
from polariscope.lab.run_documents import keep_findings, kept_findings
from polariscope.lab.store import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.training import reference
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.reference import SHIPPED, reference_names, ship, take_reference_runs
from polariscope.training.run import config_of, load_model, train
from polariscope.worlds.renderers.mini_sprites import MiniSprites

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 10_000_000
"""Bytes of all reference models together."""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """Two small models as reference models, and the run that the first was."""
    place = tmp_path_factory.mktemp("reference")
    model = AutoencoderConfig(3, MLP((8,), (8,)))
    runs = []
    for beta in (1.0, 4.0):
        config = RunConfig(MiniSprites(), BetaVAE(beta=beta), model, TrainingConfig(3, 8))
        runs.append(train(config, place / "runs", quiet=True))
        keep_findings(examine_run(runs[-1], count=60, measured=["mig"]).findings(), "examine", runs[-1])
        ship(runs[-1], f"beta-{beta:g}", place / "shipped")
    return place / "shipped", runs[0]


def test_a_shipped_run_is_the_run_without_the_state_of_its_optimiser(shipped, tmp_path, monkeypatch):
    folder, run = shipped
    monkeypatch.setattr(reference, "SHIPPED", folder)
    assert reference_names() == ["beta-1", "beta-4"]
    first, second = take_reference_runs(Store(tmp_path / "runs"))
    assert (first.id, second.id) == ("reference-beta-1", "reference-beta-4")
    assert first.config == run.config
    assert first.record["environment"] == run.record["environment"]
    ours, theirs = load_model(first).state_dict(), load_model(run).state_dict()
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert first.checkpoint.stat().st_size < 0.6 * run.checkpoint.stat().st_size
    assert first.metrics() == run.metrics()
    (document,) = kept_findings(first)
    assert document.headline == kept_findings(run)[0].headline
    assert document.page.stat().st_size > 10_000
    again = take_reference_runs(Store(tmp_path / "runs"), ["beta-4"])  # what is there stays
    assert [one.path for one in again] == [second.path]
    with pytest.raises(ValueError, match="there is no reference model 'other'; there are beta-1, beta-4"):
        take_reference_runs(Store(tmp_path / "runs"), ["other"])


def test_an_unfinished_run_is_not_shipped(tmp_path):
    run = Store(tmp_path / "runs").create({}, "half", status="interrupted")
    with pytest.raises(ValueError, match="only a finished run"):
        ship(run, "half", tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


def test_the_demo_takes_the_reference_models_apart_before_it_trains(shipped, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "SHIPPED", shipped[0])
    words = ["demo", "--no-train", "--examples", "60", "--runs", str(tmp_path / "runs")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "reference-beta-1/findings/examine/report.html" in said.replace("\n", "")
    assert "polariscope serve" in said
    assert {run.id for run in Store(tmp_path / "runs").runs()} == {"reference-beta-1", "reference-beta-4"}
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == ["reference-beta-1", "reference-beta-4"]
    monkeypatch.setattr(reference, "SHIPPED", tmp_path / "none")
    assert main(words) == 2
    assert "has no reference models" in capsys.readouterr().err


def test_the_models_of_this_package_are_those_of_the_script(tmp_path):
    """Every shipped model loads, has the recipe of the script, and documents that can be read."""
    recipes = runpy.run_path(str(ROOT / "scripts" / "make_reference_models.py"))
    assert set(reference_names()) <= set(recipes["MODELS"])
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(rf"^\| `{reference.PREFIX}([\w-]+)`", gallery, re.M) == list(recipes["MODELS"])
    for name in recipes["MODELS"]:
        assert recipes["config_of"](name, 10).world is not None
    if not reference_names():
        pytest.skip("this checkout has no reference models: 'make reference-models' trains them")
    assert sum(file.stat().st_size for file in SHIPPED.rglob("*") if file.is_file()) < LARGEST
    for run in take_reference_runs(Store(tmp_path / "runs")):
        name = run.id.removeprefix("reference-")
        recipe = recipes["config_of"](name, run.config["training"]["steps"])
        config = config_of(run)
        assert run.labels.note == recipes["MODELS"][name].note
        assert (config.world, config.objective, config.model) == (recipe.world, recipe.objective, recipe.model)
        assert math.isfinite(run.result["held_out_loss"])
        assert {"python", "torch", "code"} <= set(run.record["environment"])
        assert all(np.isfinite(value.numpy()).all() for value in load_model(run).state_dict().values())
        (document,) = kept_findings(run)
        assert document.kind == ("robustness" if name == recipes["CLASSIFIER"] else "examine")
        assert isinstance(document.load()[0], Findings)
