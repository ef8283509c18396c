"""What pairs cost: SlowVAE on pairs of images beside a beta-VAE on single ones, per image that is rendered and learned.

Both see as many images a step (32 pairs, 64 single ones) with the same network, so a ratio of 1 says that choosing the
second image, the transition term and its gradient cost nothing.
"""

from __future__ import annotations

import os
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from polariscope.nets.architecture import Conv
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners, build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.views.pairs import Pairs

IMAGES = 64
"""Of a step."""
SIZE = 32


def images_per_second(paired: bool, steps: int, threads: int, warm: int = 5) -> float:
    """Images a second through rendering and training, after a few steps to warm up."""
    world = Sprites(SIZE)
    batch = IMAGES // 2 if paired else IMAGES
    training = TrainingConfig(steps=steps + warm, batch_size=batch, threads=threads, evaluate_every=0)
    model = AutoencoderConfig(10, Conv())
    config = (
        RunConfig(Pairs(world), SlowVAE(), model, training) if paired else RunConfig(world, BetaVAE(), model, training)
    )
    state = build_state(build_model(config), config.objective, training)
    times: list[float] = []
    fit(
        state,
        config.objective,
        config.world,
        training,
        Listeners(step=lambda step, loss: times.append(time.perf_counter())),
    )
    return IMAGES * steps / (times[-1] - times[warm - 1])


def main(steps: int = 100, rounds: int = 5) -> None:
    """Rounds alternate between the two, so that a busy moment of the machine hits both; the median round counts."""
    table = Table(
        "threads",
        "pairs, images/s",
        "single, images/s",
        "ratio",
        title=f"{SIZE}x{SIZE} conv VAE, {IMAGES} images a step",
    )
    for threads in sorted({1, os.cpu_count() or 1}):
        found = [[images_per_second(paired, steps, threads) for paired in (True, False)] for _ in range(rounds)]
        pairs, single = np.transpose(found)
        ratios = np.sort(pairs / single)
        ratio = f"{np.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        table.add_row(str(threads), f"{np.median(pairs):.0f}", f"{np.median(single):.0f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
