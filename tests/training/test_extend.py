"""A finished run can be trained further, to what a longer run would have come to."""

import pytest
import torch

from polariscope.lab import Store
from polariscope.training import checkpoint as checkpoints
from polariscope.training import resume, train
from polariscope.training.run import extend

# A last step at which neither a mean of the curve ends nor an evaluation is due.
ODD = {"log_every": 7, "evaluate_every": 9, "checkpoint_every": 8}


def tensors(run) -> dict[str, torch.Tensor]:
    return checkpoints.read(run.checkpoint)[0]


@pytest.mark.parametrize("settings", [{}, {"schedule": "drop", "drop_every": 6, "warmup": 4}, {"patience": 50}])
def test_an_extended_run_is_the_longer_run(tmp_path, small, settings) -> None:
    whole = train(small(steps=40, **ODD, **settings), Store(tmp_path / "whole"))
    run = train(small(steps=23, **ODD, **settings), Store(tmp_path / "short"))
    run = resume(run, steps=40)
    assert (run.status, run.result["step"], run.config["training"]["steps"]) == ("done", 40, 40)
    assert run.config == whole.config
    ours, theirs = tensors(run), tensors(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [row[:3] for row in run.metrics()] == [row[:3] for row in whole.metrics()]
    assert [row[3] for row in run.metrics()] == pytest.approx([row[3] for row in whole.metrics()], rel=1e-12)
    progress = [checkpoints.read(one.checkpoint)[1] for one in (run, whole)]
    assert progress[0]["stale"] == progress[1]["stale"]


def test_a_run_that_was_killed_on_its_way_further_goes_on(tmp_path, small) -> None:
    whole = train(small(steps=40, **ODD), Store(tmp_path / "whole"))
    run = train(small(steps=23, **ODD), Store(tmp_path / "short"))
    extend(run, 40)
    assert run.status == "interrupted"
    run = resume(run.id, store=tmp_path / "short")
    assert [row[:3] for row in run.metrics()] == [row[:3] for row in whole.metrics()]
    assert all(torch.equal(value, tensors(run)[name]) for name, value in tensors(whole).items())


@pytest.mark.parametrize("schedule", ["linear", "late-linear", "cosine"])
def test_a_rate_that_falls_over_the_run_cannot_be_extended(tmp_path, small, schedule) -> None:
    run = train(small(steps=5, schedule=schedule), Store(tmp_path))
    with pytest.raises(ValueError, match=f"schedule {schedule}.* other rates from the start"):
        resume(run, steps=10)
    assert Store(tmp_path).open(run.id).config["training"]["steps"] == 5
    assert resume(run, steps=5).status == "done"


def test_a_run_goes_neither_back_nor_past_an_early_stop(tmp_path, small) -> None:
    run = train(small(steps=6), Store(tmp_path))
    with pytest.raises(ValueError, match="is at step 6 already and cannot be shortened to 4"):
        resume(run, steps=4)
    stuck = small(steps=60, evaluate_every=2, patience=2, learning_rate=0.5, optimiser="sgd", clip=1e-9)
    run = train(stuck, Store(tmp_path))
    assert run.result["step"] < 60
    with pytest.raises(ValueError, match="stopped early, at step .* would have stopped there with 90 steps as well"):
        resume(run, steps=90)
