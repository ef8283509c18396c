"""Study: how far a network shrinks the directions its labels ignore, and how that grows with the data (Figures 5, 7).

The ratio Λ of informative to uninformative weights rises exponentially while nothing is fitted, and saturates where the
noise of p points stops it: Λ* ~ √p at the onset t*, of which theory knows the prefactor, even for one data set
(:mod:`polariscope.theory.amplification`). Its maximum comes later, while the network fits. (Spec 004, sections 5.1, 6.4
and 7, E5 and E7.) What the studies of stripes and cylinders share is here too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.gradient_flow import Flow, Training, train_flow
from polariscope.kernels.learning_curves import LearningCurve, PowerLaw
from polariscope.kernels.neurons import neurons
from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, styled
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import dataset_amplification, median_amplification
from polariscope.theory.stripe import FixedPoint, Layers, attractors, ring
from polariscope.worlds.cylinder import Cylinder
from polariscope.worlds.stripes import FloatArray, Stripe

SOURCE = "Paccolat, Petrini, Geiger, Tyloo and Wyart, Compressing invariant manifolds in neural nets (2021)"
ALPHA = 1e-6
PARTS = ("train", "fresh", "test")
COLOURS = (*SUBJECTS, "active")
ASYMPTOTIC = 200
"""Points from which on an exponent is fitted: below, neither regime follows its power law (Spec 004, section 12)."""
STEEPER = "below some thousand points curves are steeper than the asymptotic law (Spec 004, A16)"


# --- what the studies of stripes and cylinders share ----------------------------------------------------------------


def world_of(job: Job) -> Stripe | Cylinder:
    """The world of a job's ``task`` and ``dimension``."""
    kind = {"stripe": Stripe, "cylinder": Cylinder}[job["task"]]
    return kind(dimension=job["dimension"])


def draw(
    world: Stripe | Cylinder, count: int, seed: int, part: Literal["train", "fresh", "test"]
) -> tuple[FloatArray, FloatArray]:
    """Points and labels that share no random number with those of another part, or with a net of the same seed."""
    # From 1 on: NumPy takes (seed, 0) for seed, which is the net's.
    return world.sample(count, np.random.default_rng((seed, 1 + PARTS.index(part))))


def start_of(job: Job, dtype: torch.dtype = torch.float32) -> MeanFieldNet:
    """The network of a job before training."""
    return MeanFieldNet.draw(job["dimension"], job["width"], job["seed"], dtype)


def flow_of(job: Job) -> Flow:
    return Flow(alpha=job["alpha"], momentum=job["momentum"], steps=job["steps"])


def trained(job: Job) -> Training:
    """A network that has flowed on its ``points``, with Λ followed at every step."""
    world = world_of(job)
    x, y = draw(world, job["points"], job["seed"], "train")
    return train_flow(start_of(job), x, y, flow_of(job), informative=world.source.informative)


def undisturbed(
    net: MeanFieldNet, x: ArrayLike, y: ArrayLike, steps: Sequence[int], length: float = 0.1
) -> Iterator[MeanFieldNet]:
    """The network after so many steps (rising) of a ``length`` in τ, for as long as it fits none of its points.

    Until then the output does not matter, so that each stretch of the flow can start where the last one ended.
    """
    done = 0
    for count in steps:
        if count > done:
            flow = Flow(alpha=1e-20, steps=count - done, longest=length)
            net = MeanFieldNet(train_flow(net, x, y, flow, every=count).end.state)
            done = count
        yield net


def groups(table: Table) -> Iterator[tuple[str, int, Table]]:
    """Tasks and dimensions of a table with their rows, stripes first."""
    for task in reversed(table.distinct("task")):
        for dimension, rows in table.where(task=task).by("dimension"):
            yield task, dimension, rows


def curve(table: Table, column: str, over: str = "points") -> LearningCurve:
    """Values of a column over the numbers of points, for as many seeds as all of them have."""
    values = [rows.column(column) for _, rows in table.by(over)]
    fewest = min(map(len, values))
    return LearningCurve(np.array(table.distinct(over)), np.array([v[:fewest] for v in values], dtype=float))


