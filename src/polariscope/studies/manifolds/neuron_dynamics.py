"""Study: what single neurons do while a network compresses and fits (Figures 1, 3, 4 and 6).

Before the onset t* the neurons run to three attractors, each along the path of one ordinary differential equation,
and turn towards the informative direction. After it the clusters they have formed move until the sign of the output
changes at the interfaces. (Spec 004, sections 6.2 to 6.4, 7, E1, E3, E4, E6 and E12, and 9.3.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kstest

from polariscope.kernels.flow_nets import MeanFieldNet, split
from polariscope.kernels.gradient_flow import Training, train_flow
from polariscope.kernels.neurons import clusters, dead, growth_rates, near, neurons
from polariscope.report.figures import LIGHT, SUBJECTS, styled
from polariscope.report.study_figures import log_axes, plain_ticks, side_by_side
from polariscope.studies.criteria import All, AtLeast, AtMost, Near
from polariscope.studies.manifolds.stripe_nets import (
    ALPHA,
    INFORMATIVE,
    SOURCE,
    draw,
    flow_of,
    start_of,
    undisturbed,
    world_of,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import perpendicular_drift
from polariscope.theory.neuron_flow import Neurons, neuron_flow, population_averages
from polariscope.theory.stripe import FixedPoint, Layers, attractors, density, intercept_drift
from polariscope.worlds.points.stripes import FloatArray

STRIPE = Layers()
NAMES = ("C", "A", "B")
"""The attractors, from the fastest to the slowest, as Spec 004 calls them."""
WEIGHTS = ("ω₁", "ω⊥", "b", "β")
AXIS = np.linspace(-2.5, 2.5, 1001)
EDGES = np.linspace(-3.0, 3.0, 61)
When = Literal["t_star", "largest", "end"]
TIMES: dict[When, str] = {"t_star": "at the onset", "largest": "at the largest Λ", "end": "at the end"}
SHOWN = 40  # paths, and arrows, of a picture
FOLLOWED = 60  # neurons whose weights at the onset are compared with theory
LAZY_ALPHA = 1e6
LENGTH = 0.05
"""Steps before the onset, in τ: those of 0.1 alone would put the network 15 % behind its equation by then."""
LEAST = 0.05  # share of the neurons that a cluster needs to count


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; ``draws`` are the data sets whose noise is looked at."""

    seeds: int
    points: int
    width: int
    steps: int
    momentum: float
    test: int
    frames: int
    draws: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(seeds=1, points=800, width=100, steps=400, momentum=0.9, test=500, frames=3, draws=20),
    "laptop": Setting(seeds=5, points=10_000, width=400, steps=1000, momentum=0.9, test=20_000, frames=7, draws=2000),
    "paper": Setting(
        seeds=20, points=10_000, width=10_000, steps=100_000, momentum=0.0, test=100_000, frames=12, draws=2000
    ),
}


