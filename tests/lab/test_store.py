"""The run store: atomic, queried with SQL, and never offended by a foreign folder."""

import itertools
import json
import os
import secrets
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polariscope.lab import Run, Store
from polariscope.lab.holding import hold

pytestmark = pytest.mark.usefixtures("queries_here")

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
    with pytest.raises(ValueError, match=r"the query failed: there is no column 'los': did you mean 'loss'"):
        store.query("select los from runs")


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
    with pytest.raises(ValueError, match="there is already a run 2026-one in"):
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


def record(**changes) -> dict:
    text = {"schema": 1, "kind": "train", "created": "2026", "status": "done", "config": CONFIG, "result": {}}
    return {**text, **changes}


DAMAGED = {
    "config a list": (record(config=[1]), "config in run.json is not a section"),
    "result text": (record(result="none"), "result in run.json is not a section"),
    "created a number": (record(created=7), "created in run.json is not text"),
    "status a list": (record(status=[]), "status in run.json is not text"),
    "kind nothing": (record(kind=None), "kind in run.json is not text"),
    "environment a number": (record(environment=3), "environment in run.json is not a section"),
    "updated a number": (record(updated=3), "updated in run.json is not text"),
    "schema true": (record(schema=True), "has no schema number"),
    "schema a fraction": (record(schema=1.0), "has no schema number"),
    "schema zero": (record(schema=0), "has no schema number"),
    "half a pair": (record(kind="\ud800"), "is not readable JSON"),
    "not UTF-8": (b'{"schema": "\xff"}', "is not readable JSON"),
    "a long number": (b'{"schema": ' + b"1" * 5000 + b"}", "is not readable JSON"),
    "too deep": (b"[" * 100_000, "is not readable JSON"),
    "deep": (json.dumps(record()).encode()[:-1] + b', "x": ' + b"[" * 500 + b"]" * 500 + b"}", "nested more than 100"),
    "empty": (b"", "is not readable JSON"),
    "a list": (b"[]", "has no schema number"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_one_damaged_record_is_said_and_hides_no_other_run(store, damage) -> None:
    content, sentence = DAMAGED[damage]
    good = store.create(CONFIG, "good")
    folder = store.root / "zzz-damaged"
    folder.mkdir()
    (folder / "run.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    assert store.runs() == [good]
    (problem,) = store.problems
    assert "zzz-damaged" in problem
    assert sentence in problem
    assert problem.isprintable()
    assert [row["id"] for row in store.query("select id from runs")] == [good.id]
    assert store.problems == [problem]
    assert store.open("latest") == good
    assert store.open(good.id[:12]) == good
    with pytest.raises(ValueError, match="zzz-damaged"):
        store.open("zzz-damaged")


def test_what_is_no_file_or_may_not_be_read_is_said(store, monkeypatch) -> None:
    good, closed = store.create(CONFIG, "good"), store.create(CONFIG, "closed")
    (store.root / "folder" / "run.json").mkdir(parents=True)
    (store.root / b"not utf-8 \xff".decode(errors="surrogateescape")).mkdir()
    foreign = store.root / b"not utf-8 \xff".decode(errors="surrogateescape") / "run.json"
    foreign.write_text(json.dumps(record()))
    read = Path.read_text

    def refusing(path, *arguments, **options):  # the mode of a file does not bind the superuser
        if path.parent == closed.path:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", refusing)
    assert store.runs() == [good]
    assert len(store.query("select * from runs")) == 1
    problems = sorted(store.problems)
    assert len(problems) == 3
    assert f"{closed.id} cannot be read: Permission denied" in problems[0]
    assert "folder cannot be read: Is a directory" in problems[1]
    assert "not utf-8" in problems[2]
    assert all(problem.isprintable() for problem in problems)


@pytest.mark.parametrize("damage", ["junk", "other columns", "other types", "no text", "a folder", "cut off"])
def test_damaged_metrics_are_said_and_hide_no_others(store, damage) -> None:
    good, bad = store.create(CONFIG, "good"), store.create(CONFIG, "bad")
    for run in (good, bad):
        run.write_metrics([(1, "train", "loss", 2.0)])
    file = bad.path / "metrics.parquet"
    if damage == "junk":
        file.write_bytes(b"PAR1 and then nonsense PAR1")
    elif damage == "cut off":
        file.write_bytes(file.read_bytes()[:-9])
    elif damage == "other columns":
        pq.write_table(pa.table({"step": [1], "loss": [2.0]}), file)
    elif damage == "no text":
        letters = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff")]
        )
        pq.write_table(pa.table({"step": [1], "split": letters, "term": ["loss"], "value": [2.0]}), file)
    elif damage == "other types":
        pq.write_table(pa.table({"step": ["1"], "split": ["train"], "term": ["loss"], "value": ["2"]}), file)
    else:
        file.unlink()
        file.mkdir()
    assert store.query("select run, value from metrics") == [{"run": good.id, "value": 2.0}]
    (problem,) = store.problems
    assert f"the metrics of run {bad.id} cannot be read" in problem
    assert problem.isprintable()
    assert len(store.query("select id from runs")) == 2
    assert not store.problems, "metrics are read only if they are asked for"
    with pytest.raises(ValueError, match="cannot be read"):
        bad.metrics()


def test_metrics_can_be_asked_for_before_there_are_any(store) -> None:
    assert store.query("select count(*) as n from metrics") == [{"n": 0}]
    store.create(CONFIG, "x")
    assert store.query("select run, step, split, term, value from Metrics") == []


def test_runs_need_not_agree_about_the_type_of_a_setting(store) -> None:
    odd = [1, "one", 2.5, True, None, 10**400, [1, 2], {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}}]
    for value in odd:
        store.create({"size": value, "big": 10**30, "name": "x", "id": "mine", "Size": 1}, "x")
    rows = store.where("true")
    assert {row["id"] for row in rows} == {run.id for run in store.runs()}
    assert [row["size"] for row in rows[:5]] == ["1", "one", "2.5", "true", None]
    assert rows[0]["name"] is None, "a setting does not pass for the name that people gave"
    assert {row["big"] for row in rows} == {str(10**30)}
    assert '"h": 1' in str(rows[7].values())


def test_the_latest_is_the_one_changed_last(store) -> None:
    first, second = store.create(CONFIG, "a"), store.create(CONFIG, "b")
    records = {first: "2026-01-02T00:00:00.000+00:00", second: "2026-01-01T00:00:00.000+00:00"}
    for run, updated in records.items():
        text = json.loads((run.path / "run.json").read_text())
        (run.path / "run.json").write_text(json.dumps({**text, "updated": updated}))
    assert store.open("latest") == first
    second.update(status="done")
    assert store.open("latest") == second


NAMES = ["../../x", "a/b", "/etc", "", ".", "..", ".hidden", "a\0b", "a" * 5000, "a b", "-x", "é", "a\nb", "a\\b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_never_made_outside_of_its_store(store, tmp_path, name) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a run") as refusal:
        store.create(CONFIG, "x", run_id=name)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_opens_nothing(store, tmp_path, monkeypatch, name) -> None:
    store.create(CONFIG, "x")
    hidden = store.create(CONFIG, "x")
    hidden.path.rename(store.root / ".hidden")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there is no run|opened by its id") as refusal:
        store.open(name)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600


def test_a_folder_is_opened_from_within(store, monkeypatch) -> None:
    run = store.create(CONFIG, "x")
    monkeypatch.chdir(run.path)
    assert Store(Path("runs")).open(".").id == run.id
    (run.path / "snapshots").mkdir()
    monkeypatch.chdir(run.path / "snapshots")
    assert Store(Path("runs")).open("..").id == run.id


def test_a_pipe_in_the_place_of_a_record_keeps_nobody_waiting(store) -> None:
    good = store.create(CONFIG, "good")
    (store.root / "pipe").mkdir()
    os.mkfifo(store.root / "pipe" / "run.json")
    assert store.runs() == [good]
    assert "run.json is not a regular file" in store.problems[0]
    os.mkfifo(good.path / "metrics.parquet")
    with pytest.raises(ValueError, match="metrics.parquet is not a regular file"):
        good.metrics()


def test_what_was_killed_while_it_ran_is_interrupted(store) -> None:
    run = store.create(CONFIG, "x")
    assert (run.status, run.state) == ("running", "interrupted"), "nobody holds it"
    assert store.query("select status from runs") == [{"status": "interrupted"}]
    with hold(run.path):
        assert run.state == "running"
        assert store.query("select status from runs") == [{"status": "running"}]
    run.update(status="done")
    assert run.state == "done"


def test_chance_gives_no_name_twice(store, monkeypatch) -> None:
    """In one second, with a die that falls on the same side every time until it has many sides."""
    monkeypatch.setattr(secrets, "token_hex", lambda digits: "ab" * digits if digits < 16 else next(sides))
    sides = map(str, itertools.count())
    assert len({store.create(CONFIG, "x").id for _ in range(10)}) == 10
    assert len(store.runs()) == 10


def test_a_kill_while_a_run_is_made_leaves_all_of_it_or_nothing(store, faults) -> None:
    def create() -> None:
        Store(store.root).create(CONFIG, "x", run_id="victim")

    for number in itertools.count():
        if not faults.killed_at(number, create):
            break
        if (store.root / "victim").exists():
            assert store.open("victim").config == CONFIG
        else:
            assert store.runs() == []
            assert store.problems == []
            assert faults.fork(create) == 0, "nothing is in the way of the next"
            assert store.open("victim").config == CONFIG
        shutil.rmtree(store.root / "victim")
    assert number == 9, "draft, written, sync, rename and sync of the record; draft, sync, rename, sync of the folder"
    assert [path.name for path in store.root.iterdir()] == ["victim"], "what the dead left is swept"


def test_a_half_made_run_of_an_earlier_version_is_in_nobodys_way(store) -> None:
    dead = 2**22 + 1  # more than any process has
    (store.root / "empty").mkdir(parents=True)
    (store.root / "drafted").mkdir()
    (store.root / "drafted" / f".run.json.{dead}.draft").write_text('{"sche')
    (store.root / "photos").mkdir()
    (store.root / "photos" / "me.jpg").write_text("me")
    assert store.create(CONFIG, "x", run_id="empty").config == CONFIG
    assert store.create(CONFIG, "x", run_id="drafted").config == CONFIG
    with pytest.raises(ValueError, match="photos is not a run, but has the name of this run: move it elsewhere"):
        store.create(CONFIG, "x", run_id="photos")
    assert (store.root / "photos" / "me.jpg").read_text() == "me"


def test_a_full_disk_is_said_with_what_was_being_written(store, faults) -> None:
    run = store.create(CONFIG, "x")
    before = run.path.joinpath("run.json").read_bytes()
    for number in range(4):
        words = "the disk is full: .*run.json could not be written and is as it was before; free some space"
        with pytest.raises(OSError, match=words), faults.full_disk(number):
            run.update(status="done")
        assert run.path.joinpath("run.json").read_bytes() == before
        assert [path.name for path in run.path.iterdir()] == ["run.json"]
    with pytest.raises(OSError, match="the disk is full: .*new"), faults.full_disk(1):
        store.create(CONFIG, "x", run_id="new")
    assert not (store.root / "new").exists()
