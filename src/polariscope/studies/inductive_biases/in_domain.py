"""Does a model that predicts factors of images also predict values and combinations it never saw? (Tables 5 to 10.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polariscope.examination.generalise import generalise
from polariscope.nets.architecture import Conv
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.code_encoder import CodeEncoderConfig
from polariscope.nets.model import Model
from polariscope.nets.readout import Readout
from polariscope.nets.rotation_equivariant import RotationEquivariant
from polariscope.nets.shortcut_nets import DenseNet, ResNet
from polariscope.nets.vision import CNN, CoordConv, MLPRegressor, SetEncoder, SpatialTransformer
from polariscope.objectives.ada_vae import AdaGVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.pcl import PCL
from polariscope.objectives.predict import Classify, Regress
from polariscope.objectives.slow_vae import SlowVAE
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats
from polariscope.studies.kit import Panels, Restarts, in_order
from polariscope.studies.published import published
from polariscope.studies.rows import groups, leads, means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, Start, TrainingConfig
from polariscope.training.run import load_model
from polariscope.training.start import warm
from polariscope.worlds.renderers.arm3d import Arm3D
from polariscope.worlds.renderers.natural_sprites import NaturalSprites
from polariscope.worlds.renderers.shapes3d import Shapes3D
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import Split, benchmark_split
from polariscope.worlds.targets import Task
from polariscope.worlds.views.pairs import Pairs
from polariscope.worlds.world import World

SPLITS = ("random", "composition", "interpolation", "extrapolation")
SUPERVISED: dict[str, Model] = {
    "mlp": MLPRegressor(),
    "cnn": CNN(),
    "coordconv": CoordConv(),
    "resnet": ResNet(),
    "set encoder": SetEncoder(),
    "rotation-equivariant": RotationEquivariant(),
    "spatial transformer": SpatialTransformer(),
    "densenet": DenseNet(),
}
ENCODERS: dict[str, Objective] = {
    "beta-vae + readout": BetaVAE(4.0),
    "ada-gvae + readout": AdaGVAE(),
    "slow-vae + readout": SlowVAE(),
    "pcl + readout": PCL(),
}
TRANSFER = {"cnn (transfer)": (), "cnn (transfer, head only)": ("encoder",)}
"""A network that was trained to tell shapes in another world, with what is frozen of it."""
MODELS = (*SUPERVISED, *ENCODERS, *TRANSFER)
OFTEN = ("mlp", "cnn", "coordconv", "resnet")
"""Models that are trained with every seed; the others once."""
LIGHT = ("mlp", "coordconv")
"""A step of these takes a quarter of the time of one of the others or less, and teaches them less."""
PRINTED = {
    "mlp": "MLP",
    "cnn": "CNN",
    "coordconv": "CoordConv",
    "resnet": "RN50",
    "set encoder": "Coordinate-based",
    "rotation-equivariant": "Rotation-EQ",
    "spatial transformer": "Spatial Transformer",
    "densenet": "DenseNet",
    "beta-vae + readout": "β-VAE",
    "ada-gvae + readout": "Ada-GVAE",
    "slow-vae + readout": "SlowVAE",
    "pcl + readout": "PCL",
    "cnn (transfer)": "RN50 (IN-21k)",
}
TABLES = {"sprites": "in-domain-dsprites-quarter", "shapes3d": "in-domain-shapes3d"}
COLOURS = {"random": "active", "composition": "third", "interpolation": "first", "extrapolation": "second"}
ORDER = in_order((*MODELS, *SPLITS))


@dataclass(frozen=True)
class Setting:
    seeds: int
    size: int
    steps: int
    encoder_steps: int
    examples: int
    models: tuple[str, ...]
    often: tuple[str, ...]
    light_steps: int = 0
    """Of models that are quick to train and slow to learn, if not as many as of all."""
    splits: tuple[str, ...] = SPLITS
    worlds: tuple[str, ...] = tuple(TABLES)


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(
        seeds=1, size=16, steps=3, encoder_steps=2, examples=60, models=("mlp", "slow-vae + readout"),
        often=("mlp",), splits=("random", "extrapolation"), worlds=("sprites",),
    ),
    "laptop": Setting(
        seeds=5, size=32, steps=500, encoder_steps=500, examples=3000, models=MODELS, often=OFTEN, light_steps=4000,
    ),
    "paper": Setting(
        seeds=3, size=64, steps=500_000, encoder_steps=500_000, examples=50_000, models=MODELS, often=MODELS
    ),
}  # fmt: skip


@studies.register("in-domain")
@dataclass(frozen=True)
class InDomain(Study):
    """R² of all factors on four splits, and of factors that were and were not new, for networks of many kinds."""

    title = "Do networks extrapolate?"
    source = (
        "Schott et al., Visual representation learning does not generalize strongly within the same domain (2022), "
        "tables 5 to 10, figures 4 to 6"
    )
    question = "Does a network that predicts the factors of images also predict them outside of the training range?"
    cost = {"smoke": "3 s", "laptop": "97 minutes", "paper": "20,000 GPU hours"}
    training_lengths = {
        scale: max(setting.steps, setting.encoder_steps, setting.light_steps) for scale, setting in SETTINGS.items()
    }
    drawn = {
        "splits": Panels(
            (Restarts("r2", "model", COLOURS, called="R²", within="split", names=ORDER, tilt=35),),
            each="world",
            width=8,
            height=3.3,
            across=1,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        return [
            {"scale": scale, "world": world, "model": model, "split": split, "seed": seed}
            for model in setting.models
            for world in setting.worlds
            for split in setting.splits
            for seed in range(setting.seeds if model in setting.often else 1)
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        world, sibling = _worlds(job["world"], setting.size)
        split = benchmark_split(job["split"], world)
        model, start = _model(job, setting, world, sibling, split, bench)
        steps = setting.light_steps if job["model"] in LIGHT and setting.light_steps else setting.steps
        training = TrainingConfig(steps, 32, 1e-3, schedule="linear", seed=job["seed"], evaluate_every=0)
        run = bench.train(RunConfig(Task(world, "all", "values"), Regress(), model, training, split, start))
        found = generalise(load_model(run), world, split, count=setting.examples, name=job["model"])
        row: Row = {key: job[key] for key in ("world", "model", "split", "seed")}
        row |= {"r2": found.score, "r2_seen": float(found.seen_scores.mean())}
        row |= {f"r2 of {name}": float(score) for name, score in zip(found.factors, found.scores, strict=True)}
        row["clip"] = float(found.references["clip"].mean())
        if job["split"] in ("interpolation", "extrapolation"):
            row["r2_new"] = float(found.attribution.out_of_distribution.mean())
            row["r2_others"] = float(found.attribution.in_distribution.mean())
            ratios = np.concatenate(list(found.ratios.values()))
            row["drawn_to_the_mean"] = float((ratios < 1).mean())
        return [row]

    def claims(self, scale: Scale) -> list[Claim]:
        fewer = f"of {', '.join(OFTEN)}, which have five seeds; the other models have one"
        cases: dict[str, Any] = {"where": {"often": True}, "each": "case"}
        random, interpolation, extrapolation = ({"split": s} for s in ("random", "interpolation", "extrapolation"))
        coordconv, cnn, mlp = ({"model": model} for model in ("coordconv", "cnn", "mlp"))
        clip, drawn = "R² above that of the clipped predictor", "share of ratios below 1"
        return [
            Claim(
                "Every model is far worse when it has to extrapolate than on a random split",
                "figure 4, tables 6 and 7: CNN 100 to 78.4 (dSprites), 100 to 48.9 (Shapes3D)",
                Beats("r2", random, extrapolation, 0.1, **cases, called="R²"),
                weaker=fewer,
            ),
            Claim(
                "Extrapolation is harder than interpolation",
                "tables 6 and 7: CNN 99.7 against 78.4, and 97.3 against 48.9",
                Beats("r2", interpolation, extrapolation, 0.05, **cases, called="R²"),
                weaker=fewer,
            ),
            Claim(
                "Only the new factor fails: the others are predicted nearly as well as before",
                "figure 5: factors in distribution stay near the random split, the new one collapses",
                Beats("part_r2", {"of": "others"}, {"of": "new"}, 0.2, **cases, called="R²"),
                weaker=f"only that the others are predicted far better than the new one, and {fewer}",
            ),
            Claim(
                "No model reaches the exact predictor clipped to the training range",
                "tables 6 and 7 against Spec 001a, O19: at most 78.4 of 86.7, and 67.8 of 91.6",
                AtMost("above_clip", 0.0, **cases, called=clip),
                weaker=fewer,
            ),
            Claim(
                "Predictions of a new factor are pulled towards the training mean",
                "figure 6: most ratios lie below 1",
                AtLeast("drawn_to_the_mean", 0.5, **cases, called=drawn),
                weaker=fewer,
            ),
            Claim(
                "Coordinates help with new combinations: CoordConv beats the CNN, and the CNN beats the MLP",
                "table 6, composition: CoordConv 99.1, CNN 53.3, MLP -8.8",
                All(
                    Beats("r2_composed", coordconv, cnn, 0.05, called="R² to the CNN"),
                    Beats("r2_of_cnn", cnn, mlp, 0.05, called="R² to the MLP"),
                ),
                provided=AtLeast("random_score", 0.7, called="R² on the random split", each="learner"),
            ),
            Claim(
                "Disentangled codes with a readout extrapolate no better than supervised networks",
                "table 6: SlowVAE 77.1, PCL 77.5, CNN 78.4",
                AtMost("lead_of_readouts", 0.05, called="lead of the best readout over the best network", each="world"),
            ),
            Claim(
                "Fine-tuning only the head is worse than fine-tuning the whole network",
                "section 3.3: consistently worse",
                Beats("r2_tuned", {"tuned": "all"}, {"tuned": "head"}, 0.02, each="world", called="R², random split"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """The rows with a name for world and model together, and the comparisons that take several of them."""
        rows: list[Row] = []
        composed = {"coordconv": ["r2_composed"], "cnn": ["r2_composed", "r2_of_cnn"], "mlp": ["r2_of_cnn"]}
        for row in table.rows:
            model, world, split, r2 = (row[key] for key in ("model", "world", "split", "r2"))
            seed = {"seed": row["seed"]}
            case = seed | {"world": world, "case": f"{model} on {world}", "often": model in OFTEN}
            rows.append(row | case)
            if split == "extrapolation":
                rows += [case | {"of": of, "part_r2": row[f"r2_{of}"]} for of in ("new", "others")]
                rows.append(case | {"above_clip": r2 - row["clip"]})
            if split == "random" and model in composed:
                rows.append(seed | {"learner": case["case"], "random_score": r2})
            if split == "composition" and world == "sprites":
                rows += [seed | {"model": model, name: r2} for name in composed.get(model, ())]
            if split == "random" and model in TRANSFER:
                rows.append(case | {"tuned": "head" if "head" in model else "all", "r2_tuned": r2})
        for world, own in table.where(split="extrapolation").by("world"):
            readout, network = (
                max(
                    (runs for _, runs in groups(own, "model", kind)),
                    key=lambda runs: runs.mean("r2"),
                    default=Table([]),
                )
                for kind in (ENCODERS, SUPERVISED)
            )
            rows += [{"world": world} | lead for lead in leads(readout, network, "r2", "lead_of_readouts")]
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for world, runs in table.by("world"):
            printed = published(f"inductive_biases/{TABLES[world]}").rows
            for model, own in groups(runs, "model", MODELS):
                known = printed.get(PRINTED.get(model, ""), {})
                here = {split: means(own.where(split=split), {"R²": "r2"}, 1, 100)["R²"] for split in SPLITS}
                scores = {split: f"{known.get(split, '-')} / {score}" for split, score in here.items()}
                rows.append({"world": world, "model": model, **scores})
        return rows


def _worlds(name: str, size: int) -> tuple[World, World]:
    """A world, and one of the same images' shape with shapes to tell, to learn from first."""
    if name == "sprites":
        return Sprites(size, unambiguous=True), NaturalSprites("discrete", 8000, size)
    return Shapes3D(size), Arm3D(size)


def _model(job: Job, setting: Setting, world: World, sibling: World, split: Split, bench: Bench) -> tuple[Model, Start]:
    """What is trained, and what it begins with: a model that was trained without labels, or for another task."""
    name = job["model"]
    if name in SUPERVISED:
        return SUPERVISED[name], Start()
    training = TrainingConfig(setting.encoder_steps, 32, 1e-3, seed=job["seed"], evaluate_every=0)
    if name in TRANSFER:
        shape = next(factor.name for factor in sibling.factors if factor.name.endswith("shape"))
        first = bench.train(RunConfig(Task(sibling, shape), Classify(), CNN(), training))
        return CNN(), warm(first, parts=("encoder",), freeze=TRANSFER[name])
    objective = ENCODERS[name]
    code: Model = CodeEncoderConfig(10, Conv()) if name.startswith("pcl") else AutoencoderConfig(10, Conv())
    seen = world if name.startswith("beta-vae") else Pairs(world, "one" if name.startswith("ada") else "lap")
    first = bench.train(RunConfig(seen, objective, code, training, split))
    return Readout(code), warm(first, freeze=("of",), into="of")
