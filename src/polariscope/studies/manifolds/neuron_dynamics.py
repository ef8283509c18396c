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
from polariscope.studies.manifolds.amplification import (
    ALPHA,
    SOURCE,
    draw,
    flow_of,
    plain_ticks,
    start_of,
    undisturbed,
    world_of,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import perpendicular_drift
from polariscope.theory.neuron_flow import Neurons, neuron_flow, population_averages
from polariscope.theory.stripe import FixedPoint, Layers, attractors, density, intercept_drift
from polariscope.worlds.stripes import FloatArray

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
    """How much is done at a scale; ``points`` before the onset, ``fit_points`` beyond it, ``draws`` of the noise."""

    seeds: int
    points: int
    width: int
    fit_points: int
    fit_width: int
    steps: int
    test: int
    momentum: float
    arrow_points: int
    frames: int
    draws: int


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(1, 800, 100, 200, 60, 400, 500, 0.9, 100, 3, 20),
    "laptop": Setting(5, 10_000, 400, 10_000, 400, 1000, 20_000, 0.9, 1000, 7, 2000),
    "paper": Setting(20, 10_000, 10_000, 10_000, 10_000, 100_000, 100_000, 0.0, 1000, 12, 2000),
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
        for seed in range(s.seeds):
            fit = {"part": "fitting", "points": s.fit_points, "width": s.fit_width, "seed": seed, "test": s.test}
            jobs.append(stripe | fit)
            jobs.append(stripe | {"part": "compressing", "points": s.points, "width": s.width, "seed": seed})
            arrows = {"part": "arrows", "points": s.arrow_points, "width": 400 if scale != "smoke" else 40}
            for kind in (stripe, stripe | {"alpha": LAZY_ALPHA}, cylinder):
                jobs.append(kind | arrows | {"frames": s.frames, "seed": seed})
        noise = {"part": "noise", "task": "stripe", "dimension": 2, "points": 1000, "draws": s.draws, "seed": 0}
        return jobs + [noise | {"attractor": name} for name in NAMES]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        parts = {"compressing": _compressing, "fitting": _fitting, "arrows": _arrows, "noise": _noise}
        return [job | row for row in parts[job["part"]](job)]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        return [
            *_compressing_claims(table.where(part="compressing")),
            *_fitting_claims(table.where(part="fitting")),
            *_arrow_claims(table.where(part="arrows")),
            *_noise_claims(table.where(part="noise")),
        ]

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


def _compressing_claims(table: Table) -> Iterator[Claim]:
    whole, goals = table.where(attractor="all"), points()
    each = {name: table.where(attractor=name) for name in NAMES}
    where = ", ".join(f"{name} {goals[name].position:.2f}" for name in NAMES)
    yield Claim(
        "Neurons gather at three points",
        f"figure 3c: the predicted attractors, z = {where}; slow neurons have not arrived by the onset",
        f"{whole.mean('arrived'):.0%} of the neurons that see data are within 0.1 of one at t* = "
        f"{whole.mean('onset'):.1f} τ; mean z " + ", ".join(f"{n} {each[n].mean('position'):.2f}" for n in NAMES),
        bool(whole.mean("arrived") >= 0.75),
    )
    yield Claim(
        "A neuron follows its equation of motion up to the onset",
        "figure 3a: network and equations 5 and 7 agree, while all points are active",
        "median difference of the weights when the first point is fitted "
        + ", ".join(f"{name} {each[name].mean('gap'):.0%}" for name in NAMES)
        + "; same sign "
        + ", ".join(f"{name} {each[name].mean('signs'):.0%}" for name in NAMES),
        bool(
            all(each[name].mean("gap") <= 0.25 for name in NAMES)
            and np.mean([g.mean("signs") for g in each.values()]) > 0.95
        ),
    )
    yield Claim(
        "At an attractor neurons grow exponentially, at its own rate",
        "equation 14, per τ: " + ", ".join(f"{name} {goals[name].growth_rate:.3f}" for name in NAMES),
        ", ".join(f"{name} {each[name].mean('rate'):.3f}" for name in NAMES),
        all(abs(each[name].mean("rate") - goals[name].growth_rate) < 0.03 for name in NAMES),
    )
    yield Claim(
        "The fastest attractor carries the network at the onset",
        "section 3.2: all but a vanishing part of the squared weights",
        f"C has {each['C'].mean('share'):.2%}",
        bool(each["C"].mean("share") > 0.99),
    )
    yield Claim(
        "Neurons that see no training point stay put",
        "section 3.2.1",
        f"{whole.mean('idle'):.0f} of {whole.rows[0]['width']} see none; they moved by "
        f"{whole.column('idle_moved').max():g}",
        bool(whole.column("idle_moved").max() == 0),
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


def _fitting_claims(table: Table) -> Iterator[Claim]:
    interfaces = np.array(STRIPE.interfaces)
    ends, onsets, courses = table.where(when="end"), table.where(when="t_star"), table.where(when="course")
    two = [row["zeros"] for row in ends.rows if len(row["zeros"]) == 2]
    gaps = [float(np.abs(np.array(zeros) - interfaces).max()) for zeros in two]
    yield Claim(
        "The sign of the output changes at the interfaces, and nowhere else",
        f"figure 4: {interfaces[0]:g} and {interfaces[1]:.5f}",
        f"{len(two)} of {len(ends)} networks have two changes of sign"
        + (f", at most {max(gaps):.3f} off" if gaps else "")
        + "; at the onset "
        + ", ".join(str(len(row["zeros"])) for row in onsets.rows),
        bool(len(two) == len(ends) and max(gaps) < 0.05),
    )
    counts = [(a["clusters"], b["clusters"]) for a, b in zip(onsets.rows, ends.rows, strict=True)]
    yield Claim(
        "Clusters of neurons move to fit the interfaces, and their number stays",
        "figure 4",
        "clusters at the onset and at the end: " + ", ".join(f"{a} and {b}" for a, b in counts),
        bool(np.median([abs(a - b) for a, b in counts]) == 0),
    )
    first = [float(np.interp(row["onset"], row["times"], row["error"])) for row in courses.rows if row["onset"]]
    last = [row["error"][-1] for row in courses.rows]
    loss = [row["loss"][-1] for row in courses.rows]
    yield Claim(
        "Loss and test error fall after the onset",
        "figure 4, right",
        f"median test error {np.median(first):.3f} at the onset, {np.median(last):.4f} at the end; "
        f"loss {np.median(loss):.4f}",
        bool(np.median(last) < 0.01 < 0.1 < np.median(first) and np.median(loss) < 0.1),
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


def _arrow_claims(table: Table) -> Iterator[Claim]:
    for task, alpha, figure in (("stripe", ALPHA, "figure 1"), ("cylinder", ALPHA, "figure 6")):
        rows = table.where(task=task, alpha=alpha)
        first, last = rows.where(stage="start"), rows.where(stage="end")
        yield Claim(
            f"Weights turn into the informative {'direction' if task == 'stripe' else 'plane'} ({task})",
            f"{figure}: isotropic at first, aligned after training",
            f"informative share of the squared weights {first.mean('alignment'):.3f}, then "
            f"{last.mean('alignment'):.5f} at the end",
            bool(last.mean("alignment") > (0.99 if task == "stripe" else 0.97)),
        )
    lazy = table.where(alpha=LAZY_ALPHA)
    moved = [
        abs(rows.where(stage="end").mean("alignment") - rows.where(stage="start").mean("alignment"))
        for _, rows in lazy.by("seed")
    ]
    yield Claim(
        "Lazy training leaves the weights where they are",
        "figure 1",
        f"the informative share of the squared weights changes by at most {max(moved):.1e} (α = {LAZY_ALPHA:g})",
        bool(max(moved) < 0.02),
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


def _noise_claims(table: Table) -> Iterator[Claim]:
    if len(table):
        gap = np.abs(table.column("second_moment") - table.column("active")).max()
        yield Claim(
            "What p points add to the weights across is Gaussian, of variance D/p",
            "appendix C.3: μ² + σ² = D, the share of points that a neuron sees",
            f"largest difference of the two sides {gap:.1e}; of {table.rows[0]['draws']} data sets, Kolmogorov-Smirnov "
            + ", ".join(f"{row['attractor']} p = {row['p_value']:.2f}" for row in table.rows),
            bool(gap < 1e-6 and (table.column("p_value") > 0.01).all()),
        )


# --- pictures -------------------------------------------------------------------------------------------------------


def _neuron_figure(table: Table) -> Figure:
    """One neuron an attractor: lines are the network, dashes the equation."""
    rows = [row for row in table.rows if row.get("neuron")]
    figure = Figure(figsize=(0.6 + 2.9 * len(rows), 2.7), layout="constrained")
    for axes, row in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
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
    figure = Figure(figsize=(0.6 + 2.8 * len(rows), 2.8), layout="constrained")
    for axes, row in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
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
    axes.set(xscale="log", yscale="log", xlabel="time / τ")
    plain_ticks(axes)
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
