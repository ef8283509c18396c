"""The index of a run store: fast where it is true, and never believed where it is not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from polariscope.lab import index
from polariscope.lab.labels import label
from polariscope.lab.store import Store

CONFIG = {"world": {"name": "mini-sprites"}, "objective": {"name": "beta-vae", "beta": 4.0}, "training": {"seed": 0}}


@pytest.fixture
def store(tmp_path) -> Store:
    """A store of as many runs as an index is written for, changed long ago."""
    store = Store(tmp_path / "runs")
    for seed in range(index.WORTH):
        run = store.create(CONFIG | {"training": {"seed": seed}}, "x", status="done", run_id=f"run-{seed:03d}")
        examined = {"on": {"count": 10, "step": 3}, "types": {"active": seed}, "measures": {"mig": seed / 10}}
        run.update(result={"step": 3, "held_out_loss": seed / 2}, examinations=[examined])
    age(store)
    return store


def age(store: Store) -> None:
    for path in store.folders():
        os.utime(path / "run.json", (1_700_000_000, 1_700_000_000))


@pytest.fixture(autouse=True)
def settled(monkeypatch) -> None:
    """The time of change of a file cannot be set: for these tests the clock is a minute ahead."""
    real = index.time.time_ns
    monkeypatch.setattr(index.time, "time_ns", lambda: real() + 60 * 10**9)


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """The folders that were read."""
    read: list[str] = []
    real = index.checked_run
    monkeypatch.setattr(index, "checked_run", lambda path: read.append(path.name) or real(path))
    return read


def asked(store: Store) -> tuple[object, ...]:
    """Everything a store answers."""
    listing = store.listing()
    sums = "select sum(value) as total, count(distinct run) as runs from results where measure = 'measures_mig'"
    return listing.where("true"), listing.columns, listing.query(sums), listing.bases(), list(listing.problems)


def test_the_index_answers_what_the_folders_answer_and_reads_none_of_them(store, reads) -> None:
    slow = asked(store)
    assert len(reads) == index.WORTH
    reads.clear()
    assert (store.root / index.FILE).is_file()
    assert asked(store) == slow
    assert reads == []
    assert slow[2] == [{"total": pytest.approx(sum(range(50)) / 10), "runs": 50}]


def test_what_changed_is_read_again_and_nothing_else(store, reads) -> None:
    store.listing()
    reads.clear()
    store.open("run-003").update(result={"held_out_loss": -1.0}, status="failed")
    label(store, store.open("run-007"), name="seven", tags=["kept"])
    shutil.rmtree(store.root / "run-009")
    store.create({"world": {"name": "mini-sprites"}, "objective": {"name": "vae", "beta": "none"}}, "x", run_id="new")
    rows = {row["id"]: row for row in store.where("true")}
    assert sorted(reads) == ["new", "run-003", "run-007"]
    assert (rows["run-003"]["held_out_loss"], rows["run-003"]["status"]) == (-1.0, "failed")
    assert (rows["run-007"]["name"], rows["run-007"]["tags"]) == ("seven", ["kept"])
    assert "run-009" not in rows
    assert len(rows) == index.WORTH
    assert (rows["new"]["objective_beta"], rows["run-003"]["objective_beta"]) == ("none", "4.0"), "now it is text"


def test_an_edit_in_place_of_the_same_size_is_seen(store, reads) -> None:
    store.listing()
    reads.clear()
    file = store.root / "run-004" / "run.json"
    before = file.stat()
    file.write_text(file.read_text().replace('"held_out_loss": 2.0', '"held_out_loss": 9.0'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a tool does that keeps times
    assert file.stat().st_size == before.st_size
    assert store.where("id = 'run-004'")[0]["held_out_loss"] == 9.0
    assert reads == ["run-004"]


def test_a_change_of_the_last_moment_is_not_written_down_as_settled(store, reads, monkeypatch) -> None:
    monkeypatch.undo()  # the clock as it is: every file was written a moment ago
    store.listing()
    table = index._read(store.root)
    assert table is None or len(table) == 0


@pytest.mark.parametrize("damage", ["cut", "noise", "folder", "other code", "other columns"])
def test_an_index_that_is_damaged_or_of_other_code_is_made_again(store, reads, damage, monkeypatch) -> None:
    before = asked(store)
    file: Path = store.root / index.FILE
    whole = file.read_bytes()
    if damage == "cut":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "noise":
        file.write_bytes(b"ARROW1\0\0" + bytes(range(256)) * 20)
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    elif damage == "other code":
        monkeypatch.setattr(index, "_code", lambda: b"another")
    else:
        table = pa.table({"stamp": [1], "folder": ["run-001"]}).replace_schema_metadata({index.MADE_BY: index._code()})
        index.feather.write_feather(table, str(file))
    reads.clear()
    assert asked(store) == before
    assert len(reads) == index.WORTH


def test_a_store_that_cannot_be_written_is_listed_all_the_same(store, monkeypatch) -> None:
    def refuse(*about: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(index, "atomic", refuse)
    assert len(store.where("true")) == index.WORTH
    assert not (store.root / index.FILE).exists()


def test_a_damaged_run_is_reported_every_time_and_not_kept(store) -> None:
    (store.root / "run-002" / "run.json").write_text("{")
    (store.root / "run-005" / "labels.json").write_text("[]")
    for _ in range(2):
        listing = store.listing()
        assert len(listing.ids) == index.WORTH - 1
        assert sorted(problem.split()[3] for problem in listing.problems) == ["run", "run-002"]


def test_a_running_run_is_asked_what_it_is_doing(store) -> None:
    store.open("run-001").update(status="running")
    for _ in range(2):
        assert store.where("id = 'run-001'")[0]["status"] == "interrupted"


def test_a_copied_store_does_not_bring_its_index(store, reads, tmp_path) -> None:
    store.listing()
    copy = Store(shutil.copytree(store.root, tmp_path / "copy"))
    text = (copy.root / "run-001" / "run.json").read_text()
    (copy.root / "run-001" / "run.json").write_text(json.dumps(json.loads(text) | {"status": "other"}))
    reads.clear()
    assert {row["status"] for row in copy.where("true")} == {"done", "other"}
    assert len(reads) == index.WORTH
