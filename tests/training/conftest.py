"""A run small enough to train in a second."""

import pytest

from polariscope.nets.architecture import MLP
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.vae import VAE
from polariscope.training import RunConfig, TrainingConfig
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import RandomSplit


@pytest.fixture
def small():
    """``small(objective=..., steps=...)``: a configuration on 16x16 sprites with a tiny MLP."""

    def config(objective=None, likelihood="bernoulli", held_out=0.0002, **training) -> RunConfig:
        settings = {"steps": 30, "batch_size": 16, "log_every": 7, "evaluate_every": 10, "checkpoint_every": 10}
        return RunConfig(
            Sprites(size=16),
            objective or VAE(),
            AutoencoderConfig(latents=4, architecture=MLP((32,), (32,)), likelihood=likelihood),
            TrainingConfig(**settings | training),
            RandomSplit(held_out),
        )

    return config
