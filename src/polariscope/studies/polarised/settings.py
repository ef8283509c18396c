"""The training settings that several studies share: the published one, and a toy that a core trains in seconds."""

from __future__ import annotations

from polariscope.nets.architecture import MLP, Conv
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.objective import Objective
from polariscope.studies.study import Scale
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.sprites import Sprites

PUBLISHED_STEPS = 300_000
TOY_WORLD = MiniSprites(orientations=6, positions=12)  # one for all runs of a process: it keeps what it rendered


def toy_run(objective: Objective, seed: int, steps: int, latents: int = 10, snapshot_every: int = 0) -> RunConfig:
    """An MLP of 64 units on 12x12 sprites (Spec 002, section 17)."""
    return RunConfig(
        TOY_WORLD,
        objective,
        AutoencoderConfig(latents, MLP((64, 64), (64, 64))),
        TrainingConfig(
            steps=steps,
            learning_rate=3e-3,
            seed=seed,
            evaluate_every=0,
            checkpoint_every=max(steps, 1),
            log_every=max(steps // 20, 1),
            snapshot_every=snapshot_every,
        ),
    )


def published_run(
    objective: Objective, seed: int, steps: int = PUBLISHED_STEPS, latents: int = 10, snapshot_every: int = 0
) -> RunConfig:
    """The convolutional VAE on dSprites: batch 64, Adam at 1e-4, 300,000 steps (Spec 002, section 14)."""
    return RunConfig(
        Sprites(),
        objective,
        AutoencoderConfig(latents, Conv(dense_decoder=True)),
        TrainingConfig(
            steps=steps,
            learning_rate=1e-4,
            seed=seed,
            evaluate_every=0,
            checkpoint_every=5000,
            log_every=500,
            snapshot_every=snapshot_every,
        ),
    )


def run_at(scale: Scale, objective: Objective, seed: int, steps: int, snapshots: int = 0) -> RunConfig:
    """The toy at smoke and laptop scale, the published setting at paper scale; ``snapshots`` evenly over training."""
    if scale == "paper":
        return published_run(objective, seed, snapshot_every=PUBLISHED_STEPS // snapshots if snapshots else 0)
    return toy_run(objective, seed, steps, snapshot_every=steps // snapshots if snapshots else 0)
