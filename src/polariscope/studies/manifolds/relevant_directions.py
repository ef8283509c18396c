"""Study: the lazy exponent does not depend on how many directions the labels depend on (section 4).

A kernel that does not move pays for every direction of the data, whether the labels depend on it or not. In d = 3 its
test error should fall as p^(-3/7) on the stripe (one relevant direction) and on the cylinder (two). (Spec 004, F72.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from polariscope.kernels.frozen import INFINITE_WIDTH, learn_frozen
from polariscope.report.figures import LIGHT, styled
from polariscope.report.study_figures import log_axes, over_seeds, side_by_side
from polariscope.studies.criteria import Between, PowerLaw
from polariscope.studies.manifolds.stripe_nets import INFORMATIVE, SOURCE, STEEPER, curve, draw, named, world_of
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.learning_exponents import feature_exponent, lazy_exponent

DIMENSION = 3
TASKS = tuple(INFORMATIVE)
SIZES: dict[Scale, tuple[int, ...]] = {
    "smoke": (64, 128),
    "laptop": (512, 1024, 2048, 4096, 8192),
    "paper": (512, 1024, 2048, 4096, 8192, 16_384),
}
SEEDS: dict[Scale, int] = {"smoke": 1, "laptop": 7, "paper": 20}
TEST: dict[Scale, int] = {"smoke": 500, "laptop": 50_000, "paper": 100_000}


@studies.register("relevant-directions")
class RelevantDirections(Study):
    """The tangent kernel of infinite width on the stripe and on the cylinder of the same dimension."""

    title = "A lazy kernel learns no faster if fewer directions matter"
    source = f"{SOURCE}, section 4"
    question = "Does a kernel that does not move learn faster if the labels depend on fewer directions?"
    cost = {"smoke": "a second", "laptop": "20 minutes", "paper": "hours"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        return [
            {"task": task, "dimension": DIMENSION, "points": points, "test": TEST[scale], "seed": seed}
            for points in reversed(SIZES[scale])
            for task in TASKS
            for seed in range(SEEDS[scale])
        ]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        world = world_of(job)
        x, y = draw(world, job["points"], job["seed"], "train")
        learner = learn_frozen(INFINITE_WIDTH.ntk, x, y)
        test = draw(world, job["test"], job["seed"], "test")
        return [job | {"error": learner.error(*test)}]

    def claims(self, scale: Scale) -> list[Claim]:
        predicted = -lazy_exponent(DIMENSION)
        claims = [
            Claim(
                f"The lazy error falls as p^(-3/7) ({named(task, DIMENSION)})",
                f"section 4: exponent {predicted:.3f}",
                PowerLaw("error", "points", predicted, _feature(task), where={"task": task}, called="test error"),
                note=STEEPER,
            )
            for task in TASKS
        ]
        alike = Between("difference", -0.1, 0.1, called="exponent of the stripe less that of the cylinder")
        return [*claims, Claim("Both tasks have the same exponent", "section 4: 3/7 and 3/7", alike, note=STEEPER)]

    def readings(self, table: Table) -> Table:
        rows: list[Row] = list(table.rows)
        for seed, own in table.by("seed"):
            slopes = {task: _slope(own.where(task=task)) for task in TASKS}
            rows.append({"seed": seed, "difference": slopes["stripe"] - slopes["cylinder"]})
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for task in TASKS:
            errors = curve(table.where(task=task), "error")
            law = errors.power_law()
            rows.append(
                {
                    "task": named(task, DIMENSION),
                    "exponent published": f"{-lazy_exponent(DIMENSION):.3f}",
                    "exponent of the medians here": f"{law.exponent:.2f} ({law.low:.2f} to {law.high:.2f})",
                    "median test error by p": ", ".join(
                        f"{p}: {e:.4f}" for p, e in zip(errors.sizes, errors.medians, strict=True)
                    ),
                    "seeds": errors.values.shape[1],
                }
            )
        return rows

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        figure = side_by_side(1, 3.4, 3.0)
        (axes,) = figure.axes
        log_axes(axes, table.distinct("points"))
        for number, task in enumerate(TASKS):
            errors = curve(table.where(task=task), "error")
            over_seeds(axes, errors.sizes, errors.values, number, label=named(task, DIMENSION))
            line = errors.guide(-lazy_exponent(DIMENSION))
            axes.plot(errors.sizes, line(errors.sizes), "--", color=LIGHT["muted"], linewidth=1)
        axes.set(xlabel="points p", ylabel="test error of the lazy kernel")
        axes.legend()
        return {"errors": figure}


def _slope(table: Table) -> float:
    """The exponent of one seed's errors over the numbers of points."""
    return float(np.polyfit(np.log(table.column("points")), np.log(table.column("error")), 1)[0])


def _feature(task: str) -> float:
    """The exponent of a network that learns features, which does depend on the number of relevant directions."""
    return -feature_exponent(DIMENSION, INFORMATIVE[task])
