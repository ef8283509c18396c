"""The configuration of a run: world, split, model, objective, training, and the weights it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from polariscope.nets.model import Model, models
from polariscope.objectives.objective import Objective, objectives
from polariscope.objectives.vae import VAE
from polariscope.registry import from_plain, nearest, plain
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.readers.files import File
from polariscope.worlds.remembered import recalled
from polariscope.worlds.splits import Split, usual_split
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, worlds


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training."""

    steps: int = 10_000
    """Number of batches to train on."""
    batch_size: int = 64
    learning_rate: float = 1e-3
    optimiser: Literal["adam", "adagrad", "sgd"] = "adam"
    adam_epsilon: float = 1e-8
    """Constant that Adam adds to its denominator; some publications use 1e-7."""
    momentum: float = 0.0
    """Momentum of plain gradient descent (sgd)."""
    weight_decay: float = 0.0
    """Weight decay of the optimiser."""
    schedule: Literal["constant", "linear", "late-linear", "cosine", "drop"] = "constant"
    """The learning rate stays constant, falls to zero over the run (linear, cosine) or over its second half
    (late-linear), or drops by a factor at regular intervals (drop)."""
    drop_every: int = 0
    """Steps between two drops of the learning rate, with the schedule drop."""
    drop: float = 0.1
    """Factor of the learning rate at each drop."""
    warmup: int = 0
    """Steps over which the learning rate first rises from zero."""
    clip: float = 0.0
    """Largest norm of the gradient; larger gradients are scaled down. 0 does not clip."""
    seed: int = 0
    """Seed of weights, data order and noise: the same seed gives the same bits on the same machine."""
    evaluate_every: int = 500
    """Steps between evaluations on held-out data; 0 never evaluates."""
    patience: int = 0
    """Evaluations without improvement before training stops early; 0 never stops early."""
    log_every: int = 50
    """Steps over which training terms are averaged for the learning curve."""
    checkpoint_every: int = 1000
    """Steps between checkpoints; the last step always has one."""
    snapshot_every: int = 0
    """Steps between snapshots of the weights that are kept for studies of training; 0 keeps none."""
    threads: int = 1
    """Threads of one run. Several parallel runs are faster with one thread each; a single run on an idle machine is
    faster with more."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 is faster on accelerators and slower on most CPUs."""
    compile: bool = False
    """Compile the networks first. This saves time in long runs; on a CPU it needs a compiler."""

    def __post_init__(self) -> None:
        for name, low in _AT_LEAST.items():
            if not getattr(self, name) >= low:
                raise ValueError(f"training {name} is {getattr(self, name)}: it needs to be at least {low}")
        for name, words in _POSITIVE.items():
            if not getattr(self, name) > 0:
                raise ValueError(f"{words} is {getattr(self, name)}: it needs to be positive")
        if self.schedule == "drop" and self.drop_every < 1:
            raise ValueError("the schedule drop needs drop_every, the steps between two drops")


_AT_LEAST = {
    "steps": 1,
    "batch_size": 1,
    "momentum": 0,
    "weight_decay": 0,
    "drop_every": 0,
    "drop": 0,
    "warmup": 0,
    "clip": 0,
    "seed": 0,
    "evaluate_every": 0,
    "patience": 0,
    "log_every": 1,
    "checkpoint_every": 1,
    "snapshot_every": 0,
    "threads": 1,
}
_POSITIVE = {"learning_rate": "the learning rate", "adam_epsilon": "Adam's epsilon"}


@dataclass(frozen=True)
class Start:
    """The run that the weights are taken from, and the parts that are frozen."""

    run: str = ""
    """Folder of a run to take the initial weights from; by default the seed draws them."""
    sha256: str = ""
    """Hash of that run's checkpoint, so that a change of the initial weights is noticed."""
    parts: tuple[str, ...] = ()
    """Parts of the model to take from that run, by their dotted names; by default all parts."""
    freeze: tuple[str, ...] = ()
    """Parts of the model that are not trained, by their dotted names."""
    into: str = ""
    """The part of this model that gets the other run's weights ("of" in a readout); by default the whole model."""
    widen: bool = False
    """Allow layers with more input channels than in the other run. The new weights start at zero, so that the model
    predicts as before until it is trained."""

    def __post_init__(self) -> None:
        if (self.parts or self.into) and not self.run:
            given = "parts" if self.parts else "into"
            raise ValueError(f"start.{given} needs another run: name it with start.run")


def called(world: World) -> str:
    """The name of a world: a user's data is named after its file or folder, a view after itself and its world.

    >>> from polariscope.worlds.readers.files import File
    >>> called(File("data/norm.npz")), called(worlds.build("mini-sprites"))
    ('norm', 'mini-sprites')
    """
    if isinstance(world, File):
        return world.called
    name = worlds.name_of(world) if worlds.knows(world) else "array"
    inner = inside(world, File)
    return f"{name} {inner[0].called}" if inner else name


SECTIONS = ("world", "split", "objective", "model", "training", "start")


@dataclass(frozen=True)
class RunConfig:
    """The complete configuration of one run."""

    world: World
    """A world, or anything that :func:`~polariscope.worlds.given.as_world` turns into one: a name, a path, an array."""
    objective: Objective = field(default_factory=VAE)
    model: Model = None  # type: ignore[assignment]  # the objective's own, see __post_init__
    training: TrainingConfig = field(default_factory=TrainingConfig)
    split: Split = None  # type: ignore[assignment]  # the world's own, or a random one, see __post_init__
    start: Start = field(default_factory=Start)

    def __post_init__(self) -> None:
        if not hasattr(type(self.world), "observe"):
            object.__setattr__(self, "world", as_world(self.world))
        if self.model is None:
            object.__setattr__(self, "model", self.objective.default_model())
        if self.split is None:
            object.__setattr__(self, "split", usual_split(self.world))

    @property
    def label(self) -> str:
        """A few words for folder names and tables."""
        return f"{called(self.world)} {objectives.name_of(self.objective)}"

    def describe(self) -> dict[str, Any]:
        """A JSON-ready dictionary from which :meth:`build` makes the same configuration.

        For a world that has no name, such as an array in memory, it contains the hash and the size.
        """
        return plain(self)

    @classmethod
    def build(cls, description: Mapping[str, Any], data: Data | None = None) -> RunConfig:
        """Build from a dictionary (a TOML file, a run's record). The error for an unknown key names the nearest valid
        one.

        A run that was made with data in memory needs the same ``data`` again; other data is refused.
        """
        for key in description:
            if key not in SECTIONS:
                raise ValueError(f"the configuration has no section {key!r}: {nearest(key, SECTIONS)}")
            if not isinstance(description[key], Mapping | str):
                raise ValueError(f"the section [{key}] needs settings by name; got {description[key]!r}")
        if "world" not in description:
            raise ValueError("the configuration needs a [world] section with a name")
        given = dict(description)
        objective = objectives.build(given.get("objective", {"name": "vae"}))
        if "model" in given and not isinstance(given["model"], str) and "name" not in given["model"]:
            given["model"] = {"name": models.name_of(objective.default_model()), **given["model"]}
        if "split" in given and not isinstance(given["split"], str) and "name" not in given["split"]:
            given["split"] = {"name": "random", **given["split"]}
        config: RunConfig = from_plain(cls, given, "the configuration")
        if data is None:
            return config
        world = recalled(config.world, as_world(data))
        if world is config.world:
            name = worlds.name_of(config.world)
            raise ValueError(f"this run has its own world ({name}) and takes no other data")
        return cls(world, config.objective, config.model, config.training, config.split, config.start)
