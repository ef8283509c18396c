"""Study: is a linearised network held back by its features, or by stochastic gradient descent?

Zero against the rest needs one output, so that the linearised network can be solved exactly. The exact solution always
fits the training data once there are enough parameters, but where there are just enough it is the worst of all: LeNet
itself has as many parameters as MNIST has images. Widths between none and one show the dip from both sides. (Spec 000,
sections 7.5 and 9.7.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from polariscope.kernels.empirical import tangent_kernel
from polariscope.kernels.linearised import Descent
from polariscope.kernels.width_sweep import fit_twin
from polariscope.studies.criteria import Alike, All, AtLeast, Beats, Between, Peaks, Rises
from polariscope.studies.informed.limits import stable_rate
from polariscope.studies.informed.published_widths import BINARY, BINARY_RATIOS, WIDTHS
from polariscope.studies.informed.widths import (
    STANDS_FOR,
    OverWidths,
    Sweep,
    digits,
    image_shape,
    in_percent,
    layout,
    listing,
    measured,
    pixel_scores,
)
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies

TASKS = ("centred", "shifted")
NETWORK, LINEAR, SOLVED = ({"twin": twin} for twin in ("standard", "linearised", "solved"))
PROBED = 100  # images by which the rate of descent is chosen
SOLVED_UP_TO = 5  # width factor; beyond it the Jacobian of 60,000 images takes more than a terabyte
FULL = 0.95  # rank of the features per image from which they are said to reach the number of images
RATES = {"standard": 0.05, "linearised": None, "solved": None}  # chosen for each linearisation
SETTINGS: dict[Scale, Sweep] = {
    "smoke": Sweep(tasks=TASKS, widths=(0.1, 0.25, 0.6), seeds=1, train=60, test=60, size=10, batch=20, epochs=2,
                   rates=RATES),
    "laptop": Sweep(tasks=TASKS, widths=(0.1, 0.16, 0.2, 0.25, 0.3, 0.4, 0.6, 0.9), seeds=5, train=800, test=2000,
                    size=14, batch=32, epochs=60, rates=RATES),
    "paper": Sweep(tasks=TASKS, widths=WIDTHS, seeds=1, train=60_000, test=10_000, size=28, batch=32, epochs=200,
                   rates={"standard": 0.01, "linearised": 0.01, "solved": None}),
}  # fmt: skip


@studies.register("linear-solver")
@dataclass(frozen=True)
class LinearSolver(Study):
    """One output, three ways: the network, its linearisation by gradient descent, and the exact least squares."""

    title = "The linearised network solved exactly, across the interpolation threshold"
    source = "Samarin 2022, section 6.4.3, tables 6.1 and 6.2; the threshold is Spec 000, section 7.5"
    question = "Would a better optimiser rescue random features?"
    cost = {"smoke": "1 s", "laptop": "about 5 minutes", "paper": "months, and 700 GB of memory for width 5"}
    drawn = {"threshold": OverWidths(over="ratio", along="parameters per training image", mark=1)}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        sweep = SETTINGS[scale]
        networks = (job for job in sweep.networks() if job["twin"] != "solved" or job["width"] <= SOLVED_UP_TO)
        return [*(sweep.job(task, "pixels") for task in TASKS), *networks]

    def run(self, job: Job, bench: Bench) -> list[Row]:
        train, test = digits(job["task"], job["train"], job["test"], job["size"], "zero")
        if job["twin"] == "pixels":
            return [job | pixel_scores(train, test)]
        shape = image_shape(train[0])

        def build(width: float, seed: int) -> nn.Sequential:
            return scaled_lenet(width, shape, seed)

        if job["twin"] == "solved":
            # At the threshold least squares is as badly conditioned as can be: in single precision the cut of small
            # singular values would regularise it, and so would squaring the condition by way of the kernel.
            fine_train, fine_test = ((x.double(), y) for x, y in (train, test))
            fit = fit_twin(
                lambda width, seed: build(width, seed).double(),
                fine_train,
                fine_test,
                job["width"],
                job["seed"],
                "solved",
                Descent(),
                space="parameter",
                memory=2**40,
            )
            assert fit.solution is not None
            row = fit.record | {"rank_ratio": fit.solution.rank / job["train"]}
        else:
            network = build(job["width"], job["seed"])
            rate = job["rate"] or stable_rate(tangent_kernel(network, train[0][:PROBED], kind="trace"))
            how = Descent(rate, weight_decay=5e-5, batch=job["batch"], epochs=job["epochs"])
            fit = fit_twin(build, train, test, job["width"], job["seed"], job["twin"], how)
            row = fit.record | {"rate": rate}
        rest = float((test[1] == 0).double().mean())
        return [job | row | {"ratio": fit.row.parameters / job["train"], "rest": rest}]

    def claims(self, scale: Scale) -> list[Claim]:
        at_threshold = {"threshold": True}
        # The published table begins at the threshold; ours go on below it, where the solution is better again.
        paper, over = scale == "paper", "parameters_per_image"
        worst = (
            Rises("test_accuracy", over, by=1, slack=None, where=SOLVED, each="task")
            if paper
            else Peaks("test_accuracy", over, by=5, highest=False, where=SOLVED, each="task")
        )
        place = (
            "the number of parameters at which it is worst, over that at which its features have as high a rank as "
            "there are images,"
        )
        beyond = 'what descent has learned beyond saying "rest" of every image'
        dead = "by the rank of the features: units of narrow networks are often dead, so that it takes p > N"
        linear, exact = ({d: rows[f"test {twin}"] for d, rows in BINARY.items()} for twin in ("linearised", "solved"))
        shifted = BINARY[STANDS_FOR["shifted"]]
        return [
            Claim(
                "With about as many parameters as images the exact solution fits every image and is at its worst",
                "at p/N = 0.99: train 100, test "
                + listing({data: row[1].mean for data, row in exact.items()})
                + "; at p/N = 3.9: "
                + listing({data: row[2].mean for data, row in exact.items()}),
                All(
                    worst,
                    AtLeast("train_accuracy", 99.9, where=SOLVED | at_threshold, each="task"),
                    Between("place", 0.5, 2, each="task", called=place),
                ),
                weaker="" if paper else dead,
            ),
            Claim(
                "There, gradient descent does better, although it does not fit every image",
                "at p/N = 0.99, descended and solved, test: "
                + ", ".join(f"{data} {row[1].mean:g} and {exact[data][1].mean:g}" for data, row in linear.items()),
                All(
                    Beats("test_accuracy", LINEAR, SOLVED, by=1, where=at_threshold, each="task"),
                    Beats("train_accuracy", SOLVED, LINEAR, by=0.25, where=at_threshold, each="task"),
                ),
                provided=AtLeast("above_rest", 0.5, where=LINEAR | at_threshold, each="task", called=beyond),
            ),
            Claim(
                "Even solved exactly, random features do not reach the network on shifted digits",
                f"at p/N = 24.6: {shifted['test solved'][5].mean:g} and {shifted['test standard'][5].mean:g}",
                Beats("test_accuracy", NETWORK, SOLVED, by=0.5, where={"task": "shifted", "widest_solved": True}),
            ),
            Claim(
                "Wide enough, the linearised network is as good as the network on centred digits",
                "at p/N = 3537: 99.89 and 99.88",
                Alike("test_accuracy", LINEAR, NETWORK, by=0.1, where={"task": "centred", "widest": True}),
                # From there on the published ones differ by no more than 0.04 points.
                provided=AtLeast("parameters_per_image", 98, where={"widest": True}),
            ),
        ]

    def readings(self, table: Table) -> Table:
        """Where the features of a seed first reach full rank, and how far from there its solution is at its worst."""
        solved = table.where(**SOLVED)
        widest = max(solved.distinct("width"))
        places: list[Row] = []
        thresholds = {}
        for (task, rows), seed in itertools.product(solved.by("task"), solved.distinct("seed")):
            own = sorted(rows.where(seed=seed).rows, key=lambda row: float(row["width"]))
            full = next((row for row in own if row["rank_ratio"] >= FULL), None)
            if full is not None:
                thresholds[task, seed] = full["width"]
                worst = min(own, key=lambda row: float(row["test_accuracy"]))
                places.append({"task": task, "seed": seed, "place": worst["ratio"] / full["ratio"]})
        rows = [
            row
            | {
                "threshold": row.get("width") == thresholds.get((row["task"], row.get("seed")), -1),
                "widest_solved": row.get("width") == widest,
                "parameters_per_image": None if row.get("ratio") is None else round(row["ratio"], 2),
                "above_rest": row["test_accuracy"] - 100 * row["rest"] if row.get("rest") is not None else None,
            }
            for row in in_percent(table)
        ]
        return Table(rows + places)

    def beside(self, table: Table) -> list[Row]:
        """Tables 6.1 and 6.2, a column a number of parameters per image."""
        published = {
            data: {name: {round(BINARY_RATIOS[k], 2): cell for k, cell in row.items()} for name, row in rows.items()}
            for data, rows in BINARY.items()
        }
        rounded = Table([row | {"ratio": round(row["ratio"], 2)} if row.get("ratio") else row for row in table.rows])
        return layout(published, measured(rounded, over="ratio"), "p/N = {:g}")


def scaled_lenet(width: float, shape: tuple[int, ...], seed: int) -> nn.Sequential:
    """LeNet with one output and any positive width factor; for a whole one the network of :func:`lenet`."""
    if not width > 0:
        raise ValueError(f"the width factor is {width}; it needs to be positive")
    channels, height, across = shape
    first, second, third, fourth = (max(1, round(width * units)) for units in (6, 16, 120, 84))
    last = [((side - 2) // 2 - 2) // 2 for side in (height, across)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(channels, first, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * last[0] * last[1], third),
            nn.ReLU(),
            nn.Linear(third, fourth),
            nn.ReLU(),
            nn.Linear(fourth, 1),
        )