def exponent_claim(text: str, published: str, found: LearningCurve, predicted: float, rival: float) -> Claim:
    """A power law against its predicted exponent: within the 95 % interval, or 0.1 of it and not nearer to the rival.

    Undecided where the seeds are few, or where the interval holds the exponent of the rival as well.
    """
    smallest = ASYMPTOTIC if (found.sizes >= ASYMPTOTIC).sum() > 1 else 0
    sizes, seeds = found.sizes[found.sizes >= smallest], found.values.shape[1]
    if len(sizes) < 2 or not seeds or (found.values <= 0).any():
        note = "an exponent needs two sizes, and values above zero"
        return Claim(text, f"{published}: {predicted:.3f}", "no exponent", None, note)
    law = found.power_law(smallest)
    measured = f"{interval(law)} from {sizes[0]} to {sizes[-1]} points, {seeds} seeds"
    held, note = within(law, predicted, rival)
    if seeds < 5 or len(sizes) < 3:
        held, note = None, f"{seeds} seeds of {len(sizes)} sizes are too few for an exponent"
    return Claim(text, f"{published}: {predicted:.3f}", measured, held, note)


def within(law: PowerLaw, predicted: float, rival: float) -> tuple[bool | None, str]:
    """Whether an exponent is the predicted one, and what to say about it."""
    if law.low <= predicted <= law.high:
        if law.low <= rival <= law.high:
            return None, f"the interval also holds {rival:.3f}, so that it cannot tell the two apart"
        return True, ""
    gap = abs(law.exponent - predicted)
    near = gap < min(0.1, abs(law.exponent - rival))
    allowed = " and taken as near enough" if near else ""
    return near, f"the prediction is outside of the interval, {gap:.2f} away{allowed}; {STEEPER}"


def interval(law: PowerLaw) -> str:
    return f"{law.exponent:.2f} (95 % interval {law.low:.2f} to {law.high:.2f})"


def log_log(axes: Axes, curves: dict[str, LearningCurve]) -> None:
    """Medians over seeds with their quartiles, a colour and a marker each; ticks at the sizes there are."""
    sizes = sorted({int(size) for found in curves.values() for size in found.sizes})
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    for number, (name, found) in enumerate(curves.items()):
        low, middle, high = np.quantile(found.values, [0.25, 0.5, 0.75], axis=1)
        axes.errorbar(
            found.sizes,
            middle,
            [middle - low, high - middle],
            color=LIGHT[COLOURS[number]],
            marker=MARKERS[number],
            markersize=4,
            elinewidth=0.8,
            label=name,
        )


def plain_ticks(axes: Axes, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Numbers at the ticks of logarithmic axes: the house style draws no formulas."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=subs, numticks=8))
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


def share_legend(figure: Figure) -> None:
    """One legend under all panels, with the entries of the first."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)


# --- the study ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; ``steps`` of the flow include those before t*, which are more on the cylinder."""

    sizes: tuple[int, ...]
    seeds: int
    steps: int
    cylinder_sizes: tuple[int, ...]
    cylinder_seeds: int
    cylinder_steps: int
    width: int
    momentum: float
    rise_points: int
    rise_seeds: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting((411, 500), 2, 220, (100, 215), 1, 480, 40, 0.9, 8000, 1),
    "laptop": Setting((200, 411, 1000, 2150, 4640), 10, 1200, (215, 464, 1000, 2154), 15, 1600, 400, 0.9, 40_000, 3),
    "paper": Setting(
        (100, 200, 411, 1000, 2150, 4640),
        20,
        100_000,
        (100, 215, 464, 1000, 2154, 4642),
        49,
        100_000,
        10_000,
        0.0,
        100_000,
        20,
    ),
}
DIMENSIONS = (5, 10)
KNOWN_FROM = 464
"""Points from which on Λ* is compared with what was known before: of fewer, the attractor itself is uncertain."""
PUBLISHED_SIZES = (411, 4640)
"""Numbers of points whose Λ(t) Figure 5 shows."""
RISE = (3.0, 10.0)
"""λ between which a neuron's growth is measured: aligned already, and far from saturation."""
RISE_TIME = 14.0


