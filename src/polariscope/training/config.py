"""Everything a run needs to be made again: world, model, objective, training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from polariscope.nets.architecture import architectures
from polariscope.nets.autoencoder import ModelConfig
from polariscope.objectives.objective import Objective, objectives
from polariscope.registry import from_plain, nearest, plain
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.remembered import Remembered, remember
from polariscope.worlds.world import World, worlds


@dataclass(frozen=True)
class TrainingConfig:
    """How to train."""

    steps: int = 10_000
    """Batches to train on."""
    batch_size: int = 64
    learning_rate: float = 1e-3
    optimiser: Literal["adam", "adagrad", "sgd"] = "adam"
    adam_epsilon: float = 1e-8
    """What Adam adds to its denominator; 1e-7 in some published settings."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate falls to zero over the run (or does not)."""
    warmup: int = 0
    """Steps over which the learning rate first rises from zero."""
    clip: float = 0.0
    """Largest norm of the gradient; 0 leaves it alone."""
    seed: int = 0
    """Seeds weights, data order and noise: the same seed gives the same bits on the same machine."""
    held_out: float = 0.1
    """Share of the world kept for evaluation, never trained on."""
    evaluate_every: int = 500
    """Steps between evaluations on held-out data; 0 never."""
    patience: int = 0
    """Evaluations without improvement before training stops early; 0 never stops early."""
    log_every: int = 50
    """Steps over which training terms are averaged for the learning curve."""
    checkpoint_every: int = 1000
    """Steps between checkpoints; the last step always has one."""
    snapshot_every: int = 0
    """Steps between snapshots of the weights that are kept for studies of training; 0 keeps none."""
    threads: int = 1
    """Threads of one run. Several runs at once do better with one each; a lone run on an idle machine with more."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 pays on accelerators; on most CPUs it is slower."""
    compile: bool = False
    """Compile the networks first: pays on long runs, and needs a compiler on CPU."""

    def __post_init__(self) -> None:
        for name, low in _AT_LEAST.items():
            if not getattr(self, name) >= low:
                raise ValueError(f"training {name} is {getattr(self, name)}: it needs to be at least {low}")
        if not self.learning_rate > 0:
            raise ValueError(f"the learning rate is {self.learning_rate}: it needs to be positive")
        if not self.adam_epsilon > 0:
            raise ValueError(f"Adam's epsilon is {self.adam_epsilon}: it needs to be positive")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"the held-out share is {self.held_out}: it needs to be in [0, 1)")


_AT_LEAST = {
    "steps": 1,
    "batch_size": 2,
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


@dataclass(frozen=True)
class RunConfig:
    """One run, complete."""

    world: World
    objective: Objective
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def label(self) -> str:
        """A few words for folder names and tables."""
        named = worlds.name_of(self.world) if worlds.knows(self.world) else "array"
        return f"{named} {objectives.name_of(self.objective)}"

    def describe(self) -> dict[str, Any]:
        """A JSON-ready dictionary from which :meth:`build` makes the same configuration.

        Of a world that has no name, such as an array in memory, its hash and its size are recorded.
        """
        world = self.world if worlds.knows(self.world) else remember(self.world)
        model = plain(self.model) | {"architecture": architectures.describe(self.model.architecture)}
        return {
            "world": worlds.describe(world),
            "objective": objectives.describe(self.objective),
            "model": model,
            "training": plain(self.training),
        }

    @classmethod
    def build(cls, description: Mapping[str, Any], data: Data | None = None) -> RunConfig:
        """From a dictionary (a TOML file, a run's record). Unknown keys are refused with the nearest valid one.

        ``data`` is needed again where a run was made with data in memory, and refused if it is not the same.
        """
        sections = ("world", "objective", "model", "training")
        for key in description:
            if key not in sections:
                raise ValueError(f"the configuration has no section {key!r}: {nearest(key, sections)}")
            if not isinstance(description[key], Mapping):
                raise ValueError(f"the section [{key}] needs settings by name; got {description[key]!r}")
        if "world" not in description:
            raise ValueError("the configuration needs a [world] section with a name")
        model = dict(description.get("model", {}))
        architecture = architectures.build(model.pop("architecture", {"name": "conv"}))
        world = worlds.build(description["world"])
        if data is not None:
            if not isinstance(world, Remembered):
                name = description["world"]["name"]
                raise ValueError(f"this run has a world of its own ({name}) and takes no other data")
            world = world.recall(as_world(data))
        return cls(
            world=world,
            objective=objectives.build(description.get("objective", {"name": "vae"})),
            model=replace(from_plain(ModelConfig, model, "model"), architecture=architecture),
            training=from_plain(TrainingConfig, description.get("training", {}), "training"),
        )
