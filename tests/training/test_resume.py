"""Checkpoints: whatever stops a run, it goes on to the same bits."""

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.nets.architecture import MLP, Conv, Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.predictors import LeNet
from polariscope.objectives.beta_vae import BetaVAE, FullBetaVAE
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.objectives.predict import Classify
from polariscope.training import RunConfig, TrainingConfig, load_model, resume, train
from polariscope.training import checkpoint as checkpoints
from polariscope.training.loop import Listeners, build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import Extrapolation, RandomSplit


def state_dict(run) -> dict[str, torch.Tensor]:
    return checkpoints.read(run.checkpoint)[0]


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), f"{name} differs"


def conv(objective=None, architecture=None, **training) -> RunConfig:
    """What ``polariscope train sprites`` trains, on smaller images."""
    settings = {"steps": 12, "batch_size": 8, "log_every": 4, "evaluate_every": 6, "checkpoint_every": 5, "seed": 3}
    model = AutoencoderConfig(latents=4, architecture=architecture or Conv())
    few = RandomSplit(0.0001)  # each of several evaluations looks at 74 images, and not at a thousand
    return RunConfig(Sprites(size=16), objective or BetaVAE(), model, TrainingConfig(**settings | training), few)


ADVERSARY = FactorVAE(width=16, depth=2)
CLASSIFIER = replace(conv(), objective=Classify(), model=LeNet(), split=Extrapolation())
CASES = {
    "classifier with momentum, drops and decay": replace(
        CLASSIFIER,
        training=replace(
            CLASSIFIER.training, optimiser="sgd", momentum=0.9, weight_decay=1e-3, schedule="drop", drop_every=3
        ),
    ),
    "conv adam": conv(),
    "conv adagrad": conv(optimiser="adagrad", learning_rate=1e-2),
    "conv sgd": conv(optimiser="sgd", learning_rate=1e-4),
    "conv with adversary": conv(ADVERSARY),
    "conv adagrad with adversary": conv(ADVERSARY, optimiser="adagrad"),
    "conv schedule, warm-up and clipping": conv(schedule="cosine", warmup=7, clip=1.0),
    "conv full posterior": conv(FullBetaVAE()),
    "conv batch that does not divide": conv(batch_size=7, log_every=5),
    "conv two threads": conv(threads=2),
    "dense decoder": conv(architecture=Conv(dense_decoder=True)),
    "dense decoder with adversary and schedule": conv(ADVERSARY, Conv(dense_decoder=True), schedule="linear"),
    "mlp": conv(architecture=MLP((32,), (32,))),
    "linear": conv(architecture=Linear()),
}


def stopped_at(config: RunConfig, store: Store, step: int):
    """A run as ``kill -9`` leaves it some steps after its checkpoint at ``step``."""
    run = store.create(config.describe(), config.label)
    state = build_state(build_model(config), config.objective, config.training)
    rows = []

    def save(state) -> None:
        if state.step == step:
            run.write_metrics(rows)
            checkpoints.save(state, run.checkpoint)
            raise Killed

    listeners = Listeners(
        metrics=lambda event: rows.extend((event.step, event.split, k, v) for k, v in event.terms.items()),
        checkpoint=save,
    )
    with pytest.raises(Killed):
        fit(state, config.objective, config.world, config.training, listeners, config.split)
    return run


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(tmp_path, config) -> None:
    whole = train(config, Store(tmp_path / "whole"))
    run = resume(stopped_at(config, Store(tmp_path / "stopped"), 5))
    assert_same(state_dict(run), state_dict(whole))
    assert run.metrics() == whole.metrics()


def test_early_stop_stands_where_it_stood(tmp_path) -> None:
    # A rate of almost nothing: the held-out loss never improves by anything, and three stale looks end the run.
    config = conv(steps=40, evaluate_every=3, patience=3, learning_rate=0.5, optimiser="sgd", clip=1e-9)
    whole = train(config, Store(tmp_path / "whole"))
    run = resume(stopped_at(config, Store(tmp_path / "stopped"), 5))
    assert run.result["step"] == whole.result["step"] < 40
    assert_same(state_dict(run), state_dict(whole))


def test_moments_come_back_with_the_strides_of_their_weights(tmp_path) -> None:
    """Also those of a file that an earlier version wrote: it holds contiguous tensors, as today's does."""
    config = conv()
    run = train(config, Store(tmp_path))
    state = build_state(build_model(config), config.objective, config.training)
    checkpoints.load(state, run.checkpoint)
    optimiser = state.optimisers["model"]
    for weight, moments in optimiser.state.items():
        assert moments["exp_avg"].stride() == moments["exp_avg_sq"].stride() == weight.stride()
    assert any(p.dim() == 4 and not p.is_contiguous() for p in optimiser.state), "there are channels-last weights"


KILLED = [
    pytest.param("--objective beta-vae", 3, id="autoencoder", marks=pytest.mark.deep),
    pytest.param("--objective classify --model lenet", 1, id="classifier", marks=pytest.mark.deep),
    pytest.param("--objective factor-vae --objective.width 32 --objective.depth 2", 1, id="two players"),
]


@pytest.mark.parametrize(("chosen", "kills"), KILLED)
def test_kills_through_the_command_line(tmp_path, chosen: str, kills: int) -> None:
    """``kill -9``, each time after a new checkpoint, of what a user would train.

    Only what is killed is a process of its own; the uninterrupted run and the last resumption are trained in this one.
    """
    settings = f"""{chosen} --world.size 16 --training.steps 60 --training.batch-size 8 --split.share 0.0001
        --training.checkpoint-every 6 --training.log-every 9 --training.evaluate-every 20"""
    start = ["train", "sprites", *settings.split(), "--runs"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert main([*start, str(tmp_path / "whole")]) == 0
    (whole,) = Store(tmp_path / "whole").runs()
    killed, command = Store(tmp_path / "killed"), [*start, str(tmp_path / "killed")]
    for _ in range(kills):
        before = _checkpoint_of(killed)
        process = subprocess.Popen(
            [sys.executable, "-m", "polariscope", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and _checkpoint_of(killed) == before:
            time.sleep(0.002)
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it was over before it could be killed"
        (run,) = killed.runs()
        assert run.status == "running", "it had no time to say goodbye"
        assert 0 < checkpoints.read(run.checkpoint)[1]["step"] < 60
        command = ["train", "--resume", run.id, "--runs", str(tmp_path / "killed")]
    assert main(command) == 0
    assert_same(state_dict(run), state_dict(whole))
    assert run.metrics() == whole.metrics()
    assert killed.open(run.id).status == "done"


def _checkpoint_of(store: Store) -> tuple[int, ...]:
    """What tells one checkpoint of the store's only run from the next."""
    return tuple(file.stat().st_ino for file in store.root.glob("*/checkpoint.safetensors"))


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
    with pytest.raises(
        OSError, match=r"step 20: the disk is full: .*safetensors could not be written and is as it was"
    ):
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
    with pytest.raises(ValueError, match="no checkpoint to load: it is done at step"):
        load_model(run)


def test_a_checkpoint_of_another_model_is_refused(tmp_path, small) -> None:
    run = train(small(), Store(tmp_path))
    other = RunConfig.build(run.config)
    other = RunConfig(other.world, FactorVAE(width=4, depth=1), other.model, other.training)
    state = build_state(build_model(other), other.objective, other.training)
    with pytest.raises(ValueError, match="belongs to another model"):
        checkpoints.load(state, run.checkpoint)
