"""How soon training enters the polarised regime and stays there (Table 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, AtMost, Beats
from polariscope.studies.inner_workings.alignment_tasks import Kind, lengths, settings_of, task
from polariscope.studies.kit import Panels, Paths
from polariscope.studies.published import published
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.polarised_regime import kl_approximation_error, polarised_share
from polariscope.training.run import load_model

TASKS = ("square-linear", "square-nonlinear", "blobs", "dsprites", "mnist")
SEEDS = {"smoke": range(1), "laptop": range(5, 14), "paper": range(5)}
"""An earlier table had 0 to 4. The interval of a median bears one outlier from nine runs on."""
SNAPSHOTS = {"smoke": 4, "laptop": 50, "paper": 500}
WIDE = 10  # latents, of which most must be pruned
BETAS = {"blobs": 0.1, "dsprites": 0.125}
"""Below those that align the latents best, at which one of them is half dead: neither in use nor pruned."""
LONGER = {"square-linear": 2, "blobs": 2}
"""Tasks of seconds, trained so many times as long: the beginning of a short training weighs too much."""
SHARE = published("inner_workings/polarised-share").rows


@studies.register("polarised-training")
@dataclass(frozen=True)
class PolarisedTraining(Study):
    """The error of the polarised regime's simplified KL, followed through training."""

    title = "The polarised regime over training"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.2, table 3.2"
    question = "From which point in training does the theory of the polarised regime apply?"
    cost = {"smoke": "a second", "laptop": "38 minutes", "paper": "weeks"}
    training_lengths = lengths(TASKS) | {
        "laptop": max(task(n, "laptop").training.steps * LONGER.get(n, 1) for n in TASKS)
    }
    drawn = {
        "kl-error": Panels(
            (
                Paths(
                    "errors",
                    "share of training",
                    by="latents",
                    called="relative error of the KL",
                    names={"dependent": "dependent latents", "ten": "ten latents"},
                    colours={"dependent": "active", "ten": "mixed"},
                    guides={"3 %": 0.03},
                    log_y=True,
                ),
            ),
            each="task",
            width=2.2,
            share_y=True,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        tasks = ("square-linear",) if scale == "smoke" else TASKS
        return [
            {"scale": scale, "task": name, "latents": latents, "seed": seed}
            for name in tasks
            for latents in ("dependent", "ten")
            for seed in SEEDS[scale]
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        chosen = task(job["task"], job["scale"])
        if job["scale"] != "paper" or job["task"] == "blobs":  # which are not in the work
            steps = chosen.training.steps * LONGER.get(job["task"], 1)
            training = replace(chosen.training, steps=steps, checkpoint_every=steps)
            chosen = replace(chosen, beta=BETAS.get(job["task"], chosen.beta), training=training)
        kind: Kind = "vae" if job["task"] == "mnist" else "beta-vae"
        wide = WIDE if job["latents"] == "ten" else 0
        run = bench.train(chosen.config(kind, job["seed"], wide, SNAPSHOTS[job["scale"]]))
        errors = []
        for step in sorted(run.snapshots()):
            rep = represent(load_model(run, step), chosen.held_out, count=1000)
            assert rep.var is not None
            errors.append(kl_approximation_error(rep.mean, rep.var))
        found = {"share": 100 * polarised_share(errors), "last": errors[-1], "errors": np.round(errors, 5).tolist()}
        return [settings_of(job) | found]

    def claims(self, scale: Scale) -> list[Claim]:
        few, many = {"latents": "dependent"}, {"latents": "ten"}
        polarised = "% of the training in the polarised regime"
        by_latents = f"{polarised}, by the number of latents"
        return [
            Claim(
                "Training is in the polarised regime nearly all the time",
                "table 3.2: 97.8 % of the time or more for as many latents as factors",
                AtLeast("share", 97.8, of="median", each="task", where=few, called=polarised, digits=1),
                note="a latent that is half in use at the end puts a whole run outside the regime, hence the median"
                + ("" if scale == "paper" else "; the beginning of a short training weighs more"),
            ),
            Claim(
                "At the end of training every run is in the polarised regime",
                "KL error below 3 %",
                AtMost("last", 0.03, of="every", called="relative error of the KL at the end", digits=4),
            ),
            Claim(
                "Pruning more latents takes longer",
                "table 3.2: ten latents take longer on every task, by 0.3 to 7.2 % of the training",
                Beats("share", few, many, by=0.3, each="task", called=by_latents, digits=1),
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for name, group in table.by("task"):
            row: Row = {"data": name}
            for latents in ("dependent", "ten"):
                here = group.where(latents=latents).column("share")
                cell = SHARE.get(name, {}).get(latents)
                row[f"{latents} latents, published %"] = f"{cell.mean:.1f}" if cell else "-"
                row[f"{latents} latents, here %"] = plus_minus(here, 1)
                row[f"{latents} latents, median here %"] = f"{np.median(here):.1f}"
            rows.append(row)
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        places = [np.linspace(0, 1, len(row["errors"]) + 1)[1:].tolist() for row in table.rows]
        rows = [row | {"share of training": place} for row, place in zip(table.rows, places, strict=True)]
        return super().figures(Table(rows))
