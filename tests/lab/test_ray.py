"""Ray behind the executor interface: the same promises, and nothing lost or doubled when workers and nodes die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polariscope import plugins
from polariscope.lab import travel
from polariscope.lab.executors import Place, in_parallel
from polariscope.lab.store import Run, Store
from polariscope.lab.travel import Luggage, Scratch, gathered, packed, write
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.studies.engine import run_study
from polariscope.studies.own import OwnStudy
from polariscope.testing import check_executor
from polariscope.training import checkpoint as checkpoints
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.sweep import over_seeds, train_all
from polariscope.worlds.renderers.squares import Squares

CONFIG = RunConfig(
    Squares(8),
    VAE(),
    AutoencoderConfig(2, MLP((8,), (8,))),
    TrainingConfig(steps=30, batch_size=8, evaluate_every=0, checkpoint_every=5),
)
STUDY = """
title = "Losses"
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
steps = 30
batch_size = 8
evaluate_every = 0
[grid]
seeds = {seeds}
objective.beta = [1, 2]
[base.objective]
name = "beta-vae"
"""


def bits(run: Run) -> object:
    """The state of a run; the file itself may name its parts in any order."""
    tensors, progress = checkpoints.read(run.checkpoint)
    return {name: value.numpy().tobytes() for name, value in tensors.items()}, progress


def double(job: int, tell: object) -> int:
    return 2 * job


def name_inside(path: Path, tell: object) -> str:
    path.write_text("made")
    return str(path)


def test_paths_below_the_root_are_what_they_are_within_it(tmp_path) -> None:
    sent = travel.Parcel(packed(name_inside, tmp_path / "here" / "a.txt", tmp_path / "here"), {})
    (tmp_path / "there").mkdir()
    assert travel.do_parcel((sent, str(tmp_path / "there")), print) == str(tmp_path / "there" / "a.txt")
    assert (tmp_path / "there" / "a.txt").read_text() == "made"
    outside = travel.Parcel(packed(name_inside, tmp_path / "other.txt", tmp_path / "here"), {})
    assert travel.do_parcel((outside, str(tmp_path / "there")), print) == str(tmp_path / "other.txt")


def test_a_scratch_folder_sends_what_changed_and_no_locks(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / ".lock").touch()
    files = gathered(tmp_path, [tmp_path / "run"])
    assert files == {"run/run.json": b"{}"}
    scratch = Scratch(files)
    assert scratch.changed() == {}
    (scratch.root / "run" / "checkpoint").write_bytes(b"12")
    (scratch.root / "run" / ".draft").write_bytes(b"12")
    assert scratch.changed() == {"run/checkpoint": b"12"}
    assert scratch.changed() == {}
    scratch.close()
    assert not scratch.root.exists()


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out"])
def test_a_file_for_elsewhere_is_refused(name, tmp_path) -> None:
    with pytest.raises(ValueError, match="outside of its folder"):
        write(tmp_path / "root", {name: b""})
    assert not (tmp_path / "out").exists()


def test_the_record_of_a_run_is_written_after_its_other_files(tmp_path, monkeypatch) -> None:
    order: list[str] = []
    real = travel.atomic
    monkeypatch.setattr(travel, "atomic", lambda path: order.append(path.name) or real(path))
    write(tmp_path, {"a/run.json": b"", "jobs/x.json": b"", "a/checkpoint.safetensors": b"", "a/z": b""})
    assert order == ["checkpoint.safetensors", "z", "run.json", "x.json"]


def test_a_plug_in_travels_by_its_hash(tmp_path) -> None:
    source = b"WORD = 'travelled'\n"
    file = str(tmp_path / "elsewhere" / "mine.py")
    sha = __import__("hashlib").sha256(source).hexdigest()
    try:
        plugins.load_sent({file: (sha, source)})
        assert plugins.files()[file] == sha
        with pytest.raises(ValueError, match="was changed on the way"):
            plugins.load_sent({file + "x": (sha, source + b"#")})
    finally:
        plugins._FILES.pop(file, None)


@pytest.fixture(scope="module")
def ray():
    """Ray on this machine, with two cores, for the tests of this module."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'polariscope[cluster]'")
    from polariscope.lab.ray_executor import QUIET

    os.environ.update(QUIET)
    where = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*where, os.environ.get("PYTHONPATH", "")])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_runs_on_ray_are_the_same_to_the_bit_wherever_their_files_are(ray, tmp_path) -> None:
    here = train_all([CONFIG], Store(tmp_path / "here"), 1)[0]
    away = train_all([CONFIG], Store(tmp_path / "away"), Place("ray", 1, shared="no"))[0]
    assert away.status == "done"
    assert bits(here) == bits(away)
    assert here.metrics() == away.metrics()


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
def test_ray_keeps_the_contract_of_executors(ray, tmp_path) -> None:
    from polariscope.lab.ray_executor import RayCluster

    check_executor(RayCluster, tmp_path)


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shared", ["auto", "no"])
def test_a_study_on_ray_gives_the_table_of_this_machine(ray, tmp_path, shared) -> None:
    study = OwnStudy(STUDY.format(seeds=2))
    here = run_study(study, "mine", "own", tmp_path / "here", 1)
    away = run_study(study, "mine", "own", tmp_path / "away", Place("ray", 2, shared=shared))
    assert _losses(here) == _losses(away)
    assert sorted(p.name for p in (tmp_path / "here/runs").glob("[!.]*")) == sorted(
        p.name for p in (tmp_path / "away/runs").glob("[!.]*")
    )
    assert not list((tmp_path / "away").glob(".shared-*")), "the mark is taken away"


