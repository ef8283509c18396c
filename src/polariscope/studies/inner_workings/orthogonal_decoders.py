"""Which posteriors make a decoder orthogonal, and what that does for disentanglement (Table 3.3, Figure 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from polariscope.measures.orthogonality import haar_distance
from polariscope.report.figures import LIGHT, styled
from polariscope.studies.inner_workings.alignment_tasks import alignment, decoder_distance, task
from polariscope.studies.published import DISENTANGLEMENT, ORTHOGONALITY
from polariscope.studies.rows import plus_minus
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
SNAPSHOTS = 5  # of which the 1st, 3rd and last are the published 10, 30 and 50 epochs


@studies.register("orthogonal-decoders")
@dataclass(frozen=True)
class OrthogonalDecoders(Study):
    """Distance to orthogonality and Disentanglement Score of diagonal, full and point posteriors."""

    title = "Orthogonal decoders and disentanglement"
    source = "Rolinek, Zietlow and Martius 2019; Zietlow's dissertation (2022), section 3.3.3, table 3.3, figure 3.4"
    question = "Does the diagonal posterior make the decoder orthogonal, and do orthogonal decoders disentangle?"
    cost = {"smoke": "2 s", "laptop": "20 minutes", "paper": "weeks"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        tasks = ("blobs",) if scale == "smoke" else tuple(MODELS)
        trained: list[Job] = [
            {"scale": scale, "task": name, "model": model, "seed": seed}
            for name in tasks
            for model in MODELS[name]
            for seed in range(SEEDS[scale])
        ]
        return trained + [{"scale": scale, "task": name, "model": "random"} for name in tasks]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        chosen = task(job["task"], job["scale"])
        settings = {key: value for key, value in job.items() if key != "scale"}
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

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        final = table.where(share=1.0)
        claims = [_most_orthogonal(name, final.where(task=name)) for name in final.distinct("task")]
        claims += [_like_random(final)]
        return [*claims, _correlated(_scatter(table))]

    def beside(self, table: Table) -> list[Row]:
        final = table.where(share=1.0)
        rows = []
        for name in (n for n in MODELS if n in final.distinct("task")):
            for score, published in (("score", DISENTANGLEMENT), ("distance", ORTHOGONALITY)):
                if name == "mnist" and score == "score":
                    continue
                row: Row = {"data": STANDS_FOR[name], "score": {"score": "DS", "distance": "DtO"}[score]}
                for model in ("beta-vae", "vae", "ae", "full-beta-vae", "random"):
                    here = final.where(task=name, model=model).column(score)
                    row[f"{model} published"] = published.get(name, {}).get(model, "-")
                    row[f"{model} here"] = plus_minus(here) if len(here) else "-"
                rows.append(row)
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"distance-score": _scatter_figure(_scatter(table)), "distances": _bars(table.where(share=1.0))}


def _untrained(job: Job) -> list[float]:
    """Distances of freshly drawn decoders of the same architecture."""
    chosen = task(job["task"], job["scale"])
    codes = np.random.default_rng(0).standard_normal((100, chosen.latents))
    return [decoder_distance(build_model(chosen.config("ae", seed)), codes) for seed in range(10)]


def _most_orthogonal(name: str, final: Table) -> Claim:
    diagonal = "vae" if name == "mnist" else "beta-vae"
    distances = {m: final.where(model=m).column("distance") for m in (diagonal, "ae", "full-beta-vae")}
    published = ORTHOGONALITY.get(name, {})
    known = all(len(values) for values in distances.values())
    means = {m: float(values.mean()) for m, values in distances.items() if len(values)}
    return Claim(
        f"{STANDS_FOR[name]}: the diagonal posterior has the most orthogonal decoder",
        "; ".join(f"{m} {published[m]}" for m in distances if m in published) or "not in the work (Spec 003, R5)",
        "; ".join(f"{m} {plus_minus(values)}" for m, values in distances.items() if len(values)),
        means[diagonal] < min(means["ae"], means["full-beta-vae"]) if known else None,
        "" if known else "some models have fewer than two latents in use",
    )


def _like_random(final: Table) -> Claim:
    """Whether autoencoders and full covariances lie where randomly turned decoders do."""
    texts, ratios = [], []
    for name in final.distinct("task"):
        rows = final.where(task=name)
        turned = np.concatenate([rows.where(model=m).column("distance") for m in ("ae", "full-beta-vae")])
        latents = [r["active"] for r in rows.rows if r["model"] in ("ae", "full-beta-vae")]
        if len(turned) and min(latents) == max(latents):
            haar = haar_distance(latents[0])
            ratios.append(turned.mean() / haar.mean)
            texts.append(f"{name} {turned.mean():.2f} of {haar.mean:.2f}")
    return Claim(
        "Autoencoders and full covariances are turned at random",
        "their distances cluster at that of a random rotation, 1.63 for 5 latents (Spec 003, E3.2)",
        "; ".join(texts) or "no task with as many latents in use everywhere",
        bool(np.all(np.array(ratios) > 0.6)) if ratios else None,
    )


def _correlated(scatter: Table) -> Claim:
    """Whether distance and score fall and rise together, beyond what chance does."""
    text = "Over restarts and stages of training, the more orthogonal the decoder the more disentangled the code"
    published = "figure 3.4: clearly correlated on dSprites"
    if len(scatter) < 6:
        return Claim(text, published, f"{len(scatter)} models", None, "too few models")
    found = spearmanr(scatter.column("distance"), scatter.column("score"), alternative="less")
    measured = f"Spearman {found.statistic:.2f} (p = {found.pvalue:.2g}) over {len(scatter)} beta-VAEs"
    weak = found.statistic < 0 and found.pvalue > 0.05
    return Claim(
        text,
        published,
        f"{measured} on {STANDS_FOR[scatter.rows[0]['task']]}",
        None if weak else bool(found.statistic < 0),
        "too weak to tell from chance" if weak else "",
    )


def _scatter(table: Table) -> Table:
    """The beta-VAEs that Figure 3.4 shows: on sprites, or on what the smoke scale has."""
    name = "dsprites" if "dsprites" in table.distinct("task") else table.distinct("task")[0]
    rows: list[dict[str, Any]] = table.where(task=name, model="beta-vae").rows
    return Table([row for row in rows if row.get("distance") is not None])


@styled
def _scatter_figure(table: Table) -> Figure:
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    for share, marker in ((0.2, "^"), (0.6, "s"), (1.0, "o")):
        part = table.where(share=share)
        axes.scatter(part.column("distance"), part.column("score"), marker=marker, s=26, label=f"{share:.0%} of it")
    axes.set_xlabel("distance to orthogonality")
    axes.set_ylabel("Disentanglement Score")
    axes.legend(title="training")
    return figure


@styled
def _bars(final: Table) -> Figure:
    """Every restart a dot: a mean of two modes would hide both."""
    names = [name for name in MODELS if name in final.distinct("task")]
    figure = Figure(figsize=(1.2 + 2.0 * len(names), 3), layout="constrained")
    grid = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(grid, names, strict=True):
        shown = [
            m for m in ("beta-vae", "vae", "ae", "full-beta-vae", "random") if len(final.where(task=name, model=m))
        ]
        for at, model in enumerate(shown):
            values = final.where(task=name, model=model).column("distance")
            axes.scatter(np.full(len(values), at), values, s=18, alpha=0.7, color=LIGHT["active"])
            published = ORTHOGONALITY.get(name, {}).get(model)
            if published:
                axes.plot([at - 0.3, at + 0.3], [published.mean] * 2, color=LIGHT["ink"], linewidth=1.2)
        axes.set_xticks(range(len(shown)), shown, rotation=35, ha="right")
        axes.set_title(name)
        axes.set_ylim(bottom=0)
    grid[0].set_ylabel("distance to orthogonality\n(line: published)")
    return figure
