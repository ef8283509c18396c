"""Which posteriors make a decoder orthogonal, and what that does for disentanglement (Table 3.3, Figure 3.4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import cache

import numpy as np
from matplotlib.figure import Figure

from polariscope.measures.orthogonality import haar_distance
from polariscope.studies.criteria import Beats, Between, Correlates
from polariscope.studies.inner_workings.alignment_tasks import (
    alignment,
    decoder_distance,
    lengths,
    settings_of,
    task,
)
from polariscope.studies.kit import Panels, Restarts, Scatter, in_order
from polariscope.studies.published import published
from polariscope.studies.rows import groups, means
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.training.run import build_model, load_model

SEEDS = {"smoke": 1, "laptop": 5, "paper": 10}
MODELS = {
    "square-linear": ("beta-vae", "ae", "full-beta-vae"),
    "square-nonlinear": ("beta-vae", "ae", "full-beta-vae"),
    "blobs": ("beta-vae", "ae", "full-beta-vae"),
    "dsprites": ("beta-vae", "vae", "ae", "full-beta-vae"),
    "mnist": ("vae", "ae", "full-beta-vae"),
}
"""No beta was chosen for digits, and a beta of 1 prunes the synthetic tasks away."""
STANDS_FOR = {
    "square-linear": "Synth. Lin.",
    "square-nonlinear": "Synth. Non-Lin.",
    "blobs": "Gaussian blobs (not in the work)",
    "dsprites": "dSprites (here 12x12 sprites)",
    "mnist": "MNIST (here procedural digits)",
}
OTHERS = ("ae", "full-beta-vae")
"""Models that nothing keeps from turning their latents."""
COMPARED = ("beta-vae", "vae", *OTHERS, "random")
PRINTED = published("inner_workings/orthogonality").rows
SNAPSHOTS = 5  # of which the 1st, 3rd and last are the published 10, 30 and 50 epochs


def published_distance(row: Row) -> float | None:
    """The published mean distance of the model of a row on its task."""
    cell = PRINTED.get(f"{row['task']} DtO", {}).get(row["model"])
    return cell.mean if cell else None


@studies.register("orthogonal-decoders")
class OrthogonalDecoders(Study):
    """Distance to orthogonality and Disentanglement Score of diagonal, full and point posteriors."""

    title = "Orthogonal decoders and disentanglement"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.3, table 3.3, figure 3.4"
    question = "Does the diagonal posterior make the decoder orthogonal, and do orthogonal decoders disentangle?"
    cost = {"smoke": "2 s", "laptop": "20 minutes", "paper": "weeks"}
    training_lengths = lengths(MODELS)
    drawn = {
        "distances": Panels(
            (
                Restarts(
                    "distance",
                    "model",
                    called="distance to orthogonality\n(line: published)",
                    names=in_order(COMPARED),
                    colours=dict.fromkeys(COMPARED, "active"),
                    line=published_distance,
                    tilt=35,
                    from_zero=True,
                ),
            ),
            each="task",
            where={"share": 1.0},
            names=in_order(MODELS),
            width=2.0,
            height=3,
        )
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        tasks = _tasks(scale)
        trained: list[Job] = [
            {"scale": scale, "task": name, "model": model, "seed": seed}
            for name in tasks
            for model in MODELS[name]
            for seed in range(SEEDS[scale])
        ]
        return trained + [{"scale": scale, "task": name, "model": "random"} for name in tasks]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        chosen = task(job["task"], job["scale"])
        settings = settings_of(job)
        if job["model"] == "random":
            return [settings | {"share": 1.0, "distance": value} for value in _untrained(job)]
        run = bench.train(chosen.config(job["model"], job["seed"], snapshots=SNAPSHOTS))
        rows = []
        for step in sorted(run.snapshots()):
            share = round(step / chosen.training.steps, 2)
            if share in (0.2, 0.6, 1.0):
                found = alignment(load_model(run, step), chosen.held_out)
                rows.append(settings | {"share": share, **asdict(found)})
        return rows

    def claims(self, scale: Scale) -> list[Claim]:
        return [
            *(_most_orthogonal(name) for name in _tasks(scale)),
            Claim(
                "Autoencoders and full covariances have random orientations",
                "their distances cluster at that of a random rotation, 1.63 for 5 latents (Spec 003, E3.2); "
                "the published ones are 0.6 to 1.06 of it",
                Between("of_random", 0.6, 1.4, each="task", called="distance as a share of a random rotation's"),
            ),
            Claim(
                "Over restarts and stages of training, the more orthogonal the decoder the more disentangled the code",
                "figure 3.4: clearly correlated on dSprites",
                Correlates("distance", "score", -0.3, where={"task": _shown(_tasks(scale)), "model": "beta-vae"}),
            ),
        ]

    def readings(self, table: Table) -> Table:
        nearest = {name: _nearest(group) for name, group in table.where(share=1.0).by("task")}

        def read(row: Row) -> Row:
            if row["share"] < 1 or row.get("distance") is None:
                return row
            roles = {_diagonal(row["task"]): "diagonal", nearest[row["task"]]: "nearest other"}
            turned = row["model"] in OTHERS and row["active"] > 1
            share = row["distance"] / _random_distance(row["active"]) if turned else None
            return row | {"posterior": roles.get(row["model"]), "of_random": share}

        return Table([read(row) for row in table.rows])

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for name, of_task in groups(table.where(share=1.0), "task", MODELS):
            for score, title in (("score", "DS"), ("distance", "DtO")):
                if (name, score) == ("mnist", "score"):
                    continue
                row: Row = {"data": STANDS_FOR[name], "score": title}
                for model in COMPARED:
                    row[f"{model} published"] = PRINTED.get(f"{name} {title}", {}).get(model, "-")
                    row |= means(of_task.where(model=model), {f"{model} here": score})
                rows.append(row)
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        scatter = Scatter(
            "score",
            "distance",
            by="share",
            where={"task": _shown(table.distinct("task")), "model": "beta-vae"},
            called="Disentanglement Score",
            along="distance to orthogonality",
            names={share: f"{share:.0%} of the training" for share in (0.2, 0.6, 1.0)},
        ).draw(table)
        return super().figures(table) | ({"distance-score": scatter} if scatter else {})


def _untrained(job: Job) -> list[float]:
    """Distances of freshly drawn decoders of the same architecture."""
    chosen = task(job["task"], job["scale"])
    codes = np.random.default_rng(0).standard_normal((100, chosen.latents))
    return [decoder_distance(build_model(chosen.config("ae", seed)), codes) for seed in range(10)]


def _tasks(scale: Scale) -> tuple[str, ...]:
    return ("blobs",) if scale == "smoke" else tuple(MODELS)


def _diagonal(name: str) -> str:
    return "vae" if name == "mnist" else "beta-vae"


def _most_orthogonal(name: str) -> Claim:
    printed = PRINTED.get(f"{name} DtO", {})
    sides = ({"posterior": "diagonal"}, {"posterior": "nearest other"})
    distance = "distance to orthogonality"
    return Claim(
        f"{STANDS_FOR[name]}: the diagonal posterior has the most orthogonal decoder",
        "; ".join(f"{m} {printed[m]}" for m in (_diagonal(name), *OTHERS) if m in printed)
        or "not in the work (Spec 003, R5)",
        Beats("distance", *sides, by=0.1, higher=False, where={"task": name}, called=distance),
    )


def _nearest(final: Table) -> str | None:
    """The model beside the diagonal one whose decoder is the more orthogonal; None if one could not be measured."""
    distances = {model: final.where(model=model).column("distance") for model in OTHERS}
    return min(OTHERS, key=lambda model: distances[model].mean()) if all(map(len, distances.values())) else None


@cache
def _random_distance(latents: int) -> float:
    return haar_distance(latents).mean


def _shown(names: Collection[str]) -> str:
    """The task that Figure 3.4 shows: sprites, or what the smoke scale has."""
    return "dsprites" if "dsprites" in names else next(iter(names))
