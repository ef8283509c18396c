"""A learned change of the data that helps entangled models to reconstruct and hinders disentangled ones.

A small network m maps the factors to a change of at most epsilon, through a layer of a single neuron, so that the
change can only follow one direction of the factors. Two trained models, the most and the least disentangled of several
restarts, keep their encoders, which still encode the original data; their decoders learn the changed data. m is
trained to make the entangled model's reconstruction better and the disentangled model's worse, with three updates of
the decoders for one of m. Both encoders keep all information, so m can only exploit where each of them adds its noise
(Spec 003, section 4.7; Zietlow, Rolinek and Martius 2021).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from polariscope.manipulation.folding import fold
from polariscope.manipulation.manipulation import Fitted, manipulations, standardised
from polariscope.manipulation.selection import SCORED, Restart, Score, extremes, train_restarts
from polariscope.nets.architecture import MLP, Architecture, Conv, architectures
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.model import Brief, Model, Shape
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Batch, Need, Objective, Player, Terms, Turn
from polariscope.registry import plain
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import WEIGHTS_STEP, Listeners, build_state, fit, seed_step
from polariscope.training.progress import TellNamed
from polariscope.training.run import paced
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.world import World, sample


class Manipulator(nn.Module):
    """The network m: it maps factors ``(n, k)`` to changes ``(n, *shape)`` within ±epsilon, through one linear neuron.

    The factors are standardised first. ``trend`` is a linear function of the factors that is subtracted from the
    change, and ``shrink`` scales the rest to keep it within the bound. Both have no effect until :func:`remove_trend`
    sets them.
    """

    mean: Tensor
    spread: Tensor
    trend: Tensor
    shrink: Tensor

    def __init__(
        self, factors: int, shape: Shape, epsilon: float, architecture: Architecture, scale: tuple[ArrayLike, ArrayLike]
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.shape = tuple(shape)
        self.squeeze = nn.Linear(factors, 1)
        self.unfold = architecture.decoder(1, shape)
        self.register_buffer("mean", torch.as_tensor(scale[0], dtype=torch.float32))
        self.register_buffer("spread", torch.as_tensor(scale[1], dtype=torch.float32))
        self.register_buffer("trend", torch.zeros(factors + 1, math.prod(shape)))
        self.register_buffer("shrink", torch.ones(()))

    def forward(self, factors: Tensor) -> Tensor:
        w = self.centred(factors)
        change: Tensor = self.epsilon * self.unfold(self.squeeze(w)).tanh()
        return self.shrink * (change - (nn.functional.pad(w, (1, 0), value=1.0) @ self.trend).reshape(change.shape))

    def centred(self, factors: Tensor) -> Tensor:
        return (factors.to(self.mean) - self.mean) / self.spread

    @property
    def direction(self) -> NDArray[np.float64]:
        """The direction of (standardised) factors that the change follows: a unit vector of arbitrary sign."""
        weight = self.squeeze.weight.detach().double().cpu().numpy()[0]
        return np.asarray(weight / np.linalg.norm(weight))


@manipulations.register("learned")
@dataclass(frozen=True)
class Learned:
    """A learned manipulation and the settings of its training."""

    trains: ClassVar[bool] = True
    epsilon: float = 0.1
    """Largest change of any coordinate; for images a share of the grey range."""
    restarts: int = 10
    """Number of models to train; the most and the least disentangled of them are used."""
    pairs: int = 1
    """Number of most disentangled models, and of least disentangled ones, to play against each other. The publication
    uses 4 for Shapes3D and 1 for dSprites."""
    score: Score = "mig"
    """Measure of how disentangled a restart is."""
    steps: int = 5000
    """Number of updates of the manipulation."""
    decoder_updates: int = 3
    """Updates of the decoders for each update of the manipulation."""
    samples: int = 5
    """Number of draws from each posterior."""
    batch_size: int = 64
    learning_rate: float = 1e-4
    local_only: bool = False
    """Subtract the best linear fit in the factors from the change, so that it alters only local structure."""
    architecture: Architecture | None = None
    """Decoder from the one neuron to the change; by default convolutional, or dense 256-256 where convolutions do not
    fit the shape."""
    objective: Objective = field(default_factory=BetaVAE)
    model: Model = field(default_factory=AutoencoderConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        for name in ("pairs", "steps", "decoder_updates", "samples", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: a learned manipulation needs at least 1")
        if self.restarts < 2 * self.pairs:
            raise ValueError(
                f"{self.pairs} most and {self.pairs} least disentangled models need at least {2 * self.pairs} "
                f"restarts; got {self.restarts}"
            )
        if not self.learning_rate > 0:
            raise ValueError(f"the learning rate is {self.learning_rate}: it needs to be positive")

    def fit(self, world: World, seed: int, tell: TellNamed) -> Fitted:
        config = RunConfig(world, self.objective, self.model, replace(self.training, evaluate_every=0))
        restarts = train_restarts(config, self.restarts, self.score, tell)
        picked = extremes([one.score for one in restarts], self.pairs)
        best, worst = [restarts[i] for i in picked.best], [restarts[i] for i in picked.worst]
        return self.against(world, best, worst, seed, tell, restarts)

    def against(
        self,
        world: World,
        disentangled: Sequence[Restart],
        entangled: Sequence[Restart],
        seed: int,
        tell: TellNamed,
        restarts: Sequence[Restart] = (),
    ) -> Fitted:
        """Learn the change from models that are already trained."""
        manipulator, losses = learn_manipulator(
            world, [one.model for one in disentangled], [one.model for one in entangled], self, seed, tell
        )
        facts = {
            "restarts": [one.describe() for one in restarts or (*disentangled, *entangled)],
            "disentangled": [one.seed for one in disentangled],
            "entangled": [one.seed for one in entangled],
            "disentangled_loss": losses[-1][1],
            "entangled_loss": losses[-1][0],
            "direction": manipulator.direction.tolist(),
            "architecture": architectures.describe(self.decoder(world.shape)),
        }
        return Fitted(change_by(manipulator), manipulator.state_dict(), facts)

    def decoder(self, shape: Shape) -> Architecture:
        """The network from the neuron to a change of this shape."""
        if self.architecture is not None:
            return self.architecture
        if len(shape) == 3 and shape[1] == shape[2] and shape[1] >= 8 and shape[1] % 4 == 0:
            return Conv(dense_decoder=True)
        return MLP(decoder_widths=(256, 256), decoder_activation="relu")

    def describe(self) -> dict[str, Any]:
        return plain(self)


def change_by(manipulator: Manipulator) -> Any:
    """The manipulator as a function of arrays."""

    @torch.no_grad()
    def change(factors: NDArray[Any], start: int) -> NDArray[np.floating]:
        device = manipulator.mean.device
        parts = torch.from_numpy(np.ascontiguousarray(factors)).to(device).split(512)
        return torch.cat([manipulator(part).cpu() for part in parts]).numpy()

    return change


def learn_manipulator(
    world: World,
    disentangled: Sequence[Autoencoder],
    entangled: Sequence[Autoencoder],
    settings: Learned,
    seed: int = 0,
    tell: TellNamed = lambda name, progress: None,
) -> tuple[Manipulator, list[tuple[float, float]]]:
    """Train m against copies of the models; the models themselves do not change.

    Also returns the reconstruction losses of the entangled and the disentangled models, averaged over each tenth of
    the training, in order.
    """
    if not disentangled or not entangled:
        raise ValueError("a manipulation is learned from models: give at least one disentangled and one entangled")
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        seed_step(seed, WEIGHTS_STEP)
        decoder = settings.decoder(world.shape)
        manipulator = Manipulator(len(world.factors), world.shape, settings.epsilon, decoder, standardised(world))
    game = Game(tuple(entangled), tuple(disentangled), settings.samples, settings.decoder_updates)
    config = TrainingConfig(
        settings.steps,
        settings.batch_size,
        settings.learning_rate,
        adam_epsilon=1e-7,
        seed=seed,
        evaluate_every=0,
        log_every=max(1, settings.steps // 10),
        device=settings.training.device,
    )
    losses: list[tuple[float, float]] = []
    listeners = Listeners(
        metrics=lambda event: losses.append((event.terms["entangled"], event.terms["disentangled"])),
        step=paced(partial(tell, "manipulation"), settings.steps),
    )
    fit(build_state(manipulator, game, config), game, world, config, listeners, RandomSplit(0.0))
    if settings.local_only:
        remove_trend(manipulator, sample(world, SCORED, seed)[1])
    return manipulator.eval(), losses


@dataclass(frozen=True, eq=False)
class Game(Objective):
    """The decoders of both sides learn the changed data for some turns; then the manipulation is updated against
    them."""

    entangled: tuple[Autoencoder, ...]
    disentangled: tuple[Autoencoder, ...]
    samples: int
    decoder_updates: int

    needs: ClassVar[tuple[Need, ...]] = ("factors",)

    def players(self, model: Manipulator, brief: Brief) -> dict[str, Player]:
        return {"decoders": Player(nn.ModuleList(_frozen(one) for one in (*self.entangled, *self.disentangled)))}

    def turns(self) -> tuple[Turn, ...]:
        return (*[self.learn] * self.decoder_updates, self)

    def learn(self, model: Manipulator, batch: Batch, step: int, decoders: nn.ModuleList) -> Terms:
        """The sum of the decoders' losses: each decoder gets the gradient of its own loss."""
        return Terms(None, {}, {"decoders": self.losses(model, batch, decoders).sum()})

    def __call__(self, model: Manipulator, batch: Batch, step: int, decoders: nn.ModuleList) -> Terms:
        losses = self.losses(model, batch, decoders)
        entangled, disentangled = losses[: len(self.entangled)].mean(), losses[len(self.entangled) :].mean()
        return Terms(entangled - disentangled, {"entangled": entangled, "disentangled": disentangled})

    def losses(self, manipulator: Manipulator, batch: Batch, decoders: nn.ModuleList) -> Tensor:
        """How well each model, which encodes the original, reconstructs the changed data."""
        assert batch.factors is not None
        target = batch.x + manipulator(batch.factors)
        target = fold(target) if batch.x.ndim == 4 else target
        models: list[Any] = list(decoders)
        return torch.stack([reconstruction(one, draw(one, batch.x, self.samples), target) for one in models])


