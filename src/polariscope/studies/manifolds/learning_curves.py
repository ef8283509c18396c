"""Study: how fast the test error falls with the data, with and without learned features (Figures 2 and 7).

A kernel that does not move pays for all directions, a network that shrinks those the labels ignore for few of them. If
that is all there is to it, a kernel on data shrunk by the same Λ* must do as well, and so must the kernel the network
ends with. (Spec 004, sections 6.1, 7, E2 and E7, and 9.1.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.frozen import INFINITE_WIDTH, NetKernel, learn_frozen
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats, Between, PowerLaw
from polariscope.studies.kit import Panels
from polariscope.studies.manifolds.power_laws import ASYMPTOTIC, STEEPER, curve, fitted, log_log, power
from polariscope.studies.manifolds.stripe_nets import (
    ALPHA,
    DATA,
    INFORMATIVE,
    SOURCE,
    Grid,
    draw,
    groups,
    named,
    quotient,
    start_of,
    trained,
    world_of,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.learning_exponents import compression_exponent, feature_exponent, lazy_exponent
from polariscope.worlds.points.stripes import compress

LEARNERS = {
    "feature": "network",
    "lazy": "lazy kernel, infinite width",
    "start": "lazy kernel, the network's width",
    "compressed": "the same on compressed data",
    "end": "kernel of the trained network",
}
FACTORS = (1, 2, 4, 8, 16)
LARGE = 215
"""Points from which on the cylinder's learners are compared, and kernels of the stripe: the gain comes late."""


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; ``kernel_steps`` are those of a kernel's flow."""

    groups: tuple[tuple[str, int], ...]
    grids: dict[str, Grid]
    width: int
    momentum: float
    kernel_steps: int
    test: int
    gain_points: int


GROUPS = (("stripe", 5), ("stripe", 10), ("cylinder", 3))
SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(
        groups=(GROUPS[0], GROUPS[2]),
        grids={"stripe": Grid((200, 400), seeds=1, steps=480), "cylinder": Grid((100,), seeds=1, steps=480)},
        width=40,
        momentum=0.97,
        kernel_steps=50,
        test=500,
        gain_points=60,
    ),
    "laptop": Setting(
        groups=GROUPS,
        grids={
            "stripe": Grid((128, 256, 512, 1024, 2048), seeds=7, steps=2500),
            "cylinder": Grid((128, 256, 512, 1024, 2048), seeds=9, steps=2500),
        },
        width=600,
        momentum=0.97,
        kernel_steps=40_000,
        test=20_000,
        gain_points=512,
    ),
    "paper": Setting(
        groups=GROUPS,
        grids={
            "stripe": Grid((128, 256, 512, 1024, 2048, 4096), seeds=20, steps=500_000),
            "cylinder": Grid((128, 256, 512, 1024, 2048, 4096), seeds=9, steps=500_000),
        },
        width=10_000,
        momentum=0.0,
        kernel_steps=1_000_000,
        test=100_000,
        gain_points=512,
    ),
}


