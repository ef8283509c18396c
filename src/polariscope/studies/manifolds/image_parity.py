"""Study: a deep convolutional net on even against odd digits, and what its kernels are worth (figures 8 to 10).

Five learners see equally many examples: the net, trained in the feature regime, and hinge flows with four frozen
kernels: that of all parameters or of the last layer alone, taken from the net before or after its training. The kernels
learn from examples that did not train the net. (Spec 004, sections 8, 9.7, E8 to E10.)

The digits are drawn ones, unless the environment variable POLARISCOPE_DATA names a folder that holds ``mnist/`` with
the four IDX files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from polariscope.kernels.empirical import Kind, tangent_kernel
from polariscope.kernels.flow_nets import ModuleNet
from polariscope.kernels.frozen import FrozenLearner, hinge_flow
from polariscope.kernels.gradient_flow import Flow, train_flow
from polariscope.kernels.principal import kernel_distances
from polariscope.measures.intrinsic_dimension import mle_from_distances
from polariscope.nets.mnas import mnas_net
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats
from polariscope.studies.kit import Curve, Panels
from polariscope.studies.manifolds.label_modes import NAMES, TIMES, listing, modes_of, pictures, read_modes, scatter_of
from polariscope.studies.manifolds.stripe_nets import SOURCE
from polariscope.studies.real_digits import mnist_folder
from polariscope.studies.rows import difference, plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.parity import ParityTask, digit_files, parity_task
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.world import World

ALPHA = 0.01
KINDS: dict[str, Kind] = {"tangent": "trace", "last_layer": "last_layer"}
ENDS = ("start", "end")
LEARNERS = {("net", "end"): "net"} | {(part, time): f"{TIMES[time]} {NAMES[part]}" for part in KINDS for time in ENDS}
COLOURS = {"net": "ink", "tangent": "first", "last_layer": "second"}
SOURCES = {"digits": "drawn digits", "mnist": "MNIST"}

NET = {"part": "net", "time": "end"}
INITIAL = {"part": "tangent", "time": "start"}
FINAL = {"part": "tangent", "time": "end"}
LAST = {"part": "last_layer", "time": "end"}


@dataclass(frozen=True)
class Quantity:
    """A line of the table of Spec 004, section 9.7, and where ours is: 8x8 digits, p = 300, h = 4, one net."""

    name: str
    column: str
    part: str
    before: str
    after: str


PROTOTYPE = (
    Quantity("error of the net", "error", "net", "-", "0.078"),
    Quantity("error with the NTK", "error", "tangent", "0.0744", "0.0660"),
    Quantity("error with the last layer", "error", "last_layer", "0.170", "0.0702"),
    Quantity("ω₁², ω₂² of the NTK", "projections", "tangent", "0.108 0.137", "0.559 0.133"),
    Quantity("ω₁², ω₂² of the last layer", "projections", "last_layer", "0.012 0.177", "0.668 0.070"),
    Quantity("bits of modes 1, 2 of the NTK", "information", "tangent", "0.15 0.17", "0.52 0.27"),
    Quantity("alignment of the NTK", "alignment", "tangent", "0.18", "0.57"),
    Quantity("alignment of the last layer", "alignment", "last_layer", "0.13", "0.67"),
    Quantity("dimension of the last layer", "dimension", "last_layer", "7.9", "4.8"),
)


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
    "smoke": Setting(sizes=(40,), seeds=1, test=50, pixels=14, width=1, steps=20, kernel_steps=200),
    "laptop": Setting(sizes=(1600, 800, 400, 200, 100), seeds=5, test=2000, pixels=14, width=4, steps=800),
    "paper": Setting(sizes=(10_000, 3000, 1000, 300, 100), seeds=5, test=20_000, pixels=28, width=16, steps=5000),
}


@studies.register("image-parity")
class ImageParity(Study):
    """The test error of a deep net and of its four frozen kernels over p, and the modes of the kernels."""

    title = "The kernel of a deep network before and after learning parity"
    source = f"{SOURCE}, section 5.2, figures 8 to 10"
    question = (
        "Does a deep network on images compress like one on stripes, and is its final kernel as good as the network?"
    )
    cost = {"smoke": "2 s", "laptop": "about 5 minutes", "paper": "days on a large machine"}
    drawn = {
        "errors": Panels(
            (
                Curve(
                    "error",
                    "size",
                    by="learner",
                    names={name: name for name in LEARNERS.values()},
                    colours={name: COLOURS[part] for (part, _), name in LEARNERS.items()},
                    dashed=[name for (_, time), name in LEARNERS.items() if time == "start"],
                    called="test error",
                    along="training examples p",
                    log=True,
                    log_y=True,
                ),
            ),
            each="data",
            names=SOURCES,
            width=4.6,
            height=3.6,
        )
    }

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

    def claims(self, scale: Scale) -> list[Claim]:
        top = {"size": max(SETTINGS[scale].sizes)}
        several = AtLeast("nets", 3, called="the number of nets", digits=0)
        error: dict[str, Any] = {"higher": False, "called": "test error", "digits": 4}
        first, final, last = (kernel | top for kernel in (INITIAL, FINAL, LAST))
        untrained, trained, last_layer = {"time": "start"}, {"time": "end"}, {"part": "last_layer"}
        both, lead, over_start = top | trained, "ω₂² less the largest after it", "dimension over that at the start"
        return [
            Claim(
                "Learning with the net's final NTK is better than with its initial one",
                "figure 8: the initial NTK is worse; prototype 0.0744 and 0.0660",
                Beats("error", FINAL, INITIAL, by=0.05, relative=True, where=top, **error),
                provided=several,
            ),
            Claim(
                "The final NTK is as good as the net",
                "figure 8: about equal; within one percent (Spec 004, F61)",
                AtMost("above_net", 0.01, where=FINAL, each="size", called="error above the net's", digits=4),
            ),
            Claim(
                "At the largest p the final NTK is slightly better than the net",
                "figure 8; prototype 0.0660 and 0.078",
                Beats("error", FINAL, NET, by=0.002, where=top, **error),
                provided=several,
            ),
            Claim(
                "The kernel of the last layer improves by training",
                "figure 8; prototype 0.170 to 0.0702",
                Beats("error", trained, untrained, 0.05, relative=True, where=last_layer, each="size", **error),
                provided=several,
            ),
            Claim(
                "It is good at the end, but generally worse than the net",
                "figure 8; prototype 0.0702 against 0.078: not so there",
                All(
                    AtMost("error_of_start", 0.6, where=last, called="error over that at the start"),
                    AtLeast("worse", 0.6, where=LAST, called="share of training sets on which the net is better"),
                ),
                provided=several,
            ),
            Claim(
                "Before training the components carry little information about the label; afterwards the first "
                "carries most",
                "figure 9c; prototype 0.15 to 0.52 bits",
                All(
                    AtMost("most_bits", 0.2, where=first, called="largest information of a component (bits)"),
                    AtLeast("first_bits", 0.45, where=final, called="bits of the first component"),
                ),
            ),
            Claim(
                "Most of the projection of the labels moves to the first component",
                "figure 9d; prototype ω₁² 0.108 to 0.559",
                All(
                    AtMost("first_share", 0.2, where=first, called="ω₁²", digits=3),
                    AtLeast("first_share", 0.45, where=final, called="ω₁²", digits=3),
                ),
            ),
            Claim(
                "The second component has a sizable share",
                "figure 9d, on MNIST; prototype ω₂² 0.133",
                All(
                    AtLeast("second_share", 0.05, where=final, called="ω₂²", digits=3),
                    AtLeast("second_lead", 0.02, where=final, called=lead, digits=3),
                ),
            ),
            Claim(
                "The kernel aligns with the labels",
                "prototype 0.18 to 0.57, 3 times (Spec 004, F62)",
                AtLeast("alignment_of_start", 3, where=final, called="alignment over that at the start"),
            ),
            Claim(
                "In the plane of two components the classes are mixed before training and separated after it",
                "figure 10",
                All(
                    AtMost("separability", 0.75, where=first), AtLeast("separability", 0.85, where=both, each="kernel")
                ),
            ),
            Claim(
                "The last layer looks like a curve, but has more dimensions than one, and fewer than before",
                "footnote 6: 6 dimensions by TwoNN; prototype 7.9 to 4.8",
                All(
                    AtLeast("dimension", 2, where=last, digits=1),
                    AtMost("dimension_of_start", 0.9, where=last, called=over_start),
                ),
            ),
        ]

    def readings(self, table: Table) -> Table:
        nets = {(row["size"], row["seed"]): row["error"] for row in table.where(part="net").rows}
        rows: list[Row] = [{"nets": len(table.distinct("seed"))}]
        for row in read_modes(table).rows:
            above = difference(row | {"net": nets[row["size"], row["seed"]]}, "error", "net")
            facts = {"above_net": above, "worse": None if above is None else float(above > 0)}
            rows.append(row | facts | {"second_lead": difference(row, "second_share", "later_share")})
        return Table(rows)

    def beside(self, table: Table) -> list[Row]:
        """The table of Spec 004, section 9.7, beside ours at the largest p, then our learning curves."""
        *smaller, top = table.distinct("size")
        source = SOURCES[table.distinct("data")[0]]
        curves = [replace(quantity, before="-", after="-") for quantity in PROTOTYPE if quantity.column == "error"]

        def here(size: int, quantity: Quantity, time: str) -> str:
            values = table.where(size=size, part=quantity.part, time=time).column(quantity.column)
            if not len(values):
                return "-"
            return listing(values.mean(axis=0)[:2], 3) if values.ndim == 2 else plus_minus(values, 3)

        return [
            {
                "examples here": f"{size} {source}",
                "quantity": quantity.name,
                "before training, prototype (p = 300)": quantity.before,
                "here": here(size, quantity, "start"),
                "after training, prototype (p = 300)": quantity.after,
                "here ": here(size, quantity, "end"),
            }
            for size, quantities in [(top, PROTOTYPE), *((size, curves) for size in reversed(smaller))]
            for quantity in quantities
        ]

    def figures(self, table: Table) -> dict[str, Figure]:
        named = Table([row | {"learner": LEARNERS[row["part"], row["time"]]} for row in table.rows])
        return super().figures(named) | pictures(table.where(size=max(table.distinct("size"))))


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


def two_neighbour_dimension(gram: Tensor) -> float | None:
    """Intrinsic dimension of the inputs as the kernel sees them, from two neighbours; None if most coincide."""
    nearest = kernel_distances(gram).fill_diagonal_(torch.inf).topk(2, largest=False).values
    distinct = nearest[nearest[:, 0] > 1e-6 * gram.diagonal().max().sqrt()]
    return mle_from_distances(distinct.sort(1).values.numpy()) if len(distinct) > len(gram) / 2 else None
