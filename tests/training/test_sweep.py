"""Several seeds at once: each run is what it would be alone, and the best is found without labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from polariscope.lab.store import Store
from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.objectives.vae import VAE
from polariscope.training import (
    RunConfig,
    TrainingConfig,
    best_run,
    load_model,
    over_seeds,
    random_search,
    train,
    train_all,
)
from polariscope.training.run import Progress, paced
from polariscope.training.sweep import by_setting
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.views.pairs import Pairs


@pytest.fixture
def config() -> RunConfig:
    training = TrainingConfig(steps=30, seed=5, evaluate_every=30)
    return RunConfig(MiniSprites(), VAE(), AutoencoderConfig(2, MLP((8,), (8,))), training, RandomSplit(0.2))


@pytest.mark.spec("001a/ST-03")
def test_a_sweep_is_deterministic_and_its_runs_are_those_trained_alone(config, tmp_path) -> None:
    runs = train_all(over_seeds(config, 3), Store(tmp_path / "a"))
    again = train_all(over_seeds(config, 3), Store(tmp_path / "b"), workers=1)
    assert [run.config["training"]["seed"] for run in runs] == [5, 6, 7]
    losses = [run.result["held_out_loss"] for run in runs]
    assert losses == [run.result["held_out_loss"] for run in again]
    assert len(set(losses)) == 3
    best = best_run(runs)
    assert best.result["held_out_loss"] == min(losses)
    assert best.config["training"]["seed"] == best_run(again[::-1]).config["training"]["seed"]
    alone = train(over_seeds(config, 3)[1], Store(tmp_path / "c"))
    for name, weight in load_model(alone).state_dict().items():
        assert torch.equal(weight, load_model(runs[1]).state_dict()[name])


def test_the_best_of_equals_is_the_first(config, tmp_path) -> None:
    store = Store(tmp_path)
    runs = [store.create(config.describe(), "x") for _ in range(3)]
    for run, loss in zip(runs, (2.0, 1.0, 1.0), strict=True):
        run.update(result={"held_out_loss": loss, "mig": -loss})
    assert best_run(runs) is runs[1]
    assert best_run(runs, "mig") is runs[0]


def test_what_cannot_be_chosen_is_said(config, tmp_path) -> None:
    run = Store(tmp_path).create(config.describe(), "x")
    with pytest.raises(ValueError, match="has no held_out_loss"):
        best_run([run])
    with pytest.raises(ValueError, match="no run"):
        best_run([])
    with pytest.raises(ValueError, match="at least one seed"):
        over_seeds(config, 0)


@pytest.mark.spec("001a/SV-13")
def test_a_random_search_draws_every_setting_from_its_range_and_the_same_again() -> None:
    """The search behind the published SlowVAE: gamma from 1 to 16, lambda from 1 to 10."""
    config = RunConfig(Pairs(MiniSprites()), SlowVAE(gamma=10), training=TrainingConfig(seed=4))
    ranges = {"objective.gamma": (1, 16), "objective.rate": (1, 10)}
    result = random_search(config, ranges, count=200, seed=3)
    gamma, rate = np.array([(one.objective.gamma, one.objective.rate) for one in result]).T
    for values, (low, high) in ((gamma, (1, 16)), (rate, (1, 10))):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=4 * (high - low) / np.sqrt(12 * 200))
    assert abs(np.corrcoef(gamma, rate)[0, 1]) < 0.3
    assert result == random_search(config, ranges, count=200, seed=3)
    assert result[:20] == random_search(config, ranges, count=20, seed=3), "a longer search goes on"
    assert result[0] != random_search(config, ranges, count=1, seed=4)[0]
    one = result[7]
    again = replace(one.objective, gamma=10.0, rate=6.0)
    assert replace(one, objective=again) == config, "nothing else was changed"
    assert RunConfig.build(one.describe()) == one


def test_a_search_over_what_is_no_number_is_refused(config) -> None:
    for name in ("objective.gamma", "objective", "training.steps", "training.learning_rate.x", "model.latents"):
        expected = f"needs the name of a numeric setting, such as objective.beta; {name} is not one"
        with pytest.raises(ValueError, match=expected):
            random_search(config, {name: (1, 2)}, count=1)
    with pytest.raises(ValueError, match="at least one draw; got 0"):
        random_search(config, {"training.learning_rate": (1e-4, 1e-2)}, count=0)
    for ends in ((2, 1), (1, float("inf")), (float("nan"), 1)):
        with pytest.raises(ValueError, match="from a smaller to a larger number"):
            random_search(config, {"training.learning_rate": ends}, count=1)


def test_progress_is_told_at_a_pace_and_at_the_end(monkeypatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("polariscope.training.run.time.monotonic", lambda: next(clock) / 25)  # 25 readings a second
    progress = []
    step = paced(progress.append, steps=12)
    for number in range(1, 13):
        step(number, 0.5)
    numbers = [point.step for point in progress]
    assert numbers[-1] == 12
    assert 2 < len(numbers) < 8
    assert progress[-1] == Progress(12, 12, 0.5)


def test_runs_from_other_weights_are_a_setting_of_their_own() -> None:
    rows = [
        {"objective": "vae", "start_run": start, "training_seed": seed, "held_out_loss": loss + seed}
        for start, loss in ((None, 30.0), ("earlier", 17.0))
        for seed in range(3)
    ]
    groups = by_setting(rows)
    assert sorted(len(own) for own in groups.values()) == [3, 3]
