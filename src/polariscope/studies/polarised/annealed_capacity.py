"""The annealed VAE's oddity: the number of passive variables hardly depends on the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from polariscope.measures.polarisation import variable_types
from polariscope.measures.truncation import compare_mean_sampled
from polariscope.objectives.annealed_vae import AnnealedVAE
from polariscope.report.figures import types_by_strength
from polariscope.representation import represent
from polariscope.studies.polarised.settings import run_at
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.run import load_model

# The toy's information is a few nats where dSprites has tens, so its capacities are smaller; and its likelihood weighs
# less, so its gamma is too. With a gamma of 100 nothing is pruned: the divergence is spread over ten mixed latents.
CAPACITIES = {"smoke": (2.0, 6.0), "laptop": (2.0, 4.0, 6.0, 8.0, 10.0), "paper": (5.0, 10.0, 25.0, 50.0, 75.0, 100.0)}
GAMMA = {"smoke": 10.0, "laptop": 10.0, "paper": 1000.0}
SEEDS = {"smoke": 1, "laptop": 5, "paper": 50}
STEPS = {"smoke": 60, "laptop": 8000, "paper": 300_000}


@studies.register("annealed-capacity")
@dataclass(frozen=True)
class AnnealedCapacity(Study):
    """Types and total correlation over the capacity of the annealed VAE."""

    title = "Passive variables of the annealed VAE over its capacity"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), appendix B.1, figures B.1-B.5"
    question = "Does a larger capacity bring pruned latents back?"
    cost = {"smoke": "a second", "laptop": "3 minutes", "paper": "months"}

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

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        groups = list(table.by("capacity"))
        passive = [group.mean("passive") for _, group in groups]
        tc = [group.mean("tc_mean") for _, group in groups if len(group.column("tc_mean"))]
        reached = max(abs(group.mean("kl") - capacity) for capacity, group in groups)
        return [
            Claim(
                "The divergence ends at the capacity",
                "by construction of the objective",
                f"largest distance {reached:.2f} nats",
                reached < 0.5,
            ),
            Claim(
                "The number of passive variables is high and almost independent of the capacity",
                "figure B.1",
                ", ".join(f"{c:g}: {p:.1f}" for (c, _), p in zip(groups, passive, strict=True)),
                min(passive) >= 3 and max(passive) - min(passive) <= 3,
            ),
            Claim(
                "Total correlation of the means rises with the capacity",
                "figures B.2-B.3",
                ", ".join(f"{value:.2f}" for value in tc),
                tc[-1] > tc[0] if len(tc) > 1 else None,
            ),
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        groups = list(table.by("capacity"))
        counts = [{kind: group.mean(kind) for kind in ("active", "mixed", "passive")} for _, group in groups]
        lines = {
            side: [g.mean(f"tc_{column}") if len(g.column(f"tc_{column}")) else float("nan") for _, g in groups]
            for side, column in (("means", "mean"), ("samples", "sampled"))
        }
        strengths = [capacity for capacity, _ in groups]
        name = "total correlation (nats)"
        return {"types": types_by_strength(strengths, counts, lines, strength="capacity", measure=name)}