@torch.no_grad()
def draw(model: Autoencoder, x: Tensor, samples: int) -> Tensor:
    """``samples`` draws from the posterior of each observation, one set of draws after the other."""
    posterior = model.encode(x)
    return torch.cat([posterior.sample() for _ in range(samples)])


def reconstruction(model: Autoencoder, z: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-likelihood of the target under all draws of its code."""
    repeated = target.repeat(len(z) // len(target), *[1] * (target.ndim - 1))
    loss: Tensor = model.likelihood.nll(model.decode(z), repeated).mean()
    return loss


@torch.no_grad()
def remove_trend(manipulator: Manipulator, factors: NDArray[Any]) -> None:
    """Subtract the best linear fit in the factors from a change, and shrink the rest if it would exceed the bound.

    The rest has no covariance with the factors (over these examples), so the global principal components cannot turn
    towards it.
    """
    parts = torch.from_numpy(np.ascontiguousarray(factors)).to(manipulator.mean.device).split(512)
    change = torch.cat([manipulator(part).flatten(1) for part in parts])
    w = nn.functional.pad(torch.cat([manipulator.centred(part) for part in parts]), (1, 0), value=1.0)
    fit = torch.linalg.pinv(w.double()) @ change.double()
    manipulator.trend += (fit / manipulator.shrink).float()
    rest = (change - w @ fit.float()).abs().max()
    manipulator.shrink *= (manipulator.epsilon / rest).clamp(max=1.0)


def predicted_direction(entangled_noise: ArrayLike, disentangled_noise: ArrayLike) -> NDArray[np.float64]:
    """The direction of factors along which a small linear change hurts disentangled models most, by theory.

    The arguments are the covariances of the codes' noise, pulled back to the factors. A target ε uᵀw costs a decoder
    ε² uᵀ Σ u, so the best u is the bottom eigenvector of Σ_entangled − Σ_disentangled. If the entangled noise is
    isotropic, u is an axis: such a reference can make factors equal, but cannot mix them (Spec 003, section 4.7).

    >>> turn = np.deg2rad(30)
    >>> r = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    >>> predicted_direction(1e-3 * r @ np.diag([0.5, 3]) @ r.T, 1e-3 * np.diag([1, 1 / 0.64])).round(4).tolist()
    [0.807, 0.5905]
    """
    difference = np.asarray(entangled_noise, dtype=np.float64) - np.asarray(disentangled_noise, dtype=np.float64)
    bottom = np.linalg.eigh(difference)[1][:, 0]
    return np.asarray(bottom * np.sign(bottom[np.argmax(np.abs(bottom))]))


def _frozen(model: Autoencoder) -> Autoencoder:
    """A copy whose decoder learns and whose encoder does not."""
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    twin.decoder.requires_grad_(True)
    return twin
