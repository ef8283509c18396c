"""The loop: same seed, same bits; schedules, clipping, early stop, divergence, held-out data."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from polariscope.lab import Store
from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives import Batch, Objective, Terms
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.training import Diverged, TrainingConfig, load_model, train
from polariscope.training import checkpoint as checkpoints
from polariscope.training.loop import Feed, build_state, fit, rate_factor
from polariscope.training.run import build_model
from polariscope.worlds import ArrayWorld
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.world import to_tensor


def weights(run) -> dict[str, torch.Tensor]:
    return load_model(run).state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.spec("002/X06")
def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path, small) -> None:
    store = Store(tmp_path)
    assert TrainingConfig().threads == 1, "one thread is the default"
    first, second = train(small(), store), train(small(), store)
    assert same(weights(first), weights(second))
    assert first.metrics() == second.metrics()
    assert not same(weights(first), weights(train(small(seed=1), store)))


def test_the_callers_randomness_is_left_alone(tmp_path, small) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    train(small(steps=3), Store(tmp_path))
    assert torch.equal(torch.rand(2), expected)


def test_training_lowers_the_held_out_loss(tmp_path, small) -> None:
    run = train(small(steps=200, learning_rate=3e-3, evaluate_every=50), Store(tmp_path))
    _, losses = run.curve("loss", "held_out")
    assert losses[-1] < 0.8 * losses[0]
    assert run.status == "done"
    assert run.result["held_out_loss"] == losses[-1]


def test_curves_are_means_over_the_steps_between_points(small) -> None:
    config = small(steps=10, log_every=5, evaluate_every=0, held_out=0.0)
    seen: list[float] = []
    points: dict[int, float] = {}

    from polariscope.training.loop import Listeners

    listeners = Listeners(
        metrics=lambda event: points.update({event.step: event.terms["loss"]}),
        step=lambda step, loss: seen.append(float(loss)),
    )
    fit(build_state(build_model(config), config.objective, config.training), config.objective, config.world,
        config.training, listeners, config.split)  # fmt: skip
    assert points[5] == pytest.approx(np.mean(seen[:5]))
    assert points[10] == pytest.approx(np.mean(seen[5:]))


def test_held_out_data_is_never_trained_on(small) -> None:
    parts = RandomSplit(0.1).parts(ArrayWorld(np.zeros((1000, 2))))
    trained, held_out = parts.train, parts.held_out
    assert len(held_out) == 100
    assert sorted([*trained, *held_out]) == list(range(1000))
    world = ArrayWorld(np.arange(1000, dtype=np.float32)[:, None])
    feed = Feed(world, trained, TrainingConfig(batch_size=10))
    seen = {float(v) for step in range(90) for v in feed.batch(step).x.flatten()}
    assert seen == {float(i) for i in trained}, "an epoch sees every trained example once, and no other"


class Counting(ArrayWorld):
    """A world that counts what it was asked to draw."""

    drawn = 0

    def observe(self, index):
        Counting.drawn += len(index)
        return super().observe(index)


@pytest.mark.parametrize(("steps", "kept"), [(100, True), (3, False)])
def test_a_small_world_that_comes_round_is_rendered_once(steps, kept) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4), dtype=np.uint8)
    world, index = Counting(images), np.arange(5, 35)
    feed = Feed(world, index, TrainingConfig(steps=steps, batch_size=10))
    Counting.drawn = 0
    for step in range(12):
        expected = to_tensor(images[index[feed.order[step]]], torch.device("cpu"))
        assert torch.equal(feed.batch(step).x, expected)
    assert Counting.drawn == (1 + 30 if kept else 120)


@pytest.mark.parametrize(
    ("schedule", "halfway", "end"),
    [("constant", 1.0, 1.0), ("linear", 0.5, 0.01), ("late-linear", 1.0, 0.02), ("cosine", 0.5, 0.000247)],
)
def test_schedules(schedule: str, halfway: float, end: float) -> None:
    config = TrainingConfig(steps=100, schedule=schedule)  # type: ignore[arg-type]
    assert rate_factor(0, config) == 1
    assert rate_factor(50, config) == pytest.approx(halfway)
    assert rate_factor(99, config) == pytest.approx(end, abs=1e-5)
    assert rate_factor(4, replace(config, warmup=10)) == pytest.approx(0.5 * rate_factor(4, config))


def test_clipping_bounds_the_gradient(tmp_path, small) -> None:
    # With plain gradient descent of rate 1 the step is the gradient, so its norm shows the clip.
    config = small(steps=1, optimiser="sgd", learning_rate=1.0, clip=0.5, evaluate_every=0)
    before = build_model(config).state_dict()
    after = weights(train(config, Store(tmp_path)))
    moved = math.sqrt(sum(float((after[n] - before[n]).square().sum()) for n in before))
    assert moved == pytest.approx(0.5, rel=1e-3)


class Worsening(BetaVAE):
    """A loss that only rises on held-out data: the model is in evaluation mode there."""

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        terms = super().__call__(model, batch, step)
        return terms if model.training else Terms(terms.loss * 0 + step)


def test_early_stop_after_patience_runs_out(small) -> None:
    config = small(steps=100, evaluate_every=10, patience=2)
    state = build_state(build_model(config), config.objective, config.training)
    fit(state, Worsening(), config.world, config.training)
    assert state.step == 30, "best at 10, then two evaluations without improvement"


class Exploding(Objective):
    """Finite until a step, then not."""

    def __call__(self, model: Autoencoder, batch: Batch, step: int) -> Terms:
        loss = model.encode(batch.x).mean.square().mean()
        return Terms(loss * float("nan") if step >= 25 else loss)


def test_divergence_stops_and_keeps_the_last_good_checkpoint(tmp_path, small, monkeypatch) -> None:
    store = Store(tmp_path)
    config = small()
    monkeypatch.setattr(type(config.objective), "__call__", Exploding.__call__)
    with pytest.raises(Diverged, match="diverged at step 25: the loss is nan"):
        train(config, store)
    (run,) = store.runs()
    assert run.status == "diverged"
    model = load_model(run)
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path, small) -> None:
    from polariscope.training import checkpoint

    config = small()
    state = build_state(build_model(config), config.objective, config.training)
    checkpoint.save(state, tmp_path / "c.safetensors")
    good = (tmp_path / "c.safetensors").read_bytes()
    with torch.no_grad():
        next(state.model.parameters()).fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="not finite"):
        checkpoint.save(state, tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == good


def test_a_discriminator_learns_with_its_own_optimiser_and_is_no_part_of_the_model(tmp_path, small) -> None:
    config = small(FactorVAE(width=16, depth=2), steps=20)
    state = build_state(build_model(config), config.objective, config.training)
    before = {name: weight.clone() for name, weight in state.players["discriminator"].state_dict().items()}
    run = train(config, Store(tmp_path))
    after = checkpoints.within(checkpoints.read(run.checkpoint)[0], "player/discriminator/")
    assert after.keys() == before.keys()
    assert all(not torch.equal(before[n], after[n]) for n in after if n.endswith("weight"))
    assert not any("discriminator" in name for name in load_model(run).state_dict())


def test_bfloat16_trains(tmp_path, small) -> None:
    run = train(small(steps=20, precision="bfloat16"), Store(tmp_path))
    assert math.isfinite(run.result["train_loss"])


def test_a_device_that_is_not_there_is_refused(tmp_path, small) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ValueError, match="no CUDA device is available"):
        train(small(device="cuda"), Store(tmp_path))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"learning_rate": float("nan")}, "learning rate"),
        ({"schedule": "drop"}, "drop_every"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainingConfig(**settings)
