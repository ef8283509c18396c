"""Measures beside the loss at the snapshots of a run."""

import pytest

from polariscope.examination.over_training import over_training
from polariscope.lab import Store
from polariscope.measures.mcc import mcc
from polariscope.nets.flows import LinearFlowConfig
from polariscope.objectives.slow_flow import SlowFlow
from polariscope.representation import represent
from polariscope.training import RunConfig, TrainingConfig, load_model, train
from polariscope.worlds.points.sources import Sources
from polariscope.worlds.splits import RandomSplit, SplitPart

WORLD = Sources(2000, 2, coefficient=1.0, start="normal", rate=6.0)


def run_in(folder, split=RandomSplit(), **training):  # noqa: B008 - a split is frozen
    settings = {"steps": 120, "batch_size": 128, "learning_rate": 0.03, "snapshot_every": 40, "evaluate_every": 40}
    config = RunConfig(WORLD, SlowFlow(), LinearFlowConfig(), TrainingConfig(**settings | training), split)
    return train(config, Store(folder))


@pytest.mark.spec("001a/SF-05")
def test_the_curve_of_mcc_stands_beside_that_of_the_loss(tmp_path) -> None:
    run = run_in(tmp_path)
    result = over_training(run)
    rows = result.records()
    assert [row["step"] for row in rows] == [40, 80, 120]
    assert [row["loss"] for row in rows] == run.curve("loss", "held_out")[1]
    kept = SplitPart(WORLD)
    for row in rows:
        rep = represent(load_model(run, row["step"]), kept)
        assert row["mcc"] == pytest.approx(mcc(rep.mean, rep.factors).value, abs=1e-9)
    assert result.to_arrow().column_names == ["step", "loss", "mcc"]
    assert result.headline.startswith("3 snapshots from step 40 to 120: loss from ")


def test_a_loss_or_a_measure_that_is_not_there_is_none(tmp_path) -> None:
    """Without held-out data the loss is that of training, which here was told at steps 80 and 120 only; and without
    posterior variances there is no rate."""
    run = run_in(tmp_path, split=RandomSplit(0.0), log_every=80)
    rows = over_training(run, ("mcc", "rate"), count=300).records()
    assert [row["loss"] for row in rows] == [None, *run.curve("loss")[1]]
    assert [row["rate"] for row in rows] == [None] * 3
    assert all(0 < row["mcc"] <= 1 for row in rows)


def test_a_run_without_snapshots_is_refused_in_a_sentence(tmp_path) -> None:
    run = run_in(tmp_path, steps=2, snapshot_every=0)
    with pytest.raises(ValueError, match="has no snapshots to measure: train it with --training.snapshot-every"):
        over_training(run.id, store=tmp_path)
