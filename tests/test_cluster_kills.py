"""A study on a Ray cluster whose drivers, workers and nodes are killed at random ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from polariscope.lab.store import Run, Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.studies.engine import judge, run_study
from polariscope.studies.own import OwnStudy
from polariscope.training import checkpoint as checkpoints
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.sweep import finish, over_seeds, prepare
from polariscope.worlds.renderers.squares import Squares

SEEDS = 12
KILLS = int(os.environ.get("CLUSTER_KILLS", "18"))
SEED = int(os.environ.get("CLUSTER_SEED", "0"))
PATIENCE = 600.0
"""Seconds after which a driver that nobody kills, or a cluster that does not answer, hangs. It needs 20 to 60."""
STUDY = f"""
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
steps = 2000
batch_size = 8
evaluate_every = 0
checkpoint_every = 100
[grid]
seeds = {SEEDS}
"""
CONFIGS = over_seeds(
    RunConfig(
        Squares(8),
        VAE(),
        AutoencoderConfig(2, MLP((8,), (8,))),
        TrainingConfig(steps=2000, batch_size=8, evaluate_every=0, checkpoint_every=100),
    ),
    SEEDS,
)
DRIVER = f"""
import faulthandler, sys
from pathlib import Path
from polariscope.lab.executors import Place
from polariscope.lab.store import Store
from polariscope.studies.engine import run_study
from polariscope.studies.own import OwnStudy
from polariscope.training.sweep import finish

faulthandler.dump_traceback_later({PATIENCE}, exit=True)
_, out, address, shared = sys.argv
place = Place("ray", address=address, shared=shared, deaths=3)
if out.startswith("study"):
    run_study(OwnStudy(Path("tiny.toml").read_text()), "tiny", "own", Path(out), place)
else:
    finish(Store(out).runs(), place)
"""
KEEPER = """
import os, random, sys
from polariscope.lab.ray_executor import QUIET
os.environ.update(QUIET, RAY_worker_niceness="0")  # of 15 they get no core of a busy machine
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
nodes = [cluster.add_node(**node) for _ in range(2)]
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes.pop(int(line)), allow_graceful=False)
    nodes.append(cluster.add_node(**node))
    print("replaced", flush=True)
cluster.shutdown()
"""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")]),
}


@pytest.mark.deep
def test_kills_of_drivers_workers_and_nodes_of_a_cluster_lose_and_double_nothing(tmp_path) -> None:
    """A study and trainings take turns, on three nodes; one that is killed is replaced. If both end before the last
    kill, they start anew in other folders."""
    pytest.importorskip("ray")
    (tmp_path / "tiny.toml").write_text(STUDY)
    (tmp_path / "driver.py").write_text(DRIVER)
    dice = random.Random(SEED)
    victims = [("driver", "worker", "node")[number % 3] for number in range(KILLS)]
    dice.shuffle(victims)
    rounds = 0
    todo: list[str] = []
    with cluster(tmp_path) as (address, keeper):
        while victims or todo:
            if not todo:
                rounds += 1
                todo = [f"study-{rounds}", f"trainings-{rounds}"]
                prepare(CONFIGS, Store(tmp_path / f"trainings-{rounds}"))
            task = dice.choice(todo)
            driver = start(tmp_path, task, address, dice.choice(["auto", "no"]))
            while driver.poll() is None and victims:
                ended_within(driver, dice.uniform(0.0, 30.0))
                workers = workers_below(keeper.pid)
                if driver.poll() is None and (workers or victims[-1] != "worker"):
                    kill(victims.pop(), driver, workers, keeper, dice)
            output, errors = driver.communicate()
            assert "Timeout" not in errors, f"{task} waits for something:\n{errors}"
            assert output == "", "standard output is for results"
            if driver.returncode == 0:
                todo.remove(task)
            else:  # a job whose worker was killed four times is given up, which is said; the next start continues
                given_up = "ended without an error message, 4 times" in errors
                assert driver.returncode == -signal.SIGKILL or given_up, errors[-3000:]
    run_study(OwnStudy(STUDY), "tiny", "own", tmp_path / "study", 1)
    finish(prepare(CONFIGS, Store(tmp_path / "trainings")), 1)
    for number in range(1, rounds + 1):
        assert rows(tmp_path / f"study-{number}") == rows(tmp_path / "study")
        assert weights(tmp_path / f"study-{number}" / "runs") == weights(tmp_path / "study" / "runs")
        assert weights(tmp_path / f"trainings-{number}") == weights(tmp_path / "trainings")
        left = [path.name for path in tmp_path.glob(f"*-{number}/.shared*")]
        assert len(left) <= 2, f"marks of killed drivers are removed by the next one: {left}"


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a cluster, and a process that replaces the node whose number it is told."""
    (folder / "keeper.py").write_text(KEEPER)
    words = [sys.executable, str(folder / "keeper.py")]
    with (folder / "keeper.txt").open("w") as errors:
        keeper = subprocess.Popen(
            words, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        address = keeper.stdout.readline().strip()
        assert address, (folder / "keeper.txt").read_text()[-3000:]
        yield address, keeper
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()


def start(folder: Path, task: str, address: str, shared: str) -> subprocess.Popen[str]:
    words = [sys.executable, "driver.py", task, address, shared]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)


def kill(
    victim: str,
    driver: subprocess.Popen[str],
    workers: list[int],
    keeper: subprocess.Popen[str],
    dice: random.Random,
) -> None:
    print(f"{time.strftime('%X')} kill the {victim}; {len(workers)} workers are there", flush=True)
    if victim == "driver":
        driver.kill()
        driver.wait()
    elif victim == "worker":
        with suppress(ProcessLookupError):
            os.kill(dice.choice(workers), signal.SIGKILL)
    else:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        keeper.stdin.write(f"{dice.randrange(2)}\n")
        keeper.stdin.flush()
        assert keeper.stdout.readline() == "replaced\n", "the cluster does not replace a node: see keeper.txt"


def ended_within(process: subprocess.Popen[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


def workers_below(pid: int) -> list[int]:
    """Actors of a cluster, and the processes of their jobs."""
    below = [pid]
    for one in below:  # grows while it is walked
        below += children(one)
    return [one for one in below if b"ray::Slot" in command_of(one) or b"spawn_main" in command_of(one)]


def children(pid: int) -> list[int]:
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in words]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def rows(path: Path) -> list[tuple[object, ...]]:
    return [(row["seed"], row["train_loss"]) for row in judge(path / "table.parquet").table.rows]


def weights(path: Path) -> list[tuple[int, object, object]]:
    """Seed, state and curves of all runs of a store, which must be finished; no run may be there twice."""
    runs = Store(path).runs()
    assert {run.state for run in runs} == {"done"}
    assert len(runs) == len({run.config["training"]["seed"] for run in runs}) == SEEDS
    states = [(run.config["training"]["seed"], bits(run), run.metrics()) for run in runs]
    return sorted(states, key=lambda state: state[0])


def bits(run: Run) -> object:
    """The state of a run; the file itself may name its parts in any order."""
    tensors, progress = checkpoints.read(run.checkpoint)
    return {name: value.numpy().tobytes() for name, value in tensors.items()}, progress
