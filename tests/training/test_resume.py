"""Checkpoints: whatever stops a run, it goes on to the same bits."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from polariscope.lab import Store
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.training import RunConfig, load_model, resume, train
from polariscope.training import checkpoint as checkpoints
from polariscope.training.loop import build_state
from polariscope.training.run import build_model

TRAIN = """
import json, sys
from pathlib import Path
from polariscope.lab import Store
from polariscope.training import RunConfig, train
train(RunConfig.build(json.loads(sys.argv[1])), Store(Path(sys.argv[2])), run_id="victim")
"""


def state_dict(run) -> dict[str, torch.Tensor]:
    return checkpoints.read(run.checkpoint)[0]


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), f"{name} differs"


@pytest.mark.parametrize("objective", [None, FactorVAE(width=16, depth=2)], ids=["one network", "with adversary"])
def test_kill_minus_nine_and_resume_gives_the_same_bits(tmp_path, small, objective) -> None:
    config = small(objective, steps=600, checkpoint_every=40, log_every=30, evaluate_every=100)
    whole = train(config, Store(tmp_path / "whole"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    job = [sys.executable, "-c", TRAIN, json.dumps(config.describe()), str(tmp_path / "killed")]
    process = subprocess.Popen(job, env=environment)
    file = tmp_path / "killed" / "victim" / "checkpoint.safetensors"
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = Store(tmp_path / "killed").open("victim")
    assert run.status == "running", "it had no time to say goodbye"
    stopped_at = checkpoints.read(run.checkpoint)[1]["step"]
    assert 0 < stopped_at < 600
    assert_same(state_dict(resume(run)), state_dict(whole))
    assert run.metrics() == whole.metrics()
    assert run.status == "done"


def test_interrupt_between_steps_and_resume(tmp_path, small, monkeypatch) -> None:
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)  # every step is told
    config = small(steps=40, checkpoint_every=100, log_every=7)
    whole = train(config, Store(tmp_path / "whole"))
    store = Store(tmp_path / "interrupted")

    def press_ctrl_c(progress) -> None:
        if progress.step == 17:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(config, store, press_ctrl_c)
    (run,) = store.runs()
    assert run.status == "interrupted"
    assert 17 <= checkpoints.read(run.checkpoint)[1]["step"] <= 18
    resume(run)
    assert_same(state_dict(run), state_dict(whole))
    assert run.metrics() == whole.metrics()


def test_resuming_a_finished_run_changes_nothing(tmp_path, small) -> None:
    run = train(small(), Store(tmp_path))
    before = run.checkpoint.read_bytes()
    assert resume(run).checkpoint.read_bytes() == before


def test_a_run_without_a_checkpoint_starts_again(tmp_path, small) -> None:
    config = small()
    whole = train(config, Store(tmp_path / "whole"))
    run = Store(tmp_path / "early").create(config.describe(), "early")
    assert_same(state_dict(resume(run)), state_dict(whole))


def test_snapshots_are_weights_over_time(tmp_path, small) -> None:
    run = train(small(snapshot_every=10), Store(tmp_path))
    assert list(run.snapshots()) == [10, 20, 30]
    early, late = load_model(run, step=10), load_model(run)
    assert not torch.equal(early.head.weight, late.head.weight)
    assert_same(load_model(run, step=30).state_dict(), late.state_dict())
    with pytest.raises(ValueError, match="no snapshot at step 11"):
        load_model(run, step=11)


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, small, monkeypatch) -> None:
    store = Store(tmp_path)
    real, calls = checkpoints.save_file, []

    def disk_full_the_second_time(tensors, path, metadata) -> None:
        calls.append(path)
        if len(calls) > 1:
            path.write_bytes(b"half a fi")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(tensors, path, metadata)

    monkeypatch.setattr(checkpoints, "save_file", disk_full_the_second_time)
    with pytest.raises(OSError, match=r"step 20: .* \(No space left on device\); the previous checkpoint is intact"):
        train(small(), store)
    monkeypatch.undo()
    (run,) = store.runs()
    assert run.status == "failed"
    assert checkpoints.read(run.checkpoint)[1]["step"] == 10
    assert not list(run.path.glob(".*draft")), "no half-written file is left behind"
    assert resume(run).status == "done"


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path, small) -> None:
    run = train(small(), Store(tmp_path))
    run.checkpoint.write_bytes(run.checkpoint.read_bytes()[:100])
    with pytest.raises(ValueError, match="is damaged and cannot be read"):
        load_model(run)
    save_file({"a": torch.zeros(1)}, run.checkpoint)
    with pytest.raises(ValueError, match="not a checkpoint of this program"):
        load_model(run)
    run.checkpoint.unlink()
    with pytest.raises(ValueError, match="there is no checkpoint"):
        load_model(run)


def test_a_checkpoint_of_another_model_is_refused(tmp_path, small) -> None:
    run = train(small(), Store(tmp_path))
    other = RunConfig.build(run.config)
    other = RunConfig(other.world, FactorVAE(width=4, depth=1), other.model, other.training)
    state = build_state(build_model(other), other.objective, other.training)
    with pytest.raises(ValueError, match="belongs to another model"):
        checkpoints.load(state, run.checkpoint)
