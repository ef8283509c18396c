"""Evaluation on held-out data: the same examples and the same noise every time, so that only the model differs."""

import pytest
import torch

from polariscope.training.config import RunConfig
from polariscope.training.loop import build_state, evaluate
from polariscope.training.run import build_model


@pytest.fixture
def config(small) -> RunConfig:
    return small(seed=5, held_out=0.0001)


def evaluated(config: RunConfig, step: int = 0, seed: int | None = None) -> dict[str, float]:
    """Terms of the untrained model; ``seed`` is that of whatever was drawn before, if anything was."""
    state = build_state(build_model(config), config.objective, config.training)
    parts = config.split.parts(config.world)
    assert len(parts.held_out) > 2 * config.training.batch_size
    if seed is not None:
        torch.manual_seed(seed)
    return evaluate(state, config.objective, config.world, parts, config.training, step)


def test_the_noise_of_an_evaluation_is_always_the_same(config) -> None:
    """Whatever was drawn before, and at whatever step: else a curve would move though the model does not."""
    first = evaluated(config, step=0, seed=1)
    assert evaluated(config, step=0, seed=2) == first
    assert evaluated(config, step=700) == first


def test_every_batch_of_an_evaluation_has_noise_of_its_own(config, monkeypatch) -> None:
    drawn = []
    plain = torch.randn_like
    monkeypatch.setattr(torch, "randn_like", lambda x: drawn.append(plain(x)) or drawn[-1])
    evaluated(config)
    assert len(drawn) > 2
    assert not any(torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_an_evaluation_neither_trains_nor_leaves_the_model_in_another_mode(config) -> None:
    model = build_model(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = build_state(model, config.objective, config.training)
    evaluate(state, config.objective, config.world, config.split.parts(config.world), config.training, 0)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
