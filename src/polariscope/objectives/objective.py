"""The interface of objectives: hyper-parameters, and one call from a batch to the terms of a loss.

Losses are summed over pixels and latents and averaged over the batch. Most objectives train one model with one loss.
One that trains other networks beside it (the discriminator of FactorVAE) names them in ``players`` and returns a loss
for each; one that alternates has several ``turns`` in a step. Objectives of autoencoders derive from
:class:`~polariscope.objectives.autoencoding.Autoencoding`, those that predict a target from
:class:`~polariscope.objectives.predict.Supervised`.
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from polariscope.nets.model import Brief, Model, PosteriorKind
from polariscope.registry import Registry

Need = Literal["factors", "target", "other"]


@dataclass(frozen=True)
class Batch:
    """Observations as floats on the training device, with targets, factors and partners where the world has them.

    ``target`` is what the model should predict: one column per target, with ``classes`` values each (0 for a number);
    a mask has the class of each pixel, ``(n, height, width)``, or -1 where it is unlabelled. ``others`` are further
    observations of the same moment: one for pairs, more for sequences.
    """

    x: Tensor
    population: int
    """Size of the data set of the observations."""
    factors: Tensor | None = None
    target: Tensor | None = None
    classes: tuple[int, ...] = ()
    others: tuple[Tensor, ...] = ()
    evaluating: bool = False
    """Whether the batch only evaluates the networks: none of them learns from it or changes."""

    @property
    def other(self) -> Tensor:
        """The second observation of each pair."""
        if not self.others:
            raise ValueError("this objective needs pairs: use a world of pairs")
        return self.others[0]


@dataclass(frozen=True)
class Terms:
    """The loss of the model and its terms: scalars, averaged over the batch.

    ``players`` are the losses of the other networks, by name. Without a ``loss`` the model itself rests in this turn.
    """

    loss: Tensor | None
    parts: dict[str, Tensor] = field(default_factory=dict)
    players: dict[str, Tensor] = field(default_factory=dict)
    offset: float = 0.0
    """A constant in the loss that does not depend on the model; learning curves subtract it."""
    rests: bool = False
    """The loss is only reported, and the model does not learn from it: a step of the other players."""
    anew: tuple[str, ...] = ()
    """Players that restarted in this turn: the states of their optimisers are reset."""
    counts: dict[str, Tensor] = field(default_factory=dict)
    """Sums over the batch (hits, a confusion matrix). An evaluation adds them up over the whole held-out set, and
    :meth:`Objective.scores` makes scores of the totals: the IoU of a set is not the mean IoU of its batches."""


@dataclass(frozen=True, eq=False)
class Player:
    """A network that is trained beside the model, with its own optimiser and its own loss.

    What it has to remember are buffers of its module, which are in the checkpoint with its weights.
    """

    module: nn.Module
    optimiser: Mapping[str, Any] | None = None
    """Settings of its Adam; by default it is trained with the settings of the run."""


Turn = Callable[..., Terms]
"""Part of a step, with a batch of its own: called like an objective. The losses of all its players are computed before
any of them learns."""


class Objective(ABC):
    """A new objective is one file: a registered frozen dataclass with ``__call__``."""

    posterior: ClassVar[PosteriorKind] = "diagonal"
    """The posterior the objective is made for."""
    needs: ClassVar[tuple[Need, ...]] = ()
    """What a batch must have besides its observations."""
    asks_for: ClassVar[tuple[str, ...]] = ()
    """Methods that a model must have to be trained by it."""
    dense: ClassVar[bool] = False
    """Whether its target is a mask: a class for each pixel."""
    numeric: ClassVar[bool] = False
    """Whether it predicts numbers: a world whose target is a class is then refused."""
    usual: ClassVar[type[Any] | None] = None
    """The class of the default model, built without settings."""

    @abstractmethod
    def __call__(self, *asked: Any, **players: Any) -> Terms:
        """``(model, batch, step)``, and the other players by their names, to the terms of the loss."""

    def default_model(self) -> Model:
        """The model that is trained unless another is chosen."""
        if self.usual is not None:
            model: Model = self.usual()
            return model
        from polariscope.nets.autoencoder import AutoencoderConfig

        warnings.warn(
            f"{type(self).__name__} names no default model: derive it from Autoencoding (or Supervised), or set "
            "usual; an autoencoder is taken until then",
            FutureWarning,
            stacklevel=2,
        )
        return AutoencoderConfig()

    def build(self, model: Model, brief: Brief) -> nn.Module:
        """The network to train: the one of the model, unless the objective changes it."""
        return model.build(brief)

    def players(self, model: Any, brief: Brief) -> dict[str, Player]:
        """Networks that learn beside the model, by the name under which the call gets them."""
        return {}

    def turns(self) -> tuple[Turn, ...]:
        """The turns of a step."""
        return (self,)

    @property
    def reserves(self) -> int:
        """Number of training observations that are held out for :meth:`settle`, at most a tenth."""
        return 0

    def settle(self, model: Any, batch: Batch | None) -> None:  # noqa: B027 - most objectives have nothing to settle
        """Called once after the last step, with the held-out observations (None if there are none), to calibrate values
        that the loss does not train. The network is in evaluation mode; only its buffers change."""

    @property
    def divergence_weight(self) -> float | None:
        """Weight of the divergence of a diagonal posterior from the prior, where the loss is the reconstruction and
        that alone; None for other losses. With it the decoder's slope predicts the posterior variances."""
        return None

    def scores(self, counts: Mapping[str, Tensor]) -> dict[str, float]:
        """Scores of the whole held-out set, from the totals of the ``counts`` of its batches."""
        return {}


objectives: Registry[Objective] = Registry("objective", of=Objective)


def players_of(objective: Objective, model: nn.Module, brief: Brief) -> dict[str, Player]:
    """The players of an objective. Plug-ins written before players were given the brief take the model alone."""
    if len(inspect.signature(objective.players).parameters) == 1:
        return objective.players(model)  # type: ignore[call-arg]
    return objective.players(model, brief)


def at_least(value: float, low: float, name: str) -> None:
    """Refuse a hyper-parameter that is too small (or NaN), in a sentence."""
    if not value >= low:
        raise ValueError(f"{name} is {value}: it needs to be at least {low:g}")


def __getattr__(name: str) -> Any:
    """Where plug-ins of version 0.1 look for :func:`~polariscope.objectives.autoencoding.forward`."""
    if name in ("forward", "Pass"):
        from polariscope.objectives import autoencoding

        return getattr(autoencoding, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
