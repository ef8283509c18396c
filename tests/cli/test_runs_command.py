"""``runs``: what is damaged is said and skipped, what is asked cannot do harm, and whoever stops reading is let go."""

import json
import os
import stat

import pytest
from filelock import FileLock

from polariscope.cli import main
from polariscope.lab import Store

CONFIG = {"world": {"name": "sprites"}, "objective": {"name": "vae"}, "training": {"seed": 1}}


@pytest.fixture
def store(tmp_path) -> Store:
    """Two runs that were never trained; the last one has damaged metrics."""
    store = Store(tmp_path / "runs")
    for label in ("good", "bad"):
        store.create(CONFIG, label).write_metrics([(1, "train", "loss", 2.0)])
    (store.open("latest").path / "metrics.parquet").write_bytes(b"junk")
    return store


def test_damage_is_said_on_standard_error_and_the_rest_is_shown(run, store) -> None:
    good, bad = store.runs()
    (store.root / "zzz").mkdir()
    (store.root / "zzz" / "run.json").write_text('{"schema": true}')
    code, out, err = run("runs", "--sql", "select run from metrics", "--json")
    assert (code, json.loads(out)) == (0, [{"run": good.id}])
    skipped = err.splitlines()
    assert [line.split(": ")[0] for line in skipped] == ["skipped", "skipped"]
    assert "zzz is not a run folder of this program" in skipped[0]
    assert f"the metrics of run {bad.id} cannot be read" in skipped[1]
    code, out, err = run("runs", "--columns", "id", "--json")
    assert (code, [row["id"] for row in json.loads(out)]) == (0, [good.id, bad.id])
    assert len(err.splitlines()) == 1
    code, out, err = run("examine", "latest", "--out", "x.html")  # it was never trained, but it was found
    assert code == 2
    assert err.startswith("skipped: zzz is not a run folder")
    assert err.splitlines()[1].endswith("no checkpoint to load: it is running at step 0")


@pytest.mark.parametrize(
    "words",
    [
        ["--where", "true; copy runs to 'out.csv'"],
        ["--where", "exists (select * from read_csv('secret.csv'))"],
        ["--sql", "copy runs to 'out.csv'"],
        ["--sql", "select * from 'secret.csv'"],
    ],
)
def test_questions_reach_no_file(run, store, tmp_path, words) -> None:
    (tmp_path / "secret.csv").write_text("password\nopen sesame\n")
    code, out, err = run("runs", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert "sesame" not in err
    assert not (tmp_path / "out.csv").exists()


def test_what_stands_in_a_record_is_shown_as_it_is(run, store) -> None:
    store.create({"world": {"name": "[/nonsense]"}, "objective": {"name": "\x1b[2Jgone"}}, "x")
    code, out, _ = run("runs", "--columns", "world", "objective")
    assert code == 0
    assert "[/nonsense]" in out
    assert "\x1b" not in out
    assert "x1b" in out
    assert run("runs", "--sql", 'select 1 as "[/red]"')[:2] == (0, " [/red] \n 1      \n")


def test_an_unknown_column_names_the_nearest(run, store) -> None:
    code, _, err = run("runs", "--columns", "id", "training_sed")
    assert code == 2
    assert "no run has a column 'training_sed': did you mean 'training_seed'?" in err
    code, out, _ = run("runs", "--columns", "training_seed", "held_out_loss", "--json")
    assert (code, json.loads(out)[0]) == (0, {"training_seed": 1, "held_out_loss": None})


@pytest.mark.parametrize(
    "words",
    [["runs"], ["runs", "--json"], ["studies"], ["runs", "--help"], ["--help"], ["runs", "--where", "no"]],
)
def test_whoever_reads_no_further_is_let_go_quietly(run, store, monkeypatch, words) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", closed)
        if "no" in words:
            patch.setattr("sys.stderr", closed)
        assert main(words) == 141
    assert not run("version")[2]


def test_all_files_of_a_run_have_the_same_mode(run, small, tmp_path) -> None:
    before = os.umask(0o027)
    try:
        assert run("train", "sprites", *small, "--training.snapshot-every", "3")[0] == 0
        assert run("examine", "latest", "--count", "64")[0] == 0
    finally:
        os.umask(before)
    (found,) = Store(tmp_path / "runs").runs()
    files = [file for file in found.path.rglob("*") if file.is_file()]
    assert len(files) == 8
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in files} == {file.name: 0o640 for file in files}


def test_a_run_that_may_not_be_written_is_examined_elsewhere(run, trained, tmp_path, monkeypatch) -> None:
    found = trained()

    def state() -> dict:
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "runs").rglob("*")}

    before = state()
    code, out, err = run("examine", found.id, "--count", "64", "--out", "elsewhere/report.html", "--json")
    assert code == 0, err
    assert "<html" in (tmp_path / "elsewhere" / "report.html").read_text()
    assert state() == before, "not even a lock"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the mode of a folder does not bind the superuser
    code, out, err = run("examine", found.id)
    assert (code, out) == (2, "")
    assert "cannot be written to: say with --out where the report goes" in err
    assert state() == before


def test_a_run_in_use_is_examined_but_not_trained(run, trained, tmp_path) -> None:
    found = trained()
    found.update(status="interrupted")
    note = found.path.with_name(f".{found.id}.holder")
    with FileLock(found.path.with_name(f".{found.id}.lock")):  # a lock of its own, as another process has
        note.write_text(json.dumps({"pid": 4711, "host": "elsewhere", "since": "2026-01-01 00:00:00"}))
        code, out, err = run("train", "--resume", found.id)
        assert (code, out) == (2, "")
        assert err == (
            f"error: run {found.id} is in use by process 4711 on elsewhere since 2026-01-01 00:00:00: "
            "wait for it, or stop it first\n"
        )
        code, out, err = run("examine", found.id, "--count", "64", "--json")
        assert code == 0
        assert "not noted in run.json" in err
        assert (found.path / "report.html").exists()
    code, out, _ = run("train", "--resume", found.id, "--json")
    assert (code, json.loads(out)["status"]) == (0, "done")
