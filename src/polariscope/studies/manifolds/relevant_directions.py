"""Study: the lazy exponent does not depend on how many directions the labels depend on (section 4).

A kernel that does not move pays for every direction of the data, whether the labels depend on it or not. In d = 3 its
test error should fall as p^(-3/7) on the stripe (one relevant direction) and on the cylinder (two). (Spec 004, F72.)
"""

from __future__ import annotations

from collections.abc import Sequence

from polariscope.kernels.frozen import INFINITE_WIDTH, learn_frozen
from polariscope.studies.criteria import Between, PowerLaw
from polariscope.studies.manifolds.power_laws import STEEPER, curve, fitted, log_log, power
from polariscope.studies.manifolds.stripe_nets import INFORMATIVE, SOURCE, draw, named, world_of
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
    question = "Does a fixed kernel learn faster if the labels depend on fewer directions?"
    cost = {"smoke": "a second", "laptop": "20 minutes", "paper": "hours"}
    drawn = {
        "errors": log_log(
            "error",
            "points",
            by="task",
            names={task: named(task, DIMENSION) for task in TASKS},
            called="test error of the lazy kernel",
            along="points p",
            power=lambda row: -lazy_exponent(DIMENSION),
        )
    }

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
        slopes = [(seed, [power(own.where(task=task), "error") for task in TASKS]) for seed, own in table.by("seed")]
        return Table([*table.rows, *({"seed": seed, "difference": one - other} for seed, (one, other) in slopes)])

    def beside(self, table: Table) -> list[Row]:
        published = f"{-lazy_exponent(DIMENSION):.3f}"
        return [
            {"task": named(task, DIMENSION), "exponent published": published}
            | fitted(curve(table.where(task=task), "error"))
            for task in TASKS
        ]


def _feature(task: str) -> float:
    """The exponent of a network that learns features, which does depend on the number of relevant directions."""
    return -feature_exponent(DIMENSION, INFORMATIVE[task])
