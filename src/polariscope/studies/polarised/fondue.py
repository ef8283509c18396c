"""How many latents: FONDUE and its relatives on data of known spectrum, on sprites, and against the elbow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from polariscope.dimension.elbow import Classifier, CurvePoint, elbow, elbow_curves, mean_curve
from polariscope.dimension.figures import elbow_figure
from polariscope.dimension.search import Step
from polariscope.dimension.trained import DimensionProbe, Reading, search_dimension
from polariscope.nets.architecture import Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.autoencoder import AE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.dip_vae import DIPVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.vae import VAE
from polariscope.report.figures import LIGHT, panels, styled
from polariscope.studies.criteria import Alike, All, AtLeast, Beats, Flat, Near, Rises
from polariscope.studies.kit import Scatter
from polariscope.studies.polarised.settings import published_run, toy_run
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.linear_vae import trace_gaps
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import Progress, load_model, paced
from polariscope.worlds.points.synthetic import Gaussian, RandomDecoder
from polariscope.worlds.renderers.sprites import Sprites
from polariscope.worlds.splits import RandomSplit

SPECTRUM = (5.0, 3.0, 1.5, 0.8, 0.3, 0.1)
GAMMA = 0.5
SEEDS = {"smoke": 1, "laptop": 5, "overnight": 1, "paper": 10}
TOY_STEPS = {"smoke": 15, "laptop": 3000, "paper": 8000}  # at paper scale of random decoders only
# At a rate of 0.02 falling to nothing: theory is about the optimum, so it has to be reached.
LINEAR_STEPS = {"smoke": 15, "laptop": 6000, "paper": 6000}
SPRITE_STEPS, ELBOW_STEPS = 2500, 7500  # a model of the search, and one that counts as fully trained
AS_PUBLISHED: tuple[Scale, ...] = ("overnight", "paper")
LINEAR_BETAS = (0.1, 1.0)
BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)
LAMBDAS = (0.5, 1.0, 2.0, 4.0)
STARTS = (2, 5, 12, 25)
PUBLISHED: dict[tuple[str, object], str] = {
    ("toy", "FONDUE"): "10.9 ± 0.7",
    ("sprites", "FONDUE"): "10.9 ± 0.7",
    ("toy", "FONDUE_IB"): "15.7",
    ("toy", "FONDUE_IDE"): "10.1",
    ("toy", "BS_FONDUE"): "11.3",
    **{("beta", beta): n for beta, n in {0.5: "13.6", 1.0: "10.9", 2.0: "7.4", 4.0: "6.3"}.items()},
    **{("lambda", strength): n for strength, n in {0.5: "10.2", 1.0: "9.5", 2.0: "7.9", 4.0: "8.1"}.items()},
}
"""Tables 8.1 to 8.3 and D.5, on dSprites."""
TOY = (1, 2, 3, 4, 5, 6, 8, 10)
ELBOW_TOY = {"smoke": (1, 2, 4), "laptop": TOY}
ELBOW_SPRITES = (3, 6, 8, 10, 12, 18)


@studies.register("fondue")
class Fondue(Study):
    """FONDUE, its IB, IDE and binary-search variants, sweeps over start, beta and lambda, and elbow curves."""

    title = "Finding the number of latents with short trainings"
    source = "Bonheme, The polarised regime of variational autoencoders (2023), chapter 8, tables 8.1-8.8, D.5"
    question = "Does the trace gap of short trainings find the number of latents that full trainings need?"
    cost = {"smoke": "3 s", "laptop": "an hour and a half", "overnight": "3 to 5 core hours", "paper": "weeks"}
    scales = ("smoke", "laptop", "overnight", "paper")
    drawn = {
        "intrinsic-dimensions": Scatter("intrinsic_dimension", against="latents", by="of"),
        "trace-curves": Scatter(
            "trace_gap",
            against="latents",
            by="part",
            colours={"toy": "active", "sprites": "mixed"},
            guides={"threshold": 1},
        ),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        seeds = range(SEEDS[scale])
        small = scale == "smoke"
        if scale == "overnight":
            return [{"scale": scale, "part": "sprites", "seed": s} for s in seeds]
        jobs: list[Job] = []
        if not small:  # the longest first, so that no core waits for another at the end
            jobs += [{"part": "elbow-sprites", "seed": s} for s in seeds[: None if scale == "paper" else 1]]
            jobs += [{"part": "sprites", "seed": s} for s in seeds]
        jobs += [{"part": "linear", "beta": beta, "seed": s} for beta in LINEAR_BETAS for s in seeds]
        jobs += [
            {"part": "toy", "statistic": statistic, "method": method, "seed": s}
            for statistic, method in (("trace", "fondue"), ("ib", "fondue"), ("ide", "fondue"), ("trace", "binary"))[
                : 1 if small else None
            ]
            for s in seeds
        ]
        jobs += [{"part": "beta", "beta": beta, "seed": s} for beta in (BETAS[1::3] if small else BETAS) for s in seeds]
        if not small:
            jobs += [{"part": "lambda", "lambda": strength, "seed": s} for strength in LAMBDAS for s in seeds]
            jobs += [{"part": "start", "start": start, "seed": s} for start in STARTS for s in seeds]
            jobs += [{"part": "random-decoder", "dimension": d, "seed": s} for d in (3, 8, 20) for s in seeds]
        jobs += [{"part": "elbow-toy", "objective": kind, "seed": s} for kind in ("vae", "ae") for s in seeds]
        return [{"scale": scale, **job} for job in jobs]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        scale: Scale = job["scale"]
        settings = {key: value for key, value in job.items() if key != "scale"}
        if job["part"].startswith("elbow"):
            return [{**settings, **asdict(point)} for point in _elbow(job, scale, bench)]
        statistic = job.get("statistic", "trace")
        kind = partial(StoredProbe, bench=bench) if scale in AS_PUBLISHED else DimensionProbe
        probe = kind(_config(job, scale), statistics=(statistic,), examples=2000)

        def read(latents: int) -> Reading:
            return probe(latents, listeners=_listeners(bench, probe.config.training.steps))

        # The published searches start from the data's intrinsic dimension, 11 for dSprites.
        published = job["part"] == "sprites" or scale == "paper"
        start: int = job.get("start") or job.get("dimension") or (11 if published else 4)
        found = search_dimension(read, start, statistic, method=job.get("method", "fondue"), cap=64)
        readings = [(r.latents, round(r.gap(statistic), 3)) for r in found.readings]
        row = {
            "algorithm": found.algorithm,
            "answer": found.answer,
            "trusted": found.trusted,
            "saturated": found.saturated,
            "models": found.models,
            "steps": found.steps,
            "seconds": found.seconds,
            "visited": list(found.search.visited),
            "log": [_look(step) for step in found.search.log],
            "readings": readings,
            "ide": [(r.latents, r.ide_mean, r.ide_sample) for r in found.readings] if statistic == "ide" else None,
        }
        return [{**settings, **row}]

    def claims(self, scale: Scale) -> list[Claim]:
        toy, sprites = {"part": "toy"}, {"part": "sprites"}
        default, ib, ide = ({"algorithm": name} for name in ("FONDUE", "FONDUE_IB", "FONDUE_IDE"))
        trust = "answer's trust in its deciding models (0, 1)"

        def at_elbow(where: Row, column: str = "elbow", of: str = "fully trained VAEs") -> Near:
            # Spec 002, section 17.3 allows for 2.
            return Near("answer", column, by=2, where=where, called="answer", to=f"the elbow of {of}", digits=1)

        return [
            Claim(
                "On linear Gaussian data FONDUE finds the predicted number of latents",
                "; ".join(f"beta {beta:g}: {_linear_answer(beta)}" for beta in LINEAR_BETAS)
                + " (Spec 002, section 5.5)",
                Near("answer", "theory", by=0, of="every", where={"part": "linear"}, to="what theory says", digits=0),
            ),
            Claim(
                "A larger beta needs fewer latents",
                "table 8.2: 13.6, 7.4, 6.3 on dSprites for beta 0.5, 2, 4; table 8.1: 10.9 for beta 1",
                Rises("answer", "beta", by=1, slack=0.5, falls=True, where={"part": "beta"}, digits=1),
            ),
            Claim(
                "FONDUE lies at the elbow of fully trained VAEs (toy sprites)",
                "figure 8.5: at the elbow for dSprites and CelebA",
                at_elbow(toy | default),
            ),
            Claim(
                "The same number suits deterministic autoencoders",
                "figure 8.6",
                at_elbow(toy | default, "elbow_ae", "fully trained autoencoders"),
            ),
            Claim(
                "FONDUE on dSprites with the conv architecture",
                "10.9 ± 0.7 (table 8.1: 64x64, lr 1e-4, 2 epochs of 11,520 steps a model)",
                Near("answer", 10.9, by=2, where=sprites, to="the published", digits=1),
                provided=AtLeast("trusted", 1, of="every", where=sprites, called=trust),
                note="" if scale in AS_PUBLISHED else f"on 32x32 sprites, at lr 1e-3 with {SPRITE_STEPS} steps a model",
            ),
            Claim(
                "FONDUE on sprites lies at the elbow of trained conv VAEs on the same machine",
                "figure 8.5",
                at_elbow(sprites),
            ),
            Claim(
                "The starting point of the search does not change the answer",
                "tables 8.4-8.6: within 1.1 of each other",
                Flat("answer", "start", by=1.1, where={"part": "start"}, digits=1),
            ),
            Claim(
                "A larger lambda of DIP-VAE II needs fewer latents",
                "table 8.3: 10.2, 9.5, 7.9, 8.1 on dSprites",
                Rises("answer", "lambda", by=1, slack=0.5, falls=True, where={"part": "lambda"}, digits=1),
            ),
            Claim(
                "Binary search over a range gives the same as FONDUE",
                "table D.5: 11.3 against 10.9",
                Alike("answer", {"algorithm": "BS_FONDUE"}, default, by=1, where=toy, digits=1),
            ),
            Claim(
                "The IB variant finds more latents, the IDE variant about as many",
                "table 8.1: 15.7 and 10.1 against 10.9 on dSprites",
                All(
                    Beats("answer", ib, default, by=1, where=toy, digits=1),
                    Alike("answer", ide, default, by=2, where=toy, digits=1),
                ),
            ),
            Claim(
                "On random decoders the number of latents grows with the dimension of the data",
                "not in the work; data of known dimension in place of CelebA",
                Rises("answer", "dimension", by=1, where={"part": "random-decoder"}, digits=1),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Answers beside what theory says and where the curves of full trainings bend."""
        curves = table.where(part="elbow-toy")
        elbows = {
            "toy": {"elbow": _knee(curves.where(objective="vae")), "elbow_ae": _knee(curves.where(objective="ae"))},
            "sprites": {"elbow": _knee(table.where(part="elbow-sprites"))},
        }
        linear = [row | {"theory": _linear_answer(row["beta"])} for row in table.where(part="linear").rows]
        return Table(linear + [row | elbows.get(row["part"], {}) for row in table.rows if row["part"] != "linear"])

    def beside(self, table: Table) -> list[Row]:
        """Answer, cost and number of models of every search, as in the published tables."""
        rows: list[Row] = []
        searches = Table([row for row in table.rows if not row["part"].startswith("elbow")])
        settings = {"toy": "algorithm", "sprites": "algorithm", "random-decoder": "dimension", "linear": "beta"}
        for part in dict.fromkeys(row["part"] for row in searches.rows):
            setting = settings.get(part, part)
            for value, group in searches.where(part=part).by(setting):
                saturated = " (saturated)" if group.column("saturated").any() else ""
                rows.append(
                    {
                        "data": part,
                        "setting": value if isinstance(value, str) else f"{setting} {value:g}",
                        "latents published (dSprites)": PUBLISHED.get((part, value), "-"),
                        "latents here": plus_minus(group.column("answer"), 1) + saturated,
                        "models": plus_minus(group.column("models"), 1),
                        "steps a model": f"{group.mean('steps'):.0f}",
                        "seconds": plus_minus(group.column("seconds"), 0),
                    }
                )
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        figures = {"search-paths": _path_figure(table)} | super().figures(Table(list(_visited(table))))
        for part, searched in (("elbow-toy", "toy"), ("elbow-sprites", "sprites")):
            points = [_point(row) for row in table.where(part=part).rows]
            if points:
                answers = table.where(part=searched).by("algorithm")
                figures[part] = elbow_figure(points, {name: group.mean("answer") for name, group in answers})
        return figures


