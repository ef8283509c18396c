"""Ctrl-C: everything stops at once, what was trained is kept, and the sentence that is printed goes on with it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.training import checkpoint

ENDLESS = """
import os, sys
from polariscope.cli import main
from polariscope.lab import executors

executors.GRACE = 600.0  # however busy the machine is
os.cpu_count = lambda: 2
sys.exit(main())
"""
PATIENCE = 240
"""Seconds after which something hangs, however busy the machine is: a test that hangs tells nobody why."""


@pytest.mark.deep  # what is light of it is in tests/lab/test_executors.py: three processes that train take their time
def test_one_key_stops_trainings_in_processes_of_their_own(small, tmp_path) -> None:
    """As a terminal does it: the signal goes to every process of the group, workers included."""
    words = ["train", "sprites", *small, "--training.steps", "10000000", "--training.snapshot-every", "50"]
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, *words, "--seeds", "3", "--runs", "my runs"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    records = tmp_path / "my runs"
    deadline = time.monotonic() + PATIENCE
    while len({file.parent for file in records.glob("*/snapshots/*")}) < 2 and process.poll() is None:
        assert time.monotonic() < deadline, "two trainings never began"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    # A worker that was left would also have kept the pipes open, and communicate() from returning.
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline + PATIENCE:  # the tracker of Python's own ends a moment after us
            os.killpg(process.pid, 0)
            time.sleep(0.02)
    assert "Traceback" not in out + err
    runs = Store(records).runs()
    assert [run.status for run in runs] == ["interrupted", "interrupted", "queued"], "queued jobs never begin"
    ids = [word for run in runs for word in ("--resume", run.id)]
    assert going_on(err) == ["train", *ids, "--runs", "my runs"]
    begun = runs[:2]
    assert all(run.result["step"] >= 50 for run in begun)
    assert [checkpoint.read(run.checkpoint)[1]["step"] for run in begun] == [run.result["step"] for run in begun]


def stop(*arguments, **options) -> None:
    raise KeyboardInterrupt


def going_on(err: str) -> list[str]:
    """The words of the command that an interrupted one printed as its last line."""
    sentence, _, command = err.splitlines()[-1].partition(": ")
    assert sentence == "interrupted; continue with"
    name, *words = shlex.split(command)
    assert name == "polariscope"
    return words


def test_a_training_that_was_interrupted_goes_on_by_the_command_it_printed(run, small, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)  # every step is told

    @contextmanager
    def impatient(names, steps, quiet):
        yield [lambda point: os.kill(os.getpid(), signal.SIGINT) if point.step == 3 else None]

    monkeypatch.setattr("polariscope.cli.train.bars", impatient)
    code, out, err = run("train", "sprites", *small, "--runs", "here/my runs")
    assert (code, out) == (130, "")
    (result,) = Store(tmp_path / "here/my runs").runs()
    assert (result.status, result.result["step"]) == ("interrupted", 4)
    words = going_on(err)
    assert words == ["train", "--resume", result.id, "--runs", "here/my runs"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    result.reload()
    assert (result.status, result.result["step"]) == ("done", 6)


@pytest.mark.usefixtures("one_process")
def test_several_seeds_that_were_interrupted_go_on_together(run, small, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("polariscope.cli.train.finish", stop)
        code, _, err = run("train", "sprites", *small, "--seeds", "3")
    assert code == 130
    first, second, third = Store(tmp_path / "runs").runs()
    assert {each.status for each in (first, second, third)} == {"queued"}
    words = going_on(err)
    assert words == ["train", "--resume", first.id, "--resume", second.id, "--resume", third.id]
    assert run("train", "--resume", second.id)[0] == 0
    code, out, _ = run(*words)
    assert code == 0
    assert [line.split(":")[0].removesuffix(" (best)") for line in out.splitlines()] == [
        "seed 0",
        "seed 1",
        "seed 2",
        "next",
    ]
    # What is done is not asked for again.
    with monkeypatch.context() as patch:
        patch.setattr("polariscope.cli.train.finish", stop)
        third.update(status="interrupted")
        assert going_on(run(*words)[2]) == ["train", "--resume", third.id]


@pytest.mark.usefixtures("one_process", "undrawn")
def test_a_demo_trains_two_models_and_writes_a_report_also_if_it_was_interrupted(run, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("polariscope.cli.demo.finish", stop)
        code, _, err = run("demo", "--steps", "4", "--size", "16", "--examples", "64")
    assert code == 130
    words = going_on(err)
    (demo,) = [each for each in Store(tmp_path / "runs").runs() if each.record["kind"] == "demo"]
    assert demo.status == "interrupted"
    assert words == ["demo", "--resume", demo.id]
    code, out, err = run(*words, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["runs"] == demo.config["runs"]
    assert len(result["runs"]) == 2
    assert Path(result["report"]).read_text().count("beta") > 2
    assert all((tmp_path / "runs" / name / "report.html").exists() for name in (demo.id, *result["runs"]))
    assert {each.status for each in Store(tmp_path / "runs").runs()} == {"done"}
    code, _, err = run("demo", "--resume", demo.config["runs"][0])
    assert code == 2
    assert "is not a demo" in err


def test_an_interrupt_anywhere_else_says_what_was_asked(run, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.cli.worlds.parse", stop)
    assert run("worlds") == (130, "", "interrupted; start again with: polariscope worlds\n")
