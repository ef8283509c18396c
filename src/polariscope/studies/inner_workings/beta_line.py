"""Raising beta: orthogonal at first, then latents die one by one (Figure 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import LIGHT, styled
from polariscope.representation import represent
from polariscope.studies.inner_workings.alignment_tasks import alignment, task
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.pca_vae import collapse_betas
from polariscope.training.run import load_model

BETAS = {
    "square-linear": (1e-3, 1e-2, 0.05, 0.1, 0.14, 0.2, 0.4, 0.6, 0.75, 1.0),
    "square-nonlinear": (1e-4, 1e-3, 3e-3, 1e-2, 0.03, 0.1, 0.3, 1.0),
    "blobs": (1e-3, 0.01, 0.1, 0.5, 2.0, 8.0, 20.0),
    "dsprites": (0.01, 0.05, 0.125, 0.25, 0.5, 1.0, 2.0),
}
SMOKE = (0.05, 0.2, 1.0)
SEEDS = {"smoke": 1, "laptop": 5, "paper": 5}
COLLAPSED = 0.95  # mean posterior variance from which on a latent counts as dead
SPECTRUM = (1 / 3, 1 / 12)  # of the linear task


@studies.register("beta-line")
@dataclass(frozen=True)
class BetaLine(Study):
    """Disentanglement Score, distance to orthogonality and latents in use along a line of betas."""

    title = "How large a beta"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.6, figure 3.7"
    question = "Which beta orients the latents without killing any, and can it be found without labels?"
    cost = {"smoke": "a second", "laptop": "about 10 minutes", "paper": "weeks"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        lines = {"square-linear": SMOKE} if scale == "smoke" else BETAS
        return [
            {"scale": scale, "task": name, "beta": beta, "seed": seed}
            for name, betas in lines.items()
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
        settings = {key: value for key, value in job.items() if key != "scale"}
        measured = {"score": found.score, "distance": found.distance, "active": found.active}
        return [settings | measured | {"var": np.sort(rep.var.mean(axis=0)).round(4).tolist()}]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        linear = table.where(task="square-linear")
        thresholds = sorted(collapse_betas(SPECTRUM).tolist())
        wrong = [row for row in linear.rows if row["active"] != _predicted(row["beta"])]
        # At the exact optimum a latent is in use by the rule until its variance is 0.75, a little before it dies.
        first = first_collapse(linear)
        plateau = Table([r for r in linear.rows if 1e-2 <= r["beta"] < thresholds[0]])
        middle = Table([r for r in linear.rows if thresholds[0] < r["beta"] < thresholds[1]])
        above = Table([r for r in linear.rows if r["beta"] > thresholds[1]])
        claims = [
            Claim(
                "Latents die in stages, where theory says",
                f"linear task: beta {thresholds[0]:.3f} and {thresholds[1]:.3f} (Spec 003, E3.6)",
                f"{len(linear) - len(wrong)} of {len(linear)} models have the predicted number in use",
                not wrong,
            ),
            Claim(
                "Raising beta until one latent is dead finds its order of magnitude, without labels",
                f"section 3.3.6; here the first dies at {thresholds[0]:.3f}",
                f"first seen dead at beta {first:g}" if first else "none died",
                first is not None and thresholds[0] / 2 <= first <= 2 * thresholds[0],
            ),
            Claim(
                "The score is a staircase: a plateau, half of it, nothing",
                "figure 3.7: plateau near 1 on the linear task (Spec 003: 1, about .5, 0)",
                ", ".join(f"{part.mean('score'):.2f}" for part in (plateau, middle, above) if len(part)),
                plateau.mean("score") > 0.8
                and (not len(middle) or 0.3 < middle.mean("score") < 0.7)
                and (not len(above) or above.mean("score") < 0.15),
            ),
        ]
        for name in (n for n in table.distinct("task") if n != "square-linear"):
            by = [(beta, g.mean("score"), g.mean("active")) for beta, g in table.where(task=name).by("beta")]
            best = max(by, key=lambda at: at[1])
            claims.append(
                Claim(
                    f"{name}: the best beta is neither the smallest nor the largest",
                    "figure 3.7",
                    ", ".join(f"{beta:g}: {score:.2f} ({active:.0f} in use)" for beta, score, active in by),
                    by[0][0] < best[0] < by[-1][0],
                )
            )
        return claims

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        names = table.distinct("task")
        figure = Figure(figsize=(0.8 + 2.6 * len(names), 4.4), layout="constrained")
        grid = figure.subplots(3, len(names), squeeze=False, sharex="col")
        for column, name in zip(grid.T, names, strict=True):
            rows = table.where(task=name)
            for axes, measure in zip(column, ("score", "distance", "active"), strict=True):
                known = Table([row for row in rows.rows if row.get(measure) is not None])
                axes.scatter(known.column("beta"), known.column(measure), s=14, color=LIGHT["active"])
                axes.set_ylim(bottom=0)
                if name == "square-linear":
                    for beta in collapse_betas(SPECTRUM):
                        axes.axvline(beta, color=LIGHT["ink"], linestyle="--", linewidth=0.8)
            column[0].set_xscale("log")
            column[0].set_title(name)
            column[-1].set_xlabel("beta")
        for axes, label in zip(grid[:, 0], ("score", "distance to orth.", "latents in use"), strict=True):
            axes.set_ylabel(label)
        return {"beta-line": figure}


def first_collapse(table: Table) -> float | None:
    """The smallest beta at which some latent's mean posterior variance is near 1: the rule of section 3.3.6."""
    dead = [row["beta"] for row in table.rows if max(row["var"]) > COLLAPSED]
    return min(dead) if dead else None


def _predicted(beta: float) -> int:
    """Latents of the linear task whose means spread by more than 0.5: those of variance below 0.75."""
    return sum(beta / 2 < 0.75 * value for value in SPECTRUM)
