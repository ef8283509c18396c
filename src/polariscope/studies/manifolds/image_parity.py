"""Study: a deep convolutional net on even against odd digits, and what its kernels are worth (figures 8 to 10).

Five learners see equally many examples: the net, trained in the feature regime, and hinge flows with four frozen
kernels: that of all parameters or of the last layer alone, taken from the net before or after its training. The kernels
learn from examples that did not train the net. (Spec 004, sections 8, 9.7, E8 to E10.)

The digits are drawn ones, unless the environment variable POLARISCOPE_DATA names a folder that holds ``mnist/`` with
the four IDX files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from polariscope.kernels.empirical import Kind, tangent_kernel
from polariscope.kernels.flow_nets import ModuleNet
from polariscope.kernels.frozen import FrozenLearner, hinge_flow
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.kernels.principal import kernel_distances
from polariscope.measures.intrinsic_dimension import mle_from_distances
from polariscope.nets.mnas import mnas_net
from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, styled
from polariscope.studies.manifolds.kernel_modes import NAMES, TIMES, listing, modes_of, pictures, scatter_of
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.digits import Digits
from polariscope.worlds.parity import ParityTask, digit_files, parity_task
from polariscope.worlds.world import World

ALPHA = 0.01
KINDS: dict[str, Kind] = {"tangent": "trace", "last_layer": "last_layer"}
LEARNERS = (("net", "end"), ("tangent", "start"), ("tangent", "end"), ("last_layer", "start"), ("last_layer", "end"))
SOURCES = {"digits": "drawn digits", "mnist": "MNIST"}

PROTOTYPE = {
    "error of the net": ("-", "0.078"),
    "error with the NTK": ("0.0744", "0.0660"),
    "error with the last layer": ("0.170", "0.0702"),
    "ω₁², ω₂² of the NTK": ("0.108 0.137", "0.559 0.133"),
    "ω₁², ω₂² of the last layer": ("0.012 0.177", "0.668 0.070"),
    "bits of modes 1, 2 of the NTK": ("0.15 0.17", "0.52 0.27"),
    "alignment of the NTK": ("0.18", "0.57"),
    "alignment of the last layer": ("0.13", "0.67"),
    "dimension of the last layer": ("7.9", "4.8"),
}
"""Spec 004, section 9.7: 8x8 digits, p = 300, h = 4, one net (before, after training)."""


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale. The publication names neither p nor width nor α (Spec 004, A14)."""

    sizes: tuple[int, ...]
    seeds: int
    test: int
    pixels: int
    width: int
    steps: int
    kernel_steps: int = 20_000
    """A last layer of few units may not separate the labels at all: then more steps would not help."""


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting((40,), 1, 50, 14, 1, 20, 200),
    "laptop": Setting((1600, 800, 400, 200, 100), 5, 2000, 14, 4, 800),
    "paper": Setting((10_000, 3000, 1000, 300, 100), 5, 20_000, 28, 16, 5000),
}