def _losses(outcome) -> list[tuple[object, ...]]:
    return [(row["beta"], row["seed"], row["train_loss"]) for row in outcome.table.rows]


CLUSTER = """
import json, os, sys, threading, time
from pathlib import Path
from polariscope.lab.ray_executor import QUIET
os.environ.update(QUIET)
import ray
from ray.cluster_utils import Cluster
from polariscope.lab.executors import Place
from polariscope.lab.store import Store
from polariscope.training.sweep import over_seeds, train_all
sys.path.insert(0, {tests!r})
from test_ray import CONFIG
from dataclasses import replace

config = replace(CONFIG, training=replace(CONFIG.training, steps=1500, checkpoint_every=100))
cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 1, "include_dashboard": False}})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
seen, killed = set(), []

def report(number, what):
    seen.add(number)
    if len(seen) >= 3 and not killed:
        killed.append(nodes[0])
        cluster.remove_node(nodes[0], allow_graceful=False)

runs = train_all(over_seeds(config, 5), Store(Path(sys.argv[1])), Place("ray", 3, shared=sys.argv[2], deaths=3), report)
print(json.dumps([len(killed), [run.status for run in runs]]))
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.deep
@pytest.mark.parametrize("shared", ["auto", "no"])
def test_a_node_that_dies_in_the_middle_loses_and_doubles_nothing(tmp_path, shared) -> None:
    """Three nodes, of which one is killed while all train: five runs, each once, with the bits of one machine."""
    pytest.importorskip("ray")
    from dataclasses import replace

    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER.format(tests=str(Path(__file__).parent)))
    where = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": where}
    words = [sys.executable, str(script), str(tmp_path / "away"), shared]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    killed, states = json.loads(done.stdout.strip().splitlines()[-1])
    assert killed == 1
    assert states == ["done"] * 5
    away = Store(tmp_path / "away").runs()
    assert len(away) == 5
    config = replace(CONFIG, training=replace(CONFIG.training, steps=1500, checkpoint_every=100))
    here = train_all(over_seeds(config, 5), Store(tmp_path / "here"), 1)
    for one in here:
        (same,) = [run for run in away if run.config["training"]["seed"] == one.config["training"]["seed"]]
        assert bits(same) == bits(one)
        assert same.metrics() == one.metrics()


@pytest.mark.deep
def test_a_killed_driver_resumes_without_repeating_what_is_finished(tmp_path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "mine.toml").write_text(STUDY.format(seeds=4).replace("steps = 30", "steps = 300"))
    where = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "polariscope", "study", "mine.toml", "--executor", "ray", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": where}
    driver = subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    jobs = tmp_path / "results" / "mine" / "jobs"
    deadline = time.monotonic() + 300
    while len(list(jobs.glob("[!.]*.json"))) < 2 and time.monotonic() < deadline and driver.poll() is None:
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    finished = {file.name: file.stat().st_mtime_ns for file in jobs.glob("[!.]*.json")}
    assert len(finished) >= 2
    again = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr
    assert "uthentication" not in again.stderr + again.stdout, "Ray's own lines are not for our users"
    after = {file.name: file.stat().st_mtime_ns for file in jobs.glob("[!.]*.json")}
    assert len(after) == 8
    assert {name: after[name] for name in finished} == finished, "what was finished is not done again"


@pytest.mark.deep
def test_ctrl_c_stops_a_study_on_ray_which_continues_later(tmp_path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "mine.toml").write_text(STUDY.format(seeds=1).replace("steps = 30", "steps = 20000"))
    where = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "polariscope", "study", "mine.toml", "--executor", "ray", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": where}
    driver = subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    runs = tmp_path / "results" / "mine" / "runs"
    while not list(runs.glob("*/metrics.parquet")) and driver.poll() is None:
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 130, errors
    assert "interrupted; continue with: polariscope study mine.toml" in errors
    stopped = [run for run in Store(runs).runs() if 0 < run.result.get("step", 0) < 20000]
    assert stopped, "a training saves its state before it is stopped"
    assert all(run.checkpoint.exists() and run.state == "interrupted" for run in stopped)


def test_luggage_of_works_is_declared() -> None:
    from polariscope.studies.engine import StudyJob, run_job
    from polariscope.training.sweep import _finish

    run = Run(Path("runs/a"))
    assert travel.luggage_of(_finish, (run, False)) == Luggage(Path("runs"), (Path("runs/a"),))
    task = StudyJob(OwnStudy(STUDY.format(seeds=1)), "mine", "1", {}, Path("results/mine/jobs/x.json"))
    assert travel.luggage_of(run_job, task) == Luggage(Path("results/mine"))


def test_without_ray_the_sentence_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"needs Ray: pip install 'polariscope\[cluster\]'"):
        in_parallel(double, [1, 2], Place("ray", 2))
