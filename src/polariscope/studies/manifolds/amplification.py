"""Study: how far a network shrinks the directions its labels ignore, and how that grows with the data (Figures 5, 7).

The ratio Λ of informative to uninformative weights rises exponentially while nothing is fitted, and saturates where the
noise of p points stops it: Λ* ~ √p at the onset t*, of which theory knows the prefactor, even for one data set
(:mod:`polariscope.theory.amplification`). Its maximum comes later, while the network fits. (Spec 004, sections 5.1, 6.4
and 7, E5 and E7.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from polariscope.kernels.neurons import neurons
from polariscope.studies.criteria import All, AtLeast, AtMost, Between, Correlates, Near, PowerLaw
from polariscope.studies.kit import Panels, Paths
from polariscope.studies.manifolds.power_laws import ASYMPTOTIC, STEEPER, log_log
from polariscope.studies.manifolds.stripe_nets import (
    ALPHA,
    DATA,
    INFORMATIVE,
    SOURCE,
    Grid,
    draw,
    groups,
    leading,
    named,
    quotient,
    start_of,
    trained,
    undisturbed,
    world_of,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import dataset_amplification, median_amplification
from polariscope.worlds.points.stripes import FloatArray


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale."""

    grids: dict[str, Grid]
    """By task; on the cylinder the onset is later, and takes more steps."""
    width: int
    momentum: float
    rise_points: int
    rise_seeds: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(
        grids={
            "stripe": Grid(sizes=(411, 500), seeds=2, steps=220),
            "cylinder": Grid(sizes=(100, 215), seeds=1, steps=480),
        },
        width=40,
        momentum=0.9,
        rise_points=8000,
        rise_seeds=1,
    ),
    "laptop": Setting(
        grids={
            "stripe": Grid(sizes=(200, 411, 1000, 2150, 4640), seeds=10, steps=1200),
            "cylinder": Grid(sizes=(215, 464, 1000, 2154), seeds=15, steps=1600),
        },
        width=400,
        momentum=0.9,
        rise_points=40_000,
        rise_seeds=5,
    ),
    "paper": Setting(
        grids={
            "stripe": Grid(sizes=(100, 200, 411, 1000, 2150, 4640), seeds=20, steps=100_000),
            "cylinder": Grid(sizes=(100, 215, 464, 1000, 2154, 4642), seeds=49, steps=100_000),
        },
        width=10_000,
        momentum=0.0,
        rise_points=100_000,
        rise_seeds=20,
    ),
}
DIMENSIONS = (5, 10)
GROUPS = (("stripe", 5), ("stripe", 10), ("cylinder", 3))
KNOWN_FROM = 464
"""Points from which on Λ* is compared with what was known before: of fewer, the attractor itself is uncertain."""
PUBLISHED_SIZES = (411, 4640)
"""Numbers of points whose Λ(t) Figure 5 shows."""
RISE = (3.0, 10.0)
"""λ between which a neuron's growth is measured: aligned already, and far from saturation."""
RISE_TIME = 14.0
RISE_FROM = 5
"""First seed of the rise: an earlier table shows 0 to 2."""
FACTORS = {"at_onset": "Λ* at the onset", "largest": "Λ_max", "predicted": "predicted Λ*, slope 1/2"}
OVER_POINTS = log_log(
    tuple(FACTORS), "points", names=FACTORS, dashed=("predicted",), called="amplification Λ", along="points p"
)
OVER_TIME = Paths("factor", "time", "points", dot="onset", called="Λ, dots at the onset", along="time / τ", log_y=True)


