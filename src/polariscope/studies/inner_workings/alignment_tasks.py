"""The tasks on which the alignment of VAEs was published (Spec 003, section 1.9), and a smaller edition of each.

The loss of the synthetic tasks is the summed squared error, without a half: a Gaussian decoder of variance 1/2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from polariscope.examination.jacobians import decoder_orthogonality
from polariscope.measures.neighbour_score import neighbour_score
from polariscope.nets.architecture import MLP, Architecture, Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.beta_vae import BetaVAE, FullBetaVAE
from polariscope.objectives.objective import Objective
from polariscope.representation import Representation, represent
from polariscope.studies.real_digits import mnist_folder
from polariscope.studies.rows import Row
from polariscope.studies.study import Job, Scale
from polariscope.theory.polarised_regime import active_units
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.parity import digit_files
from polariscope.worlds.points.synthetic import SquareLinear, SquareNonlinear
from polariscope.worlds.renderers.blobs import Blobs
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.splits import SplitPart as Part
from polariscope.worlds.world import World

Kind = Literal["beta-vae", "vae", "ae", "full-beta-vae"]
SQUARED = 0.5  # decoder variance at which the negative log-likelihood is the squared error
EXAMINED = 300  # codes at which the decoder's Jacobian is taken
SMOKE_STEPS = 40


@dataclass(frozen=True)
class Task:
    """A world with the model and the training it was published with (or a size a core trains in seconds)."""

    world: World
    latents: int
    architecture: Architecture
    beta: float
    training: TrainingConfig
    bernoulli: bool = False
    plain_beta: float = 1.0
    """Beta of what is called a plain VAE here."""
    kept: float = 0.1
    """Share of the world that is never trained on."""

    def config(self, kind: Kind, seed: int, latents: int = 0, snapshots: int = 0) -> RunConfig:
        """A run of one kind of model; ``snapshots`` are spread evenly over it."""
        steps = self.training.steps
        training = replace(self.training, seed=seed, snapshot_every=steps // snapshots if snapshots else 0)
        model = AutoencoderConfig(
            latents or self.latents,
            self.architecture,
            likelihood="bernoulli" if self.bernoulli else "gaussian",
            variance=SQUARED,
        )
        return RunConfig(self.world, self.objective(kind), model, training, RandomSplit(self.kept))

    def objective(self, kind: Kind) -> Objective:
        if kind == "ae":
            return AE()
        beta = self.plain_beta if kind == "vae" else self.beta
        return FullBetaVAE(beta) if kind == "full-beta-vae" else BetaVAE(beta)

    def shortened(self, steps: int) -> Task:
        """The same with at most so many steps."""
        steps = min(steps, self.training.steps)
        log = max(1, steps // 20)
        return replace(self, training=replace(self.training, steps=steps, checkpoint_every=steps, log_every=log))

    @property
    def held_out(self) -> Part:
        """The part of the world that is never trained on."""
        return Part(self.world, RandomSplit(self.kept))


def task(name: str, scale: Scale) -> Task:
    """A task by name (dsprites, square-linear, square-nonlinear, mnist, blobs); smoke trains it for a few steps.

    At paper scale mnist is the files of MNIST, if they are under POLARISCOPE_DATA.
    """
    if scale != "paper":
        return _SMALL[name].shortened(SMOKE_STEPS) if scale == "smoke" else _SMALL[name]
    folder = mnist_folder() if name == "mnist" else None
    return replace(_PUBLISHED[name], world=digit_files(folder)) if folder else _PUBLISHED[name]


def lengths(names: Iterable[str]) -> dict[Scale, int]:
    """Steps of the longest training of some tasks, by scale."""
    scales: tuple[Scale, ...] = ("smoke", "laptop", "paper")
    return {scale: max(task(name, scale).training.steps for name in names) for scale in scales}


def _training(*, steps: int, rate: float, batch: int) -> TrainingConfig:
    return TrainingConfig(
        steps=steps,
        batch_size=batch,
        learning_rate=rate,
        schedule="linear",
        evaluate_every=0,
        log_every=max(1, steps // 20),
        checkpoint_every=steps,
    )


def _published(count: int, epochs: int, rate: float, optimiser: Literal["adam", "adagrad"]) -> TrainingConfig:
    """Epochs over four fifths of the data at a constant rate, in batches of 128 (the work gives no size)."""
    training = _training(steps=epochs * int(0.8 * count) // 128, rate=rate, batch=128)
    return replace(training, optimiser=optimiser, schedule="constant")


_TANH = MLP((60, 40, 20), (60, 40, 20), "tanh", "tanh")
_DIGITS = MLP((400,), (500, 500))
_SMALL = {
    "square-linear": Task(world=SquareLinear(8000), latents=2, architecture=Linear(), beta=0.01,
                          training=_training(steps=16_000, rate=1e-2, batch=50), kept=0.5),
    "square-nonlinear": Task(world=SquareNonlinear(10_000), latents=2, architecture=_TANH, beta=0.003,
                             training=_training(steps=20_000, rate=3e-3, batch=50), kept=0.5),
    "blobs": Task(world=Blobs(6400), latents=2, architecture=MLP((64, 64), (64, 64), "tanh", "tanh"), beta=1.0,
                  training=_training(steps=7500, rate=5e-3, batch=64), kept=0.5),
    # An image of 144 pixels weighs less than one of 4,096. The beta is where the first latent dies, the rule of section
    # 3.3.6, and the plain VAE has a quarter of it, as published.
    "dsprites": Task(world=MiniSprites(orientations=6, positions=12), latents=5, architecture=MLP((64, 64), (64, 64)),
                     beta=0.5, training=_training(steps=8000, rate=3e-3, batch=64), bernoulli=True, plain_beta=0.125,
                     kept=0.2),
    "mnist": Task(world=Digits(20_000), latents=6, architecture=_DIGITS, beta=1.0,
                  training=_training(steps=4000, rate=1e-3, batch=64), bernoulli=True),
}  # fmt: skip
_PUBLISHED = {
    "square-linear": Task(world=SquareLinear(), latents=2, architecture=Linear(), beta=1e-4,
                          training=_published(50_000, 600, 1e-3, "adam"), kept=0.2),
    "square-nonlinear": Task(world=SquareNonlinear(), latents=2, architecture=_TANH, beta=1e-3,
                             training=_published(50_000, 600, 1e-3, "adam"), kept=0.2),
    "blobs": _SMALL["blobs"],
    "dsprites": Task(world=Sprites(), latents=5, architecture=MLP(), beta=4.0,
                     training=_published(737_280, 50, 1e-2, "adagrad"), bernoulli=True, kept=0.2),
    "mnist": Task(world=Digits(70_000), latents=6, architecture=_DIGITS, beta=1.0,
                  training=_published(70_000, 400, 1e-2, "adagrad"), bernoulli=True, kept=0.2),
}  # fmt: skip
"""As printed (table 3.1); the two tenths that are evaluated and tested on are held out together."""


def settings_of(job: Job) -> Row:
    """What the rows of a job repeat of it: everything but the scale, which a table has only one of."""
    return {key: value for key, value in job.items() if key != "scale"}


@dataclass(frozen=True)
class Alignment:
    """How a trained model is oriented."""

    score: float | None
    """Disentanglement Score on held-out examples; None without continuous or ordered factors."""
    distance: float | None
    """Distance to orthogonality; None if fewer than two latents are in use."""
    active: int


def alignment(model: Autoencoder, world: World) -> Alignment:
    """Disentanglement Score, distance to orthogonality over the latents in use, and how many these are."""
    rep = represent(model, world, count=5000)
    used = in_use(rep)
    distance = decoder_distance(model, rep.mean[:EXAMINED], used) if used.sum() > 1 else None
    # Passive means still tell the factors, by differences too small to be used: they are left out of the score.
    codes = np.where(used, rep.mean, 0)
    scored = None if rep.factors is None else neighbour_score(codes, rep.factors).value if used.any() else 0.0
    return Alignment(scored, distance, int(used.sum()))


def decoder_distance(model: Autoencoder, codes: np.ndarray, used: np.ndarray | None = None) -> float:
    """Mean distance to orthogonality of the decoder at some codes."""
    z = torch.from_numpy(np.ascontiguousarray(codes, dtype=np.float32))
    active = None if used is None else np.flatnonzero(used)
    return decoder_orthogonality(model.generate, z, active).value


def in_use(rep: Representation) -> np.ndarray:
    """Latents whose means spread by more than 0.5; all of them for a model without a variance."""
    if rep.var is None:
        return np.ones(rep.mean.shape[1], dtype=bool)
    return active_units(rep.mean, rep.var)
