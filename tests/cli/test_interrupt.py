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

STUDY = """
import os, sys
from pathlib import Path
from polariscope.cli import main
from polariscope.lab import executors
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.studies import Study, studies
from polariscope.training import RunConfig, TrainingConfig
from polariscope.worlds.renderers.mini_sprites import MiniSprites


@studies.register("endless")
class Endless(Study):
    title = source = question = "Endless"
    cost = {}

    def jobs(self, scale):
        return [{"seed": seed} for seed in range(5)]

    def run(self, job, bench):
        Path(f"started-{job['seed']}").write_text(str(os.getpid()))
        forever = {"steps": 10**7, "evaluate_every": 0, "checkpoint_every": 10**7, "snapshot_every": 50}
        training = TrainingConfig(batch_size=2, seed=job["seed"], **forever)
        bench.train(RunConfig(MiniSprites(), VAE(), AutoencoderConfig(2, MLP((4,), (4,))), training))

    def claims(self, table, scale):
        return []


if __name__ == "__main__":
    executors.GRACE = 600.0  # however busy the machine is
    sys.exit(main())
"""


PATIENCE = 240
"""Seconds after which something hangs, however busy the machine is: a test that hangs tells nobody why."""


def test_one_key_stops_a_study_in_processes_of_its_own(tmp_path) -> None:
    """As a terminal does it: the signal goes to every process of the group, workers included."""
    (tmp_path / "study.py").write_text(STUDY)
    words = ["reproduce", "endless", "--scale", "smoke", "--workers", "2", "--out", "my results"]
    process = subprocess.Popen(
        [sys.executable, "study.py", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    records = tmp_path / "my results" / "endless-smoke" / "runs"
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
    started = [int(file.read_text()) for file in tmp_path.glob("started-*")]
    assert len(started) == 2, "queued jobs never begin"
    for worker in started:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
    assert "Traceback" not in out + err
    assert err.splitlines()[-1] == f"interrupted; go on with: polariscope {shlex.join(words)}"
    runs = Store(records).runs()
    assert [run.status for run in runs] == ["interrupted", "interrupted"]
    assert all(run.result["step"] >= 50 for run in runs)
    assert [checkpoint.read(run.checkpoint)[1]["step"] for run in runs] == [run.result["step"] for run in runs]


def stop(*arguments, **options) -> None:
    raise KeyboardInterrupt


def going_on(err: str) -> list[str]:
    """The words of the command that an interrupted one printed as its last line."""
    sentence, _, command = err.splitlines()[-1].partition(": ")
    assert sentence == "interrupted; go on with"
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
    (found,) = Store(tmp_path / "here/my runs").runs()
    assert (found.status, found.result["step"]) == ("interrupted", 4)
    words = going_on(err)
    assert words == ["train", "--resume", found.id, "--runs", "here/my runs"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    found.reload()
    assert (found.status, found.result["step"]) == ("done", 6)


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


@pytest.mark.usefixtures("one_process")
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
    found = json.loads(out)
    assert found["runs"] == demo.config["runs"]
    assert len(found["runs"]) == 2
    assert Path(found["report"]).read_text().count("beta") > 2
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == 3
    assert {each.status for each in Store(tmp_path / "runs").runs()} == {"done"}
    code, _, err = run("demo", "--resume", demo.config["runs"][0])
    assert code == 2
    assert "is no demo" in err


def test_an_interrupt_anywhere_else_says_what_was_asked(run, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.cli.worlds.parse", stop)
    assert run("worlds") == (130, "", "interrupted; start again with: polariscope worlds\n")