@dataclass(frozen=True)
class StoredProbe(DimensionProbe):
    """Trains its models as runs of the bench, so that a search of hours continues where it was interrupted."""

    bench: Bench = field(kw_only=True)

    def train(self, config: RunConfig, listeners: Listeners | None = None) -> Autoencoder:
        return load_model(self.bench.train(config))


def _config(job: Job, scale: Scale) -> RunConfig:
    """What is trained in a job."""
    seed, steps = job["seed"], TOY_STEPS.get(scale, 0)
    match job["part"]:
        case "linear":
            model = AutoencoderConfig(6, Linear(), "constant", "gaussian", GAMMA)
            training = TrainingConfig(LINEAR_STEPS[scale], 128, 2e-2, schedule="linear", seed=seed, evaluate_every=0)
            world = Gaussian(spectrum=SPECTRUM, exact=True)
            return RunConfig(world, BetaVAE(job["beta"]), model, training, RandomSplit(0.0))
        case "random-decoder":
            toy = toy_run(VAE(), seed, steps)
            assert isinstance(toy.model, AutoencoderConfig)
            model = replace(toy.model, likelihood="gaussian", variance=0.02)
            return replace(toy, world=RandomDecoder(dimension=job["dimension"]), model=model)
        case "sprites":
            return _sprites(VAE(), seed, scale)
    objective: Objective = VAE()
    if job["part"] == "beta":
        objective = BetaVAE(job["beta"])
    if job["part"] == "lambda":
        objective = DIPVAE("II", job["lambda"], job["lambda"])
    return _sprites(objective, seed, scale) if scale == "paper" else toy_run(objective, seed, steps)


