"""What an objective is: hyper-parameters, and one call from a batch to the terms of a loss.

Losses are summed over pixels and latents and averaged over the batch. Most objectives train one model with one loss.
One that trains other networks beside it (the discriminator of FactorVAE) names them in ``players`` and returns a loss
for each; one that alternates has several ``turns`` in a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.model import Brief, Model, PosteriorKind
from polariscope.nets.posterior import Posterior
from polariscope.registry import Registry

Need = Literal["factors", "target", "other"]


@dataclass(frozen=True)
class Batch:
    """Observations as floats on the training device, and what else their world says about them.

    ``target`` is what is to be predicted, one column per target, with ``classes`` values each (0 where it is a number).
    ``others`` are further observations of the same moment: one for pairs, more for sequences.
    """

    x: Tensor
    population: int
    """Size of the set the observations come from."""
    factors: Tensor | None = None
    target: Tensor | None = None
    classes: tuple[int, ...] = ()
    others: tuple[Tensor, ...] = ()

    @property
    def other(self) -> Tensor:
        """The second observation of each pair."""
        if not self.others:
            raise ValueError("this objective learns from pairs: take a world of pairs")
        return self.others[0]


@dataclass(frozen=True)
class Terms:
    """A loss of the model and what it is made of: scalars, batch means.

    ``players`` are the losses of the other networks, by name. Without a ``loss`` the model itself rests in this turn.
    """

    loss: Tensor | None
    parts: dict[str, Tensor] = field(default_factory=dict)
    players: dict[str, Tensor] = field(default_factory=dict)
    offset: float = 0.0
    """A constant in the loss that says nothing about the model; learning curves leave it out."""
    rests: bool = False
    """The loss is told, and the model does not learn from it: a step that belongs to the other players."""
    anew: tuple[str, ...] = ()
    """Players that began anew in this turn: their optimisers forget what was before."""


@dataclass(frozen=True, eq=False)
class Player:
    """A network that learns beside the model: with an optimiser of its own, from its own loss alone.

    What it has to remember are buffers of its module, which are in the checkpoint with its weights.
    """

    module: nn.Module
    optimiser: Mapping[str, Any] | None = None
    """Settings of its Adam; without any it is trained as the run says."""


Turn = Callable[..., Terms]
"""Part of a step, with a batch of its own: called like an objective. The losses of all its players are computed before
any of them learns."""


class Objective(ABC):
    """A new objective is one file: a registered frozen dataclass with ``__call__``."""

    posterior: ClassVar[PosteriorKind] = "diagonal"
    """The posterior the objective is made for."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """What a batch must have besides its observations."""
    asks_for: ClassVar[tuple[str, ...]] = ("encode", "decode")
    """Methods that a model must have to be trained by it."""

    @abstractmethod
    def __call__(self, *asked: Any, **players: Any) -> Terms:
        """``(model, batch, step)``, and the other players by their names, to the terms of the loss."""

    def default_model(self) -> Model:
        """What is trained if nobody says otherwise."""
        return AutoencoderConfig()

    def build(self, model: Model, brief: Brief) -> nn.Module:
        """The network to train: what the model says, unless the objective has a say in it."""
        return model.build(brief)

    def players(self, model: Any) -> dict[str, Player]:
        """Networks that learn beside the model, by the name under which the call gets them."""
        return {}

    def turns(self) -> tuple[Turn, ...]:
        """What a step consists of."""
        return (self,)


objectives: Registry[Objective] = Registry(
    "objective", "polariscope.objectives", "polariscope.robustness", of=Objective
)


@dataclass(frozen=True)
class Pass:
    """One pass of a batch through the model: what every variational objective starts from."""

    posterior: Posterior
    z: Tensor
    reconstruction: Tensor
    """Mean negative log-likelihood."""
    kl: Tensor
    """Mean divergence of the posterior from the prior."""


def forward(model: Autoencoder, batch: Batch) -> Pass:
    """Encode, draw once, decode."""
    posterior = model.encode(batch.x)
    z = posterior.sample()
    return Pass(posterior, z, model.likelihood.nll(model.decode(z), batch.x).mean(), posterior.kl().mean())


def at_least(value: float, low: float, name: str) -> None:
    """Refuse a hyper-parameter that is too small (or NaN), in a sentence."""
    if not value >= low:
        raise ValueError(f"{name} is {value}: it needs to be at least {low:g}")