@studies.register("image-parity")
@dataclass(frozen=True)
class ImageParity(Study):
    """The test error of a deep net and of its four frozen kernels over p, and the modes of the kernels."""

    title = "A deep net's own kernel, before and after it learned even from odd"
    source = (
        "Paccolat, Petrini, Geiger, Tyloo and Wyart 2021, Compressing invariant manifolds in neural nets, section 5.2, "
        "figures 8 to 10"
    )
    question = "Does a deep net on images compress as the stripe's net does, and is its final kernel as good as it is?"
    cost = {"smoke": "2 s", "laptop": "about 5 minutes", "paper": "days on a large machine"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = asdict(SETTINGS[scale])
        sizes, seeds = setting.pop("sizes"), setting.pop("seeds")
        data = "digits" if mnist_folder() is None else "mnist"
        return [{"data": data, **setting, "size": size, "seed": seed} for size in sizes for seed in range(seeds)]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        task = digits_of(job["data"], job["size"], job["test"], job["seed"], job["pixels"])
        start = ModuleNet.of(mnas_net(job["width"], seed=job["seed"]))
        flow = Flow(ALPHA, change=0.3, early_change=0.3, longest=1.0, momentum=0.9, steps=job["steps"])
        done = train_flow(start, task.net.x, task.net.y, flow, every=job["steps"])
        run = {key: job[key] for key in ("data", "size", "seed")}
        error = done.error(task.test.x, task.test.y)
        rows = [run | {"part": "net", "time": "end", "error": error, "unfitted": done.active, "steps": done.steps}]
        x, y = torch.from_numpy(task.kernel.x), torch.from_numpy(task.kernel.y)
        for time, state in (("start", done.start.state), ("end", done.end.state)):
            net = mnas_net(job["width"])
            net.load_state_dict(start.with_state(state).parameters())
            for part, kind in KINDS.items():

                def kernel(x1: Tensor, x2: Tensor | None = None, net: Any = net, kind: Kind = kind) -> Tensor:
                    return tangent_kernel(net, x1, x2, kind, "structured")

                gram = kernel(x)
                fit = hinge_flow(gram, task.kernel.y, steps=job["kernel_steps"])
                found, plane = modes_of(gram, y)
                if job["seed"] == 0:
                    found |= scatter_of(plane, y)
                at = {"part": part, "time": time, "centred": True, "unfitted": fit.active, "steps": fit.steps}
                at["error"] = FrozenLearner(kernel, x, fit).error(task.test.x, task.test.y)
                rows.append(run | at | found | {"dimension": two_neighbour_dimension(gram)})
        return rows

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        sizes, data = table.distinct("size"), SOURCES[table.distinct("data")[0]]
        top = sizes[-1]
        seeds = len(table.distinct("seed"))
        errors = {(*at, p): errors_of(table, *at, p) for at in LEARNERS for p in sizes}

        def shown(*learners: tuple[str, str]) -> str:
            pairs = (", ".join(f"{label(*at)} {errors[(*at, p)]:.3f}" for at in learners) for p in sizes)
            return f"{data}: " + "; ".join(f"p = {p}: {pair}" for p, pair in zip(sizes, pairs, strict=True))

        def better(first: tuple[str, str], second: tuple[str, str], p: int, margin: float = 0.0) -> bool:
            return bool(errors[(*first, p)] <= errors[(*second, p)] + margin)

        def mean(name: str, part: str, time: str) -> Any:
            return table.where(size=top, part=part, time=time).column(name).mean(axis=0)

        net, tangent, initial = ("net", "end"), ("tangent", "end"), ("tangent", "start")
        last, last_initial = ("last_layer", "end"), ("last_layer", "start")
        omega = {at: mean("projections", *at) for at in (initial, tangent, last)}
        bits = {at: mean("information", *at) for at in (initial, tangent, last)}
        alignment = [float(mean("alignment", *at)) for at in (initial, tangent)]
        separable = {at: float(mean("separability", *at)) for at in (initial, tangent, last)}
        dimension = [float(mean("dimension", *at)) for at in (last_initial, last)]
        many = seeds >= 3
        few = "" if many else "one net cannot decide differences this small"
        after = f"{data}, p = {top}: "
        return [
            Claim(
                "Learning with the net's final NTK is better than with its initial one",
                "figure 8: the initial NTK is worse; prototype 0.0744 and 0.0660",
                shown(initial, tangent),
                better(tangent, initial, top),
                f"decided at p = {top}",
            ),
            Claim(
                "The final NTK is as good as the net",
                "figure 8: about equal; within one percent (Spec 004, F61)",
                shown(net, tangent),
                all(better(tangent, net, p, 0.01) for p in sizes),
            ),
            Claim(
                "At the largest p the final NTK is slightly better than the net",
                "figure 8; prototype 0.0660 and 0.078",
                f"{after}net {errors[(*net, top)]:.4f}, NTK {errors[(*tangent, top)]:.4f}",
                better(tangent, net, top) if many else None,
                few,
            ),
            Claim(
                "The kernel of the last layer improves by training",
                "figure 8; prototype 0.170 to 0.0702",
                shown(last_initial, last),
                all(better(last, last_initial, p) for p in sizes),
            ),
            Claim(
                "It is good at the end, but generally worse than the net",
                "figure 8; prototype 0.0702 against 0.078: not so there",
                shown(net, last),
                sum(not better(last, net, p) for p in sizes) > len(sizes) / 2 if many else None,
                few,
            ),
            Claim(
                "Before training the components tell little about the label, after it the first tells most",
                "figure 9c; prototype 0.15 to 0.52 bits",
                f"{after}at most {bits[initial].max():.2f} bits in an initial component, first one of the final NTK "
                f"{bits[tangent][0]:.2f}, of the last layer {bits[last][0]:.2f}",
                bool(bits[initial].max() < bits[tangent][0] / 2 and bits[tangent][0] >= 0.45),
            ),
            Claim(
                "Most of the projection of the labels moves to the first component",
                "figure 9d; prototype ω₁² 0.108 to 0.559",
                f"{after}NTK {listing(omega[initial][:3])} to {listing(omega[tangent][:3])}, "
                f"last layer {listing(omega[last][:3])}",
                bool(omega[tangent][0] >= 0.45 and omega[initial][0] < omega[tangent][0] / 2),
            ),
            Claim(
                "The second component has a sizable share",
                "figure 9d, on MNIST; prototype ω₂² 0.133",
                f"{after}ω₂² {omega[tangent][1]:.3f}, largest of the next {omega[tangent][2:].max():.3f}",
                bool(omega[tangent][1] > omega[tangent][2:].max()),
            ),
            Claim(
                "The kernel aligns with the labels",
                "prototype 0.18 to 0.57, 3 times (Spec 004, F62)",
                f"{after}{alignment[0]:.3f} to {alignment[1]:.3f}",
                bool(alignment[1] >= 3 * alignment[0]),
            ),
            Claim(
                "In the plane of two components the classes are mixed before training and apart after it",
                "figure 10",
                after + ", ".join(f"{label(*at)} {value:.2f}" for at, value in separable.items()),
                bool(separable[initial] < 0.75 and min(separable[tangent], separable[last]) >= 0.85),
            ),
            Claim(
                "The last layer looks like a curve, but has more dimensions than one, and fewer than before",
                "footnote 6: 6 dimensions by TwoNN; prototype 7.9 to 4.8",
                f"{after}{dimension[0]:.1f} to {dimension[1]:.1f}",
                bool(2 < dimension[1] < dimension[0]),
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        """The table of Spec 004, section 9.7, beside ours at the largest p, then our learning curves."""
        sizes = table.distinct("size")
        top = sizes[-1]

        def pair(name: str, part: str, p: int = top) -> tuple[str, str]:
            cells = []
            for time in ("start", "end"):
                values = table.where(size=p, part=part, time=time).column(name)
                if not len(values):
                    cells.append("-")
                elif values.ndim == 2:
                    cells.append(listing(values.mean(axis=0)[:2], 3))
                else:
                    cells.append(plus_minus(values, 3))
            return cells[0], cells[1]

        ours = {
            "error of the net": pair("error", "net"),
            "error with the NTK": pair("error", "tangent"),
            "error with the last layer": pair("error", "last_layer"),
            "ω₁², ω₂² of the NTK": pair("projections", "tangent"),
            "ω₁², ω₂² of the last layer": pair("projections", "last_layer"),
            "bits of modes 1, 2 of the NTK": pair("information", "tangent"),
            "alignment of the NTK": pair("alignment", "tangent"),
            "alignment of the last layer": pair("alignment", "last_layer"),
            "dimension of the last layer": pair("dimension", "last_layer"),
        }
        rows = [(top, name, PROTOTYPE[name], here) for name, here in ours.items()]
        for p in reversed(sizes[:-1]):
            for part, name in (
                ("net", "error of the net"),
                *((part, f"error with the {NAMES[part]}") for part in KINDS),
            ):
                rows.append((p, name, ("-", "-"), pair("error", part, p)))
        return [
            {
                "p here": p,
                "quantity": name,
                "before training, prototype (p = 300)": theirs[0],
                "here": here[0],
                "after training, prototype (p = 300)": theirs[1],
                "here ": here[1],
            }
            for p, name, theirs, here in rows
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        return {"errors": _errors(table)} | pictures(table.where(size=max(table.distinct("size"))))


def mnist_folder() -> Path | None:
    """The folder of MNIST's files under POLARISCOPE_DATA, if it is set and they are there."""
    root = os.environ.get("POLARISCOPE_DATA")
    folder = Path(root) / "mnist" if root else None
    return folder if folder is not None and any(folder.glob("*images*idx3*.gz")) else None


def digits_of(data: str, train: int, test: int, seed: int, pixels: int) -> ParityTask:
    """Even against odd on drawn digits or on MNIST."""
    if data == "mnist":
        folder = mnist_folder()
        if folder is None:
            raise FileNotFoundError("this study was begun on MNIST: set POLARISCOPE_DATA to the folder of mnist/ again")
        source: World = digit_files(folder)
    else:
        # Digits are drawn independently: a third more of them has enough of each.
        source = Digits(200 + 4 * (2 * train + test) // 3, pixels)
    return parity_task(source, train, test, seed, pixels)


def errors_of(table: Table, part: str, time: str, size: int) -> float:
    """Mean test error of a learner over the seeds."""
    return table.where(size=size, part=part, time=time).mean("error")


def two_neighbour_dimension(gram: Tensor) -> float | None:
    """Intrinsic dimension of the inputs as the kernel sees them, from two neighbours; None if most coincide."""
    nearest = kernel_distances(gram).fill_diagonal_(torch.inf).topk(2, largest=False).values
    distinct = nearest[nearest[:, 0] > 1e-6 * gram.diagonal().max().sqrt()]
    return mle_from_distances(distinct.sort(1).values.numpy()) if len(distinct) > len(gram) / 2 else None


def label(part: str, time: str) -> str:
    return "net" if part == "net" else f"{TIMES[time]} {NAMES[part]}"


@styled
def _errors(table: Table) -> Figure:
    """Figure 8: five learning curves, a point a seed and a line through the means."""
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes: Axes = figure.subplots()
    sizes = table.distinct("size")
    colours = {"net": LIGHT["ink"], "tangent": LIGHT[SUBJECTS[0]], "last_layer": LIGHT[SUBJECTS[1]]}
    for number, (part, time) in enumerate(LEARNERS):
        rows = table.where(part=part, time=time)
        style: dict[str, Any] = {"color": colours[part], "marker": MARKERS[number], "markersize": 4}
        axes.plot(rows.column("size"), rows.column("error"), alpha=0.3, linestyle="none", **style)
        means = [errors_of(table, part, time, p) for p in sizes]
        axes.plot(sizes, means, linestyle="--" if time == "start" else "-", label=label(part, time), **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(p) for p in sizes])
    low, high = axes.get_ylim()
    marks = [mark for mark in (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5) if low <= mark <= high]
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.set_xlabel(f"training examples p, {SOURCES[table.distinct('data')[0]]}")
    axes.set_ylabel("test error")
    figure.legend(loc="outside upper left", ncols=3)
    return figure
