"""Explicit control of orthogonality: is the decoder orthogonal also where beta is too small to make it so? (F3-108.)

The reward of a diagonal posterior for an orthogonal decoder is proportional to beta (Spec 003, section 2.5), so that it
vanishes with beta. An explicit price of the cosines between the decoder's columns does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from polariscope.examination.jacobians import decoder_orthogonality
from polariscope.measures.neighbour_score import neighbour_score
from polariscope.measures.orthogonality import haar_distance
from polariscope.nets.autoencoder import Autoencoder
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.orthogonal_beta_vae import OrthogonalBetaVAE
from polariscope.representation import represent
from polariscope.studies.criteria import AtLeast, AtMost, Beats, Between
from polariscope.studies.inner_workings.alignment_tasks import EXAMINED, SMOKE_STEPS, lengths, settings_of, task
from polariscope.studies.kit import Restarts, grid
from polariscope.studies.published import published
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.run import load_model
from polariscope.worlds.world import World

TASKS = {"square-linear": "Synth. Lin.", "square-nonlinear": "Synth. Non-Lin."}
BETAS = {
    "smoke": (0.0, 1e-3),
    "laptop": (0.0, 1e-5, 1e-4, 1e-3),
    "paper": (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
}
SMALLEST = 1e-5
"""Betas up to this one are what "beta goes to 0" is judged on without control."""
CONTROL = 1.0
STEPS = {"smoke": SMOKE_STEPS, "laptop": 5000, "paper": 10**9}
SEEDS = {"smoke": 1, "laptop": 5, "paper": 10}
PRINTED = published("inner_workings/orthogonality").rows


@studies.register("orthogonality-control")
@dataclass(frozen=True)
class OrthogonalityControl(Study):
    """Distance to orthogonality over small betas, with and without a penalty on the cosines between columns."""

    title = "Explicit control of orthogonality"
    source = "Zietlow's dissertation (2022), sections 1.3 and 6.3 (Spec 003, F3-108); table 3.3"
    question = "Does a penalty on non-orthogonal columns keep a decoder orthogonal as beta goes to 0?"
    cost = {"smoke": "2 s", "laptop": "about 20 minutes", "paper": "a day"}
    training_lengths = lengths(TASKS) | {"laptop": STEPS["laptop"]}
    drawn = {
        name: Restarts(
            "distance",
            ("beta", "model"),
            where={"task": name, "varied": True},
            called="distance to orthogonality",
            colours={"beta-vae": "mixed", "controlled": "active"},
        )
        for name in TASKS
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        seeds, names = range(SEEDS[scale]), tuple(TASKS)
        varied = grid(scale=scale, task=names, model=("beta-vae", "controlled"), beta=BETAS[scale], seed=seeds)
        return varied + grid(scale=scale, task=names, model="ae", seed=seeds)

    def run(self, job: Job, bench: Bench) -> list[Row]:
        chosen = task(job["task"], job["scale"]).shortened(STEPS[job["scale"]])
        config = replace(chosen.config("ae", job["seed"]), objective=_objective(job))
        model = load_model(bench.train(config))
        return [settings_of(job) | {"varied": job["model"] != "ae"} | measured(model, chosen.held_out)]

    def claims(self, scale: Scale) -> list[Claim]:
        distance = "distance to orthogonality"
        return [
            Claim(
                "With explicit control the decoder is orthogonal however small beta is",
                "Spec 003, F3-108 (sections 1.3 and 6.3): about 0 as beta goes to 0",
                AtMost("distance", 0.05, where={"model": "controlled"}, each="case", called=distance),
                provided=AtLeast(
                    "explained", 0.95, where={"model": "controlled"}, each="case", called="explained share of variance"
                ),
            ),
            Claim(
                "Without control the decoder is far from orthogonal at the smallest betas",
                "section 3.3.6, figure 3.7: a beta too small does not make decoders orthogonal",
                Beats(
                    "distance",
                    {"model": "controlled"},
                    {"model": "beta-vae"},
                    by=0.1,
                    higher=False,
                    where={"smallest": True},
                    each="case",
                    called=distance,
                ),
            ),
            Claim(
                "Without it the orientation at the smallest betas is random, as that of an autoencoder",
                "table 3.3, autoencoder: "
                + ", ".join(f"{PRINTED[f'{name} DtO']['ae']} ({name})" for name in TASKS)
                + "; a random rotation has 0.55",
                Between("of_random", 0.6, 1.4, each="task", called="distance as a share of a random rotation's"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """The rows with a name for task and beta together, and distances without control as shares of a random one."""
        random = haar_distance(2).mean

        def read(row: Row) -> Row:
            if not row["varied"]:
                return row | {"of_random": row["distance"] / random}
            smallest = row["beta"] <= SMALLEST
            share = row["distance"] / random if smallest and row["model"] == "beta-vae" else None
            return row | {
                "case": f"{row['task']}, beta {row['beta']:g}", "smallest": smallest, "of_random": share
            }  # fmt: skip

        return Table([read(row) for row in table.rows])

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for name, group in table.by("task"):
            cells = [(f"autoencoder (published {PRINTED[f'{name} DtO']['ae']})", group.where(model="ae"))]
            for beta, own in group.where(varied=True).by("beta"):
                cells += [(f"beta {beta:g}", own.where(model="beta-vae"))]
                cells += [(f"beta {beta:g}, with control", own.where(model="controlled"))]
            rows += [
                {
                    "data": TASKS[name],
                    "model": words,
                    "distance to orthogonality": plus_minus(cell.column("distance"), 3),
                    "mean |cosine|": plus_minus(cell.column("cosine"), 3),
                    "unexplained, %": plus_minus(100 * (1 - cell.column("explained")), 2),
                    "Disentanglement Score": plus_minus(cell.column("score")),
                }
                for words, cell in cells
                if len(cell)
            ]
        return rows


def measured(model: Autoencoder, world: World) -> Row:
    """Orientation of a decoder of two latents, whatever their scale, and how well held-out examples come back."""
    rep = represent(model, world, count=5000)
    assert rep.factors is not None
    assert rep.index is not None
    x = torch.from_numpy(np.asarray(world.observe(rep.index), dtype=np.float32))
    with torch.no_grad():
        rest = (x - model.generate(torch.from_numpy(rep.mean))).square().sum()
    explained = 1 - float(rest / (x - x.mean(0)).square().sum())
    angles = decoder_orthogonality(model.generate, torch.from_numpy(rep.mean[:EXAMINED]), [0, 1])
    norms = np.sqrt(np.diagonal(angles.grams, axis1=1, axis2=2))
    cosines = np.abs(angles.grams[:, 0, 1]) / norms.prod(axis=1)
    return {
        "distance": angles.value,
        "cosine": float(cosines.mean()),
        "explained": explained,
        "score": neighbour_score(rep.mean, rep.factors).value,
    }


def _objective(job: Job) -> Objective:
    if job["model"] == "ae":
        return AE()
    return BetaVAE(job["beta"]) if job["model"] == "beta-vae" else OrthogonalBetaVAE(job["beta"], CONTROL)
