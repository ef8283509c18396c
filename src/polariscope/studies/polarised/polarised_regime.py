"""Regularisation prunes latents, and the pruned ones look correlated in the means: the sweep over beta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from polariscope.measures.polarisation import trace_gap, variable_types
from polariscope.measures.truncation import compare_mean_sampled, subset_accuracies
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report.figures import LIGHT, heatmap
from polariscope.report.study_figures import bars
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, AtMost, Correlates, Near, Rises
from polariscope.studies.polarised.settings import run_at
from polariscope.studies.polarised.type_bars import TypeBars
from polariscope.studies.rows import difference
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.run import load_model

BETAS = {
    "smoke": (0.25, 4.0),
    "laptop": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0),
    "paper": (1.0, 2.0, 4.0, 6.0, 8.0, 16.0),
}
SEEDS = {"smoke": 1, "laptop": 5, "paper": 50}
STEPS = {"smoke": 60, "laptop": 6000, "paper": 300_000}
# How labels are read from the codes: as published at paper scale, with fewer examples and strengths else.
PROBES = {
    "smoke": {"train": 100, "test": 50, "strengths": 1, "folds": 2},
    "laptop": {"train": 2000, "test": 1000, "strengths": 3, "folds": 3},
    "paper": {"train": 10_000, "test": 5000, "strengths": 10, "folds": 5},
}
EXAMPLES = 10_000  # that everything but the probes is measured on
LATENTS = 10
PRUNED = {"pruned": True}
"""Models with passive variables that have not collapsed altogether."""
SUBSETS = ("all", "active", "mixed", "passive", "active+mixed", "active+passive")


@studies.register("polarised-regime")
class PolarisedRegime(Study):
    """Types, total correlation, mutual information, effective rank and accuracy by subset, over beta."""

    title = "Active, mixed and passive variables over beta"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), sections 6.3-6.4, figures 6.4-6.9"
    question = "How does regularisation prune latents, and what do the pruned ones do to the mean representation?"
    cost = {"smoke": "2 s", "laptop": "8 minutes", "paper": "months"}
    drawn = {
        "total-correlation": TypeBars("beta", "tc_mean_all", "tc_sampled_all", called="total correlation (nats)"),
        "mutual-information": TypeBars(
            "beta", "mi_mean_all", "mi_sampled_all", called="averaged mutual information (nats)"
        ),
        "effective-rank": TypeBars("beta", "erank_mean_all", "erank_sampled_all", called="effective rank"),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "beta": beta, "seed": seed, "steps": STEPS[scale]}
            for beta in BETAS[scale]
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        config = run_at(job["scale"], BetaVAE(job["beta"]), job["seed"], job["steps"])
        run = bench.train(config)
        probes = PROBES[job["scale"]]
        count = max(EXAMPLES, probes["train"] + probes["test"])
        rep = represent(load_model(run), config.world, count=count, noise_seed=job["seed"] + 1)
        assert rep.var is not None
        assert rep.sample is not None
        assert rep.factors is not None
        mean, var, sample = (part[:EXAMPLES] for part in (rep.mean, rep.var, rep.sample))
        types = variable_types(var)
        row: Row = {"beta": job["beta"], "seed": job["seed"], **types.counts}
        row |= {"reconstruction": run.result["train_reconstruction"], "kl": run.result["train_kl"]}
        row |= {
            "trace_gap_sampled": trace_gap(mean, sample=sample),
            "trace_gap_analytic": trace_gap(var=var, estimator="analytic"),
        }
        for comparison in compare_mean_sampled(mean, sample, types):
            scores = ("tc", "mi", "erank") if comparison.subset == "all" else ("tc", "mi")
            for score in scores:
                for side in ("mean", "sampled"):
                    row[f"{score}_{side}_{comparison.subset}"] = getattr(comparison, f"{score}_{side}")
        row |= self._correlations(mean, types)
        for side, codes in (("mean", rep.mean), ("sampled", rep.sample)):
            found = subset_accuracies(codes, rep.factors, types, SUBSETS, **probes)
            row |= {f"accuracy_{side}_{a.subset}": a.accuracy for a in found}
        return [row]

    @staticmethod
    def _correlations(mean: np.ndarray, types: Any) -> Row:
        """Largest correlation of each variable with another, averaged over the passive and over the active ones."""
        if (mean.std(0) < 1e-9).any():
            return {}
        matrix = np.abs(np.corrcoef(mean, rowvar=False))
        np.fill_diagonal(matrix, 0)
        largest = matrix.max(0)
        row: Row = {"correlations": np.corrcoef(mean, rowvar=False).round(3).tolist(), "labels": list(types.labels)}
        for kind in ("passive", "active"):
            index = types.subset(kind)
            row[f"max_correlation_{kind}"] = float(largest[index].mean()) if len(index) else None
        return row

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "The number of passive variables grows with regularisation",
                "figure 6.5: grows for every objective but the annealed VAE",
                Rises("passive", "beta", by=1, slack=0.34, called="number of passive variables", digits=1),
                weaker="of the beta-VAE only",
            ),
            Claim(
                "Total correlation of the means exceeds that of the samples once there are passive variables",
                "figure 6.6a: the gap grows with the passive variables",
                All(
                    AtLeast("tc_excess", 0, of="every", where=PRUNED, called="excess of the means (nats)"),
                    Correlates("tc_excess", "passive", 0.5, where=PRUNED, called="excess of the means"),
                ),
            ),
            Claim(
                "Without the passive variables the total correlations of means and samples agree",
                "figure 6.8: similar once passive variables are removed",
                AtMost("tc_difference", 0.25, of="every", where=PRUNED, called="difference without them (nats)"),
            ),
            Claim(
                "The effective rank of the means is the number of variables that are not passive",
                "figure 6.6c",
                Near(
                    "erank_mean_all",
                    "not_passive",
                    by=1,
                    of="every",
                    where={"alive": True},
                    called="effective rank",
                    to="the number of variables that are not passive",
                ),
            ),
            Claim(
                "The effective rank of the samples stays at the number of latents",
                "figure 6.6c",
                AtLeast("erank_sampled_all", 0.94 * LATENTS, of="every", called=f"effective rank, of {LATENTS},"),
            ),
            Claim(
                "The trace gap is the sum of the mean posterior variances",
                "section 8.3.1, exact by total variance",
                Near("trace_gap", "trace_gap_analytic", by=0.25, of="every", to="the summed variances"),
            ),
            Claim(
                "Passive variables of the sampled representation predict no better than chance",
                "figure 6.4: equal to the random classifier",
                AtMost("above_chance", 0.05, called="accuracy above chance", digits=3),
            ),
        ]

    def readings(self, table: Table) -> Table:
        return Table([row | _compared(row) for row in table.rows])

    def figures(self, table: Table) -> dict[str, Figure]:
        names = [*SUBSETS, "random"]
        strongest = max(table.distinct("beta"), key=lambda b: table.where(beta=b).mean("passive") if b <= 4 else -1)
        example = table.where(beta=strongest).rows[0]
        accuracy = {
            side: [example.get(f"accuracy_{column}_{name}") for name in names]
            for side, column in (("means", "mean"), ("samples", "sampled"))
        }
        figures = super().figures(table)
        figures["accuracy-by-subset"] = bars(accuracy, names, "accuracy", title=f"beta {strongest:g}")
        if example.get("correlations"):
            labels = [f"{j} {label}" for j, label in enumerate(example["labels"])]
            numbers = [str(j) for j in range(len(labels))]
            title = f"Correlations of the means, beta {strongest:g}"
            shades = [LIGHT["muted" if label == "passive" else "ink"] for label in example["labels"]]
            figures["correlations"] = heatmap(
                example["correlations"], labels, numbers, title, signed=True, high=1, row_colours=shades
            )
        return figures


def _compared(row: Row) -> Row:
    """Means against samples of one model."""
    return {
        "trace_gap": row.get("trace_gap_sampled"),
        "alive": row["active"] + row["mixed"] > 0,
        "pruned": row["active"] + row["mixed"] > 0 and row["passive"] > 0,
        "not_passive": LATENTS - row["passive"],
        "tc_excess": difference(row, "tc_mean_all", "tc_sampled_all"),
        "tc_difference": difference(row, "tc_mean_non-passive", "tc_sampled_non-passive", sign=False),
        "above_chance": difference(row, "accuracy_sampled_passive", "accuracy_sampled_random"),
    }
