"""Generators that learn to draw observations from their known factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.factor_generator import FactorGenerator
from polariscope.nets.predictors import LeNet
from polariscope.objectives.from_factors import FromFactors
from polariscope.objectives.objective import Batch
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import train_in_memory
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.world import to_tensor

SMALL = AutoencoderConfig(architecture=MLP((8,), (64,)))


def test_the_loss_is_the_cross_entropy_of_the_drawn_image() -> None:
    torch.manual_seed(0)
    generator = FactorGenerator(SMALL, (1, 4, 4), (3, 5))
    x, factors = torch.rand(6, 1, 4, 4), torch.tensor([[0, 0], [1, 2], [2, 4], [0, 4], [2, 0], [1, 1]])
    loss = FromFactors()(generator, Batch(x, factors=factors, population=6), 0).loss.item()
    p = generator.generate(factors).detach().numpy().reshape(6, -1).astype(float)
    pixels = x.numpy().reshape(6, -1)
    assert loss == pytest.approx(-(pixels * np.log(p) + (1 - pixels) * np.log(1 - p)).sum(1).mean(), rel=1e-5)


def test_a_generator_learns_to_draw() -> None:
    world = MiniSprites(orientations=2, positions=3)
    config = RunConfig(world, FromFactors(), SMALL, TrainingConfig(1500, 64, 3e-3, evaluate_every=0))
    generator = train_in_memory(config)
    numbers = np.arange(len(world))
    x = to_tensor(world.observe(numbers))
    drawn = generator.generate(torch.from_numpy(world.factors_of(numbers)))
    unexplained = (x - drawn).square().sum() / (x - x.mean(0)).square().sum()
    assert unexplained.item() < 0.2


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda: FactorGenerator(SMALL, (1, 4, 4), ()), "needs factors: use a world whose factors are known"),
        (lambda: FactorGenerator(SMALL, (1, 4, 4), (3,)).generate(torch.zeros(2, 2)), r"factors of shape \(n, 1\)"),
        (lambda: FromFactors().build(LeNet(), None), "use the model autoencoder"),
        (
            lambda: FromFactors()(
                FactorGenerator(SMALL, (1, 4, 4), (3,)), Batch(torch.zeros(1, 1, 4, 4), population=1), 0
            ),
            "needs the factors of each observation",
        ),
    ],
)
def test_what_it_cannot_use_is_refused_in_a_sentence(action, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        action()