def _sprites(objective: Objective, seed: int, scale: Scale, steps: int = SPRITE_STEPS) -> RunConfig:
    """The conv architecture on sprites: as published at paper scale, else at half the side and ten times the rate."""
    if scale in AS_PUBLISHED:
        return published_run(objective, seed, steps=2 * 11_520)
    config = published_run(objective, seed, steps=steps)
    return replace(config, world=Sprites(size=32), training=replace(config.training, learning_rate=1e-3))


def _elbow(job: Job, scale: Scale, bench: Bench) -> list[CurvePoint]:
    """Fully trained models at several numbers of latents."""
    objective: Objective = AE() if job.get("objective") == "ae" else VAE()
    if scale == "paper":
        config, ns = published_run(objective, job["seed"]), list(ELBOW_SPRITES)
    elif job["part"] == "elbow-toy":
        config, ns = toy_run(objective, job["seed"], 2 * TOY_STEPS[scale]), list(ELBOW_TOY[scale])
    else:
        config, ns = _sprites(objective, job["seed"], scale, ELBOW_STEPS), list(ELBOW_SPRITES)
    done = itertools.count(1)

    def tell(point: CurvePoint) -> None:
        bench.tell(Progress(next(done), len(ns), point.reconstruction))

    # Logistic regression reads the labels in seconds where the published boosted trees take many minutes.
    kind: Classifier = "boosted_trees" if scale == "paper" else "logistic"
    return elbow_curves(config, ns, (job["seed"],), kind=kind, examples=2000, tell=tell)