@studies.register("amplification")
class Amplification(Study):
    """Λ at the onset, at its largest and over time: stripes of 5 and 10 dimensions, and the cylinder."""

    title = "How compression grows with the number of points"
    source = f"{SOURCE}, sections 3.2 and 4, figures 5 and 7"
    question = "How far does a network shrink the directions that do not matter, and what limits it?"
    cost = {"smoke": "2 s", "laptop": "4 minutes", "paper": "days"}
    drawn = {
        "scaling": Panels((OVER_POINTS,), each="dimension", where={"part": "scaling"}, names=DATA),
        "rise": Panels((OVER_TIME,), each="dimension", where={"part": "course"}, names=DATA, width=3.4),
    }

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        common = {"alpha": ALPHA, "width": setting.width, "momentum": setting.momentum}
        scaling: list[Job] = [
            common
            | {"part": "scaling", "task": task, "dimension": d, "points": p, "seed": seed}
            | {"steps": setting.grids[task].steps}
            for task, d in GROUPS
            for p in setting.grids[task].sizes
            for seed in range(setting.grids[task].seeds)
        ]
        rises: list[Job] = [
            {"part": "rise", "task": "stripe", "dimension": d, "points": setting.rise_points, "seed": seed}
            | {"width": 100, "steps": round(10 * RISE_TIME)}
            for d in DIMENSIONS
            for seed in range(RISE_FROM, RISE_FROM + setting.rise_seeds)
        ]
        return sorted(scaling + rises, key=lambda job: -job["points"] * job["steps"])

    def run(self, job: Job, bench: Bench) -> list[Row]:
        return [job | (_rise(job) if job["part"] == "rise" else _scaling(job))]

    def claims(self, scale: Scale) -> list[Claim]:
        scaling = [claim for task, dimension in GROUPS for claim in _scaling_claims(task, dimension)]
        known = Claim(
            "Λ* of a data set can be predicted before training",
            "derived from the publication's equations 5 to 7 (Spec 004, section 6.4)",
            All(
                AtMost("log_gap", 0.2, of="median", called="distance of the logs of Λ* and its prediction"),
                Correlates(
                    "excess", "predicted_excess", 0.85, called="the excess of log Λ* over data sets of one size"
                ),
            ),
        )
        return [*scaling, known, *(_rise_claim(dimension) for dimension in DIMENSIONS)]

    def readings(self, table: Table) -> Table:
        reached = Table([row for row in table.where(part="scaling").rows if row.get("at_onset") is not None])
        known = [row for row in reached.where(task="stripe").rows if row["points"] >= KNOWN_FROM]
        return Table([*table.where(part="rise").rows, *map(_over_onset, reached.rows), *_beside_known(Table(known))])

    def beside(self, table: Table) -> list[Row]:
        columns = {"Λ* here (median)": "at_onset", "Λ_max here (median)": "largest"}
        columns |= {"Λ at the end": "at_end", "t*/τ": "onset"}
        return [
            {
                "task": task,
                "d": dimension,
                "p": count,
                "Λ* predicted (median)": f"{predicted_median(task, dimension, count):.1f}",
                **{name: f"{np.median(here.column(column)):.1f}" for name, column in columns.items()},
                "seeds": len(here),
            }
            for task, dimension, group in groups(table.where(part="scaling"))
            for count, here in group.by("points")
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return super().figures(Table([*self.readings(table).rows, *_courses(table)]))


def predicted_median(task: str, dimension: int, points: int) -> float:
    """Λ* of the median data set (Spec 004, sections 6.4 and 6.6)."""
    return median_amplification(leading(task, dimension), points, INFORMATIVE[task])


def _scaling(job: Job) -> Row:
    done = trained(job)
    if done.t_star is None or done.largest is None:
        return {"at_onset": None, "largest": None, "at_end": None, "onset": None, "active": done.active}
    row: Row = {
        "at_onset": done.t_star.amplification,
        "largest": done.largest.amplification,
        "at_end": done.end.amplification,
        "onset": done.t_star.time,
        "active": done.active,
        "steps_taken": done.steps,
    }
    time, factor = done.history.time, done.history.amplification
    before = np.interp(done.t_star.time - 3, time, np.log(factor))
    row["late_rate"] = (math.log(done.t_star.amplification) - before) / 3
    if job["task"] == "stripe":
        x, y = draw(world_of(job), job["points"], job["seed"], "train")
        row["data_set"] = dataset_amplification(x, y, time=done.t_star.time)
    if job["points"] in PUBLISHED_SIZES or job["points"] == 1000:
        shown = np.unique(np.linspace(0, len(time) - 1, 120).astype(int))
        row |= {"time": time[shown].round(3).tolist(), "factor": factor[shown].round(3).tolist()}
    return row


def _rise(job: Job) -> Row:
    """How fast λ of the neurons grows that end at the leading attractor, each from one alignment to another."""
    x, y = draw(world_of(job), job["points"], job["seed"], "train")
    steps = range(0, job["steps"] + 1, 5)
    seen = [neurons(net) for net in undisturbed(start_of(job), x, y, steps)]
    point, last = leading("stripe", job["dimension"]), seen[-1]
    arrived = (last.ratio * point.side > 0) & (np.abs(last.intercept - point.position) < 0.15)
    arrived &= np.abs(last.ratio) > 2 * RISE[1]
    paths = np.log(np.abs([s.ratio[arrived] for s in seen])).T
    low, high = (_crossing(paths, math.log(level), 0.1 * np.array(steps)) for level in RISE)
    rates = math.log(RISE[1] / RISE[0]) / (high - low)
    return {"rate": float(np.median(rates)), "neurons": int(arrived.sum())}


def _crossing(paths: FloatArray, level: float, time: FloatArray) -> FloatArray:
    """When each path ``(n, times)`` is above the level for good."""
    after = paths.shape[1] - np.argmax(paths[:, ::-1] < level, axis=1)
    after = np.clip(after, 1, paths.shape[1] - 1)
    low, high = np.take_along_axis(paths, np.stack([after - 1, after], 1), 1).T
    return np.asarray(time[after - 1] + (level - low) / (high - low) * (time[after] - time[after - 1]))


def _scaling_claims(task: str, dimension: int) -> Iterator[Claim]:
    name, here = named(task, dimension), {"task": task, "dimension": dimension}
    published, note = ("slope 1/2 (figure 5)", STEEPER) if task == "stripe" else ("slope 1/2 (figure 7)", "")
    for text, column in (("At the onset Λ*", "at_onset"), ("Its maximum Λ_max", "largest")):
        law = PowerLaw(column, "points", 0.5, rival=0.0, smallest=ASYMPTOTIC, where=here, called="Λ")
        yield Claim(f"{text} grows as √p ({name})", published, law, note=note)
    yield Claim(
        f"At the onset Λ*/√p has the predicted value ({name})",
        f"median {predicted_median(task, dimension, 1):.2f} (Spec 004, sections 6.4 and 6.6; the publication gives the "
        "order only)",
        Between("of_theory", 0.65, 1.35, of="median", where=here, called="Λ* over theory's median"),
    )
    yield Claim(
        f"While the network fits, Λ peaks and stays of order √p ({name})",
        "figures 5 and 7: no significant alteration after the onset",
        All(
            AtLeast("peak", 1, of="median", where=here, called="Λ_max/Λ*"),
            Between("kept", 0.5, 2, of="median", where=here, called="Λ_end/Λ*"),
        ),
        note="a factor of two is taken as significant",
    )


def _rise_claim(dimension: int) -> Claim:
    expected, here = leading("stripe", dimension).amplification_rate, {"task": "stripe", "dimension": dimension}
    return Claim(
        f"Λ rises exponentially and is flat before the onset ({named('stripe', dimension)})",
        f"figure 5; neurons of the leading attractor align at {expected:.2f} per τ (Spec 004, section 6.5)",
        All(
            Near("rate", expected, by=0.1, where=here, called="rate at which they align", to="theory's"),
            AtMost("late_rate", 0.1, of="median", where=here, called="growth rate of Λ in the last 3 τ"),
        ),
    )


def _over_onset(row: Row) -> Row:
    """Λ* beside its theory, and later values beside Λ*."""
    predicted = predicted_median(row["task"], row["dimension"], row["points"])
    later = {"peak": quotient(row, "largest", "at_onset"), "kept": quotient(row, "at_end", "at_onset")}
    return row | {"predicted": predicted, "of_theory": row["at_onset"] / predicted} | later


def _courses(table: Table) -> Iterator[Row]:
    """Λ over the first 60 τ: the median over the seeds, and the mean onset."""
    shown = [row for row in table.where(part="scaling", task="stripe").rows if row.get("time")]
    for _, dimension, same in groups(Table(shown)):
        for count, own in same.by("points"):
            time = np.linspace(0, min(60.0, *(row["time"][-1] for row in own.rows)), 200)
            factor = np.median([np.interp(time, row["time"], row["factor"]) for row in own.rows], axis=0)
            place = {"part": "course", "dimension": dimension, "points": count, "onset": own.mean("onset")}
            yield place | {"time": time.tolist(), "factor": factor.tolist()}


def _beside_known(table: Table) -> Iterator[Row]:
    """log Λ* of data sets and what was known of it; both also less their means over the data sets of one size.

    Both grow with p and fall with d, which would be half of their agreement.
    """
    for _, dimension, same in groups(table):
        for _, cell in same.by("points"):
            here, known = np.log(cell.column("at_onset")), np.log(cell.column("data_set"))
            for row, a, b in zip(cell.rows, here, known, strict=True):
                gap = {"log_gap": abs(a - b), "excess": a - here.mean(), "predicted_excess": b - known.mean()}
                yield {"seed": row["seed"], "dimension": dimension} | gap
