"""The annealed VAE's oddity: the number of passive variables hardly depends on the capacity."""

from __future__ import annotations

from collections.abc import Sequence

from polariscope.measures.polarisation import variable_types
from polariscope.measures.truncation import compare_mean_sampled
from polariscope.objectives.annealed_vae import AnnealedVAE
from polariscope.representation import represent
from polariscope.studies.criteria import All, AtLeast, Flat, Near, Rises
from polariscope.studies.polarised.settings import run_at
from polariscope.studies.polarised.type_bars import TypeBars
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.run import load_model

# The toy's information is a few nats where dSprites has tens, so its capacities are smaller; and its likelihood weighs
# less, so its gamma is too. With a gamma of 100 nothing is pruned: the divergence is spread over ten mixed latents.
CAPACITIES = {"smoke": (2.0, 6.0), "laptop": (2.0, 4.0, 6.0, 8.0, 10.0), "paper": (5.0, 10.0, 25.0, 50.0, 75.0, 100.0)}
GAMMA = {"smoke": 10.0, "laptop": 10.0, "paper": 1000.0}
LATENTS = 10
SEEDS = {"smoke": 1, "laptop": 5, "paper": 50}
STEPS = {"smoke": 60, "laptop": 8000, "paper": 300_000}


@studies.register("annealed-capacity")
class AnnealedCapacity(Study):
    """Types and total correlation over the capacity of the annealed VAE."""

    title = "Passive variables of the annealed VAE over its capacity"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), appendix B.1, figures B.1-B.5"
    question = "Does a larger capacity bring pruned latents back?"
    cost = {"smoke": "a second", "laptop": "3 minutes", "paper": "months"}
    drawn = {"types": TypeBars("capacity", "tc_mean", "tc_sampled", called="total correlation (nats)")}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"scale": scale, "capacity": capacity, "seed": seed, "steps": STEPS[scale]}
            for capacity in CAPACITIES[scale]
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        ramp = 100_000 if job["scale"] == "paper" else job["steps"] // 2
        objective = AnnealedVAE(gamma=GAMMA[job["scale"]], capacity=job["capacity"], ramp=ramp)
        config = run_at(job["scale"], objective, job["seed"], job["steps"])
        run = bench.train(config)
        rep = represent(load_model(run), config.world, count=10_000)
        assert rep.var is not None
        assert rep.sample is not None
        types = variable_types(rep.var)
        whole = compare_mean_sampled(rep.mean, rep.sample, types, ("all",))[0]
        row: Row = {"capacity": job["capacity"], "seed": job["seed"], **types.counts, "kl": run.result["train_kl"]}
        for name in ("tc_mean", "tc_sampled", "mi_mean", "mi_sampled", "erank_mean", "erank_sampled"):
            row[name] = getattr(whole, name)
        return [row]

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            Claim(
                "The divergence ends at the capacity",
                "by construction of the objective",
                Near("kl", "capacity", by=0.5, called="divergence (nats)"),
            ),
            Claim(
                "The number of passive variables is high and almost independent of the capacity",
                "figure B.1",
                All(
                    AtLeast("passive_share", 0.3, each="strength", called="share of passive variables"),
                    Flat("passive", "capacity", by=3, called="number of passive variables", digits=1),
                ),
            ),
            Claim(
                "Total correlation of the means rises with the capacity",
                "figures B.2-B.3",
                Rises("tc_mean", "capacity", by=0.1, slack=0.1, called="total correlation of the means (nats)"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        return Table(
            [row | {"strength": row["capacity"], "passive_share": row["passive"] / LATENTS} for row in table.rows]
        )
