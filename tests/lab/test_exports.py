"""Runs for other programs: what was written is read back, by a reader of our own and by TensorBoard itself."""

from __future__ import annotations

import csv
import json
import struct

import pytest

from polariscope.cli import main
from polariscope.lab.exports import crc32c, event, export, framed, masked
from polariscope.lab.store import Store

ROWS = [
    (50, "train", "loss", 3.5),
    (100, "train", "loss", 1e300),
    (100, "held_out", "kl", float("nan")),
    (300, "train", "kl", -2.25),
]


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "runs")
    for name in ("one", "two"):
        run = store.create({"world": {"name": "squares"}, "training": {"seed": 1}}, name, run_id=name, status="done")
        run.write_metrics(ROWS)
        measured = {"on": {"count": 10, "step": 300}, "types": {"active": 2}, "measures": {"mig": 0.25, "sap": None}}
        run.update(result={"step": 300, "steps_per_second": 10.0}, examinations=[measured])
    return store


def read(data: bytes) -> list[dict[str, object]]:
    """Events of a file, its checksums checked; a reader of its own, after the public format."""
    result = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        message, data = data[12 : 12 + length], data[12 + length :]
        assert struct.unpack("<I", data[:4])[0] == masked(message)
        data = data[4:]
        result.append(fields(message))
    return result


def fields(message: bytes) -> dict[str, object]:
    event: dict[str, object] = {}
    for number, value in parts(message):
        if number == 1:
            event["time"] = struct.unpack("<d", value)[0]
        elif number == 2:
            event["step"] = value
        elif number == 3:
            event["version"] = value.decode()
        elif number == 5:
            for _, inner in parts(value):
                scalar = dict(parts(inner))
                event["tag"], event["value"] = scalar[1].decode(), struct.unpack("<f", scalar[2])[0]
    return event


def parts(message: bytes):
    while message:
        key, message = varint(message)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, message = varint(message)
        elif kind == 2:
            size, message = varint(message)
            value, message = message[:size], message[size:]
        else:
            size = {1: 8, 5: 4}[kind]
            value, message = message[:size], message[size:]
        yield number, value


def varint(message: bytes) -> tuple[int, bytes]:
    number = shift = 0
    for place, byte in enumerate(message):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, message[place + 1 :]
    raise AssertionError("a number without an end")


def test_checksums_are_those_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA, "RFC 3720, appendix B.4"
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("step", [0, 1, 127, 128, 300, 2**40])
def test_an_event_is_read_back(step) -> None:
    (result,) = read(framed(event(12.5, step, ("train/loss", 0.5))))
    assert result == {"time": 12.5, "step": step, "tag": "train/loss", "value": 0.5}


def test_event_files_hold_curves_and_measures(store, tmp_path) -> None:
    files = export(store.runs(), tmp_path / "out", "tensorboard")
    assert [file.parent.name for file in files] == ["one", "two"]
    first, *points = read(files[0].read_bytes())
    assert first["version"] == "brain.Event:2"
    tags_and_steps = [(point["tag"], point["step"]) for point in points]
    assert tags_and_steps == [
        ("train/loss", 50),
        ("train/loss", 100),
        ("held-out/kl", 100),
        ("train/kl", 300),
        ("types/active", 300),
        ("measures/mig", 300),
    ]
    assert [point["value"] for point in points[:2]] == [3.5, float("inf")]
    assert points[1]["time"] - points[0]["time"] == pytest.approx(5.0), "50 steps at 10 a second"


def test_csv_holds_runs_and_metrics(store, tmp_path, capsys) -> None:
    words = ["runs", "export", "--to", "csv", "--runs", str(store.root), "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == 2
    metrics = list(csv.DictReader((tmp_path / "out" / "metrics.csv").read_text().splitlines()))
    assert len(metrics) == 8
    assert (metrics[0]["run"], metrics[0]["step"], float(metrics[0]["value"])) == ("one", "50", 3.5)
    runs = list(csv.DictReader((tmp_path / "out" / "runs.csv").read_text().splitlines()))
    assert [(row["id"], row["training_seed"], row["measures_mig"]) for row in runs] == [
        ("one", "1", "0.25"),
        ("two", "1", "0.25"),
    ]


def test_runs_are_chosen_by_name_or_condition(store, tmp_path, capsys) -> None:
    out = str(tmp_path / "out")
    assert main(["runs", "export", "two", "--runs", str(store.root), "--out", out]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["two"]
    assert main(["runs", "export", "--where", "step > 999", "--runs", str(store.root), "--out", out]) == 2
    assert "no runs match" in capsys.readouterr().err


@pytest.mark.deep
def test_tensorboard_reads_the_files(store, tmp_path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (file, _) = export(store.runs(), tmp_path / "out", "tensorboard")
    reader = accumulator.EventAccumulator(str(file.parent))
    reader.Reload()
    assert [(point.step, point.value) for point in reader.Scalars("train/loss")] == [(50, 3.5), (100, float("inf"))]
