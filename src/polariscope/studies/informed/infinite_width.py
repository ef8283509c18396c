"""Study: networks of every width against the kernels they become when they are infinitely wide.

Kernel regression with the NNGP is the infinitely wide network whose last layer is trained, with the NTK the one that is
trained as a whole. Networks have average pooling and the NTK parametrisation, for which both kernels have a closed
form. (Spec 000, sections 7.6 and 9.6.) At paper scale everything is trained by descent on the whole data, as published;
below it what is linear in its parameters is solved, which is where its training ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from polariscope.kernels.linearised import Descent
from polariscope.kernels.width_sweep import fit_twin
from polariscope.nets.classifiers import freeze_all_but_last, lenet
from polariscope.studies.criteria import All, AtLeast, AtMost, Beats, Peaks, Rises
from polariscope.studies.informed.limits import KERNEL_NAMES, NOISE, NTK, kernel_scores, rate_of_limit
from polariscope.studies.informed.published_widths import KERNELS, NTK_NETWORKS, WIDTHS, gap
from polariscope.studies.informed.widths import (
    STANDS_FOR,
    OverWidths,
    Sweep,
    accuracies,
    digits,
    image_shape,
    in_percent,
    layout,
    listing,
    measured,
    over_widths,
    pixel_scores,
    rounded,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

NETWORK, LINEAR = {"twin": "standard"}, {"twin": "linearised"}
RATES = dict.fromkeys(("last_layer", "linearised", "standard"))  # all that of the infinitely wide network
SETTINGS: dict[Scale, Sweep] = {
    "smoke": Sweep(tasks=("centred", "shifted"), widths=(1, 2), seeds=1, train=20, test=30, size=10, batch=10, epochs=2,
                   rates=RATES),
    "laptop": Sweep(tasks=("centred", "shifted", "shifted-resized"), widths=(1, 2, 4, 8), seeds=5, train=300, test=500,
                    size=14, batch=32, epochs=200, rates=RATES),
    # The publication lowered the rate once, after 30,000 epochs.
    "paper": Sweep(tasks=tuple(STANDS_FOR), widths=WIDTHS, seeds=5, train=50_000, test=10_000, size=28, batch=0,
                   epochs=100_000, rates=RATES, drop_every=50_000),
}  # fmt: skip


@studies.register("infinite-width")
@dataclass(frozen=True)
class InfiniteWidth(Study):
    """LeNet, its linearisation and its last layer over widths, with the NNGP and the NTK as their limits."""

    title = "Networks approaching infinite width"
    source = "Samarin 2022, section 6.5, table 6.3, appendix B, tables B.5 to B.8"
    question = "Which kernel does a wide network approach, and does width improve it?"
    cost = {"smoke": "1 s", "laptop": "about 9 minutes", "paper": "years"}
    drawn = {"accuracy-over-width": OverWidths()}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        sweep = SETTINGS[scale]
        jobs = [*(sweep.job(task, "kernels") for task in sweep.tasks), *sweep.networks()]
        return [job | {"drop_every": sweep.drop_every, "solved": scale != "paper"} for job in jobs]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        train, test = digits(job["task"], job["train"], job["test"], job["size"], shift=job["size"] * 5 // 28)
        if job["twin"] == "kernels":
            return [job | row for row in (pixel_scores(train, test), *kernel_scores(train, test))]
        shape = image_shape(train[0])
        twin, frozen = job["twin"], job["twin"] == "last_layer"

        def build(width: int, seed: int) -> nn.Module:
            network = lenet(width, shape, pooling="average", weights=NTK, seed=seed)
            network = network.to(train[0].dtype)
            return freeze_all_but_last(network) if frozen else network

        if job["solved"] and twin != "standard":
            # The kernel of an image with itself is about ten, so that the noise is that of the infinitely wide network.
            # Single precision would drown it.
            train, test = ((x.double(), y) for x, y in (train, test))
            fit = fit_twin(build, train, test, job["width"], job["seed"], "solved", Descent(), ridge=10 * NOISE)
            return [fit.record | job]
        how = Descent(rate_of_limit(train[0]), batch=job["batch"], epochs=job["epochs"], drop_every=job["drop_every"])
        fit = fit_twin(build, train, test, job["width"], job["seed"], twin, how)
        return [fit.record | job | {"rate": how.rate}]

    def claims(self, scale: Scale) -> list[Claim]:
        sweep = SETTINGS[scale]
        # A standard error of an accuracy of 95 percent on the test images.
        noise = round(100 * math.sqrt(0.05 * 0.95 / sweep.test), 1)
        hardest = STANDS_FOR[sweep.tasks[-1]]
        wide = AtLeast("width", 60, where={"widest": True}, called="width of the widest network", digits=0)
        known = "train accuracy of the narrowest network"
        narrow = AtLeast("train_accuracy", 99, where=NETWORK | {"narrowest": True}, each="task", called=known)
        best = "test accuracy at the best width"
        approach = "; ".join(
            f"{data} {over_widths(NTK_NETWORKS[data]['test linearised'])} to {KERNELS[data]['ntk']:.2f}"
            for data in dict.fromkeys(("mnist", hardest))
        )
        return [
            Claim(
                "Training the last layer of an infinitely wide network is better than training all layers",
                "NNGP and NTK: " + ", ".join(f"{d} {k['nngp']:.2f} and {k['ntk']:.2f}" for d, k in KERNELS.items()),
                Beats("test_accuracy", {"twin": "nngp"}, {"twin": "ntk"}, by=0.1, each="task"),
                note=f"one test image is {100 / sweep.test:g} points",
            ),
            Claim(
                "The lead of the NNGP grows with the demand of the task",
                "relative to the NTK, in percent: "
                + listing({data: 100 * (k["nngp"] - k["ntk"]) / k["ntk"] for data, k in KERNELS.items()}),
                Rises("lead", "demand", by=0.5, slack=0.1, called="the lead of the NNGP in percent"),
            ),
            Claim(
                "Linearised networks approach the NTK from below as they get wider",
                approach,
                All(
                    Rises("test_accuracy", "width", by=1, slack=noise, where=LINEAR, each="task"),
                    AtMost("above_ntk", noise, where=LINEAR, each="network", called="accuracy above that of the NTK"),
                ),
                note=f"{noise:g} points are a standard error of {sweep.test} test images",
            ),
            Claim(
                "A wide linearised network beats the narrowest network that learns features, on every task",
                "×25 and ×60 reach LeNet ×1 on MNIST, shifted, shifted-resized and CIFAR-10",
                Beats("test_accuracy", LINEAR, NETWORK, by=0.25, where={"end": True}, each="task"),
                provided=narrow,
            ),
            Claim(
                "Networks that learn features pass the NTK at some width",
                "on MNIST from ×5, shifted from ×2, shifted-resized from ×2; not on CIFAR-10",
                Beats(
                    "test_accuracy", NETWORK, {"twin": "ntk"}, by=0.1, where={"best": True}, each="task", called=best
                ),
                note="the width at which they do best is chosen on the same seeds",
            ),
            Claim(
                "Their accuracy peaks at an intermediate width and then declines towards the NTK",
                "peaks at ×10 or ×25 on all four data sets",
                Peaks("test_accuracy", "width", by=0.05, where=NETWORK, each="task"),
                provided=wide,
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Networks against the NTK of their task, the best width of each task, and the lead of the NNGP by demand."""
        by_task = accuracies(table)
        ntk, nngp = ({task: twins[name][math.inf] for task, twins in by_task.items()} for name in ("ntk", "nngp"))
        best = {task: max(twins["standard"], key=twins["standard"].__getitem__) for task, twins in by_task.items()}

        def labels(row: Row) -> Row:
            task, twin, width = row["task"], row["twin"], row.get("width")
            return {
                "above_ntk": row["test_accuracy"] - 100 * ntk[task],
                # The publication has no network that passes the NTK in colour.
                "best": task != "colour" and (twin == "ntk" or (twin == "standard" and width == best[task])),
                "end": (twin == "linearised" and row["widest"]) or (twin == "standard" and row["narrowest"]),
            }

        leads = [
            {"demand": f"{number} {task}", "lead": 100 * (nngp[task] / ntk[task] - 1)}
            for number, task in enumerate(by_task, start=1)
        ]
        return Table([row | labels(row) for row in in_percent(table)] + leads)

    def beside(self, table: Table) -> list[Row]:
        """Tables 6.3 and B.5 to B.8; kernels are in the last column."""
        published = {
            data: rows
            | {f"test {name}": {math.inf: f"{KERNELS[data][name]:.2f}"} for name in KERNEL_NAMES}
            | {"test gap": rounded(gap(rows))}
            for data, rows in NTK_NETWORKS.items()
        }
        return layout(published, measured(table, gaps=True))
