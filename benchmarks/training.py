"""Training throughput beside pythae's trainer: same architecture, batch size, data, optimiser and threads."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners, build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds.renderers.sprites import Sprites

BATCH = 64
LATENTS = 10


def ours(steps: int, threads: int, warm: int = 5) -> float:
    """Steps a second of our loop as a script or notebook runs it, rendering included, after a few steps to warm up."""
    training = TrainingConfig(steps=steps + warm, batch_size=BATCH, threads=threads, evaluate_every=0)
    config = RunConfig(Sprites(), BetaVAE(), AutoencoderConfig(latents=LATENTS), training)
    state = build_state(build_model(config), config.objective, training)
    times: list[float] = []
    listeners = Listeners(step=lambda step, loss: times.append(time.perf_counter()))
    fit(state, config.objective, config.world, training, listeners)
    return steps / (times[-1] - times[warm - 1])


def pythaes(steps: int, threads: int) -> float:
    """Steps a second of pythae's trainer: an epoch of exactly that many batches, less an epoch of one."""
    from pythae.models import BetaVAE as PythaeBetaVAE
    from pythae.models import BetaVAEConfig
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn import BaseDecoder, BaseEncoder
    from pythae.trainers import BaseTrainer, BaseTrainerConfig

    # The same networks as a user of pythae would write them: torch's own layers, nothing in place.
    twin = build_model(RunConfig(Sprites(), BetaVAE(), AutoencoderConfig(latents=LATENTS), TrainingConfig()))
    for layer in twin.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False
        for plain in (nn.Conv2d, nn.ConvTranspose2d):
            if isinstance(layer, plain):
                layer.__class__ = plain

    class Encoder(BaseEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = twin.encoder, twin.head

        def forward(self, x: Tensor) -> Any:
            posterior = self.head(self.encoder(x))
            return ModelOutput(embedding=posterior.mean, log_covariance=posterior.logvar)

    class Decoder(BaseDecoder):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = nn.Sequential(twin.decoder, nn.Sigmoid())

        def forward(self, z: Tensor) -> Any:
            return ModelOutput(reconstruction=self.decoder(z))

    settings = BetaVAEConfig(input_dim=(1, 64, 64), latent_dim=LATENTS, beta=4.0, reconstruction_loss="bce")

    def epoch(batches: int) -> float:
        model = PythaeBetaVAE(settings, encoder=Encoder(), decoder=Decoder())
        world = Sprites()
        images = world.observe(np.linspace(0, len(world) - 1, batches * BATCH).astype(int))
        data = torch.from_numpy(images).float() / 255
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            trainer_settings = BaseTrainerConfig(
                output_dir=folder,
                num_epochs=1,
                per_device_train_batch_size=BATCH,
                learning_rate=1e-3,
                no_cuda=True,
            )
            from pythae.data.datasets import BaseDataset

            dataset = BaseDataset(data, torch.zeros(len(data)))
            trainer = BaseTrainer(model, train_dataset=dataset, eval_dataset=None, training_config=trainer_settings)
            started = time.perf_counter()
            trainer.train()
            return time.perf_counter() - started

    torch.set_num_threads(threads)
    few = epoch(2)
    return (steps - 2) / (epoch(steps) - few)


def _alone(measured: Callable[[int, int], float], steps: int, threads: int) -> float:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, steps, threads).result()


def main(steps: int = 40, rounds: int = 5) -> None:
    """Rounds alternate between the two, so that a busy moment of the machine hits both; the median round counts.

    Each runs in a process of its own, so that neither starts with memory that the other has freed.
    """
    table = Table("threads", "ours, steps/s", "pythae, steps/s", "ratio", title=f"64x64 conv VAE, batch {BATCH}")
    for threads in sorted({1, os.cpu_count() or 1}):
        mine, theirs = [], []
        for _ in range(rounds):
            mine.append(_alone(ours, steps, threads))
            theirs.append(_alone(pythaes, steps, threads))
        ratios = sorted(own / other for own, other in zip(mine, theirs, strict=True))
        ratio = f"{np.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        table.add_row(str(threads), f"{np.median(mine):.2f}", f"{np.median(theirs):.2f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
