"""Raising beta: orthogonal at first, then latents die one by one (Figure 3.7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import LIGHT
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Between, Near, Peaks
from polariscope.studies.inner_workings.alignment_tasks import alignment, lengths, settings_of, task
from polariscope.studies.kit import Panels, Scatter
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.pca_vae import collapse_betas
from polariscope.training.run import load_model

LINEAR = "square-linear"
BETAS = {
    LINEAR: (1e-3, 1e-2, 0.05, 0.1, 0.14, 0.2, 0.4, 0.6, 0.75, 1.0),
    "square-nonlinear": (1e-4, 1e-3, 3e-3, 1e-2, 0.03, 0.1, 0.3, 1.0),
    "blobs": (1e-3, 0.01, 0.1, 0.5, 2.0, 8.0, 20.0),
    "dsprites": (0.01, 0.05, 0.125, 0.25, 0.5, 1.0, 2.0),
}
SMOKE = (0.05, 0.2, 1.0)
SEEDS = {"smoke": 1, "laptop": 5, "paper": 5}
COLLAPSED = 0.95  # mean posterior variance from which on a latent counts as dead
SPECTRUM = (1 / 3, 1 / 12)  # of the linear task
PLATEAU = 0.01  # beta from which on the linear task is aligned in a training this long


@studies.register("beta-line")
class BetaLine(Study):
    """Disentanglement Score, distance to orthogonality and latents in use along a line of betas."""

    title = "How large a beta"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.6, figure 3.7"
    question = "Which beta aligns the latents without making any passive, and can it be found without labels?"
    cost = {"smoke": "a second", "laptop": "more than an hour", "paper": "weeks"}
    training_lengths = lengths(BETAS)
    drawn = {
        "beta-line": Panels(
            (
                Scatter("score", "beta", log=True, from_zero=True),
                Scatter("distance", "beta", called="distance to orth.", log=True, from_zero=True),
                Scatter("active", "beta", called="latents in use", log=True, from_zero=True),
            ),
            each="task",
            width=2.6,
            height=1.7,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "task": name, "beta": beta, "seed": seed}
            for name, betas in _lines(scale).items()
            for beta in betas
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        chosen = task(job["task"], job["scale"])
        config = replace(chosen.config("beta-vae", job["seed"]), objective=BetaVAE(job["beta"]))
        model = load_model(bench.train(config))
        found = alignment(model, chosen.held_out)
        rep = represent(model, chosen.held_out, count=2000)
        assert rep.var is not None
        measured = {"score": found.score, "distance": found.distance, "active": found.active}
        return [settings_of(job) | measured | {"var": np.sort(rep.var.mean(axis=0)).round(4).tolist()}]

    def claims(self, scale: Scale) -> list[Claim]:
        second, first = sorted(collapse_betas(SPECTRUM).tolist(), reverse=True)
        dead = "smallest beta with a dead latent (inf: none died)"
        linear = {"task": LINEAR}
        claims = [
            Claim(
                "Latents become passive in stages, at the predicted beta",
                f"linear task: beta {first:.3f} and {second:.3f} (Spec 003, E3.6)",
                Near("active", "predicted", by=0.5, of="every", called="number of latents in use", to="theory's"),
            ),
            Claim(
                "Raising beta until one latent is dead finds its order of magnitude, without labels",
                f"section 3.3.6; here the first dies at {first:.3f}",
                Between("first_dead", first / 2, 2 * first, of="every", where=linear, called=dead),
            ),
            Claim(
                "The score falls in steps: a plateau, half of it, zero",
                "figure 3.7: plateau near 1 on the linear task (Spec 003: 1, about .5, 0)",
                All(
                    AtLeast("score", 0.8, where={"stage": "both alive"}),
                    Between("score", 0.3, 0.7, where={"stage": "one alive"}),
                    AtMost("score", 0.15, where={"stage": "none alive"}),
                ),
            ),
        ]
        peak = "the best beta is neither the smallest nor the largest"
        return claims + [
            Claim(f"{name}: {peak}", "figure 3.7", Peaks("score", "beta", by=0.05, where={"task": name}))
            for name in _lines(scale)
            if name != LINEAR
        ]

    def readings(self, table: Table) -> Table:
        linear = table.where(task=LINEAR)
        theory = [row | {"predicted": _predicted(row["beta"]), "stage": _stage(row["beta"])} for row in linear.rows]
        others = [row for row in table.rows if row["task"] != LINEAR]
        dead = [
            {"task": LINEAR, "seed": seed, "first_dead": first_collapse(group)} for seed, group in linear.by("seed")
        ]
        return Table([*theory, *others, *dead])

    def figures(self, table: Table) -> dict[str, Figure]:
        drawn = super().figures(table)
        for axes in drawn["beta-line"].axes:
            if axes.get_title(loc="left") == LINEAR:
                for beta in collapse_betas(SPECTRUM):
                    axes.axvline(beta, color=LIGHT["ink"], linestyle="--", linewidth=0.8)
        return drawn


def _lines(scale: Scale) -> dict[str, tuple[float, ...]]:
    return {LINEAR: SMOKE} if scale == "smoke" else BETAS


def first_collapse(table: Table) -> float:
    """The smallest beta at which some latent's mean posterior variance is near 1: the rule of section 3.3.6."""
    return min((row["beta"] for row in table.rows if max(row["var"]) > COLLAPSED), default=math.inf)


def _predicted(beta: float) -> int:
    """Latents of the linear task whose means spread by more than 0.5: those of variance below 0.75.

    By this rule a latent is out of use a little before it dies.
    """
    return sum(beta / 2 < 0.75 * value for value in SPECTRUM)


def _stage(beta: float) -> str | None:
    """How many latents of the linear task theory lets live; below a beta of 0.01 nothing turns them to the axes."""
    alive = int((beta < collapse_betas(SPECTRUM)).sum())
    return ("none alive", "one alive", "both alive")[alive] if beta >= PLATEAU else None
