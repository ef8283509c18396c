"""Transfer to another task: tune the whole pre-trained network, or its head alone? (Section 3.3 of the in-domain work.)

A network that learned to tell shapes in one world learns the factors of another. Both arms begin with the same
pre-trained weights; one of them keeps the weights below its head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polariscope.examination.generalise import generalise
from polariscope.nets.vision import CNN
from polariscope.objectives.predict import Classify, Regress
from polariscope.studies.criteria import Beats
from polariscope.studies.kit import Panels, Restarts
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.training.start import warm
from polariscope.worlds.renderers.arm3d import Arm3D
from polariscope.worlds.renderers.natural_sprites import NaturalSprites
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import benchmark_split
from polariscope.worlds.targets import Task
from polariscope.worlds.world import World

WORLDS = {"smoke": ("sprites",), "laptop": ("sprites", "shapes3d"), "paper": ("sprites", "shapes3d")}
SPLITS = {
    "smoke": ("random",),
    "laptop": ("random", "extrapolation"),
    "paper": ("random", "composition", "interpolation", "extrapolation"),
}
SIZE = {"smoke": 16, "laptop": 32, "paper": 64}
STEPS = {"smoke": 3, "laptop": 500, "paper": 500_000}
EXAMPLES = {"smoke": 60, "laptop": 3000, "paper": 50_000}
SEEDS = {"smoke": range(1), "laptop": range(20, 25), "paper": range(5)}
"""The table of in-domain shows seed 0 with these settings."""
FROZEN: dict[str, tuple[str, ...]] = {"all": (), "head": ("encoder",)}
COLOURS = {"all": "active", "head": "mixed"}


@studies.register("transfer-heads")
@dataclass(frozen=True)
class TransferHeads(Study):
    """R² of a pre-trained network that is tuned as a whole, and of one of which only the head is."""

    title = "Fine-tune the whole network, or only the head?"
    source = (
        "Schott et al., Visual representation learning does not generalize strongly within the same domain (2022), "
        "section 3.3"
    )
    question = "Is it worse to fine-tune only the head of a pre-trained network than to fine-tune all of it?"
    cost = {"smoke": "2 s", "laptop": "about 20 minutes", "paper": "GPU weeks"}
    training_lengths = STEPS
    drawn = {"tuned": Panels((Restarts("r2", "split", COLOURS, called="R²", within="tuned"),), each="world")}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "world": world, "split": split, "tuned": tuned, "seed": seed}
            for world in WORLDS[scale]
            for split in SPLITS[scale]
            for tuned in FROZEN
            for seed in SEEDS[scale]
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        world, sibling = _worlds(job["world"], SIZE[scale])
        shape = next(factor.name for factor in sibling.factors if factor.name.endswith("shape"))
        before = TrainingConfig(STEPS[scale], 32, 1e-3, seed=job["seed"], evaluate_every=0)
        first = bench.train(RunConfig(Task(sibling, shape), Classify(), CNN(), before))
        start = warm(first, parts=("encoder",), freeze=FROZEN[job["tuned"]])
        split = benchmark_split(job["split"], world)
        training = TrainingConfig(STEPS[scale], 32, 1e-3, schedule="linear", seed=job["seed"], evaluate_every=0)
        run = bench.train(RunConfig(Task(world, "all", "values"), Regress(), CNN(), training, split, start))
        result = generalise(load_model(run), world, split, count=EXAMPLES[scale], name=job["tuned"])
        row: Row = {key: job[key] for key in ("world", "split", "tuned", "seed")}
        return [row | {"r2": result.score}]

    def claims(self, scale: Scale) -> list[Claim]:
        whole, head = ({"tuned": tuned} for tuned in FROZEN)
        return [
            Claim(
                f"Fine-tuning only the head is worse than fine-tuning the whole network ({split} split)",
                "section 3.3: consistently worse",
                Beats("r2", whole, head, by=0.02, each="world", where={"split": split}, called="R²"),
            )
            for split in SPLITS[scale]
        ]

    def beside(self, table: Table) -> list[Row]:
        return [
            {"world": world, "split": split}
            | {f"R², tuned: {tuned}": plus_minus(cell.where(tuned=tuned).column("r2")) for tuned in FROZEN}
            for world, group in table.by("world")
            for split, cell in group.by("split")
        ]


def _worlds(name: str, size: int) -> tuple[World, World]:
    """The world whose factors are predicted, and the sibling whose shapes the network classified before."""
    if name == "sprites":
        return Sprites(size, unambiguous=True), NaturalSprites("discrete", 8000, size)
    return Shapes3D(size), Arm3D(size)
