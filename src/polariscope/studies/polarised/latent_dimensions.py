"""Intrinsic dimension of means and samples over the number of latents (Figures 8.9 and 8.10)."""

from __future__ import annotations

from collections.abc import Sequence

from polariscope.measures.intrinsic_dimension import mle
from polariscope.measures.polarisation import variable_types
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.representation import represent
from polariscope.studies.criteria import AtMost, Near, Rises
from polariscope.studies.polarised.settings import published_run, toy_run
from polariscope.studies.polarised.type_bars import TypeBars
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

LATENTS = {"smoke": (2, 6), "laptop": (2, 4, 6, 8, 10, 14), "paper": (3, 6, 8, 10, 12, 18, 24, 32, 42)}
SEEDS = {"smoke": range(1), "laptop": range(20, 25), "paper": range(5)}
"""The runs of seeds 0 to 4 with these settings stand in tables that were read before the criteria were written."""
STEPS = {"smoke": 60, "laptop": 6000, "paper": 300_000}
EXAMINED = {"smoke": 300, "laptop": 4000, "paper": 10_000}
NEIGHBOURS = 20  # as published


@studies.register("latent-dimensions")
class LatentDimensions(Study):
    """Intrinsic dimension of the means and of the samples, and types of variables, over the number of latents."""

    title = "Intrinsic dimension of the means and of the samples"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), section 8.8, figures 8.9-8.10"
    question = "Does the gap between the dimensions of samples and means count the variables that are not active?"
    cost = {"smoke": "2 s", "laptop": "about 10 minutes", "paper": "months"}
    training_lengths = STEPS
    drawn = {"dimensions": TypeBars("latents", "dimension_mean", "dimension_sampled", called="intrinsic dimension")}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "latents": latents, "seed": seed} for latents in LATENTS[scale] for seed in SEEDS[scale]
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        make = published_run if scale == "paper" else toy_run
        config = make(BetaVAE(1.0), job["seed"], STEPS[scale], job["latents"])
        rep = represent(bench.fit(config), config.world, count=EXAMINED[scale], noise_seed=job["seed"] + 1)
        assert rep.var is not None
        assert rep.sample is not None
        of_mean, of_sample = (mle(codes, NEIGHBOURS).value for codes in (rep.mean, rep.sample))
        place = {"latents": job["latents"], "seed": job["seed"], **variable_types(rep.var).counts}
        return [place | {"dimension_mean": of_mean, "dimension_sampled": of_sample}]

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "The gap between the dimensions of samples and means is the number of mixed and passive variables",
                "figures 8.9 and 8.10; within 2 (Spec 002, D21)",
                Near("gap", "not_active", by=2, of="every", to="the number of mixed and passive variables"),
            ),
            Claim(
                "The two dimensions coincide as long as all variables are active",
                "figure 8.9: they coincide, then diverge abruptly",
                AtMost("gap_of_few", 1, called="gap with the fewest latents"),
            ),
            Claim(
                "The two dimensions diverge as latents are added",
                "figure 8.9",
                Rises("gap", "latents", by=1, slack=0.5, called="gap of the dimensions"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        fewest = min(table.distinct("latents"))
        rows = []
        for row in table.rows:
            gap = row["dimension_sampled"] - row["dimension_mean"]
            more = {"gap": gap, "not_active": row["mixed"] + row["passive"]}
            rows.append(row | more | ({"gap_of_few": gap} if row["latents"] == fewest else {}))
        return Table(rows)
