"""Conditional invariance on level sets of ellipses and ellipsoids, against its ablations and rivals (table 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from polariscope.studies.criteria import AtLeast, AtMost, Beats, Near
from polariscope.studies.informed.frontiers import Frontier
from polariscope.studies.informed.level_set_codes import (
    FLOOR,
    MODELS,
    OVERNIGHT,
    PUBLISHED_STEPS,
    SETTINGS,
    adversary_row,
    audit_row,
    audited,
    config_of_job,
    frontier_rows,
    latent_row,
    matched_deviation,
)
from polariscope.studies.kit import Restarts
from polariscope.studies.rows import groups, means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.points.level_sets import LevelSets

TUNED = (
    "the initial weights were chosen from two for our model, on seeds 100 and 101, and STIB's weight from three: the "
    "comparison favours ours"
)


class LevelSetStudy(Study):
    """What ellipses and ellipsoids share."""

    source = (
        "Samarin, Deep Learning Approaches to Informed Representation Learning (2022), chapter 5: section 5.5.1, "
        "table 5.1, figures 5.5 and 5.6, appendix A"
    )
    cost = {"smoke": "5 s", "laptop": "a quarter of an hour", "overnight": "2 hours", "paper": "weeks"}
    scales = ("smoke", "laptop", "overnight", "paper")
    added = OVERNIGHT
    training_lengths = {scale: setting.steps for scale, setting in SETTINGS.items()}
    drawn = {
        "selected": Restarts(
            "selected",
            "model",
            where={"kind": "end"},
            called="selected latents",
            names={name: name.replace(" ", "\n") for name in MODELS},
        ),
        "frontier-invariance": Frontier("invariance", called="deviation by the model"),
        "frontier-true-deviation": Frontier("true_deviation", called="deviation of the true property"),
    }
    dimension: ClassVar[int]
    models: ClassVar[tuple[str, ...]]
    printed: ClassVar[dict[str, tuple[float, float, float]]]
    """X error, Y error and invariance of table 5.1."""
    selected: ClassVar[int]
    """Latents of Z1 that are to be selected."""

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"model": model, "dimension": self.dimension, "seed": seed, "scale": scale}
            for seed in SETTINGS[scale].seeds
            for model in self.models
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        setting = SETTINGS[job["scale"]]
        config = config_of_job(job["model"], job["dimension"], job["seed"], job["scale"])
        run = bench.train(config)
        world = config.world
        assert isinstance(world, LevelSets)
        shared = {
            "model": job["model"],
            "seed": job["seed"],
            "share_of_published_steps": setting.steps / PUBLISHED_STEPS,
        }
        end = {"kind": "end", "lam": setting.lam.last, "step": setting.steps, **audit_row(audited(run, world, setting))}
        end |= latent_row(run, world, setting) | adversary_row(run)
        return [shared | row for row in (end, *frontier_rows(run, config, setting))]

    def readings(self, table: Table) -> Table:
        """The rows, and for each seed how much the property moves with ours and with each rival at the same error: the
        larger of those that both end with, which both have reached."""
        rows = [row | _crossed(row) for row in table.where(kind="end").rows]
        for rival in self.models[1:]:
            for seed, theirs in table.where(model=rival).by("seed"):
                pair = (table.where(model="ours", seed=seed), theirs)
                last = [own.where(kind="end").column("x_error") for own in pair]
                if not all(map(len, last)):
                    continue
                at = float(np.max(last))
                for column, name in (("invariance", "invariance_ratio"), ("true_deviation", "true_ratio")):
                    own, other = (matched_deviation(one.rows, at, column) for one in pair)
                    if own and other:
                        rows.append({"rival": rival, "seed": seed, name: own / other})
        return Table(rows)

    def claims(self, scale: Scale) -> list[Claim]:
        ours, beta, stib = ({"model": name} for name in ("ours", "beta-vae", "stib"))
        printed, missed = self.printed, {1: 0.012, 2: 0.014}[self.selected]
        inverse = "variance that the adversary's inverse misses"
        beyond = "error of the predicted level from 1 to 1.5 half widths"

        def selects(part: str, number: int) -> Near:
            called = f"selected latents of {part}"
            return Near(f"selected_{part.lower()}", number, by=0.0, of="every", where=ours, called=called, digits=1)

        return [
            Claim(
                "Every model predicts the property as well as its noise allows",
                "table 5.1: Y error 0.25 for all three; the floor is 0.248",
                AtMost("y_error", FLOOR + 0.01, each="model", called="error of the property", digits=4),
            ),
            Claim(
                "At the same error of observations the property moves far less than with the β-VAE, by the model",
                f"table 5.1: {printed['ours'][2]} against {printed['beta-vae'][2]}, at errors of observations of "
                f"{printed['ours'][0]} and {printed['beta-vae'][0]}",
                AtMost("invariance_ratio", 0.35, where={"rival": "beta-vae"}, called="ratio of deviations"),
                note=TUNED,
            ),
            Claim(
                "The same holds for the true property",
                f"the true property is not in the thesis; its published weights move it by {missed}",
                AtMost("true_ratio", 0.35, where={"rival": "beta-vae"}, called="ratio of true deviations"),
                note=TUNED,
            ),
            Claim(
                "At the same error of observations the property moves less than with STIB, by the model",
                f"table 5.1: {printed['ours'][2]} against {printed['stib'][2]}",
                AtMost("invariance_ratio", 1.0, where={"rival": "stib"}, called="ratio of deviations"),
                provided=AtMost("bijection_end", 0.1, where=stib, called=inverse),
                note=TUNED,
            ),
            Claim(
                "Generated points lie on the level set that was asked for",
                f"figures 5.5b and A.1; the published weights miss the level by {missed}",
                AtMost("true_deviation", 0.02, where=ours, called="deviation of the true level", digits=3),
            ),
            Claim("One latent of Z0 is selected", "figures 5.5a and 5.6a: dimension 1 alone", selects("Z0", 1)),
            Claim(
                f"As many latents of Z1 are selected as the level sets have dimensions: {self.selected}",
                "figures 5.5a and 5.6a, in all reruns",
                selects("Z1", self.selected),
            ),
            *(
                Claim(
                    f"{name} selects more latents",
                    "figures 5.5a and 5.6a",
                    Beats("selected", model, ours, by=1.0, called="selected latents", digits=1),
                )
                for name, model in (("The β-VAE", beta), ("STIB", stib))
            ),
            Claim(
                "The latent of Z0 is the level",
                "section 5.5.1: the latents are r and the angles, learned independently",
                AtLeast("level_in_z0", 0.9, where=ours, called="rank correlation of Z0 and the level"),
            ),
            Claim(
                "A latent of Z1 is the azimuth",
                "section 5.5.1 and figures 5.5b and 5.6c",
                AtLeast("azimuth_in_z1", 0.9, where=ours, called="circular correlation of Z1 and the azimuth"),
            ),
            Claim(
                "Z0 has no information about the azimuth, and Z1 none about the level",
                "section 5.6: learned independently of each other",
                AtMost("cross", 0.3, where=ours, called="the larger of the cross correlations"),
            ),
            Claim(
                "Levels are right outside of the trained square, too",
                "figure 5.5b: complete ellipses, also outside of [-1, 1]²",
                AtMost("level_error_near", 0.1, where=ours, called=beyond, digits=3),
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        return [
            {
                "model": model,
                "published X, Y, invariance": ", ".join(map(str, self.printed.get(model, ()))) or "-",
                **means(own, {"X here": "x_error", "Y here": "y_error"}, 3),
                **means(own, {"invariance here": "invariance", "true deviation": "true_deviation"}, 4),
                **means(own, {"R² of Y from Z1": "leakage"}),
                "selected Z0 / Z1": f"{own.mean('selected_z0'):.1f} / {own.mean('selected_z1'):.1f}",
                "share of published steps": f"{own.mean('share_of_published_steps'):.1%}",
            }
            for model, own in groups(table.where(kind="end"), "model", self.models)
        ]


def _crossed(row: Row) -> Row:
    """The larger of the cross correlations of a row, where it has them."""
    known = row.get("azimuth_in_z0") is not None
    return {"cross": max(row["azimuth_in_z0"], row["level_in_z1"])} if known else {}


@studies.register("level-sets")
@dataclass(frozen=True)
class LevelSetsOfEllipses(LevelSetStudy):
    """Invariance, selected latents, angles and extrapolation of five models on level sets of ellipses."""

    title = "Level sets of ellipses"
    question = "Does a code that separates a property find its level sets, and does it need sparsity and the cycle?"
    dimension = 2
    selected = 1
    models = MODELS
    printed = {"ours": (0.04, 0.25, 0.006), "beta-vae": (0.03, 0.25, 0.058), "stib": (0.03, 0.25, 0.027)}

    def claims(self, scale: Scale) -> list[Claim]:
        ours, sparse, cycled, plain, _ = ({"model": name} for name in MODELS)

        def moves(more: Row, less: Row) -> Beats:
            return Beats("true_deviation", more, less, by=0.03, called="true deviation", digits=3)

        def selects(more: Row, fewer: Row) -> Beats:
            return Beats("selected", more, fewer, by=1.0, called="selected latents", digits=1)

        other_half = "not published: the other half of the 2×2 table"
        ablation = "section 5.5: the β-VAE is the ablation of both; no 2×2 table is published"
        sparsity = "section 5.4.1: the sparse term selects dimensions"
        return [
            *super().claims(scale),
            Claim("The cycle keeps the property constant in a sparse code", ablation, moves(sparse, ours)),
            Claim("The cycle keeps the property constant without sparsity, too", other_half, moves(plain, cycled)),
            Claim("Sparsity selects fewer latents, with the cycle", sparsity, selects(cycled, ours)),
            Claim("Sparsity selects fewer latents, without the cycle as well", other_half, selects(plain, sparse)),
        ]


@studies.register("ellipsoids")
@dataclass(frozen=True)
class LevelSetsOfEllipsoids(LevelSetStudy):
    """Invariance, selected latents, angles and extrapolation of three models on level sets of ellipsoids."""

    title = "Level sets of ellipsoids"
    question = "Does a code that separates a property find level sets of two dimensions?"
    dimension = 3
    selected = 2
    models = ("ours", "beta-vae", "stib")
    printed = {"ours": (0.05, 0.25, 0.006), "beta-vae": (0.02, 0.25, 0.153), "stib": (0.03, 0.25, 0.083)}

    def claims(self, scale: Scale) -> list[Claim]:
        polar = "rank correlation of Z1 and the polar angle"
        return [
            *super().claims(scale),
            Claim(
                "A latent of Z1 is the polar angle",
                "section 5.5.1 and figure 5.6b: dimension 6 is the polar angle",
                AtLeast("polar_in_z1", 0.9, where={"model": "ours"}, called=polar),
            ),
        ]
