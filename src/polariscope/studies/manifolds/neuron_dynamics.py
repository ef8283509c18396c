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
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kstest

from polariscope.kernels.flow_nets import MeanFieldNet, split
from polariscope.kernels.gradient_flow import Training, train_flow
from polariscope.kernels.neurons import clusters, dead, growth_rates, near, neurons
from polariscope.report.figures import styled
from polariscope.studies.kit import Paths
from polariscope.studies.manifolds.neuron_claims import claims, read
from polariscope.studies.manifolds.neuron_figures import (
    arrow_figure,
    decision_figure,
    fixed_point_figure,
    neuron_figure,
    path_figure,
)
from polariscope.studies.manifolds.stripe_nets import ALPHA, SOURCE, draw, flow_of, start_of, undisturbed, world_of
from polariscope.studies.rows import groups
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.theory.amplification import perpendicular_drift
from polariscope.theory.neuron_flow import Neurons, neuron_flow, population_averages
from polariscope.theory.stripe import FixedPoint, Layers, attractors
from polariscope.worlds.points.stripes import FloatArray

STRIPE = Layers()
NAMES = ("C", "A", "B")
"""The attractors, from the fastest to the slowest, as Spec 004 calls them."""
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
class NeuronDynamics(Study):
    """Neurons on the way to their attractors, the function they make afterwards, and the noise that stops them."""

    title = "Neurons gather at three points, then move to the interfaces"
    source = f"{SOURCE}, section 3.2 and appendix C, figures 1, 3, 4 and 6"
    question = "How does a network learn to ignore directions that its labels do not depend on?"
    cost = {"smoke": "3 s", "laptop": "about 3 minutes", "paper": "hours"}
    drawn = {
        "loss": Paths(
            "value",
            "times",
            by="of",
            dot="onset",
            called="training loss and test error, dots at the onset",
            along="time / τ",
            log=True,
            log_y=True,
        )
    }

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
        return list(claims(points(), LAZY_ALPHA))

    def readings(self, table: Table) -> Table:
        return Table(list(read(table, points())))

    def beside(self, table: Table) -> list[Row]:
        return [
            {
                "attractor": name,
                "z* predicted": f"{points()[name].position:.3f}",
                "mean z here": f"{group.mean('position'):.3f}",
                "τ/τ* predicted": f"{points()[name].growth_rate:.3f}",
                "growth rate here": f"{group.mean('rate'):.3f}",
                "share of neurons": f"{group.mean('count') / group.rows[0]['width']:.2f}",
                "share of squared weights": f"{group.mean('share'):.4f}",
                "median |λ|": f"{group.mean('ratio'):.0f}",
            }
            for name, group in groups(table.where(part="compressing"), "attractor", NAMES)
        ]

    @styled
    def figures(self, table: Table) -> dict[str, Figure]:
        run = table.where(seed=0)
        compressing, fitting, arrows = (run.where(part=part) for part in ("compressing", "fitting", "arrows"))
        stripes, cylinder = arrows.where(task="stripe").by("alpha"), arrows.where(task="cylinder")
        courses = {"loss": "training loss", "error": "test error"}
        (course,) = fitting.where(when="course").rows
        names = {str(when): words for when, words in TIMES.items()}
        return super().figures(Table([course | {"of": of, "value": course[key]} for key, of in courses.items()])) | {
            "single-neurons": neuron_figure(compressing),
            "fixed-points": fixed_point_figure(),
            "trajectories": path_figure(compressing, points()),
            "decision": decision_figure(fitting, names, AXIS[::10], EDGES, points()),
            "arrows-stripe": arrow_figure({f"α = {alpha:g}": (rows, (0, 1)) for alpha, rows in stripes}),
            "arrows-cylinder": arrow_figure({"informative plane": (cylinder, (0, 1)), "across it": (cylinder, (0, 2))}),
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


def _net(done: Training, when: When) -> MeanFieldNet:
    net = done.at(when)
    assert isinstance(net, MeanFieldNet)
    return net


def _rounded(values: FloatArray) -> Any:
    """Five digits are enough for a picture, whatever the order of magnitude."""
    with np.errstate(divide="ignore"):
        size = np.where(values == 0, 0.0, np.floor(np.log10(np.abs(values))))
    return (np.round(values / 10.0**size, 4) * 10.0**size).tolist()
