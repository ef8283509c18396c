"""What the studies of manipulated data share: a world that is original, changed by a learned manipulation or noisy, and
the published scores of a model on it (Spec 003, sections 4.6, 4.7 and E4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from filelock import FileLock

from polariscope.manipulation.bundle import load_bundle, save_bundle
from polariscope.manipulation.checks import pca_score
from polariscope.manipulation.generator import Learned
from polariscope.manipulation.manipulation import apply
from polariscope.manipulation.noise import Noise
from polariscope.measures.disentanglement import disentanglement
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.nets.code_encoder import CodeEncoderConfig
from polariscope.objectives.pcl import PCL
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, seeds_of
from polariscope.studies.inner_workings.alignment_tasks import decoder_distance, in_use
from polariscope.studies.kit import Restarts, in_order
from polariscope.studies.published import published
from polariscope.studies.rows import groups, plus_minus
from polariscope.studies.study import Bench, Claim, Row, Table
from polariscope.theory.polarised_regime import active_units
from polariscope.training.config import RunConfig
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.views.pairs import Pairs
from polariscope.worlds.world import World

KINDS = ("original", "modified", "noise")
MODELS = ("ae", "beta-vae", "factor-vae", "beta-tc-vae", "slow-vae", "pcl")
SWEEP = (0.75, 1.25, 1.5, 1.75, 2.0)
"""Factors of the published beta at which recovery is looked for, besides 1."""
SCORES = {"mig": "mig", "dci": "dci", "factor-vae-score": "factor-vae-score", "sap": "sap"}
"""The published tables, and what their score is called in a report."""
PRINTED = {score: published(f"inner_workings/manipulated-{score}").rows for score in SCORES}
UNDER = ({"under": "modified"}, {"under": "noise"})
HELD_OUT = RandomSplit(0.2)
"""80 % of the observations are trained on; the two published tenths are held out together."""


def changed_world(world: World, kind: str, learned: Learned, bench: Bench, level: float = 0.0) -> tuple[World, Row]:
    """The world as it is, changed or noisy, and what is known about the change.

    The learned change is made once, by the first job that needs it, and kept beside the runs. ``level`` is the bound of
    the noise; without one the noise has the mean square of the learned change.
    """
    if kind == "original":
        return world, {"pca": pca_score(world)}
    folder = bench.store.root / "manipulation"
    bench.store.root.mkdir(parents=True, exist_ok=True)
    with FileLock(bench.store.root / ".manipulation.lock"):
        if not (folder / "report.json").exists():
            save_bundle(apply(world, learned, "learned", tell=lambda name, progress: bench.tell(progress)), folder)
    bundle = load_bundle(folder)
    if kind == "modified":
        facts = {"added_variance": bundle.report["added_variance"], "injective": bundle.report["injective"]}
        return bundle.world, facts | {"pca": bundle.report["pca_score"]["after"]}
    mean_square = bundle.report["mean_square"] / bundle.report["coordinates"]
    noisy = apply(world, Noise(level or float(np.sqrt(3 * mean_square))))
    return noisy.world, {"pca": pca_score(noisy.world), "added_variance": noisy.size.added_variance}


def scores(model: Autoencoder, world: World) -> Row:
    """Every published score the factors allow, the distance to orthogonality, and what is in use."""
    rep = represent(model, world, count=10_000)
    assert rep.factors is not None
    used = in_use(rep)
    continuous = any(factor.size == 0 for factor in world.factors)
    wanted = ("neighbour-score",) if continuous else ("neighbour-score", *SCORES.values())
    report = disentanglement(
        rep.mean, rep.factors, scores=wanted, repeats=0, rotations=0, permutations=0, of_factors=False
    )
    row: Row = {"score": report["neighbour-score"].value, "active": int(used.sum())}
    row |= {name: report[name].value for name in SCORES.values() if name in report.entries}
    if "mig" in report.entries:
        row["mig_by_factor"] = report["mig"].score.per_factor.round(4).tolist()
        row["factors"] = [factor.name for factor in world.factors]
    if rep.var is not None:
        # A latent counts as pruned by the rule of section 4.3.4, and a run with fewer than factors as over-pruned.
        row["enough"] = bool(active_units(rep.mean, rep.var, "variance").sum() >= len(world.factors))
    if isinstance(model, Autoencoder) and used.sum() > 1:
        row["distance"] = decoder_distance(model, rep.mean[:100], used)
    return row


def on_pairs(config: RunConfig) -> RunConfig:
    """The run as it is, or on pairs whose factors take Laplace steps if its objective learns from pairs; PCL trains an
    encoder without a decoder."""
    if "other" not in config.objective.needs:
        return config
    config = replace(config, world=Pairs(config.world, "lap"))
    if isinstance(config.objective, PCL) and isinstance(config.model, AutoencoderConfig):
        return replace(config, model=CodeEncoderConfig(config.model.latents, config.model.architecture))
    return config


def falls(runs: Table, column: str, same: dict[str, Any]) -> list[Row]:
    """How far each restart of a model lies below that on original data, under the change and under as much noise."""
    rows: list[Row] = []
    original = seeds_of(runs.where(data="original"), column)
    level = float(np.mean(list(original.values())))
    for kind in ("modified", "noise"):
        for seed, score in seeds_of(runs.where(data=kind), column).items():
            fall = original[seed] - score
            row = {**same, "seed": seed, "under": kind, "fall": fall, "share_lost": fall / level if level else None}
            rows.append(row | ({"fall_under_noise": fall} if kind == "noise" else {}))
    return rows


def small_change(epsilon: float, changed: Row) -> Claim:
    """The learned change stays within its bound, adds little variance, and is one to one."""
    added, injective = "share of variance added", "change (1: one to one, 0: not)"
    return Claim(
        "The change is small and keeps the factors apart",
        f"at most {epsilon} in any pixel",
        All(
            AtMost("added_variance", 0.1, of="every", where=changed, called=added),
            AtLeast("injective", 1, of="every", where=changed, called=injective),
        ),
    )


def beside_published(table: Table, data: str, ours: str) -> list[Row]:
    """Every published score of every model on each kind of data, beside ours."""
    rows = []
    for name, column in SCORES.items():
        for model, own in groups(table, "model", MODELS):
            row: Row = {"score": name, "model": model}
            for kind in KINDS:
                printed = PRINTED[name].get(model, {})
                row[f"{kind}, {data} published"] = printed.get(f"{data.lower()} {kind}", "-")
                row[f"{kind}, {ours} here"] = plus_minus(own.where(data=kind).column(column))
            rows.append(row)
    return rows


def by_kind(column: str, part: str, called: str) -> Restarts:
    """A figure of every restart, by model and kind of data."""
    return Restarts(
        column,
        "model",
        within="data",
        where={"part": part},
        called=called,
        names=in_order((*MODELS, *KINDS)),
        colours=dict(zip(KINDS, ("active", "mixed", "passive"), strict=True)),
        from_zero=True,
    )
