"""Study: the principal components of a net's kernel turn into functions of the label (the stripe, figures 9 and 10).

A one-hidden-layer net is trained in the feature regime on labels that depend on one of ten directions, and its tangent
and last-layer kernels are looked at on fresh points: at the start, at t* where the first examples are fitted, at the
end. What a kernel knows of the labels is said by :func:`modes_of`, which the study of images uses too. (Spec 004,
sections 5.3 to 5.7, E9, E10 and 9.4.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.frozen import NetKernel
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.kernels.principal import explained_by, kernel_pca, separability, target_alignment
from polariscope.measures.mutual_information import information_floor, label_information
from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, styled
from polariscope.report.kernel_figures import component_scatter, information_curves, projection_bars
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.stripes import Stripe

MODES = 10
SHOWN = 400  # points of each scatter plot
TIMES = {"start": "initial", "t_star": "at t*", "end": "final"}
PARTS: tuple[Literal["tangent", "last_layer"], ...] = ("tangent", "last_layer")
NAMES = {"tangent": "NTK", "last_layer": "last layer"}
PUBLISHED = (("tangent", "start"), ("tangent", "end"), ("last_layer", "end"))
"""The kernels of figures 9 and 10."""


@dataclass(frozen=True)
class Prototype:
    """A row of the table of Spec 004, section 9.4: d = 10, p = 1000, h = 1000, one net."""

    projections: tuple[float, float, float, float]
    captured: float
    information: tuple[float, float, float, float]
    alignment: float


PROTOTYPE = {
    ("tangent", "start", True): Prototype((0.000, 0.001, 0.000, 0.005), 0.155, (0.08, 0.07, 0.06, 0.07), 0.047),
    ("tangent", "t_star", True): Prototype((0.138, 0.000, 0.007, 0.005), 0.178, (0.71, 0.11, 0.11, 0.10), 0.145),
    ("tangent", "end", True): Prototype((0.214, 0.000, 0.008, 0.001), 0.233, (0.77, 0.13, 0.13, 0.13), 0.194),
    ("tangent", "start", False): Prototype((0.002, 0.000, 0.000, 0.000), 0.156, (0.08, 0.07, 0.08, 0.06), 0.013),
    ("tangent", "end", False): Prototype((0.049, 0.344, 0.001, 0.000), 0.398, (0.78, 0.51, 0.12, 0.13), 0.087),
    ("last_layer", "start", True): Prototype((0.001, 0.000, 0.001, 0.001), 0.159, (0.07, 0.06, 0.07, 0.07), 0.044),
    ("last_layer", "end", True): Prototype((0.325, 0.198, 0.035, 0.064), 0.631, (0.80, 0.36, 0.20, 0.42), 0.334),
}
PROTOTYPE_SEPARABILITY = {
    ("tangent", "start", True): "0.51 to 0.53",
    ("tangent", "end", True): "0.941",
    ("tangent", "start", False): "0.51 to 0.53",
    ("tangent", "end", False): "0.953",
    ("last_layer", "start", True): "0.51 to 0.53",
    ("last_layer", "end", True): "0.982 to 0.985",
}


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale. The publication does not say on how many points; Spec 004 takes 1000."""

    sizes: tuple[int, ...]
    seeds: int
    width: int
    steps: int
    fresh: int = 1000
    dimension: int = 10


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting((100,), 1, 50, 300, 100),
    "laptop": Setting((1000, 464, 215, 100), 10, 1000, 3000),
    "paper": Setting((1000, 464, 215, 100), 20, 10_000, 30_000),
}


