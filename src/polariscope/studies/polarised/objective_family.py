"""Five objectives compared: what they prune, how their trainings run, and whether their layers agree.

One family of trainings answers several questions: passive variables and mutual information over the strength of each
objective (figures 6.5 to 6.8), curves of the reconstruction (figure C.5), Procrustes similarity beside CKA (figures 7.5
to 7.7), and whether models whose means agree have as many active variables (section 7.4.4).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from polariscope.examination.compare import layer_activations
from polariscope.lab.store import Run
from polariscope.measures.polarisation import variable_types
from polariscope.measures.similarity import average_over_pairs, cka
from polariscope.measures.truncation import compare_mean_sampled
from polariscope.objectives.annealed_vae import AnnealedVAE
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.objectives.factor_vae import FactorVAE
from polariscope.objectives.objective import Objective
from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, AtMost, Beats, Correlates, Rises
from polariscope.studies.kit import Panels, Paths, Restarts
from polariscope.studies.polarised.alike_means import as_many_active, pair_of
from polariscope.studies.polarised.settings import run_at
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.config import RunConfig
from polariscope.training.run import load_model

PUBLISHED: dict[str, tuple[float, ...]] = {
    "beta-vae": (1.0, 2.0, 4.0, 6.0, 8.0, 16.0),
    "beta-tc-vae": (1.0, 2.0, 4.0, 6.0, 8.0, 10.0),
    "factor-vae": (10.0, 20.0, 30.0, 40.0, 50.0, 100.0),
    "dip-vae-ii": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0),
    "annealed-vae": (100.0, 75.0, 50.0, 25.0, 10.0, 5.0),
}
"""Strengths from weak to strong: beta, gamma, lambda; the capacity of the annealed VAE falls."""
TOY: dict[str, tuple[float, ...]] = {
    "beta-vae": (0.25, 1.0, 4.0),
    "beta-tc-vae": (1.0, 2.0, 4.0),
    "factor-vae": (1.0, 4.0, 16.0),
    "dip-vae-ii": (1.0, 5.0, 20.0),
    "annealed-vae": (10.0, 2.0),
}
STRENGTHS: dict[str, dict[str, tuple[float, ...]]] = {
    "smoke": {"beta-vae": (0.25, 4.0), "annealed-vae": (10.0, 2.0)},
    "laptop": TOY,
    "paper": PUBLISHED,
}
SEEDS = {"smoke": range(2), "laptop": range(20, 25), "paper": range(50)}
"""The runs of seeds 0 to 4 with these settings stand in tables that were read before the criteria were written."""
STEPS = {"smoke": 60, "laptop": 5000, "paper": 300_000}
LOGGED = 50
"""Points of a training curve."""
EXAMPLES = {"smoke": 200, "laptop": 1500, "paper": 5000}
LATENTS = 10
PRUNES = {"prunes": True}
"""Objectives of which the work says that they prune with their strength."""


@studies.register("objective-family")
class ObjectiveFamily(Study):
    """Types, mutual information, training curves and similarities of layers for five objectives."""

    title = "Five objectives compared"
    source = (
        "Bonheme, The polarised regime of variational autoencoders (2023), figures 6.5-6.8, 7.5-7.7 and C.5, "
        "section 7.4.4"
    )
    question = "Do all objectives prune latents with their strength, learn at the same pace, and agree in their layers?"
    cost = {"smoke": "5 s", "laptop": "25 minutes", "paper": "months"}
    training_lengths = STEPS
    drawn = {
        "passive": Panels(
            (Restarts("passive", "strength", called="passive variables", along="strength, or capacity"),),
            each="objective",
            width=2.1,
            share_y=True,
            where={"part": "run"},
        ),
        "curves": Paths(
            "error",
            "step",
            by="objective",
            where={"part": "run", "level": 0},
            called="reconstruction error",
            log_y=True,
        ),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        cells = [(name, level) for name, strengths in STRENGTHS[scale].items() for level in range(len(strengths))]
        trained: list[Job] = [
            {"scale": scale, "part": "run", "objective": name, "level": level, "seed": seed}
            for name, level in cells
            for seed in SEEDS[scale]
        ]
        # The weakest and the strongest of each objective, as in figure C.5.
        ends = [(name, level) for name, level in cells if level in (0, len(STRENGTHS[scale][name]) - 1)]
        return trained + [{"scale": scale, "part": "layers", "objective": name, "level": level} for name, level in ends]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        place = {
            "objective": job["objective"],
            "level": job["level"],
            "strength": STRENGTHS[scale][job["objective"]][job["level"]],
        }
        if job["part"] == "layers":
            return [place | row for row in _agreement(job, bench)]
        config = _config(job, job["seed"])
        run = bench.train(config)
        rep = represent(load_model(run), config.world, count=10_000, noise_seed=job["seed"] + 1)
        assert rep.var is not None
        assert rep.sample is not None
        types = variable_types(rep.var)
        row: Row = {"part": "run", "seed": job["seed"], **types.counts, "curve": _curve(run)}
        for comparison in compare_mean_sampled(rep.mean, rep.sample, types, ("all", "non-passive")):
            for side in ("mean", "sampled"):
                row[f"mi_{side}_{comparison.subset}"] = getattr(comparison, f"mi_{side}")
        return [place | row]

    def claims(self, scale: Scale) -> list[Claim]:
        sides = {"variables": "without the passive"}, {"variables": "all"}
        number, gap = "number of passive variables", "mutual information of the means above that of the samples (nats)"
        plateau = "share of the training after which the reconstruction error is within 5 % of its fall"
        return [
            Claim(
                "The number of passive variables grows with the strength of each objective but the annealed VAE",
                "figure 6.5: grows for every objective but the annealed VAE",
                Rises("passive", "level", 1, slack=0.34, each="objective", where=PRUNES, called=number, digits=1),
            ),
            Claim(
                "The mutual information of the samples falls with the number of passive variables",
                "figure 6.6b",
                Correlates("mi_sampled_all", "passive", -0.5, called="averaged mutual information of the samples"),
            ),
            Claim(
                "Without the passive variables the mutual informations of means and samples come close",
                "figure 6.7: the gap closes",
                Beats("gap", *sides, by=0.5, relative=True, higher=False, called=gap, digits=3),
                note="closing is taken as losing half of the gap",
            ),
            Claim(
                "All objectives start to converge at the same time",
                "figure C.5: at the same epoch",
                AtMost("onset_apart", 0.1, called="onsets of the objectives apart, as a share of the training"),
                note="onset: the first time that half of the fall of the reconstruction error is done",
            ),
            Claim(
                "The annealed VAE reaches its plateau later than the others",
                "figure C.5",
                Beats("plateau", {"annealed": True}, {"annealed": False}, by=0.05, called=plateau),
            ),
            Claim(
                "Procrustes similarity orders the layers as CKA does",
                "figures 7.5-7.7: the same trends; Spearman above .8 (Spec 002, S12)",
                AtLeast("spearman", 0.8, called="Spearman correlation of the cells"),
            ),
            Claim(
                "On layers of the decoder Procrustes similarity is above CKA",
                "figures 7.5-7.7: higher for wide layers",
                AtLeast("procrustes_lead", 0.05, called="Procrustes similarity above CKA on decoder cells"),
                note="a least difference was set after the table had been seen; without one the claim was undecided",
            ),
            as_many_active("models without an active variable are left out: their means share no used variable"),
        ]

    def readings(self, table: Table) -> Table:
        """A row for each training, for each gap, for each seed of a heatmap and for each pair of models."""
        runs = table.where(part="run")
        rows: list[Row] = []
        for row in runs.rows:
            onset, plateau = pace(row["curve"])
            annealed = row["objective"] == "annealed-vae"
            facts = {"prunes": not annealed, "annealed": annealed, "onset": onset, "plateau": plateau}
            rows.append({key: value for key, value in row.items() if key != "curve"} | facts)
            gaps = {"all": _gap(row, "all"), "without the passive": _gap(row, "non-passive")}
            if row["passive"] and None not in gaps.values():
                rows += [{"seed": row["seed"], "variables": name, "gap": gap} for name, gap in gaps.items()]
        rows += [
            {"seed": seed, "onset_apart": float(np.ptp([group.mean("onset") for _, group in own.by("objective")]))}
            for seed, own in Table([row for row in rows if "onset" in row]).by("seed")
        ]
        for row in table.where(part="cells").rows:
            straight, turned = np.array(row["cka"]), np.array(row["procrustes"])
            of_decoder = np.array([name.startswith("decoder") for name in row["layers"]])
            lead = (turned - straight)[np.ix_(of_decoder, of_decoder)]
            rank = spearmanr(straight.ravel(), turned.ravel()).statistic
            rows.append({"seed": row["seed"], "spearman": float(rank), "procrustes_lead": float(lead.mean())})
        rows += [
            pair_of(row, row["similarity"], row["actives"])
            for row in table.where(part="pair").rows
            if min(row["actives"]) > 0
        ]
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        """Counts and mutual informations of each cell."""
        return [
            {
                "objective": name,
                "strength": f"{strength:g}",
                "passive": f"{cell.mean('passive'):.1f} of {LATENTS}",
                "mutual information of the means": _shown(cell, "mi_mean_all"),
                "of the samples": _shown(cell, "mi_sampled_all"),
                "of the means without the passive": _shown(cell, "mi_mean_non-passive"),
                "of the samples without the passive": _shown(cell, "mi_sampled_non-passive"),
            }
            for name, group in table.where(part="run").by("objective")
            for strength, cell in group.by("strength")
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        rows = [row | dict(zip(("step", "error"), row.get("curve", ()), strict=False)) for row in table.rows]
        return super().figures(Table(rows))


def pace(curve: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Shares of a training at which half of the fall of a curve is done, and from which on it is within 5 % of it.

    >>> pace([[1, 2, 3, 4], [10.0, 4.0, 0.2, 0.0]])
    (0.5, 0.75)
    """
    steps, values = (np.asarray(part, dtype=float) for part in curve)
    left = (values - values[-1]) / (values[0] - values[-1] or 1.0)
    late = np.flatnonzero(np.abs(left) > 0.05)
    plateau = min(int(late[-1]) + 1, len(steps) - 1) if len(late) else 0
    return float(steps[int(np.argmax(left <= 0.5))] / steps[-1]), float(steps[plateau] / steps[-1])