def _listeners(bench: Bench, steps: int) -> Listeners:
    return Listeners(step=paced(bench.tell, steps))


def _linear_answer(beta: float) -> int:
    """The largest n whose closed-form trace gap is at most 1."""
    gaps = trace_gaps(SPECTRUM, 12, GAMMA, beta)
    return int(np.flatnonzero(gaps <= 1)[-1]) + 1


def _look(step: Step) -> Row:
    """A look of a search for JSON, which knows no infinity: no upper bound is None."""
    return asdict(step) | {"upper": step.upper if math.isfinite(step.upper) else None}


def _knee(table: Table) -> int | None:
    """The elbow of the reconstruction curve; None where there is no curve, or it has none."""
    points = [_point(row) for row in table.rows]
    try:
        return elbow(*mean_curve(points, points[0].objective, "reconstruction")) if points else None
    except ValueError:
        return None


def _point(row: Row) -> CurvePoint:
    names: list[str] = list(CurvePoint.__dataclass_fields__)
    values: dict[str, Any] = {name: row[name] for name in names}
    return CurvePoint(**values)


def _visited(table: Table) -> Iterator[Row]:
    """The models that searches visited: trace gaps, and intrinsic dimensions, which are together while all latents are
    in use, then apart."""
    for row in table.rows:
        if row["part"] in ("toy", "sprites") and row["algorithm"] in ("FONDUE", "BS_FONDUE"):
            yield from ({"part": row["part"], "latents": n, "trace_gap": gap} for n, gap in row["readings"])
        for n, *dimensions in row.get("ide") or ():
            for of, dimension in zip(("means", "samples"), dimensions, strict=True):
                yield {"of": of, "latents": n, "intrinsic_dimension": dimension}


@styled
def _path_figure(table: Table) -> Figure:
    """How searches closed in: the n asked at each look between the bounds known before it."""
    part = "sprites" if len(table.where(part="sprites")) else "toy"
    rows = table.where(part=part, algorithm="FONDUE").rows[:3]
    figure, places = panels(max(1, len(rows)), 2.4, 2.6, (0.6, 0.0), sharey=True)
    for axes, row in zip(places, rows, strict=False):
        log = row["log"]
        looks, uppers = range(1, len(log) + 1), [look["upper"] or 2 * look["n"] for look in log]
        axes.vlines(looks, [look["lower"] for look in log], uppers, color=LIGHT["passive"], linewidth=5)
        axes.plot(looks, [look["n"] for look in log], "o-", color=LIGHT["active"])
        axes.axhline(row["answer"], linestyle="--", linewidth=1, color=LIGHT["ink"])
        axes.set(title=f"{part}, seed {row['seed']}: {row['answer']}", xlabel="look")
    figure.axes[0].set_ylabel("latents, and bounds")
    return figure
