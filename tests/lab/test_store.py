"""The run store: atomic, queried with SQL, and never offended by a foreign folder."""

import json
import os

import pytest

from polariscope.atomic import atomic
from polariscope.lab import Run, Store

CONFIG = {"world": {"name": "sprites", "size": 64}, "objective": {"name": "beta-vae", "beta": 4.0}, "steps": 10}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "runs")


def test_a_run_is_a_folder_with_a_record(store) -> None:
    run = store.create(CONFIG, "sprites beta-VAE")
    assert run.id.split("-", 2)[2].startswith("sprites-beta-vae-")
    assert run.config == CONFIG
    assert run.status == "running"
    record = json.loads((run.path / "run.json").read_text())
    assert record["schema"] == 1
    assert "torch" in record["environment"]
    run.update(status="done", result={"loss": 1.5})
    run.update(result={"kl": 0.5})
    assert Run(run.path).result == {"loss": 1.5, "kl": 0.5}
    assert run.status == "done"


def test_metrics_come_back_as_written(store) -> None:
    run = store.create(CONFIG, "a")
    assert run.metrics() == []
    rows = [
        (1, "train", "loss", 2.0),
        (1, "train", "kl", 0.25),
        (2, "train", "loss", 1.0),
        (2, "held_out", "loss", 9.0),
    ]
    run.write_metrics(rows)
    assert run.metrics() == rows
    assert run.curve("loss") == ([1, 2], [2.0, 1.0])
    (run.path / "metrics.parquet").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="metrics of run .* cannot be read"):
        run.metrics()


def test_runs_are_queried_with_sql(store) -> None:
    for beta, loss in ((1.0, 10.0), (4.0, 20.0)):
        run = store.create({**CONFIG, "objective": {"name": "beta-vae", "beta": beta}}, "x")
        run.write_metrics([(1, "train", "loss", loss), (2, "train", "loss", loss / 2)])
        run.update(status="done", result={"loss": loss / 2})
    assert store.query("select objective, objective_beta, loss from runs where loss > 6") == [
        {"objective": "beta-vae", "objective_beta": 4.0, "loss": 10.0}
    ]
    joined = store.query(
        "select objective_beta as beta, min(value) as low from metrics join runs on run = id group by 1 order by 1"
    )
    assert joined == [{"beta": 1.0, "low": 5.0}, {"beta": 4.0, "low": 10.0}]
    with pytest.raises(ValueError, match=r"the query failed: .*\(columns of runs: "):
        store.query("select nonsense from runs")


def test_runs_open_by_parts_of_their_name(store) -> None:
    first = store.create(CONFIG, "a", run_id="2026-one")
    second = store.create(CONFIG, "b", run_id="2026-two")
    assert store.open("2026-one") == first
    assert store.open("two") == second
    assert store.open(first.path) == first
    os.utime(first.path / "run.json")
    assert store.open("latest") in (first, second)
    with pytest.raises(ValueError, match="2 runs .* match '2026'"):
        store.open("2026")
    with pytest.raises(ValueError, match="no run 'three'"):
        store.open("three")
    with pytest.raises(ValueError, match="there is a run 2026-one already"):
        store.create(CONFIG, "a", run_id="2026-one")


def test_damaged_and_foreign_folders_are_reported_and_left_alone(store) -> None:
    good = store.create(CONFIG, "good")
    cases = {
        "photos": ({}, "photos is not a run folder"),
        "broken": ({"run.json": '{"schema": 1,'}, "broken is damaged: run.json is not readable JSON"),
        "other": ({"run.json": '{"hello": 1}'}, "has no schema number"),
        "future": ({"run.json": '{"schema": 99}'}, "schema 99; this version reads up to 1"),
        "partial": ({"run.json": '{"schema": 1, "kind": "train"}'}, "lacks config, created, result, status"),
    }
    for name, (files, _) in cases.items():
        (store.root / name).mkdir()
        for file, text in files.items():
            (store.root / name / file).write_text(text)
    assert store.runs() == [good]
    for (name, (_, sentence)), problem in zip(sorted(cases.items()), sorted(store.problems), strict=False):
        assert any(sentence in p for p in store.problems), (name, problem)
    assert len(store.problems) == len(cases)
    assert all((store.root / name).is_dir() for name in cases)


def test_an_unwritable_folder_is_said(tmp_path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(OSError, match=r"cannot write to the run folder .*file"):
        Store(blocked / "runs").create(CONFIG, "x")


def test_a_file_appears_whole_or_not_at_all(tmp_path) -> None:
    target = tmp_path / "a.txt"
    with atomic(target) as draft:
        draft.write_text("first")
        assert not target.exists()
    with pytest.raises(RuntimeError), atomic(target) as draft:
        draft.write_text("second, ha")
        raise RuntimeError
    assert target.read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]