@studies.register("neuron-dynamics")
@dataclass(frozen=True)
class NeuronDynamics(Study):
    """Neurons on the way to their attractors, the function they make afterwards, and the noise that stops them."""

    title = "Neurons gather at three points, then move to the interfaces"
    source = f"{SOURCE}, section 3.2 and appendix C, figures 1, 3, 4 and 6"
    question = "By what path does a network come to ignore what its labels do not depend on?"
    cost = {"smoke": "3 s", "laptop": "about 3 minutes", "paper": "hours"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        s = SETTINGS[scale]
        stripe = {"task": "stripe", "dimension": 2, "alpha": ALPHA, "momentum": s.momentum, "steps": s.steps}
        cylinder = stripe | {"task": "cylinder", "dimension": 3, "steps": s.steps + 300}
        jobs: list[Job] = []
        size = {"points": s.points, "width": s.width}
        arrows = {"points": 100, "width": 40} if scale == "smoke" else {"points": 1000, "width": 400}
        for seed in range(s.seeds):
            jobs.append(stripe | size | {"part": "fitting", "seed": seed, "test": s.test})
            jobs.append(stripe | size | {"part": "compressing", "seed": seed})
            for kind in (stripe, stripe | {"alpha": LAZY_ALPHA}, cylinder):
                jobs.append(kind | arrows | {"part": "arrows", "frames": s.frames, "seed": seed})
        noise = {"part": "noise", "task": "stripe", "dimension": 2, "points": 1000, "draws": s.draws, "seed": 0}
        return jobs + [noise | {"attractor": name} for name in NAMES]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        parts = {"compressing": _compressing, "fitting": _fitting, "arrows": _arrows, "noise": _noise}
        return [job | row for row in parts[job["part"]](job)]

    def claims(self, scale: Scale) -> list[Claim]:
        return [*_compressing_claims(), *_fitting_claims(), *_arrow_claims(), _noise_claim()]

    def readings(self, table: Table) -> Table:
        read = {
            "compressing": _read_compressing,
            "fitting": _read_fitting,
            "arrows": _read_arrows,
            "noise": _read_noise,
        }
        return Table([row for part, rows in table.by("part") for row in read[part](rows)])

    def beside(self, table: Table) -> list[Row]:
        rows = []
        for name, group in ((name, table.where(part="compressing", attractor=name)) for name in NAMES):
            point = points()[name]
            rows.append(
                {
                    "attractor": name,
                    "z* predicted": f"{point.position:.3f}",
                    "mean z here": f"{group.mean('position'):.3f}",
                    "τ/τ* predicted": f"{point.growth_rate:.3f}",
                    "growth rate here": f"{group.mean('rate'):.3f}",
                    "share of neurons": f"{group.mean('count') / group.rows[0]['width']:.2f}",
                    "share of squared weights": f"{group.mean('share'):.4f}",
                    "median |λ|": f"{group.mean('ratio'):.0f}",
                }
            )
        return rows

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        arrows = table.where(part="arrows", seed=0)
        return {
            "single-neurons": _neuron_figure(table.where(part="compressing", seed=0)),
            "fixed-points": fixed_point_figure(),
            "trajectories": _path_figure(table.where(part="compressing", seed=0)),
            "decision": _decision_figure(table.where(part="fitting", seed=0)),
            "loss": _loss_figure(table.where(part="fitting", seed=0)),
            "arrows-stripe": _arrow_figure(
                {f"α = {alpha:g}": (rows, (0, 1)) for alpha, rows in arrows.where(task="stripe").by("alpha")}
            ),
            "arrows-cylinder": _arrow_figure(
                {
                    "informative plane": (arrows.where(task="cylinder"), (0, 1)),
                    "across it": (arrows.where(task="cylinder"), (0, 2)),
                }
            ),
        }


def points() -> dict[str, FixedPoint]:
    """The attractors of the stripe in the plane, by name."""
    return dict(zip(NAMES, attractors(STRIPE, 2), strict=True))


# --- before the onset -----------------------------------------------------------------------------------------------


def _compressing(job: Job) -> list[Row]:
    """A row an attractor (who came, how fast they grow, one neuron beside its equation), and a row of the whole."""
    x, y = draw(world_of(job), job["points"], job["seed"], "train")
    start = start_of(job)
    done = train_flow(start, x, y, replace(flow_of(job), until="t_star", longest=LENGTH), informative=1)
    if done.t_star is None:
        raise ValueError("this network has fitted too little for an onset; give it more steps")
    end = _net(done, "t_star")
    free = int(np.flatnonzero(done.history.active == len(x))[-1])  # the last step at which no point was fitted
    steps = sorted({*range(0, free, 8), free - 20, free})
    path, time = [*undisturbed(start, x, y, steps, LENGTH)], done.history.time[steps]
    goals = points()
    found = near(neurons(end), [[p.position, 0] for p in goals.values()], [p.side for p in goals.values()])
    late = steps.index(free - 20)
    rows: list[Row] = []
    for (name, goal), cluster in zip(goals.items(), found, strict=True):
        chosen = cluster.members[:FOLLOWED]
        rates = growth_rates(path[late], path[-1], time[-1] - time[late], cluster.members)
        row: Row = {
            "attractor": name,
            "count": cluster.count,
            "position": float(cluster.position[0]),
            "share": cluster.share,
            "ratio": cluster.ratio,
            "rate": float(np.median(rates)) if cluster.count else None,
        }
        if cluster.count:
            row |= _beside_theory(path, time, x, y, goal, chosen, pictured=job["seed"] == 0)
        rows.append(row)
    idle = dead(start, x)
    came = np.concatenate([cluster.members for cluster in found])
    shown = np.stack([neurons(net).position[:SHOWN] for net in (*path, end)], axis=1)
    return [
        *rows,
        {
            "attractor": "all",
            "onset": done.t_star.time,
            "arrived": len(came) / int((~idle).sum()),
            "idle": int(idle.sum()),
            "idle_moved": float((end.state - start.state)[idle].abs().sum()),
            "paths": shown.round(3).tolist() if job["seed"] == 0 else None,
        },
    ]


def _beside_theory(
    path: Sequence[MeanFieldNet],
    time: FloatArray,
    x: FloatArray,
    y: FloatArray,
    goal: FixedPoint,
    chosen: NDArray[np.int64],
    pictured: bool,
) -> Row:
    """Neurons of one attractor against equations 5 and 7 from the same start, with the noise of these very points."""
    noise = math.sqrt(len(x) / goal.active) * perpendicular_drift(x, y, goal)
    first = path[0].state.double().numpy()[chosen]
    flow = neuron_flow(Neurons(first[:, :2], first[:, 2], first[:, 3]), time, STRIPE, noise, len(x))
    theory = np.dstack([flow.weights, flow.biases, flow.outputs])
    network = np.stack([net.state.double().numpy()[chosen] for net in path])
    ratio = network[-1] / theory[-1]
    row: Row = {"signs": float((ratio > 0).mean()), "gap": float(np.median(np.abs(ratio - 1)))}
    if pictured:
        typical = int(np.argsort(np.abs(network[-1, :, 3]))[len(chosen) // 2])
        row["neuron"] = {
            "time": time.round(3).tolist(),
            "network": _rounded(network[:, typical].T),
            "theory": _rounded(theory[:, typical].T),
        }
    return row


def _read_compressing(table: Table) -> list[Row]:
    """Rows with the rate that theory gives their attractor."""
    rates = {name: point.growth_rate for name, point in points().items()}
    return [row | {"predicted_rate": rates.get(row["attractor"])} for row in table.rows]


def _compressing_claims() -> Iterator[Claim]:
    goals = points()
    yield Claim(
        "Neurons gather at three points",
        "figure 3c: the predicted attractors, z = "
        + ", ".join(f"{name} {goal.position:.2f}" for name, goal in goals.items())
        + "; slow neurons have not arrived by the onset",
        AtLeast("arrived", 0.75, called="share of neurons within 0.1 of one at t*"),
    )
    yield Claim(
        "A neuron follows its equation of motion up to the onset",
        "figure 3a: network and equations 5 and 7 agree, while all points are active",
        All(
            AtMost("gap", 0.25, each="attractor", called="median relative difference of the weights"),
            AtLeast("signs", 0.95, called="share of weights of the same sign"),
        ),
    )
    yield Claim(
        "At an attractor neurons grow exponentially, at its own rate",
        "equation 14, per τ: " + ", ".join(f"{name} {goal.growth_rate:.3f}" for name, goal in goals.items()),
        Near("rate", "predicted_rate", by=0.03, called="growth rate", to="theory's", digits=3),
    )
    yield Claim(
        "The fastest attractor carries the network at the onset",
        "section 3.2: all but a vanishing part of the squared weights",
        AtLeast("share", 0.99, where={"attractor": NAMES[0]}, called="its share of the squares", digits=4),
    )
    yield Claim(
        "Neurons that see no training point stay put",
        "section 3.2.1",
        AtMost("idle_moved", 0, of="every", called="change of their weights"),
        provided=AtLeast("idle", 1, called="the number of such neurons", digits=0),
    )


# --- after the onset ------------------------------------------------------------------------------------------------


def _fitting(job: Job) -> list[Row]:
    """The output along e₁ and where neurons switch on, at three times; and the course of loss and test error."""
    world = world_of(job)
    x, y = draw(world, job["points"], job["seed"], "train")
    test = draw(world, job["test"], job["seed"], "test")
    every = max(1, job["steps"] // 60)
    done = train_flow(start_of(job), x, y, flow_of(job), informative=1, test=test, every=every)
    line = np.column_stack([AXIS, np.zeros_like(AXIS)])
    rows: list[Row] = []
    for when in (name for name in TIMES if name in done.snapshots):
        seen = neurons(_net(done, when))
        output = done.predict(line, when)
        places, _ = np.histogram(seen.intercept, EDGES)
        rows.append(
            {
                "when": when,
                "time": done.snapshots[when].time,
                "clusters": len(clusters(seen, least=LEAST)),
                "zeros": crossings(AXIS, output).tolist(),
                "output": _rounded(output[::10]),
                "intercepts": places.tolist(),
            }
        )
    history = done.history
    course = {"times": _rounded(history.time), "loss": _rounded(history.loss), "error": history.test_error.tolist()}
    onset = None if done.t_star is None else done.t_star.time
    return [*rows, {"when": "course", "onset": onset, "active": done.active} | course]


def crossings(at: FloatArray, values: FloatArray) -> FloatArray:
    """Where a sampled function changes sign, by linear interpolation.

    >>> crossings(np.array([0.0, 1.0, 2.0]), np.array([-1.0, 3.0, 2.0])).tolist()
    [0.25]
    """
    left = np.flatnonzero(values[:-1] * values[1:] < 0)
    share = values[left] / (values[left] - values[left + 1])
    return np.asarray(at[left] + share * (at[left + 1] - at[left]))


def _read_fitting(table: Table) -> Iterator[Row]:
    """A row a network: where its output changes sign in the end, and what became of clusters, error and loss."""
    for seed, run in table.by("seed"):
        course = run.where(when="course").rows[0]
        row: Row = {"seed": seed, "error_at_end": course["error"][-1], "loss_at_end": course["loss"][-1]}
        if course.get("onset") is not None:
            row["error_at_onset"] = float(np.interp(course["onset"], course["times"], course["error"]))
        for end in run.where(when="end").rows:
            row["sign_changes"] = len(end["zeros"])
            if len(end["zeros"]) == len(STRIPE.interfaces):
                row["off"] = float(np.abs(np.subtract(end["zeros"], STRIPE.interfaces)).max())
            for onset in run.where(when="t_star").rows:
                row["clusters_gained"] = abs(end["clusters"] - onset["clusters"])
        yield row


def _fitting_claims() -> Iterator[Claim]:
    first, second = STRIPE.interfaces
    yield Claim(
        "The sign of the output changes at the interfaces, and nowhere else",
        f"figure 4: {first:g} and {second:.5f}",
        All(
            Near("sign_changes", 2, by=0, of="every", called="number of changes of sign", digits=0),
            AtMost("off", 0.05, of="every", called="distance from an interface", digits=3),
        ),
    )
    yield Claim(
        "Clusters of neurons move to fit the interfaces, and their number stays",
        "figure 4",
        AtMost("clusters_gained", 0, of="median", called="clusters more or less at the end than at the onset"),
    )
    yield Claim(
        "Loss and test error fall after the onset",
        "figure 4, right",
        All(
            AtLeast("error_at_onset", 0.3),
            AtMost("error_at_end", 0.01, digits=4),
            AtMost("loss_at_end", 0.1, digits=3),
        ),
    )


# --- arrows ---------------------------------------------------------------------------------------------------------


def _arrows(job: Job) -> Iterator[Row]:
    """βω of some neurons at several steps of one flow, which is repeated up to each of them."""
    world = world_of(job)
    x, y = draw(world, job["points"], job["seed"], "train")
    informative = world.source.informative
    # In single precision the output of a lazy network would drown in its rounding.
    start, flow = start_of(job, torch.float64), flow_of(job)
    done = train_flow(start, x, y, flow, informative=informative)
    onset = int(np.searchsorted(done.history.time, done.t_star.time)) if done.t_star else done.steps
    half = job["frames"] // 2
    steps = np.unique(np.r_[np.linspace(0, onset, half + 1), np.linspace(onset, done.steps, job["frames"] - half)])
    for frame, count in enumerate(steps.round().astype(int).tolist()):
        net, time = start, 0.0
        if count:
            last = count == done.steps
            then = done if last else train_flow(start, x, y, replace(flow, steps=count), every=count)
            net, time = _net(then, "end"), then.end.time
        parallel, perpendicular = (part.square().sum().item() for part in split(net.weights.double(), informative))
        arrows = (net.weights * net.readout[:, None])[:SHOWN].double().numpy()
        yield {
            "frame": frame,
            "time": time,
            "stage": "start" if not count else "onset" if count == onset else "end" if count == done.steps else "",
            "alignment": parallel / (parallel + perpendicular),
            "arrows": (arrows / np.linalg.norm(arrows, axis=1).max()).round(4).tolist(),
        }


def _read_arrows(table: Table) -> Iterator[Row]:
    """Frames, the last ones with how far the weights have turned since the first."""
    starts = {(row["task"], row["alpha"], row["seed"]): row["alignment"] for row in table.where(stage="start").rows}
    for row in table.rows:
        start = starts[row["task"], row["alpha"], row["seed"]]
        yield row | ({"turned": abs(row["alignment"] - start)} if row["stage"] == "end" else {})


def _arrow_claims() -> Iterator[Claim]:
    share = "informative share of the squared weights"
    for task, dimension, space, figure, least in (
        ("stripe", 2, "direction", "figure 1", 0.99),
        ("cylinder", 3, "plane", "figure 6", 0.97),
    ):
        here, isotropic = {"task": task, "alpha": ALPHA}, INFORMATIVE[task] / dimension
        yield Claim(
            f"Weights turn into the informative {space} ({task})",
            f"{figure}: isotropic at first, aligned after training",
            All(
                Near(
                    "alignment",
                    isotropic,
                    by=0.05,
                    where=here | {"stage": "start"},
                    called=share,
                    to="isotropic weights",
                ),
                AtLeast("alignment", least, where=here | {"stage": "end"}, called=share, digits=4),
            ),
        )
    yield Claim(
        "Lazy training leaves the weights where they are",
        "figure 1",
        AtMost("turned", 0.02, of="every", where={"alpha": LAZY_ALPHA}, called=f"change of the {share}"),
    )


# --- the noise of finite data ---------------------------------------------------------------------------------------


def _noise(job: Job) -> list[Row]:
    """√p S_⊥/√D over many data sets at one attractor, and the second moment that D stands for."""
    point = points()[job["attractor"]]
    world, generator = world_of(job), np.random.default_rng((job["seed"], NAMES.index(job["attractor"])))
    sets = (world.sample(job["points"], generator) for _ in range(job["draws"]))
    noise = np.array([perpendicular_drift(x, y, point)[0] for x, y in sets])
    noise *= math.sqrt(job["points"] / point.active)
    bias = -point.side * point.position / math.sqrt(2)
    aligned = population_averages([[point.side, 1e-9]], [bias], STRIPE)
    counts, _ = np.histogram(noise, EDGES)
    return [
        {
            "p_value": float(kstest(noise, "norm").pvalue),
            "spread": float(noise.std(ddof=1)),
            "second_moment": float(aligned.var[0, 0] + aligned.drift[0, 1] ** 2),
            "active": point.active,
            "histogram": counts.tolist(),
        }
    ]


def _read_noise(table: Table) -> list[Row]:
    """Nothing is trained: what a seed has is many draws, of which the p-value is made."""
    return [
        row | {"seed": None, "of_seeds": row["draws"], "moment_gap": abs(row["second_moment"] - row["active"])}
        for row in table.rows
    ]


def _noise_claim() -> Claim:
    return Claim(
        "What p points add to the weights across is Gaussian, of variance D/p",
        "appendix C.3: μ² + σ² = D, the share of points that a neuron sees",
        All(
            AtMost("moment_gap", 1e-6, of="every", called="difference of the two sides"),
            AtLeast("p_value", 0.01, of="every", called="p of Kolmogorov and Smirnov"),
        ),
    )


# --- pictures -------------------------------------------------------------------------------------------------------


def _neuron_figure(table: Table) -> Figure:
    """One neuron an attractor: lines are the network, dashes the equation."""
    rows = [row for row in table.rows if row.get("neuron")]
    figure = side_by_side(len(rows), 2.9, 2.7)
    for axes, row in zip(figure.axes, rows, strict=True):
        neuron = row["neuron"]
        for number, name in enumerate(WEIGHTS):
            colour = LIGHT[SUBJECTS[number]]
            axes.plot(neuron["time"], neuron["network"][number], color=colour, label=name)
            axes.plot(neuron["time"], neuron["theory"][number], "--", color=LIGHT["ink"], linewidth=0.9)
        axes.set(title=f"to {row['attractor']}", xlabel="time / τ", yscale="symlog")
        plain_ticks(axes)
    figure.axes[0].set_ylabel("weights (dashes: equations 5, 7)")
    figure.axes[0].legend()
    return figure


@styled
def fixed_point_figure(dimension: int = 2) -> Figure:
    """G(ζ) on either side, dashed where neurons cannot align (Figure 3b); dots are the attractors."""
    zeta = np.linspace(-2.5, 2.5, 1001)
    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axes = figure.subplots()
    for side, colour in ((1, LIGHT["first"]), (-1, LIGHT["second"])):
        _, c_1 = STRIPE.half_line(zeta, side)
        drift = intercept_drift(STRIPE, dimension, zeta, side)
        aligns = np.abs(c_1) > np.sign(c_1) * side * STRIPE(zeta) * density(zeta)
        label = f"ω₁ {'>' if side > 0 else '<'} 0"
        axes.plot(zeta, np.where(aligns, drift, np.nan), color=colour, label=label)
        axes.plot(zeta, np.where(aligns, np.nan, drift), "--", color=colour, linewidth=1)
    for point in attractors(STRIPE, dimension):
        axes.plot(point.position, 0, "o", color=LIGHT["ink"], markersize=4)
    axes.axhline(0, color=LIGHT["muted"], linewidth=0.7)
    axes.set(xlabel="intercept ζ", ylabel="d C_b + ζ C₁", title=f"fixed points, d = {dimension}")
    axes.legend()
    return figure


def _path_figure(table: Table) -> Figure:
    (row,) = [row for row in table.rows if row.get("paths")]
    figure = Figure(figsize=(4.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for path in np.array(row["paths"]):
        axes.plot(*path.T, color=LIGHT["active"], alpha=0.5, linewidth=0.7)
        axes.plot(*path[-1], ".", color=LIGHT["active"], markersize=3)
    for name, point in points().items():
        axes.plot(point.position, 0, "o", color=LIGHT["ink"], markersize=5)
        axes.annotate(name, (point.position, 0), (3, 5), textcoords="offset points")
    axes.set(xlim=(-2.5, 2.5), ylim=(-2, 2), xlabel="z₁", ylabel="z⊥", title="neurons up to the onset")
    return figure


def _decision_figure(table: Table) -> Figure:
    rows = [row for row in table.rows if row["when"] in TIMES]
    figure = side_by_side(len(rows), 2.8, 2.8)
    for axes, row in zip(figure.axes, rows, strict=True):
        output = np.array(row["output"])
        height = np.abs(output).max()
        heights = np.array(row["intercepts"]) / max(row["intercepts"])
        axes.bar(EDGES[:-1], heights, np.diff(EDGES), bottom=-1, align="edge", color=LIGHT["line"])
        axes.plot(AXIS[::10], output / height, color=LIGHT["active"])
        for place in STRIPE.interfaces:
            axes.axvline(place, color=LIGHT["mixed"], linestyle="--", linewidth=0.9)
        if row["when"] == "t_star":
            axes.plot([p.position for p in points().values()], [-1] * 3, "x", color=LIGHT["ink"], clip_on=False)
        axes.axhline(0, color=LIGHT["muted"], linewidth=0.7)
        axes.set(title=f"{TIMES[row['when']]}, {row['time']:.0f} τ", xlabel="x₁", xlim=(-2.5, 2.5), ylim=(-1, 1.05))
    figure.axes[0].set_ylabel("output / its largest; ζ below")
    return figure


def _loss_figure(table: Table) -> Figure:
    (row,) = table.where(when="course").rows
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes = figure.subplots()
    for name, colour, label in (("loss", "first", "training loss"), ("error", "second", "test error")):
        axes.plot(row["times"][1:], np.maximum(row[name], 1e-5)[1:], color=LIGHT[colour], label=label)
    if row["onset"]:
        axes.axvline(row["onset"], color=LIGHT["ink"], linestyle="--", linewidth=0.9, label="onset t*")
    log_axes(axes)
    axes.set_xlabel("time / τ")
    axes.legend()
    return figure


def _arrow_figure(strips: dict[str, tuple[Table, tuple[int, int]]]) -> Figure:
    """A row a strip of frames, seen in a plane; arrows along βω, their lengths the square root of its norm."""
    columns = max(len(rows) for rows, _ in strips.values())
    figure = Figure(figsize=(0.4 + 1.9 * columns, 2.1 * len(strips)), layout="constrained")
    grid = figure.subplots(len(strips), columns, squeeze=False)
    for cells, (name, (rows, plane)) in zip(grid, strips.items(), strict=True):
        for axes in cells[len(rows) :]:
            axes.set_axis_off()
        for axes, row in zip(cells, rows.rows, strict=False):
            _frame(axes, row, plane)
        cells[0].set_ylabel(name)
    return figure


def _frame(axes: Axes, row: Row, plane: tuple[int, int]) -> None:
    x, y = draw(world_of(row), 300, row["seed"], "train")
    for label, colour in ((1, LIGHT["active"]), (-1, LIGHT["mixed"])):
        first, second = x[y == label][:, plane].T
        axes.scatter(first, second, s=2, color=colour, alpha=0.35, linewidths=0)
    arrows = np.array(row["arrows"])[:, plane]
    size = np.linalg.norm(arrows, axis=1, keepdims=True)
    arrows = 2.4 * arrows / np.sqrt(np.where(size > 0, size, 1.0))
    origin = np.zeros(len(arrows))
    axes.quiver(origin, origin, *arrows.T, angles="xy", scale_units="xy", scale=1, width=0.008, color=LIGHT["ink"])
    axes.set(xlim=(-3, 3), ylim=(-3, 3), xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"{row['time']:.3g} τ{', ' + row['stage'] if row['stage'] else ''}")


def _net(done: Training, when: When) -> MeanFieldNet:
    net = done.at(when)
    assert isinstance(net, MeanFieldNet)
    return net


def _rounded(values: FloatArray) -> Any:
    """Five digits are enough for a picture, whatever the order of magnitude."""
    with np.errstate(divide="ignore"):
        size = np.where(values == 0, 0.0, np.floor(np.log10(np.abs(values))))
    return (np.round(values / 10.0**size, 4) * 10.0**size).tolist()
