"""Study: the principal components of a net's kernel turn into functions of the label (the stripe, figures 9 and 10).

A one-hidden-layer net is trained in the feature regime on labels that depend on one of ten directions, and its tangent
and last-layer kernels are looked at on fresh points: at the start, at t* where the first examples are fitted, at the
end. (Spec 004, sections 5.3 to 5.7, E9, E10 and 9.4.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from polariscope.kernels.flow_nets import MeanFieldNet
from polariscope.kernels.frozen import NetKernel
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.kernels.principal import explained_by
from polariscope.measures.mutual_information import information_floor
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats, Flat, Rises
from polariscope.studies.kit import Restarts
from polariscope.studies.manifolds.label_modes import (
    MODES,
    NAMES,
    PARTS,
    TIMES,
    listing,
    modes_of,
    pictures,
    read_modes,
    scatter_of,
)
from polariscope.studies.manifolds.stripe_nets import SOURCE
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.points.stripes import Stripe


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
    "smoke": Setting(sizes=(100,), seeds=1, width=50, steps=300, fresh=100),
    "laptop": Setting(sizes=(1000, 464, 215, 100), seeds=10, width=1000, steps=3000),
    "paper": Setting(sizes=(1000, 464, 215, 100), seeds=20, width=10_000, steps=30_000),
}


@studies.register("kernel-modes")
class KernelModes(Study):
    """Labels in the leading modes of the tangent and of the last-layer kernel, over training."""

    title = "The leading modes of the kernel become the task"
    source = f"{SOURCE}, section 5.1, figures 9 and 10"
    question = "What does a net that learns features do to its kernel, and when in training?"
    cost = {"smoke": "2 s", "laptop": "4 minutes", "paper": "a day"}
    drawn = {
        "alignment": Restarts(
            "alignment", "time", within="part", names=NAMES | TIMES, called="alignment with the labels", from_zero=True
        )
    }

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

    def claims(self, scale: Scale) -> list[Claim]:
        largest = {"size": max(SETTINGS[scale].sizes)}
        tangent = largest | {"part": "tangent"}
        centred, plain, last = tangent | {"centred": True}, tangent | {"centred": False}, {"part": "last_layer"}
        at_all_sizes = {"part": "tangent", "centred": False}
        start, onset, end = {"time": "start"}, {"time": "t_star"}, {"time": "end"}
        both, of_start, bits = largest | {"centred": True}, "alignment over that at the start", "bits of the first"
        return [
            Claim(
                "Before training every component carries equally little information about the label",
                f"figure 9a: small, no trend with the component (k = 5 neighbours alone make {information_floor():.3f} "
                "bits; prototype 0.06 to 0.08)",
                All(
                    AtMost("most_bits", 0.2, where=centred | start, called="largest information of a component"),
                    Flat("bits", "component", by=0.05, where=centred | start),
                ),
            ),
            Claim(
                "After training the first component of both kernels carries most of the information",
                "figure 9a; prototype 0.08 to 0.77 bits (NTK) and 0.80 (last layer)",
                AtLeast("first_bits", 0.6, where=both | end, each="kernel", called=bits),
            ),
            Claim(
                "The other components of the NTK carry information too, to a lesser extent",
                "section 5.1: products of a function of x₁ and a linear one; prototype 0.12 to 0.13 bits",
                All(
                    Beats("other_bits", end, start, by=0.02, where=centred, called="mean bits of the others", digits=3),
                    AtMost("others_of_first_bits", 0.5, where=centred | end, called="their share of the first's bits"),
                ),
            ),
            Claim(
                "After training most of the projection of the labels is on the first component",
                "figure 9b; prototype, centred: ω₁² 0.000 to 0.214, at least 3 times any other",
                All(
                    AtMost("first_share", 0.05, where=centred | start, called="ω₁²", digits=3),
                    AtLeast("first_share", 0.15, where=centred | end, called="ω₁²", digits=3),
                    AtMost("runner_up", 0.33, where=centred | end, called="largest other over ω₁²", digits=3),
                ),
            ),
            Claim(
                "The kernel aligns with the labels, which move into its leading components",
                f"section 5.1; prototype: centred alignment 0.047 to 0.194, Σω² of {MODES} uncentred 0.156 to 0.398",
                All(
                    AtLeast("alignment_of_start", 3, where=centred | end, called=of_start),
                    AtLeast("captured_of_start", 2, where=plain | end, called="Σω² over that at the start"),
                ),
            ),
            Claim(
                "The kernel has aligned by t*, when only the first examples are fitted",
                "section 2.4: compression comes before fitting; prototype at t* 0.71 bits, alignment 0.145 of 0.194",
                All(
                    AtLeast("first_bits", 0.5, where=centred | onset, called="bits of the first component"),
                    AtLeast("alignment_of_start", 2, where=centred | onset, called=of_start),
                ),
            ),
            Claim(
                "In the plane of two components the classes are mixed before training and separated after it",
                "figure 10; prototype: neighbours get 0.51 to 0.53, then 0.953 (NTK, uncentred) and 0.982 (last layer)",
                All(
                    AtMost("separability", 0.58, where=plain | start, digits=3),
                    AtLeast("separability", 0.93, where=plain | end, digits=3),
                    AtLeast("separability", 0.97, where=centred | last | end, digits=3),
                ),
            ),
            Claim(
                "The components of the last layer lie on a curve: they are functions of x₁",
                "figure 10: nearly one-dimensional; prototype R² on x₁ 0.995 and 0.99",
                AtLeast("curve", 0.97, where=centred | last | end, called="smaller R² of two components", digits=3),
            ),
            Claim(
                "The first component carries more information the more examples the network was trained on",
                "prototype, d = 10: 0.34, 0.51, 0.65, 0.76 bits at p = 100, 215, 464, 1000 (Spec 004, section 9.4)",
                Rises("first_bits", "size", by=0.1, where=at_all_sizes | end, called="bits of the first component"),
            ),
        ]

    def readings(self, table: Table) -> Table:
        read = read_modes(table)
        return Table([row | {"curve": min(row["explained"])} if "explained" in row else row for row in read.rows])

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
        return super().figures(largest) | pictures(largest)