@studies.register("learning-curves")
class LearningCurves(Study):
    """Networks and frozen kernels over the number of points, and a kernel over how far its data are compressed."""

    title = "The value of learned features"
    source = f"{SOURCE}, sections 3.1 and 4, figures 2 and 7"
    question = "Does a network that learns features need fewer examples, and is it because it compresses?"
    cost = {"smoke": "2 s", "laptop": "10 minutes", "paper": "weeks"}
    drawn = {
        "learning-curves": Panels(
            (
                log_log(
                    "error",
                    "points",
                    by="learner",
                    names=LEARNERS,
                    called="test error",
                    along="points p",
                    power=lambda row: predicted_exponents(row["task"], row["dimension"]).get(row["learner"]),
                ),
            ),
            each="dimension",
            names=DATA,
            height=3.8,
        ),
        "gain": log_log(
            "error",
            "factor",
            by="dimension",
            where={"part": "gain"},
            names=DATA,
            called="test error of the lazy kernel",
            along="compression Λ",
            power=lambda row: -compression_exponent(row["dimension"], INFORMATIVE[row["task"]]),
        ),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        keys = ("width", "momentum", "kernel_steps", "test")
        common = {"part": "curve", "alpha": ALPHA} | {key: getattr(setting, key) for key in keys}
        gain = {"part": "gain", "points": setting.gain_points, "test": setting.test}
        curves: list[Job] = []
        gains: list[Job] = []
        for task, dimension in setting.groups:
            here, grid = {"task": task, "dimension": dimension}, setting.grids[task]
            for seed in range(grid.seeds):
                curves += [
                    common | here | {"steps": grid.steps, "points": points, "seed": seed} for points in grid.sizes
                ]
                gains.append(gain | here | {"seed": seed})
        return [*sorted(curves, key=lambda job: -job["points"]), *gains]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        return _gain(job) if job["part"] == "gain" else [job | _errors(job)]

    def claims(self, scale: Scale) -> list[Claim]:
        shown = SETTINGS[scale].groups
        last = SETTINGS[scale].grids["stripe"].sizes[-1]
        curves = [claim for task, dimension in shown for claim in _curve_claims(task, dimension)]
        stripes = [claim for task, dimension in shown if task == "stripe" for claim in _stripe_claims(dimension, last)]
        return [*curves, *stripes, *(_gain_claim(task, dimension) for task, dimension in shown)]

    def readings(self, table: Table) -> Table:
        rows = [row | _ratios(row) for row in table.where(part="curve").rows]
        keys = ("task", "dimension", "points", "seed", "large")
        errors = [
            {key: row[key] for key in keys} | {"learner": learner, "error": row.get(learner)}
            for row in rows
            for learner in LEARNERS
        ]
        return Table([*rows, *errors, *_slopes(table.where(part="curve")), *table.where(part="gain").rows])

    def beside(self, table: Table) -> list[Row]:
        rows: list[Row] = []
        for task, dimension, group in groups(table.where(part="curve")):
            predicted = predicted_exponents(task, dimension)
            for learner, words in LEARNERS.items():
                published = f"{predicted[learner]:.3f}" if learner in predicted else "-"
                place = {"task": named(task, dimension), "learner": words, "exponent published": published}
                rows.append(place | fitted(curve(group, learner), ASYMPTOTIC))
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        return super().figures(self.readings(table))


def predicted_exponents(task: str, dimension: int) -> dict[str, float]:
    """Exponents of the error, negative as it falls; compressed by Λ ~ √p the kernel has that of the network."""
    feature, lazy = -feature_exponent(dimension, INFORMATIVE[task]), -lazy_exponent(dimension)
    return {"feature": feature, "lazy": lazy, "start": lazy, "compressed": feature}


def _errors(job: Job) -> Row:
    """Test errors of all learners; the trained network's kernel learns from points that did not train it."""
    world, count, seed = world_of(job), job["points"], job["seed"]
    (x, y), fresh = draw(world, count, seed, "train"), draw(world, count, seed, "fresh")
    test = draw(world, job["test"], seed, "test")
    done = trained(job)
    start, end = NetKernel(start_of(job, torch.float64)), NetKernel(MeanFieldNet(done.end.state.double()))
    most = job["kernel_steps"]
    row: Row = {
        "feature": done.error(*test),
        "lazy": learn_frozen(INFINITE_WIDTH.ntk, x, y, steps=most).error(*test),
        "start": learn_frozen(start, x, y, steps=most).error(*test),
        "end": learn_frozen(end, *fresh, steps=most).error(*test),
        "compressed": None,
        "at_onset": None,
        "at_end": done.end.amplification,
        "active": done.active,
        "steps_taken": done.steps,
    }
    if done.t_star is not None:
        factor, kept = done.t_star.amplification, world.source.informative
        learner = learn_frozen(start, compress(x, kept, factor), y, steps=most)
        row |= {"compressed": learner.error(compress(test[0], kept, factor), test[1]), "at_onset": factor}
    return row


def _gain(job: Job) -> list[Row]:
    """The lazy kernel on one data set, compressed ever more."""
    world = world_of(job)
    (x, y), test = draw(world, job["points"], job["seed"], "train"), draw(world, job["test"], job["seed"], "test")
    kept = world.source.informative
    return [
        job
        | {
            "factor": factor,
            "error": learn_frozen(INFINITE_WIDTH.ntk, compress(x, kept, factor), y).error(
                compress(test[0], kept, factor), test[1]
            ),
        }
        for factor in FACTORS
    ]


def _ratios(row: Row) -> Row:
    """Errors of learners of the same points over each other."""
    pairs = (("feature", "lazy"), ("end", "start"), ("end", "feature"), ("compressed", "feature"))
    return {"large": row["points"] >= LARGE} | {f"{a}_over_{b}": quotient(row, a, b) for a, b in pairs}


def _curve_claims(task: str, dimension: int) -> Iterator[Claim]:
    name, here, stripe = named(task, dimension), {"task": task, "dimension": dimension}, task == "stripe"
    figure = "figure 2" if stripe else "figure 7"
    exponents = predicted_exponents(task, dimension)
    lazy, feature = exponents["lazy"], exponents["feature"]

    def falls(text: str, column: str, predicted: float, rival: float, of: str = "", **learner: str) -> Claim:
        """A power of the number of points."""
        law = PowerLaw(column, "points", predicted, rival, smallest=ASYMPTOTIC, where=here | learner)
        return Claim(f"{text} ({name})", f"{figure}, slope{of}: {predicted:.3f}", law, note=STEEPER)

    yield Claim(
        f"A network that learns features beats the lazy kernel ({name})",
        f"{figure}: at every number of points" if stripe else "figure 7; for p ≥ 215 (Spec 004, F68)",
        _better("feature", "lazy", here if stripe else here | {"large": True}, each="points"),
    )
    formula = "(2d − 1)/(3d − 2)" if stripe else "(d + d⊥/2)/(3d − 2)"
    yield falls("Lazy: β = d/(3d − 2)", "error", lazy, feature, learner="lazy")
    yield falls(f"Feature: β = {formula}", "error", feature, lazy, learner="feature")
    # The two learn from the same points, so that the exponent of their ratio is surer than the difference of exponents.
    lead = "The lead of the network grows with the number of points"
    yield falls(lead, "feature_over_lazy", feature - lazy, 0.0, of=" of the ratio of errors")
    yield Claim(
        f"The slopes differ, and each lies in its band ({name})",
        "Spec 004, section 12.14: feature 0.5 to 0.95, lazy 0.3 to 0.6, 0.1 apart at least",
        All(
            Between("lazy_slope", 0.3, 0.6, where=here, called="slope of the lazy kernel"),
            Between("feature_slope", 0.5, 0.95, where=here, called="slope of the network"),
            AtLeast("slope_lead", 0.1, where=here, called="difference of the slopes"),
        ),
    )


def _better(learner: str, other: str, where: Row, each: str = "") -> Beats:
    """An error that is lower by a twentieth."""
    lower: dict[str, Any] = {"higher": False, "relative": True, "called": "test error", "digits": 4}
    return Beats("error", {"learner": learner}, {"learner": other}, by=0.05, where=where, each=each, **lower)


def _slopes(table: Table) -> Iterator[Row]:
    """How fast the errors of each seed fall with the number of points, where no error is zero."""
    for task, dimension, group in groups(table):
        for seed, own in group.by("seed"):
            rows = [row for row in own.rows if row["points"] >= ASYMPTOTIC and row["feature"] and row["lazy"]]
            if len(rows) > 2:
                lazy, feature = (-power(Table(rows), learner) for learner in ("lazy", "feature"))
                slopes = {"lazy_slope": lazy, "feature_slope": feature, "slope_lead": feature - lazy}
                yield {"task": task, "dimension": dimension, "seed": seed} | slopes


def _stripe_claims(dimension: int, last: int) -> Iterator[Claim]:
    name, here = named("stripe", dimension), {"task": "stripe", "dimension": dimension}
    large = here | {"large": True}
    yield Claim(
        f"The lazy kernel on data compressed by Λ* learns like the network ({name})",
        "figure 2: closely",
        Between("compressed_over_feature", 0.5, 1.8, of="median", each="points", where=large),
    )
    yield Claim(
        f"The kernel of the trained network is much better than that at its start ({name})",
        "figure 2; half of the error at most for p ≥ 256 (Spec 004, F39)",
        AtMost("end_over_start", 0.5, of="median", each="points", where=large),
    )
    yield Claim(
        f"The kernel of the trained network is as good as the network ({name})",
        "figure 2: as good, within a tenth",
        AtMost("end_over_feature", 1.1, of="median", each="points", where=large),
    )
    yield Claim(
        f"At the largest number of points it is even better than the network ({name})",
        "figure 2",
        _better("end", "feature", here | {"points": last}),
        note="it is better the larger Λ at the end: training to the last point lowers Λ (Spec 004, section 9.1)",
    )


def _gain_claim(task: str, dimension: int) -> Claim:
    predicted = -compression_exponent(dimension, INFORMATIVE[task])
    here = {"part": "gain", "task": task, "dimension": dimension}
    return Claim(
        f"Compressing the data by Λ multiplies the lazy kernel's error by a power of Λ ({named(task, dimension)})",
        f"{'section 3.1' if task == 'stripe' else 'section 4'}: {predicted:.3f}",
        PowerLaw("error", "factor", predicted, rival=0.0, where=here, called="test error"),
    )
