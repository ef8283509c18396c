"""Trackers: off unless asked for, told everything when they are, and never in the way of a training."""

from __future__ import annotations

import sys
import types

import pytest

from polariscope.cli import main
from polariscope.lab.store import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import resume, train
from polariscope.training.trackers import ASKED, trackers
from polariscope.worlds.renderers.squares import Squares

CONFIG = RunConfig(
    Squares(8),
    VAE(),
    AutoencoderConfig(2, MLP((8,), (8,))),
    TrainingConfig(steps=4, batch_size=8, evaluate_every=2, log_every=2),
)


class Heard:
    """Notes what it is told, or fails."""

    told: list[object] = []
    fails = False

    def __init__(self, run):
        self.told.append(("begin", run.id))

    def metrics(self, event):
        if self.fails:
            raise RuntimeError("no network")
        self.told.append((event.step, event.split, sorted(event.terms)))

    def end(self, run):
        self.told.append(("end", run.status))


@pytest.fixture(autouse=True)
def heard(monkeypatch):
    monkeypatch.delenv(ASKED, raising=False)
    monkeypatch.setitem(trackers._entries, "heard", Heard)
    monkeypatch.setattr(Heard, "told", [])
    monkeypatch.setattr(Heard, "fails", False)
    return Heard


def test_nobody_is_told_anything_by_default(heard, tmp_path, monkeypatch) -> None:
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # to import it would raise
    assert train(CONFIG, tmp_path, quiet=True).status == "done"
    assert heard.told == []


def test_who_is_asked_for_is_told_every_point_of_the_curves(heard, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(ASKED, "heard")
    run = train(CONFIG, tmp_path, quiet=True)
    begin, *events, end = heard.told
    assert begin == ("begin", run.id)
    assert end == ("end", "done")
    points = {(step, split) for step, split, _ in events}
    assert points == {(step, split) for step, split, _, _ in run.metrics()}


def test_a_tracker_that_fails_is_named_and_training_goes_on(heard, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv(ASKED, "heard")
    monkeypatch.setattr(Heard, "fails", True)
    plain = train(CONFIG, tmp_path / "a", quiet=True)
    assert plain.status == "done"
    assert capsys.readouterr().err.count("the tracker heard failed and is not used any more: no network") == 1


def test_a_library_that_is_not_installed_is_a_warning(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv(ASKED, "wandb")
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert train(CONFIG, tmp_path, quiet=True).status == "done"
    assert "the tracker wandb failed" in capsys.readouterr().err


def test_weights_and_biases_gets_name_configuration_and_curves(tmp_path, monkeypatch) -> None:
    calls: list[object] = []

    class Session:
        def log(self, values, step):
            calls.append((step, sorted(values)))

        def finish(self, exit_code):
            calls.append(exit_code)

    def init(**about):
        calls.append((about["id"], about["config"]["training"]["steps"]))
        return Session()

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.setenv(ASKED, "wandb")
    run = train(CONFIG, tmp_path, quiet=True)
    assert calls[0] == (run.id, 4)
    assert any(step == 4 and "train/loss" in names for step, names in calls[1:-1])
    assert calls[-1] == 0, "the exit code of a run that is done"


class Server:
    """The part of MLflow that the tracker uses: runs with tags, parameters, points and a state."""

    def __init__(self):
        self.runs: dict[str, dict] = {}

    def search_runs(self, experiments, condition, max_results):
        wanted = condition.partition(" = ")[2].strip("'")
        ids = [i for i, run in self.runs.items() if wanted in run["tags"].values()]
        return [types.SimpleNamespace(info=types.SimpleNamespace(run_id=i)) for i in ids[:max_results]]

    def create_run(self, experiment, tags, run_name):
        self.runs[f"m{len(self.runs)}"] = {"tags": tags, "params": {}, "points": [], "state": "RUNNING"}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"m{len(self.runs) - 1}"))

    def update_run(self, run_id, status):
        self.runs[run_id]["state"] = status

    def log_param(self, run_id, name, value):
        params = self.runs[run_id]["params"]
        if params.setdefault(name, value) != value:
            raise ValueError(f"the parameter {name} cannot be changed")

    def log_metric(self, run_id, name, value, step):
        self.runs[run_id]["points"].append((step, name))

    def set_terminated(self, run_id, status):
        self.runs[run_id]["state"] = status


def test_mlflow_gets_settings_and_curves_and_continues_a_resumed_run(tmp_path, monkeypatch, capsys) -> None:
    server = Server()
    experiment = types.SimpleNamespace(experiment_id="0")
    library = types.SimpleNamespace(MlflowClient=lambda: server, set_experiment=lambda name: experiment)
    monkeypatch.setitem(sys.modules, "mlflow", library)
    monkeypatch.setenv(ASKED, "mlflow")
    run = train(CONFIG, tmp_path, quiet=True)
    ((first, about),) = server.runs.items()
    assert about["params"]["training.steps"] == 4
    assert about["state"] == "FINISHED"
    assert (4, "train/loss") in about["points"]
    resume(run, steps=6, quiet=True)
    assert list(server.runs) == [first], "no second run"
    assert (6, "train/loss") in about["points"]
    assert about["state"] == "FINISHED"
    train(CONFIG, tmp_path, quiet=True)
    assert len(server.runs) == 2
    assert "failed" not in capsys.readouterr().err


def test_a_tracker_hears_that_a_training_was_interrupted(heard, tmp_path, monkeypatch) -> None:
    def stop(progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv(ASKED, "heard")
    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, tmp_path, stop)
    assert heard.told[-1] == ("end", "interrupted")


def test_an_unknown_tracker_is_refused_before_a_folder_is_made(tmp_path, capsys) -> None:
    assert main(["train", "squares", "--track", "wandbb", "--runs", str(tmp_path / "runs")]) == 2
    assert "there is no tracker 'wandbb': did you mean 'wandb'" in capsys.readouterr().err
    assert not Store(tmp_path / "runs").runs()
