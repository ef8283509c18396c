"""Sprites with a wanted property: errors and invariance beside the mean model's (table 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from polariscope.examination.invariance import audit_invariance
from polariscope.examination.property_traversals import traverse_property
from polariscope.nets.architecture import MLP, Architecture
from polariscope.nets.property_autoencoder import PropertyAutoencoderConfig
from polariscope.nets.sprite_conv import SpriteConv
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.conditional_invariance import ConditionalInvariance
from polariscope.report.study_figures import restarts
from polariscope.studies.criteria import AtLeast, AtMost
from polariscope.studies.informed.level_set_codes import audit_row
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.worlds.views.properties import SPRITE_SETTINGS, sprite_property

PUBLISHED = {
    "x": (25, 0.0033, 0.0041, 308, 0.2581),
    "y": (21, 0.0037, 0.0036, 308, 0.2581),
    "shape": (30, 0.0007, 0.0010, 308, 0.2222),
    "scale": (28, 0.0016, 0.0021, 308, 0.1500),
    "orientation": (14, 0.0013, 0.0018, 308, 0.2778),
    "no shape": (25, 0.0139, 0.0118, 308, 0.9439),
}
"""X error, Y error, invariance, and both errors of the mean model."""


@dataclass(frozen=True)
class Setting:
    seeds: int
    size: int
    """Pixels a side."""
    properties: tuple[str, ...]
    steps: int
    architecture: Architecture
    property_widths: tuple[int, ...]
    batch: int = 64
    learning_rate: float = 1e-3
    count: int = 1000
    """Held-out images that are audited."""


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 16, ("x",), 5, MLP((16,), (16,)), (16,), 16, count=60),
    "laptop": Setting(5, 32, ("x", "scale"), 4000, MLP((256, 128), (128, 256), decoder_activation="relu"), (128,)),
    "paper": Setting(5, 64, tuple(SPRITE_SETTINGS), 2_000_000, SpriteConv(), (1200, 1200, 4096), 256, 1e-4, 2000),
}


@studies.register("sprite-properties")
@dataclass(frozen=True)
class SpriteProperties(Study):
    """Errors and invariance of the conditional-invariance model on sprites, for several properties."""

    title = "Sprites with a wanted property"
    source = "Samarin, Deep Learning Approaches to Informed Representation Learning (2022), section 5.5.3, table 5.3"
    question = "Does a property of an image stay when everything else of its code is drawn anew?"
    cost = {"smoke": "4 s", "laptop": "10 minutes", "paper": "weeks"}
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        return [
            {"property": name, "seed": seed, "scale": scale}
            for seed in range(setting.seeds)
            for name in setting.properties
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        world = sprite_property(job["property"], setting.size)
        told = len(SPRITE_SETTINGS[job["property"]])
        model = PropertyAutoencoderConfig(
            4 + told, told, setting.architecture, property_widths=setting.property_widths, property_bounded=True
        )
        objective = ConditionalInvariance(
            Annealing.between(2, 500, round(0.9 * setting.steps)), property_weight=200.0, copies=1, last_offset=1.0
        )
        training = TrainingConfig(
            setting.steps,
            setting.batch,
            setting.learning_rate,
            seed=job["seed"],
            evaluate_every=0,
            schedule="late-linear",
        )
        run = bench.train(RunConfig(world, objective, model, training))
        network = load_model(run)
        audit = audit_invariance(network, world, count=setting.count, judged_on=400)
        walks = traverse_property(network, world, count=400, steps=8)
        asked = [change for change in walks.changes if change.asked]
        others = [change for change in walks.changes if not change.asked]
        row = audit_row(audit) | {
            "x_share": audit.x_error / audit.mean_x_error,
            "y_share": audit.y_error / audit.mean_y_error,
            "above_error": audit_row(audit)["invariance"] / audit.y_error,
            "property_along_z0": sum(change.z0 for change in asked) / len(asked),
            "others_along_z0": sum(change.z0 for change in others) / len(others),
        }
        return [{"property": job["property"], "seed": job["seed"], **row}]

    def claims(self, scale: Scale) -> list[Claim]:
        reconstructs = AtMost("x_share", 0.5, each="property", called="error of images over the mean model's")
        return [
            Claim(
                "Images are reconstructed ten times better than by the mean image",
                "table 5.3: 14 to 30 against 308",
                AtMost("x_share", 0.1, each="property", called="error of images over the mean model's"),
            ),
            Claim(
                "The property is predicted one to two orders better than by its mean",
                "table 5.3: 0.0007 to 0.0139 against 0.15 to 0.94",
                AtMost("y_share", 0.1, each="property", called="error of the property over the mean model's", digits=3),
            ),
            Claim(
                "The property moves about as much as its prediction is off",
                "table 5.3: 0.0041 against 0.0033 for x",
                AtMost("above_error", 3.0, each="property", called="deviation over error"),
                provided=reconstructs,
            ),
            Claim(
                "A walk along Z0 changes the property",
                "figure 5.8",
                AtLeast(
                    "property_along_z0", 0.7, each="property", called="change of the property as a share of its range"
                ),
                provided=reconstructs,
            ),
            Claim(
                "A walk along Z0 changes nothing else",
                "figure 5.8",
                AtMost(
                    "others_along_z0", 0.1, each="property", called="change of other factors as a share of their range"
                ),
                provided=reconstructs,
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        return [
            {
                "property": name,
                "published X, Y, invariance": ", ".join(str(value) for value in PUBLISHED[name][:3]),
                "published X and Y as shares of the mean model": f"{PUBLISHED[name][0] / PUBLISHED[name][3]:.3f}, "
                f"{PUBLISHED[name][1] / PUBLISHED[name][4]:.4f}",
                "X share here": plus_minus(own.column("x_share"), 3),
                "Y share here": plus_minus(own.column("y_share"), 4),
                "Y here": plus_minus(own.column("y_error"), 4),
                "invariance here": plus_minus(own.column("invariance"), 4),
                "R² of Y from Z1": plus_minus(own.column("leakage"), 2),
            }
            for name, own in table.by("property")
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        groups = [
            (f"{name}\n{title}", own.column(column), colour)
            for name, own in table.by("property")
            for column, title, colour in (("y_error", "error", "second"), ("invariance", "moves by", "first"))
        ]
        return {"properties": restarts(groups, "property")}
