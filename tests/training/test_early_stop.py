"""Early stopping: patience is counted over the whole run, however often it was cut off."""

import pytest
import torch

from polariscope.lab import Run, Store
from polariscope.objectives import Terms
from polariscope.objectives.vae import VAE
from polariscope.training import checkpoint as checkpoints
from polariscope.training import resume, train

LOSSES = {10: 9.0, 20: 5.0, 30: 7.0, 40: 6.0, 50: 5.5, 60: 5.2, 70: 4.0}
"""Held-out loss by step: best at 20, and worse than that for four evaluations on end."""


@pytest.fixture
def config(small, monkeypatch):
    """Trains as a VAE does; on held-out data, where the model is in evaluation mode, the loss is that of the table."""
    loss = VAE.__call__

    def scripted(self, model, batch, step: int) -> Terms:
        terms = loss(self, model, batch, step)
        return terms if model.training else Terms(terms.loss * 0 + LOSSES[step + 1])

    monkeypatch.setattr(VAE, "__call__", scripted)
    return small(steps=70, evaluate_every=10, checkpoint_every=10, patience=3, held_out=0.0001)


def test_patience_runs_from_the_best_evaluation(config, tmp_path) -> None:
    run = train(config, Store(tmp_path))
    assert run.result["step"] == 50, "best at 20, then three without improvement, though each is better than the last"
    assert run.curve("loss", "held_out") == ([10, 20, 30, 40, 50], [9.0, 5.0, 7.0, 6.0, 5.5])


@pytest.mark.parametrize("cut", [(25,), (35,), (45,), (25, 35, 45)], ids=str)
def test_a_run_that_was_cut_off_stops_where_the_whole_one_does(config, tmp_path, monkeypatch, cut) -> None:
    """What was best, and how long ago, are part of the checkpoint: without either, training would go on for longer."""
    monkeypatch.setattr("polariscope.training.run.TELL_EVERY", -1.0)  # every step is told
    store = Store(tmp_path)

    def until(last: int):
        def stop(progress) -> None:
            if progress.step == last:
                raise KeyboardInterrupt

        return stop

    for number, last in enumerate(cut):
        with pytest.raises(KeyboardInterrupt):
            train(config, store, until(last), "victim") if not number else resume(store.open("victim"), until(last))
        assert checkpoints.read(store.open("victim").checkpoint)[1]["step"] == last - 5
    run = resume(store.open("victim"))
    assert (run.status, run.result["step"]) == ("done", 50)
    assert run.curve("loss", "held_out")[0] == [10, 20, 30, 40, 50]


def test_a_run_that_has_just_stopped_early_is_not_trained_past_the_stop(config, tmp_path, monkeypatch) -> None:
    """Killed after its last checkpoint and before it could say that it is done."""
    store = Store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "update", lambda run, **changes: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            train(config, store, run_id="victim")
    stopped = store.open("victim")
    weights = checkpoints.read(stopped.checkpoint)
    assert (stopped.status, weights[1]["step"]) == ("running", 50)
    run = resume(stopped)
    assert (run.status, run.result["step"], run.result["held_out_loss"]) == ("done", 50, 5.5)
    after = checkpoints.read(run.checkpoint)
    assert after[1] == weights[1]
    assert all(torch.equal(value, weights[0][name]) for name, value in after[0].items())


class Killed(BaseException):
    """Nothing catches it."""
