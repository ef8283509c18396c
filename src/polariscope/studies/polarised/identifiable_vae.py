"""The polarised regime of the identifiable VAE: a variable is passive where its posterior is its own prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.examination.jacobians import decoder_grams
from polariscope.measures.polarisation import per_variable_kl, variable_types
from polariscope.objectives.ivae import IVAE
from polariscope.report.figures import LIGHT, styled
from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, AtMost
from polariscope.studies.polarised.settings import published_run, toy_run
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.run import load_model

SEEDS = {"smoke": range(1), "laptop": range(5, 10), "paper": range(5)}
"""An earlier table, without the effect on the image, had 0 to 4."""
STEPS = {"smoke": 60, "laptop": 8000, "paper": 300_000}
LATENTS = {"smoke": 10, "laptop": 10, "paper": 30}
PRIORS = {"zero": "prior mean fixed", "learned": "prior mean learned"}
BINS = 30
EXAMINED = 300  # codes at which the decoder's slope is taken
UNUSED = 0.1
"""A variable whose effect on the image is at most this share of the largest effect is not used by the decoder."""


@studies.register("identifiable-vae")
class IdentifiableVAE(Study):
    """Histograms of posterior and prior moments by type, with the prior mean fixed or learned."""

    title = "Active and passive variables of the identifiable VAE"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), section 5.3, figures 5.1-5.4"
    question = "What do passive variables look like when the prior depends on side information?"
    cost = {"smoke": "2 s", "laptop": "3 minutes", "paper": "weeks"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "prior_mean": prior, "seed": seed, "steps": STEPS[scale]}
            for prior in ("zero", "learned")
            for seed in SEEDS[scale]
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        objective = IVAE(prior_mean=job["prior_mean"])
        if scale == "paper":
            config = published_run(objective, job["seed"], latents=LATENTS[scale])
        else:
            config = toy_run(objective, job["seed"], job["steps"], latents=LATENTS[scale])
            config = replace(config, training=replace(config.training, clip=10.0))
        model = load_model(bench.train(config))
        rep = represent(model, config.world, count=10_000)
        assert rep.var is not None
        assert rep.prior_mean is not None
        assert rep.prior_var is not None
        plain = variable_types(rep.var)
        types = variable_types(rep.var, mean=rep.mean, prior_mean=rep.prior_mean, prior_var=rep.prior_var)
        kl = per_variable_kl(rep.mean, rep.var, rep.prior_mean, rep.prior_var)
        slopes = decoder_grams(model.generate, torch.from_numpy(rep.mean[:EXAMINED])).diagonal(dim1=1, dim2=2)
        effect = slopes.mean(dim=0).sqrt().numpy() * np.sqrt(rep.mean.var(axis=0) + rep.var.mean(axis=0))
        rows: list[Row] = []
        for j, label in enumerate(types.labels):
            second_moment = rep.var[:, j] + (rep.mean[:, j] - rep.prior_mean[:, j]) ** 2
            rows.append(
                {
                    "prior_mean": job["prior_mean"],
                    "seed": job["seed"],
                    "variable": j,
                    "type": label,
                    "plain_type": plain.labels[j],
                    "kl": float(kl[j]),
                    "effect": float(effect[j]),
                    "var_of_mean": float(rep.mean[:, j].var()),
                    "mean_var": float(rep.var[:, j].mean()),
                    "prior_var": float(rep.prior_var[:, j].mean()),
                    "ratio": float((rep.var[:, j] / rep.prior_var[:, j]).mean()),
                    "match": float(np.corrcoef(np.log(rep.prior_var[:, j]), np.log(second_moment))[0, 1]),
                    "histograms": {
                        name: _histogram(values[:, j])
                        for name, values in (
                            ("posterior mean", rep.mean),
                            ("posterior variance", rep.var),
                            ("prior variance", rep.prior_var),
                        )
                    },
                }
            )
        return rows

    def claims(self, scale: Scale) -> list[Claim]:
        fixed, learned = ({"prior": PRIORS[kind]} for kind in ("zero", "learned"))
        by_ratio = "number of variables that are passive by the ratio rule"
        share, passive = "variance of a mean, as a share of the prior's,", fixed | {"type": "passive"}
        logarithms, used = "correlation of their logarithms", fixed | {"used": True}
        effect = "effect of a variable on the image, as a share of the largest,"
        return [
            Claim(
                "With a fixed prior mean some variables are passive: posterior equal to prior",
                "figure 5.1",
                AtLeast("by_ratio", 1, of="every", where=fixed, called=by_ratio, digits=0),
            ),
            Claim(
                "Passive means are constant near zero",
                "figure 5.1",
                AtMost("movement", 0.1, of="every", where=passive, called=share, digits=3),
            ),
            Claim(
                "With a fixed prior mean the decoder does not use passive variables",
                "section 4.1: their columns are pruned",
                AtMost("effect_share", UNUSED, of="every", where=passive, called=effect, digits=3),
            ),
            Claim(
                "The prior variance of a used variable follows the posterior's second moment",
                "figure 5.2: prior variance matches the histogram of squared means",
                AtLeast("match", 0.9, of="every", where=used, called=logarithms),
            ),
            Claim(
                "With a learned prior mean some variables equal their prior and are not used by the decoder",
                "figure 5.3",
                AtLeast("pruned", 1, of="every", where=learned, called="number of such variables", digits=0),
                note="where the factors determine the image, the learned prior copies the posterior, and their "
                "divergence is near 0 although the decoder uses the variable (Spec 002, section 7.4)",
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Each variable, with its effect on the image when it moves by a standard deviation; a row for each model."""
        rows: list[Row] = []
        for kind, group in table.by("prior_mean"):
            for seed, model in group.by("seed"):
                largest = model.column("effect").max()
                variables = [
                    row
                    | {
                        "prior": PRIORS[kind],
                        "movement": row["var_of_mean"] / row["prior_var"],
                        "used": row["type"] != "passive" and row["kl"] > 0.1,
                        "effect_share": row["effect"] / largest,
                    }
                    for row in model.rows
                ]
                equal = [row for row in variables if row["type"] == "passive"]
                counts = {"by_ratio": len(equal), "pruned": sum(row["effect_share"] <= UNUSED for row in equal)}
                rows += [*variables, {"prior": PRIORS[kind], "seed": seed} | counts]
        return Table(rows)

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        figures = {}
        for prior, group in table.by("prior_mean"):
            first = group.where(seed=group.distinct("seed")[0])
            picked = [min(first.rows, key=lambda r: r["kl"]), max(first.rows, key=lambda r: r["kl"])]
            figure = Figure(figsize=(8, 4), layout="constrained")
            for line, row in zip(figure.subplots(2, 3), picked, strict=True):
                for axes, (name, (counts, edges)) in zip(line, row["histograms"].items(), strict=True):
                    axes.stairs(counts, edges, fill=True, color=LIGHT[row["type"]])
                    axes.set_title(f"{name}, variable {row['variable']} ({row['type']})", fontsize=8)
            figures[f"histograms-prior-mean-{prior}"] = figure
        return figures


def _histogram(values: np.ndarray) -> tuple[list[int], list[float]]:
    counts, edges = np.histogram(values, BINS)
    return counts.tolist(), edges.round(6).tolist()