@studies.register("kernel-modes")
@dataclass(frozen=True)
class KernelModes(Study):
    """Labels in the leading modes of the tangent and of the last-layer kernel, over training."""

    title = "The leading modes of the kernel become the task"
    source = (
        "Paccolat, Petrini, Geiger, Tyloo and Wyart 2021, Compressing invariant manifolds in neural nets, section 5.1, "
        "figures 9 and 10"
    )
    question = "What does a net that learns features do to its kernel, and when in training?"
    cost = {"smoke": "2 s", "laptop": "4 minutes", "paper": "a day"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = asdict(SETTINGS[scale])
        sizes, seeds = setting.pop("sizes"), setting.pop("seeds")
        return [{**setting, "size": size, "seed": seed} for size in sizes for seed in range(seeds)]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        world = Stripe(dimension=job["dimension"])
        rng = np.random.default_rng((job["seed"], job["size"]))
        x, y = world.sample(job["size"], rng)
        points, labels = world.sample(job["fresh"], rng)
        net = MeanFieldNet.draw(job["dimension"], job["width"], job["seed"], torch.float32)
        flow = Flow(longest=0.2, momentum=0.9, steps=job["steps"])
        done = train_flow(net, x, y, flow, informative=1, every=job["steps"])
        test = world.sample(20_000, rng)
        run = {"size": job["size"], "seed": job["seed"], "error": done.error(*test), "unfitted": done.active}
        fresh, classes = torch.from_numpy(points), torch.from_numpy(labels)
        rows = []
        for time in (time for time in TIMES if time in done.snapshots):
            snapshot = done.snapshots[time]
            now = net.with_state(snapshot.state)
            at = run | {"time": time, "clock": snapshot.time, "amplification": snapshot.amplification}
            for part in PARTS:
                gram = NetKernel(now, part)(fresh)
                for center in (True, False):
                    found, plane = modes_of(gram, classes, center)
                    found["explained"] = explained_by(plane, points[:, 0]).tolist()
                    if job["seed"] == 0:
                        found |= scatter_of(plane, classes)
                    rows.append(at | {"part": part, "centred": center} | found)
        return rows

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        size = max(table.distinct("size"))
        largest = table.where(size=size)

        def median(name: str, part: str, time: str, center: bool = True) -> Any:
            return np.median(largest.where(part=part, time=time, centred=center).column(name), axis=0)

        bits = {at: median("information", *at) for at in (*PUBLISHED, ("tangent", "t_star"))}
        before, after = (median("projections", "tangent", time) for time in ("start", "end"))
        others = float(after[1:].max())
        captured = [median("captured", "tangent", time, False) for time in ("start", "end")]
        alignment = {time: float(median("alignment", "tangent", time)) for time in ("start", "t_star", "end")}
        separable = {at: float(median("separability", *at, at[0] == "last_layer")) for at in PUBLISHED}
        curve = median("explained", "last_layer", "end")
        first = {
            p: float(np.median(group.where(part="tangent", time="end", centred=False).column("information")[:, 0]))
            for p, group in table.by("size")
        }
        floor = information_floor()
        rest = float(np.mean(bits["tangent", "end"][1:]))
        start_rest = float(np.mean(bits["tangent", "start"][1:]))
        beginning = bits["tangent", "start"]
        return [
            Claim(
                "Before training every component tells as little about the label",
                f"figure 9a: small, no trend with the component (k = 5 neighbours alone make {floor:.3f} bits; "
                "prototype 0.06 to 0.08)",
                f"{beginning.min():.2f} to {beginning.max():.2f} bits in the first {MODES} of the NTK",
                bool(beginning.max() < 0.2),
            ),
            Claim(
                "After training the first component tells most of it, of both kernels",
                "figure 9a; prototype 0.08 to 0.77 bits (NTK) and 0.80 (last layer)",
                f"NTK {beginning[0]:.2f} to {bits['tangent', 'end'][0]:.2f} bits, "
                f"last layer {bits['last_layer', 'end'][0]:.2f}",
                bool(min(bits["tangent", "end"][0], bits["last_layer", "end"][0]) >= 0.6),
            ),
            Claim(
                "The other components of the NTK tell something too, to a lesser extent",
                "section 5.1: products of a function of x₁ and a linear one; prototype 0.12 to 0.13 bits",
                f"components 2 to {MODES}: {start_rest:.3f} before, {rest:.3f} after",
                bool(start_rest < rest < bits["tangent", "end"][0] / 2),
            ),
            Claim(
                "After training most of the projection of the labels is on the first component",
                "figure 9b; prototype, centred: ω₁² 0.000 to 0.214, at least 3 times any other",
                f"ω₁² {before[0]:.3f} to {after[0]:.3f}; largest other of the first {MODES} {others:.3f}",
                bool(before[0] <= 0.05 and after[0] >= 0.15 and after[0] >= 3 * others),
            ),
            Claim(
                "The kernel aligns with the labels, which move into its leading components",
                f"section 5.1; prototype: centred alignment 0.047 to 0.194, Σω² of {MODES} uncentred 0.156 to 0.398",
                f"alignment {alignment['start']:.3f} to {alignment['end']:.3f}; Σω² {captured[0]:.3f} to "
                f"{captured[1]:.3f}",
                bool(alignment["end"] >= 3 * alignment["start"] and captured[1] >= 2 * captured[0]),
            ),
            Claim(
                "It has turned by t*, before all but the first examples are fitted",
                "section 2.4: compression comes before fitting; prototype at t* 0.71 bits, alignment 0.145 of 0.194",
                f"first component {bits['tangent', 't_star'][0]:.2f} bits, alignment {alignment['t_star']:.3f}",
                bool(
                    bits["tangent", "t_star"][0] >= 0.5 * bits["tangent", "end"][0]
                    and alignment["t_star"] >= 2 * alignment["start"]
                ),
            ),
            Claim(
                "In the plane of two components the classes are noise before training and apart after it",
                "figure 10; prototype: neighbours tell 0.51 to 0.53, then 0.953 (NTK, uncentred) and 0.982 (last "
                "layer)",
                ", ".join(f"{NAMES[part]} {TIMES[time]} {value:.3f}" for (part, time), value in separable.items()),
                bool(
                    separable["tangent", "start"] < 0.58
                    and separable["tangent", "end"] >= 0.93
                    and separable["last_layer", "end"] >= 0.97
                ),
            ),
            Claim(
                "The components of the last layer lie on a curve: they are functions of x₁",
                "figure 10: nearly one-dimensional; prototype R² on x₁ 0.995 and 0.99",
                f"R² {curve[0]:.3f} and {curve[1]:.3f}",
                bool(curve.min() >= 0.95),
            ),
            Claim(
                "The more examples the net saw, the more its first component tells",
                "prototype, d = 10: 0.34, 0.51, 0.65, 0.76 bits at p = 100, 215, 464, 1000 (Spec 004, section 9.4)",
                "uncentred: " + ", ".join(f"p = {p}: {value:.2f}" for p, value in first.items()),
                all(more > less for less, more in itertools.pairwise(first.values())) if len(first) > 1 else None,
                "" if len(first) > 1 else "one number of examples says nothing",
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        """The table of Spec 004, section 9.4, with medians over our nets at the largest p."""
        largest = table.where(size=max(table.distinct("size")))
        rows = []
        for (part, time, center), theirs in PROTOTYPE.items():
            ours = largest.where(part=part, time=time, centred=center)

            def middle(name: str, ours: Table = ours) -> Any:
                return np.median(ours.column(name), axis=0)

            rows.append(
                {
                    "kernel": f"{NAMES[part]}, {TIMES[time]}",
                    "centred": "yes" if center else "no",
                    "ω² modes 1-4, prototype": listing(theirs.projections, 3),
                    "here": listing(middle("projections")[:4], 3),
                    "Σω² of 10, prototype": f"{theirs.captured:.3f}",
                    "here ": f"{middle('captured'):.3f}",
                    "bits modes 1-4, prototype": listing(theirs.information),
                    "here  ": listing(middle("information")[:4]),
                    "alignment, prototype": f"{theirs.alignment:.3f}",
                    "here   ": f"{middle('alignment'):.3f}",
                    "neighbours tell, prototype": PROTOTYPE_SEPARABILITY.get((part, time, center), "-"),
                    "here    ": f"{middle('separability'):.3f}",
                    "R² on x₁ of modes 1-2, here": listing(middle("explained")),
                }
            )
        return rows

    def figures(self, table: Table) -> dict[str, Figure]:
        largest = table.where(size=max(table.distinct("size")), centred=True)
        return pictures(largest) | {"alignment": _alignment(largest)}


# --- what a kernel knows of the labels ------------------------------------------------------------------------------


def modes_of(gram: Tensor, labels: Tensor, center: bool = True) -> tuple[Row, Tensor]:
    """What the leading modes of a kernel matrix know of the labels, JSON-ready, and the first two modes."""
    pca = kernel_pca(gram, MODES, center)
    projections = pca.projections(labels)
    plane = pca.functions[:, :2]
    row = {
        "projections": projections.tolist(),
        "captured": projections.sum().item(),
        "information": [label_information(mode, labels) for mode in pca.functions.T],
        "alignment": target_alignment(gram, labels, center),
        "separability": separability(plane, labels),
        "shares": pca.shares.tolist(),
    }
    return row, plane


def scatter_of(plane: Tensor, labels: Tensor) -> Row:
    """The first two modes of some points with their labels, rounded for a table."""
    return {"scatter": plane[:SHOWN].numpy().round(3).tolist(), "labels": labels[:SHOWN].int().tolist()}


def pictures(table: Table) -> dict[str, Figure]:
    """Figures 9 and 10 from rows of one p: labels and bits by component over the seeds, and the planes of a net."""

    def middle(name: str) -> dict[str, list[float]]:
        found = {}
        for part, time in PUBLISHED:
            rows = table.where(part=part, time=time)
            found[f"{NAMES[part]}, {TIMES[time]}"] = np.median(rows.column(name), axis=0).tolist()
        return found

    shown = [row for at in PUBLISHED for row in table.where(part=at[0], time=at[1]).rows if row.get("scatter")]
    names = [f"{NAMES[row['part']]}, {TIMES[row['time']]}" for row in shown]
    return {
        "projections": projection_bars(middle("projections")),
        "information": information_curves(middle("information"), information_floor()),
        "scatter": component_scatter(
            {name: row["scatter"] for name, row in zip(names, shown, strict=True)},
            shown[0]["labels"],
            {name: row["separability"] for name, row in zip(names, shown, strict=True)},
        ),
    }


def listing(values: Sequence[float], digits: int = 2) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


@styled
def _alignment(table: Table) -> Figure:
    """Alignment of both kernels with the labels at the three times; a thin line a seed, the median thick."""
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes: Axes = figure.subplots()
    times = [time for time in TIMES if len(table.where(time=time))]
    for number, part in enumerate(PARTS):
        values = np.array([table.where(part=part, time=time).column("alignment") for time in times])
        colour = LIGHT[SUBJECTS[number]]
        axes.plot(values, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(np.median(values, axis=1), color=colour, marker=MARKERS[number], markersize=4, label=NAMES[part])
    axes.set_xticks(range(len(times)), [TIMES[time] for time in times])
    axes.set_ylabel("alignment with the labels")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
