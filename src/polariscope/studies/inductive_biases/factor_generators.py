"""Generators under supervision: do they draw images whose factors lie outside of the training domain? (IG-32.)

The way back of the in-domain benchmark: in place of an encoder that predicts the factors of images, a decoder gets the
factors and draws the image, on the same splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from polariscope.nets.architecture import MLP, Architecture, Conv
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.factor_generator import FactorGenerator
from polariscope.objectives.from_factors import FromFactors
from polariscope.studies.criteria import AtMost, Beats
from polariscope.studies.kit import Restarts, grid
from polariscope.studies.rows import means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import benchmark_split
from polariscope.worlds.world import World, to_tensor

SPLITS = ("random", "composition", "interpolation", "extrapolation")
NETWORKS: dict[str, Architecture] = {
    "mlp": MLP(decoder_widths=(256, 256, 256), decoder_activation="relu"),
    "conv": Conv(),
}


@dataclass(frozen=True)
class Setting:
    seeds: int
    size: int
    steps: dict[str, int]
    examples: int
    splits: tuple[str, ...] = SPLITS
    networks: tuple[str, ...] = tuple(NETWORKS)
    batch: int = 32
    rate: float = 2e-3


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 16, {"mlp": 3}, 60, ("random", "extrapolation"), ("mlp",)),
    "laptop": Setting(5, 32, {"mlp": 5000, "conv": 2500}, 5000),
    "paper": Setting(10, 64, {"mlp": 300_000, "conv": 300_000}, 50_000, batch=64, rate=1e-4),
}


@studies.register("factor-generators")
@dataclass(frozen=True)
class FactorGenerators(Study):
    """Unexplained share of held-out sprites, drawn from their true factors, on the four splits of the benchmark."""

    title = "Do generators extrapolate?"
    source = (
        "Schott, thesis (2022), section 3.1.1, after Montero et al., The role of disentanglement in generalisation "
        "(2021)"
    )
    question = "Does a network that draws images from their true factors also draw them outside of the training domain?"
    cost = {"smoke": "2 s", "laptop": "a quarter of an hour", "paper": "weeks"}
    training_lengths = {scale: max(setting.steps.values()) for scale, setting in SETTINGS.items()}
    drawn = {"errors": Restarts("error", ("network", "split"), called="unexplained share of held-out images")}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        return grid(scale=scale, network=setting.networks, split=setting.splits, seed=range(setting.seeds))

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting, network = SETTINGS[job["scale"]], job["network"]
        world = Sprites(setting.size, unambiguous=True)
        split = benchmark_split(job["split"], world)
        steps = setting.steps[network]
        training = TrainingConfig(
            steps, setting.batch, setting.rate, schedule="linear", seed=job["seed"], evaluate_every=0
        )
        model = AutoencoderConfig(architecture=NETWORKS[network])
        generator = load_model(bench.train(RunConfig(world, FromFactors(), model, training, split)))
        parts = split.parts(world)
        seen = np.random.default_rng(0).permutation(parts.train)[: setting.examples]
        unseen = parts.held_out[: setting.examples]
        mean = to_tensor(world.observe(seen)).mean(0)
        row: Row = {key: job[key] for key in ("network", "split", "seed")}
        return [
            row
            | {"error": unexplained(generator, world, unseen, mean)}
            | {"error_seen": unexplained(generator, world, seen, mean)}
        ]

    def claims(self, scale: Scale) -> list[Claim]:
        error = "unexplained share of held-out images"
        learned = AtMost("random_error", 0.25, each="learner", called=f"{error}, random split")
        random = {"split": "random"}
        return [
            Claim(
                f"{split.capitalize()}: held-out images are drawn worse than on a random split",
                "Spec 001a, IG-32 (thesis, section 3.1.1): reconstruction out of domain is worse than on the random "
                "split",
                Beats("error", {"split": split}, random, by=0.5, relative=True, each="network", called=error),
                provided=learned,
            )
            for split in SPLITS[1:]
        ]

    def readings(self, table: Table) -> Table:
        """The rows, and those of the random split once more, under names of their own."""
        random = table.where(split="random").rows
        learned = [{"seed": r["seed"], "learner": r["network"], "random_error": r["error"]} for r in random]
        return Table([*table.rows, *learned])

    def beside(self, table: Table) -> list[Row]:
        columns = {"unexplained, held-out images": "error", "unexplained, training images": "error_seen"}
        return [
            {"network": network, "split": split} | means(cell, columns, 3)
            for network, group in table.by("network")
            for split, cell in group.by("split")
        ]


@torch.no_grad()
def unexplained(generator: FactorGenerator, world: World, numbers: np.ndarray, mean: torch.Tensor) -> float:
    """Squared error of drawn images as a share of that of the mean training image: 0 is perfect, 1 is no better."""
    error = reference = 0.0
    for part in np.array_split(numbers, max(1, len(numbers) // 500)):
        x = to_tensor(world.observe(part))
        drawn = generator.generate(torch.from_numpy(world.factors_of(part)))
        error += float((x - drawn).square().sum())
        reference += float((x - mean).square().sum())
    return error / reference
