"""Worlds that change with the time: training sees the draws of its block, and a resumed run the same ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from polariscope.objectives.objective import Terms
from polariscope.training import RunConfig, TrainingConfig, checkpoint, loop, train
from polariscope.training.loop import Feed, Listeners, build_state, evaluate, fit
from polariscope.training.run import build_model
from polariscope.worlds import ArrayWorld
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.views.augmented import Augmented

FLOATS = ArrayWorld(np.random.default_rng(0).normal(size=(60, 7, 16, 16)), floats=True)
BYTES = MiniSprites()


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize(("inner", "likelihood"), [(BYTES, "bernoulli"), (FLOATS, "gaussian")], ids=["bytes", "floats"])
def test_a_resumed_run_sees_the_same_draws(inner, likelihood, small, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loop, "BLOCK", 4)
    world = Augmented(inner, "both", shift=2, crop=12, brightness=0.2)
    config = replace(small(likelihood=likelihood, steps=12, checkpoint_every=6, evaluate_every=6), world=world)

    def state():
        return build_state(build_model(config), config.objective, config.training)

    def trained(state, **listeners):
        return fit(state, config.objective, world, config.training, Listeners(**listeners), config.split)

    def kill(step, loss):
        if step == 7:
            raise Killed

    whole = trained(state()).model.state_dict()
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Killed):
        trained(state(), checkpoint=lambda state: checkpoint.save(state, path), step=kill)
    again = state()
    checkpoint.load(again, path)
    assert again.step == 6, "in the middle of a block"
    for name, value in trained(again).model.state_dict().items():
        assert torch.equal(value, whole[name]), name


def test_every_block_has_draws_of_its_own_and_evaluation_none(small, monkeypatch) -> None:
    monkeypatch.setattr(loop, "BLOCK", 2)
    world = Augmented(ArrayWorld(np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8)), shift=3)
    feed = Feed(world, np.arange(4), TrainingConfig(steps=6, batch_size=4))
    for step, (batch,) in feed.steps(0, 6):
        numbers = feed.order[step]
        np.testing.assert_array_equal(
            np.rint(batch.x.numpy() * 255), world.drawn(feed.config.seed, step // 2).observe(numbers)
        )
    config: RunConfig = replace(small(), world=world)
    state = build_state(build_model(config), config.objective, config.training)
    seen = []

    class Looks(type(config.objective)):
        def __call__(self, model, batch, step):
            seen.append(batch.x)
            return Terms(batch.x.sum())

    parts = config.split.parts(world)
    evaluate(state, Looks(), world, replace(parts, held_out=np.arange(4)), config.training, 0)
    shown = np.rint(torch.cat(seen).numpy() * 255)
    assert sorted(map(bytes, shown.astype(np.uint8))) == sorted(map(bytes, world.of.observe(np.arange(4))))


def test_a_run_on_floats_in_memory_takes_the_same_data_again(small, tmp_path) -> None:
    config = replace(small(likelihood="gaussian", steps=2), world=Augmented(FLOATS, shift=1))
    run = train(config, tmp_path)
    again = RunConfig.build(run.config, FLOATS)
    assert again.world.of is FLOATS
    assert again.world.shift == 1
    plain = RunConfig.build(run.config, np.asarray(FLOATS.observations))  # the same numbers, which need no declaration
    np.testing.assert_array_equal(plain.world.of.observe([0, 1]), FLOATS.observe([0, 1]))
    with pytest.raises(ValueError, match="not the same|another|other data|differ"):
        RunConfig.build(run.config, np.asarray(FLOATS.observations) + 1)