def _objective(name: str, strength: float, scale: Scale) -> Objective:
    small = scale != "paper"
    made: dict[str, Objective] = {
        "beta-vae": BetaVAE(strength),
        "beta-tc-vae": BetaTCVAE(strength),
        "factor-vae": FactorVAE(strength, width=64, depth=3, discriminator_learning_rate=1e-3)
        if small
        else FactorVAE(strength),
        "dip-vae-ii": DIPVAE("II", strength, strength),
        # A third of the published steps are its ramp.
        "annealed-vae": AnnealedVAE(100.0 if small else 1000.0, strength, max(STEPS[scale] // 3, 1)),
    }
    return made[name]


def _config(job: Job, seed: int) -> RunConfig:
    scale: Scale = job["scale"]
    strength = STRENGTHS[scale][job["objective"]][job["level"]]
    config = run_at(scale, _objective(job["objective"], strength, scale), seed, STEPS[scale])
    return replace(config, training=replace(config.training, log_every=max(1, STEPS[scale] // LOGGED)))


def _curve(run: Run) -> list[list[float]]:
    steps, values = run.curve("reconstruction")
    return [[float(step) for step in steps], [round(float(value), 4) for value in values]]


def _agreement(job: Job, bench: Bench) -> list[Row]:
    """Similarities of layers, each seed with all others, and every pair of models: means, and active variables."""
    seeds = list(SEEDS[job["scale"]])[:5]
    configs = [_config(job, seed) for seed in seeds]
    models = [load_model(bench.train(config)) for config in configs]
    world, count = configs[0].world, EXAMPLES[job["scale"]]
    layers = [
        {
            name: values
            for name, values in layer_activations(model, world, count, noise_seed=seed + 1).items()
            if name != "input" and np.ptp(values, axis=0).any()
        }
        for seed, model in zip(seeds, models, strict=True)
    ]
    common = [name for name in layers[0] if all(name in own for own in layers)]
    layers = [{name: own[name] for name in common} for own in layers]
    rows: list[Row] = []
    for seed, own in zip(seeds, layers, strict=True):
        others = [other for other in layers if other is not own]
        cells = {
            measure: average_over_pairs([own], others, measure).values.round(4).tolist()
            for measure in ("cka", "procrustes")
        }
        rows.append({"part": "cells", "seed": seed, "layers": common, **cells})
    reps = [represent(model, world, count=2000) for model in models]
    actives = [variable_types(rep.var).counts["active"] for rep in reps if rep.var is not None]
    for first, second in itertools.combinations(range(len(reps)), 2):
        similarity = cka(reps[first].mean, reps[second].mean)
        pair = {"part": "pair", "seed": seeds[first], "other_seed": seeds[second], "similarity": similarity}
        rows.append(pair | {"actives": [actives[first], actives[second]]})
    return rows


def _gap(row: Row, subset: str) -> float | None:
    mean, sampled = row.get(f"mi_mean_{subset}"), row.get(f"mi_sampled_{subset}")
    return None if mean is None or sampled is None else mean - sampled


def _shown(cell: Table, column: str) -> str:
    values = cell.column(column)
    return f"{values.mean():.3f}" if len(values) else "-"