@studies.register("amplification")
@dataclass(frozen=True)
class Amplification(Study):
    """Λ at the onset, at its largest and over time: stripes of 5 and 10 dimensions, and the cylinder."""

    title = "Compression grows with the square root of the data"
    source = f"{SOURCE}, sections 3.2 and 4, figures 5 and 7"
    question = "How far does a network shrink the directions that do not matter, and what limits it?"
    cost = {"smoke": "2 s", "laptop": "4 minutes", "paper": "days"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        common = {"alpha": ALPHA, "width": setting.width, "momentum": setting.momentum}
        stripes: list[Job] = [
            common
            | {"part": "scaling", "task": "stripe", "dimension": d, "points": p, "seed": seed, "steps": setting.steps}
            for d in DIMENSIONS
            for p in setting.sizes
            for seed in range(setting.seeds)
        ]
        cylinders: list[Job] = [
            common
            | {"part": "scaling", "task": "cylinder", "dimension": 3, "points": p, "seed": seed}
            | {"steps": setting.cylinder_steps}
            for p in setting.cylinder_sizes
            for seed in range(setting.cylinder_seeds)
        ]
        rises: list[Job] = [
            {"part": "rise", "task": "stripe", "dimension": d, "points": setting.rise_points, "seed": seed}
            | {"width": 100, "steps": round(10 * RISE_TIME)}
            for d in DIMENSIONS
            for seed in range(setting.rise_seeds)
        ]
        return sorted(stripes + cylinders + rises, key=lambda job: -job["points"] * job["steps"])

    def run(self, job: Job, bench: Bench) -> list[Row]:
        return [job | (_rise(job) if job["part"] == "rise" else _scaling(job))]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        claims: list[Claim] = []
        for task, dimension, rows in groups(table.where(part="scaling")):
            name = f"{task}, d = {dimension}"
            figure = "slope 1/2 (figure 5)" if task == "stripe" else "slope 1/2 (figure 7)"
            first, largest = curve(rows, "at_onset"), curve(rows, "largest")
            claims += [
                exponent_claim(f"At the onset Λ* grows as √p ({name})", figure, first, 0.5, 0.0),
                exponent_claim(f"Its maximum Λ_max grows as √p ({name})", figure, largest, 0.5, 0.0),
                _prefactor(name, rows, task, dimension),
                _after_the_onset(name, rows),
            ]
        stripes = Table([row for row in table.where(part="scaling", task="stripe").rows if row["points"] >= KNOWN_FROM])
        return [*claims, _known_before(stripes), *_rises(table)]

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for task, dimension, group in groups(table.where(part="scaling")):
            for count, here in group.by("points"):
                rows.append(
                    {
                        "task": task,
                        "d": dimension,
                        "p": count,
                        "Λ* predicted (median)": f"{predicted_median(task, dimension, count):.1f}",
                        "Λ* here (median)": f"{np.median(here.column('at_onset')):.1f}",
                        "Λ_max here (median)": f"{np.median(here.column('largest')):.1f}",
                        "Λ at the end": f"{np.median(here.column('at_end')):.1f}",
                        "t*/τ": f"{np.median(here.column('onset')):.1f}",
                        "seeds": len(here),
                    }
                )
        return rows

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        return {"scaling": _scaling_figure(table.where(part="scaling")), "rise": _rise_figure(table)}


def leading(task: str, dimension: int) -> FixedPoint:
    """The attractor that carries the network at the onset."""
    return attractors(Layers(), dimension)[0] if task == "stripe" else ring(dimension)


def predicted_median(task: str, dimension: int, points: int) -> float:
    """Λ* of the median data set (Spec 004, sections 6.4 and 6.6)."""
    return median_amplification(leading(task, dimension), points, informative=1 if task == "stripe" else 2)


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


def _prefactor(name: str, rows: Table, task: str, dimension: int) -> Claim:
    ratios = normalised(rows)
    expected = predicted_median(task, dimension, 1)
    return Claim(
        f"At the onset Λ*/√p is what theory says ({name})",
        f"median {expected:.2f} (Spec 004, sections 6.4 and 6.6; the publication gives the order only)",
        f"median {np.median(ratios):.2f}, half of {len(ratios)} runs between "
        f"{np.quantile(ratios, 0.25):.2f} and {np.quantile(ratios, 0.75):.2f}",
        bool(0.55 * expected < np.median(ratios) < 1.45 * expected),
    )


def normalised(rows: Table) -> NDArray[np.float64]:
    """Λ*/√p of the runs that reached the onset."""
    return np.array([row["at_onset"] / math.sqrt(row["points"]) for row in rows.rows if row["at_onset"] is not None])


def _after_the_onset(name: str, rows: Table) -> Claim:
    kept = Table([row for row in rows.rows if row["at_onset"] is not None])
    largest, end = (np.median(kept.column(column) / kept.column("at_onset")) for column in ("largest", "at_end"))
    return Claim(
        f"While the network fits, Λ peaks and stays of order √p ({name})",
        "figures 5 and 7: no significant alteration after the onset",
        f"median Λ_max/Λ* {largest:.1f}, Λ_end/Λ* {end:.1f}",
        bool(largest >= 1 and end > 0.5),
    )


def _known_before(rows: Table) -> Claim:
    kept = Table([row for row in rows.rows if row["at_onset"] is not None])
    here, known = np.log(kept.column("at_onset")), np.log(kept.column("data_set"))
    gap = float(np.median(np.abs(here - known)))
    # Both grow with p and fall with d, which would be half of the agreement: what is left is that of single data sets.
    cells = [(task, d, p) for task, d, g in groups(kept) for p in g.distinct("points")]
    same = [kept.where(task=task, dimension=d, points=p) for task, d, p in cells]
    first, second = (
        np.concatenate([np.log(g.column(name)) - np.log(g.column(name)).mean() for g in same])
        for name in ("at_onset", "data_set")
    )
    correlation = float(np.corrcoef(first, second)[0, 1])
    return Claim(
        "Λ* of one data set is known before any training",
        "derived from the publication's equations 5 to 7 (Spec 004, section 6.4)",
        f"median |log ratio| {gap:.2f}; correlation of the logs among data sets of one size {correlation:.2f} "
        f"({len(kept)} data sets of {KNOWN_FROM} points or more)",
        bool(gap < 0.2 and correlation > 0.85),
    )


def _rises(table: Table) -> Iterator[Claim]:
    for dimension, rows in table.where(part="rise").by("dimension"):
        expected, rate = leading("stripe", dimension).amplification_rate, float(np.median(rows.column("rate")))
        late = float(np.median(table.where(part="scaling", task="stripe", dimension=dimension).column("late_rate")))
        yield Claim(
            f"Λ rises exponentially and is flat before the onset (stripe, d = {dimension})",
            f"figure 5; neurons of the leading attractor align at {expected:.2f} per τ (Spec 004, section 6.5)",
            f"they align at {rate:.2f} per τ ({rows.rows[0]['points']} points); Λ grows at {late:.2f} per τ in the "
            "last 3 τ before the onset",
            bool(abs(rate - expected) < 0.1 and late < rate / 4),
        )


def _scaling_figure(table: Table) -> Figure:
    panels = list(groups(table))
    figure = Figure(figsize=(0.6 + 2.8 * len(panels), 3.1), layout="constrained")
    for axes, (task, dimension, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        log_log(axes, {"Λ* at the onset": curve(rows, "at_onset"), "Λ_max": curve(rows, "largest")})
        sizes = np.array(rows.distinct("points"))
        predicted = [predicted_median(task, dimension, p) for p in sizes]
        axes.plot(sizes, predicted, "--", color=LIGHT["muted"], linewidth=1, label="predicted Λ*, slope 1/2")
        axes.set(title=f"{task}, d = {dimension}", xlabel="points p")
    figure.axes[0].set_ylabel("amplification Λ")
    share_legend(figure)
    return figure


def _rise_figure(table: Table) -> Figure:
    """Λ over time: the median over seeds, with a tick at the mean onset."""
    rows = Table([row for row in table.where(part="scaling", task="stripe").rows if row.get("time")])
    panels = list(rows.by("dimension"))
    figure = Figure(figsize=(0.6 + 3.4 * len(panels), 2.8), layout="constrained")
    for axes, (dimension, shown) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for number, (count, runs) in enumerate(shown.by("points")):
            colour = LIGHT[SUBJECTS[number % len(SUBJECTS)]]
            grid = np.linspace(0, min(60.0, *(row["time"][-1] for row in runs.rows)), 200)
            paths = [np.interp(grid, row["time"], row["factor"]) for row in runs.rows]
            axes.plot(grid, np.median(paths, axis=0), color=colour, label=f"p = {count}")
            axes.axvline(runs.mean("onset"), ymax=0.06, color=colour)
        axes.set(title=f"stripe, d = {dimension}", xlabel="time / τ", yscale="log")
        plain_ticks(axes)
        axes.legend()
    figure.axes[0].set_ylabel("amplification Λ")
    return figure
