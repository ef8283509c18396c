"""A study that is killed at random moments, driver and workers alike, ends as if nothing had happened."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import polariscope.atomic
from polariscope.lab.store import Run, Store
from polariscope.studies.engine import judge, run_study
from polariscope.studies.own import OwnStudy
from polariscope.training import checkpoint as checkpoints

STUDY = """
title = "Tiny runs"
[base.world]
name = "squares"
size = 8
[base.model]
latents = 2
[base.model.architecture]
name = "mlp"
encoder_widths = [8]
decoder_widths = [8]
[base.training]
steps = {steps}
batch_size = 8
evaluate_every = 0
checkpoint_every = 20
[grid]
seeds = {seeds}
"""
DRIVER = """
import sys
from pathlib import Path
from polariscope.studies.engine import run_study
from polariscope.studies.own import OwnStudy
from polariscope.training import checkpoint as checkpoints
if __name__ == "__main__":
    run_study(OwnStudy(Path(sys.argv[1]).read_text()), "tiny", "own", Path(sys.argv[2]), 2)
"""
KILLS = 50


def told(path: Path) -> list[tuple[object, ...]]:
    """All that a study came to, less its times; no run may be there twice."""
    outcome = judge(path / "table.parquet")
    runs = Store(path / "runs").runs()
    assert sorted(run.config["training"]["seed"] for run in runs) == [row["seed"] for row in outcome.table.rows]
    assert {run.state for run in runs} == {"done"}
    weights = {run.config["training"]["seed"]: bits(run) for run in runs}
    return [(row["seed"], row["train_loss"], weights[row["seed"]]) for row in outcome.table.rows]


def bits(run: Run) -> object:
    """The state of a run; the file itself may name its parts in any order."""
    tensors, progress = checkpoints.read(run.checkpoint)
    return {name: value.numpy().tobytes() for name, value in tensors.items()}, progress


def children(pid: int) -> list[int]:
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in words]


@pytest.mark.deep
def test_fifty_kills_of_driver_and_workers_lose_and_double_nothing(tmp_path) -> None:
    seeds, steps = 60, 3000
    file = tmp_path / "tiny.toml"
    file.write_text(STUDY.format(steps=steps, seeds=seeds))
    (tmp_path / "driver.py").write_text(DRIVER)
    dice = random.Random(0)
    kills = {"driver": 0, "worker": 0}
    words = [sys.executable, str(tmp_path / "driver.py"), str(file), str(tmp_path / "killed")]
    here = os.pathsep.join([str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    while sum(kills.values()) < KILLS:
        driver = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": here}, stderr=subprocess.DEVNULL)
        while driver.poll() is None and sum(kills.values()) < KILLS:
            time.sleep(dice.uniform(0.2, 6.0))
            workers = children(driver.pid)
            whom = "driver" if not workers or dice.random() < 0.4 else "worker"
            if driver.poll() is None:
                os.kill(driver.pid if whom == "driver" else dice.choice(workers), signal.SIGKILL)
                kills[whom] += 1
            if whom == "driver":
                break
        if driver.wait() == 0 and sum(kills.values()) < KILLS:
            break  # it came to its end: the machine is faster than the kills
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": here}, capture_output=True, text=True)
    if done.returncode:  # a worker that was killed twice at one job is given up, which is said; the next call goes on
        assert "ended without an error message, twice" in done.stderr
        done = subprocess.run(words, env={**os.environ, "PYTHONPATH": here}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert kills["driver"] >= 5
    assert kills["worker"] >= 5
    run_study(OwnStudy(file.read_text()), "tiny", "own", tmp_path / "whole", 1)
    assert told(tmp_path / "killed") == told(tmp_path / "whole")


def broken(number: int, code: int) -> object:
    """From its ``number``-th act on the disk on, the system refuses with an error."""
    acts = 0

    def fault(act: str, path: Path) -> None:
        nonlocal acts
        acts += 1
        if acts > number and act in ("draft", "written", "rename"):
            raise OSError(code, os.strerror(code), str(path))

    return fault


def _points(count: int, most: int) -> list[int]:
    return sorted(random.Random(1).sample(range(most), count))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("number", [3, 40, *(pytest.param(n, marks=pytest.mark.deep) for n in _points(25, 60))])
def test_a_disk_that_fills_up_or_turns_read_only_loses_nothing(code, number, tmp_path, faults) -> None:
    study = OwnStudy(STUDY.format(steps=4, seeds=2))

    def interrupted() -> None:
        polariscope.atomic.fault = broken(number, code)  # type: ignore[assignment]
        run_study(study, "tiny", "own", tmp_path / "broken", 1)

    assert faults.fork(interrupted) in (0, 1), "an error, or an end before the fault"
    run_study(study, "tiny", "own", tmp_path / "broken", 1)
    run_study(study, "tiny", "own", tmp_path / "whole", 1)
    assert told(tmp_path / "broken") == told(tmp_path / "whole")
    assert json.loads((tmp_path / "broken" / "findings.json").read_text())["headline"]
