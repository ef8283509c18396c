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
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")]),
}


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
    """A study that comes to its end before the fiftieth kill is followed by the same study in another folder."""
    file = tmp_path / "tiny.toml"
    file.write_text(STUDY.format(steps=3000, seeds=60))
    (tmp_path / "driver.py").write_text(DRIVER)
    dice = random.Random(0)
    kills = {"driver": 0, "worker": 0}
    folders = [tmp_path / "killed-0"]

    def words() -> list[str]:
        return [sys.executable, str(tmp_path / "driver.py"), str(file), str(folders[-1])]

    while sum(kills.values()) < KILLS:
        driver = subprocess.Popen(words(), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        while driver.poll() is None and sum(kills.values()) < KILLS:
            time.sleep(dice.uniform(0.2, 6.0))
            workers = children(driver.pid)
            whom = "driver" if not workers or dice.random() < 0.4 else "worker"
            if driver.poll() is None:
                os.kill(driver.pid if whom == "driver" else dice.choice(workers), signal.SIGKILL)
                kills[whom] += 1
            if whom == "driver":
                break
        if driver.poll() is None and sum(kills.values()) == KILLS:
            driver.kill()
        if driver.wait() == 0:
            folders.append(tmp_path / f"killed-{len(folders)}")
    finish(words(), "ended without an error message, twice")
    assert kills["driver"] >= 5
    assert kills["worker"] >= 5
    run_study(OwnStudy(file.read_text()), "tiny", "own", tmp_path / "whole", 1)
    for folder in folders:
        assert told(folder) == told(tmp_path / "whole")


def finish(words: list[str], given_up: str, folder: Path | None = None) -> None:
    """Run a command to its end. A job whose worker was killed too often is given up, which the error says; the next
    call continues."""
    done = subprocess.run(words, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        assert given_up in done.stderr
        done = subprocess.run(words, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


KEEPER = """
import os, sys
from polariscope.lab.ray_executor import QUIET
os.environ.update(QUIET)
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
print("address", cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(0), allow_graceful=False)
    nodes.append(cluster.add_node(num_cpus=1))
    print("killed", flush=True)
cluster.shutdown()
"""
CLUSTER_KILLS = 12


@pytest.mark.deep
def test_kills_of_driver_workers_and_nodes_of_a_cluster_lose_and_double_nothing(tmp_path) -> None:
    """Two nodes beside the head; a node that is killed is replaced by a new one."""
    pytest.importorskip("ray")
    (tmp_path / "tiny.toml").write_text(STUDY.format(steps=2000, seeds=12))
    (tmp_path / "keeper.py").write_text(KEEPER)
    dice = random.Random(0)
    kills = {"driver": 0, "worker": 0, "node": 0}
    keeper = subprocess.Popen(
        [sys.executable, str(tmp_path / "keeper.py")],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    rounds = 0
    try:
        address = next(line.split()[1] for line in keeper.stdout if line.startswith("address"))

        def words() -> list[str]:
            out = ["--out", f"results-{rounds}"]
            base = [sys.executable, "-m", "polariscope", "study", "tiny.toml", *out]
            return [*base, "--executor", "ray", "--address", address, "--workers", "2"]

        while sum(kills.values()) < CLUSTER_KILLS:
            driver = subprocess.Popen(
                words(), cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while driver.poll() is None and sum(kills.values()) < CLUSTER_KILLS:
                time.sleep(dice.uniform(2.0, 12.0))
                workers = jobs_below(keeper.pid)
                whom = min(kills, key=lambda name: (kills[name], dice.random()))
                if driver.poll() is not None or not workers:
                    continue
                if whom == "node":
                    keeper.stdin.write("node\n")
                    keeper.stdin.flush()
                    next(line for line in keeper.stdout if line.startswith("killed"))
                else:
                    os.kill(driver.pid if whom == "driver" else dice.choice(workers), signal.SIGKILL)
                kills[whom] += 1
            if driver.poll() is None:
                driver.kill()
            if driver.wait() == 0:
                rounds += 1
        finish(words(), "ended without an error message, 4 times", tmp_path)
    finally:
        keeper.stdin.close()
        keeper.wait()
    assert kills == dict.fromkeys(kills, CLUSTER_KILLS // 3)
    run_study(OwnStudy((tmp_path / "tiny.toml").read_text()), "tiny", "own", tmp_path / "whole", 1)
    for number in range(rounds + 1):
        assert told(tmp_path / f"results-{number}" / "tiny") == told(tmp_path / "whole")


def jobs_below(pid: int) -> list[int]:
    """The worker processes of a cluster: those that Python started anew below its nodes."""
    below = [pid]
    for one in below:  # grows while it is walked
        below += children(one)
    return [one for one in below if b"spawn_main" in command_of(one)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


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
