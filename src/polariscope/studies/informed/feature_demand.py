"""Study: what learning features is worth, over the width of a network and the demand of its task.

LeNet and its linearisation start as the same function and see the same mini-batches; only the first can change its
features. The tasks ask for features more and more: centred digits, shifted ones, and coloured ones, which stand in for
photographs. Beside the accuracies lies how alike the features of networks of different width are. (Spec 000, sections
7.4 and 9.5.) What other studies of widths share is here too: the data, the tables and the picture of accuracy over
width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from polariscope.kernels.linearised import Descent
from polariscope.kernels.width_sweep import Task, fit_twin, pixel_ridge
from polariscope.measures.similarity import cka
from polariscope.nets.classifiers import alexnet, freeze_all_but_last, lenet
from polariscope.report.figures import LIGHT, heatmap, styled
from polariscope.studies.informed.published_widths import (
    ALEXNET_WIDTHS,
    FINITE,
    PARAMETERS,
    PIXELS,
    SNAKES,
    WIDTHS,
    gap,
    layout,
)
from polariscope.studies.rows import plus_minus
from polariscope.studies.study import Bench, Claim, Job, Row, Scale, Study, Table, studies
from polariscope.worlds.digit_tasks import DigitTask, standardise

STANDS_FOR = {
    "centred": "mnist",
    "shifted": "shifted mnist",
    "shifted-resized": "shifted-resized mnist",
    "colour": "cifar-10",
}
"""Our tasks, in the order of their demand, and the published data they stand for."""
TWINS = ("standard", "linearised")
WIDTHLESS = {"pixels": 0, "nngp": math.inf, "ntk": math.inf}
"""What has no width of its own, and the width it has in tables: that of no network, and of an infinitely wide one."""
LATE = 10
"""Width up to which the published gap on CIFAR-10 does not shrink, nor its linearisation gain more than the network."""
COMPARED = 50  # test images on which the features of networks are compared


@dataclass(frozen=True)
class Setting:
    """How much is done at a scale; rates are tuned a twin, as in the publication."""

    tasks: tuple[str, ...]
    widths: tuple[int, ...]
    seeds: int
    train: int
    test: int
    size: int
    batch: int
    epochs: int
    rates: tuple[float, float]
    drop_every: int

    def job(self, task: str) -> Job:
        return {"task": task, **{key: asdict(self)[key] for key in ("train", "test", "size", "batch", "epochs")}}


SETTINGS: dict[Scale, Setting] = {
    "smoke": Setting(("centred", "shifted"), (1, 2), 1, 60, 60, 10, 20, 2, (0.05, 0.15), 10),
    "laptop": Setting(("centred", "shifted", "colour"), (1, 2, 4, 8), 5, 2000, 1000, 14, 32, 24, (0.05, 0.15), 10),
    "paper": Setting(("centred", "shifted", "colour"), WIDTHS, 5, 60_000, 10_000, 28, 32, 100, (0.1, 0.1), 30),
}


@studies.register("feature-demand")
@dataclass(frozen=True)
class FeatureDemand(Study):
    """LeNet against its linearisation over widths and tasks, with a regression on pixels beside them."""

    title = "Learned features against random ones, over width and demand"
    source = "Samarin 2022, section 6.4.1, figures 6.2 and 6.5 to 6.8, appendix B, tables B.1 to B.4"
    question = "How much of a network's accuracy comes from features it learns, and can width make up for them?"
    cost = {"smoke": "1 s", "laptop": "about 8 minutes", "paper": "months"}

    def jobs(self, scale: Scale) -> Sequence[Job]:
        setting = SETTINGS[scale]
        jobs: list[Job] = [setting.job(task) | {"twin": "pixels"} for task in setting.tasks]
        for task, width, seed in itertools.product(setting.tasks, setting.widths, range(setting.seeds)):
            # The publication lowered the rate on its hardest tasks only; short trainings need it on all.
            drop = setting.drop_every if scale != "paper" or task == "colour" else 0
            for twin, rate in zip(TWINS, setting.rates, strict=True):
                at = {"twin": twin, "width": width, "seed": seed, "rate": rate, "drop_every": drop}
                jobs.append(setting.job(task) | at)
        return jobs

    def run(self, job: Job, bench: Bench) -> list[Row]:
        train, test = digits(job["task"], job["train"], job["test"], job["size"])
        if job["twin"] == "pixels":
            return [job | pixel_scores(train, test)]
        shape = image_shape(train[0])
        how = Descent(job["rate"], weight_decay=5e-5, **{key: job[key] for key in ("batch", "epochs", "drop_every")})
        fit = fit_twin(
            lambda width, seed: lenet(width, shape, seed=seed), train, test, job["width"], job["seed"], job["twin"], how
        )
        row = job | fit.record
        if job["twin"] == "standard":
            assert isinstance(fit.model, nn.Sequential)
            with torch.no_grad():
                row["features"] = turned(fit.model[:-1](test[0][:COMPARED])).tolist()
        return [row]

    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        found = accuracies(table)
        gaps = {task: gap_of(twins) for task, twins in found.items()}
        tasks = list(gaps)
        widths = table.where(twin="standard").distinct("width")
        narrow, wide = widths[0], widths[-1]
        demand = all(gaps["shifted"][k] > gaps["centred"][k] for k in widths)
        if "colour" in gaps:
            demand = demand and gaps["colour"][wide] > gaps["shifted"][wide]
        gains = {
            task: [100 * (found[task][twin][wide] - found[task][twin][narrow]) for twin in TWINS] for task in tasks
        }
        cases = wide_linear_beats_narrow(table)
        decided = [task for task in tasks if task != "colour" or wide > LATE]
        undecided = "" if decided == tasks else f"without colour: on CIFAR-10 it did so beyond ×{LATE} only"
        return [
            Claim(
                "A network beats its linearisation at every width on every task",
                "test gap at ×1, in points: " + listing({d: gap(r)[1] for d, r in FINITE.items()}) + ", snakes 20.40",
                "; ".join(f"{task} {over_widths(gaps[task])}" for task in tasks),
                all(points > 0 for task in tasks for points in gaps[task].values()),
            ),
            Claim(
                "The gap grows with the demand of the task on features",
                "at the widest: " + listing({d: gap(r)[60] for d, r in FINITE.items()}) + ", snakes 18.56",
                f"at ×{wide}: " + listing({task: gaps[task][wide] for task in tasks}),
                demand,
                "" if "colour" in gaps else "centred against shifted only",
            ),
            Claim(
                "The gap shrinks with width",
                "from ×1 to ×60: "
                + ", ".join(f"{data} {gap(rows)[1]:.2f} to {gap(rows)[60]:.2f}" for data, rows in FINITE.items()),
                "; ".join(f"{task} {over_widths(gaps[task])}" for task in tasks),
                all(gaps[task][wide] < gaps[task][narrow] for task in decided),
                undecided,
            ),
            Claim(
                "It shrinks because the linearised network gains from width; the network itself gains little",
                "points gained from ×1 to ×60, network and linearisation: "
                + ", ".join(
                    f"{data} " + " and ".join(f"{r[f'test {t}'][60].mean - r[f'test {t}'][1].mean:.2f}" for t in TWINS)
                    for data, r in FINITE.items()
                ),
                f"from ×{narrow} to ×{wide}: "
                + ", ".join(f"{task} {gains[task][0]:.2f} and {gains[task][1]:.2f}" for task in tasks),
                all(gains[task][1] > gains[task][0] for task in decided),
                undecided,
            ),
            Claim(
                "A wide linearised network can beat a narrow network that learns features",
                "on CIFAR-10 the linearisation ×60 has 65.80, LeNet ×1 63.20",
                "; ".join(map(str, cases[:3])) or f"no case up to ×{wide}",
                True if cases else (False if scale == "paper" else None),
                "" if cases else f"×{wide} is the widest here; the published case needs ×60",
            ),
        ]

    def beside(self, table: Table) -> list[Row]:
        """Tables B.1 to B.4, and the regression on pixels."""
        pixels = {f"{split} pixels": {0: cell} for split, cell in PIXELS.items()}
        published: dict[str, dict[str, Any]] = {"parameters": {**PARAMETERS}}
        for data, rows in FINITE.items():
            published[data] = rows | (pixels if data == "mnist" else {}) | {"test gap": rounded(gap(rows))}
        published["snakes"] = {**SNAKES}
        return layout(published, {"parameters": count_parameters(), **measured(table, gaps=True)})

    def figures(self, table: Table) -> dict[str, Figure]:
        hardest = list(accuracies(table))[-1]
        names = [f"×{width}" for width in table.where(twin="standard").distinct("width")]
        title = f"CKA of the features, {hardest} digits"
        likeness = similarity_across_widths(table.where(twin="standard", task=hardest))
        return {
            "accuracy-over-width": draw_widths(table),
            "similarity-across-widths": heatmap(likeness, names, names, title, low=0, high=1),
        }


# --- what the studies of widths share ------------------------------------------------------------------------------


def digits(
    task: str, train: int, test: int, size: int, labels: str = "digit", shift: int | None = None
) -> tuple[Task, Task]:
    """Standardised images and labels to train and to test on; shifts up to a quarter of the image by default."""
    world = DigitTask(task, labels, train + test, size, size // 4 if shift is None else shift)  # type: ignore[arg-type]
    number = np.arange(train + test)
    images = world.observe(number)
    x = torch.from_numpy(standardise(images, images[:train]))
    y = torch.from_numpy(world.factors_of(number)[:, 0].astype(np.int64))
    return (x[:train], y[:train]), (x[train:], y[train:])


def image_shape(x: Tensor) -> tuple[int, int, int]:
    channels, height, width = x.shape[1:]
    return channels, height, width


def pixel_scores(train: Task, test: Task) -> Row:
    """The row of a regression on pixels."""
    seen, unseen = pixel_ridge(train, test)
    return {"twin": "pixels", "train_accuracy": seen, "test_accuracy": unseen}


def by_width(table: Table) -> dict[str, dict[str, dict[float, Table]]]:
    """Rows by task (in the order of demand), twin and width."""
    return {
        task: {
            twin: {WIDTHLESS[twin]: rows} if twin in WIDTHLESS else dict(rows.by("width"))
            for twin, rows in table.where(task=task).by("twin")
        }
        for task in STANDS_FOR
        if len(table.where(task=task))
    }


def accuracies(table: Table, split: str = "test") -> dict[str, dict[str, dict[float, float]]]:
    """Mean accuracy by task, twin and width."""
    return {
        task: {twin: {k: rows.mean(f"{split}_accuracy") for k, rows in row.items()} for twin, row in twins.items()}
        for task, twins in by_width(table).items()
    }


def gap_of(twins: Mapping[str, Mapping[float, float]]) -> dict[float, float]:
    """Accuracy of the network less that of its linearisation at each width, in percentage points."""
    return {k: 100 * (twins["standard"][k] - linear) for k, linear in twins["linearised"].items()}


class Case(NamedTuple):
    """A linearised network that is at least as good as a narrower standard one."""

    task: str
    linear_width: float
    linear: float
    standard_width: float
    standard: float

    def __str__(self) -> str:
        return (
            f"{self.task}: linearisation ×{self.linear_width:g} {100 * self.linear:.2f}, "
            f"network ×{self.standard_width:g} {100 * self.standard:.2f}"
        )


def wide_linear_beats_narrow(table: Table, linear: str = "linearised") -> list[Case]:
    """All cases, the narrowest networks and the narrowest linearisations that beat them first."""
    cases = [
        Case(task, width, accuracy, narrow, standard)
        for task, twins in accuracies(table).items()
        for narrow, standard in twins["standard"].items()
        for width, accuracy in twins[linear].items()
        if width > narrow and accuracy >= standard
    ]
    return sorted(cases, key=lambda case: (case.standard_width, case.linear_width))


def measured(table: Table, gaps: bool = False) -> dict[str, dict[str, dict[float, str]]]:
    """Our accuracies in percent as rows of the published layout, with the gaps if wanted."""
    tables: dict[str, dict[str, dict[float, str]]] = {}
    for task, twins in by_width(table).items():
        mine = tables[STANDS_FOR[task]] = {}
        for split, twin in itertools.product(("test", "train"), twins):
            name = f"{split}_accuracy"
            mine[f"{split} {twin}"] = {k: plus_minus(100 * rows.column(name)) for k, rows in twins[twin].items()}
        if gaps:
            mine["test gap"] = rounded(gap_of(accuracies(table)[task]))
    return tables


def rounded(values: Mapping[float, float]) -> dict[float, str]:
    return {width: f"{value:.2f}" for width, value in values.items()}


def listing(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def over_widths(values: Mapping[float, float]) -> str:
    return ", ".join(f"×{width:g} {value:.2f}" for width, value in values.items())


def count_parameters() -> dict[str, dict[float, int]]:
    """How many parameters of our own networks are trained at the published widths; nothing is allocated."""

    def trained(network: nn.Module) -> int:
        return sum(p.numel() for p in network.parameters() if p.requires_grad)

    with torch.device("meta"):
        return {
            "lenet": {k: trained(lenet(k)) for k in WIDTHS},
            "lenet, last layer": {k: trained(freeze_all_but_last(lenet(k))) for k in WIDTHS},
            "alexnet": {k: trained(alexnet(k)) for k in ALEXNET_WIDTHS},
        }


def turned(features: Tensor) -> Tensor:
    """Features ``(n, f)`` turned so that at most n of them are not zero, which no CKA can see, and those kept."""
    return torch.linalg.qr(features.double().flatten(1).T, mode="r").R.T


def similarity_across_widths(table: Table) -> np.ndarray:
    """Debiased CKA of the features of two networks, a row and a column a width: the mean over pairs of networks.

    A network is not compared with itself, so that a single one of a width leaves a NaN on the diagonal.
    """
    groups = [[(row["seed"], np.array(row["features"])) for row in rows.rows] for _, rows in table.by("width")]
    values = np.full((len(groups), len(groups)), math.nan)
    for (i, first), (j, second) in itertools.product(enumerate(groups), repeat=2):
        pairs = [(a, b) for (s, a), (t, b) in itertools.product(first, second) if i != j or s < t]
        if pairs:
            values[i, j] = np.mean([cka(a, b, debiased=True) for a, b in pairs])
    return values


LOOKS = {
    "standard": ("network", LIGHT["first"], "o"),
    "linearised": ("linearised", LIGHT["second"], "s"),
    "solved": ("linearised, solved", LIGHT["fourth"], "D"),
    "last_layer": ("last layer only", LIGHT["third"], "^"),
    "pixels": ("pixels", LIGHT["passive"], ""),
    "nngp": ("NNGP", LIGHT["third"], ""),
    "ntk": ("NTK", LIGHT["second"], ""),
}
"""Name, colour and marker of each twin; a kernel has the colour of the networks that it is the limit of."""


@styled
def draw_widths(table: Table, split: str = "test") -> Figure:
    """Accuracy over width, a panel a task: lines for networks, dashed levels for what has no width of its own."""
    found = by_width(table)
    figure = Figure(figsize=(0.8 + 2.6 * len(found), 2.7), layout="constrained")
    for axes, (task, twins) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        for twin in (name for name in LOOKS if name in twins):
            name, colour, marker = LOOKS[twin]
            groups = twins[twin].values()
            mean, spread = ([100 * f(group, f"{split}_accuracy") for group in groups] for f in (Table.mean, Table.std))
            if twin in WIDTHLESS:
                axes.axhline(mean[0], color=colour, linestyle="--", linewidth=1, label=name)
            else:
                axes.errorbar(list(twins[twin]), mean, spread, color=colour, marker=marker, markersize=4, label=name)
        axes.set_xscale("log")
        widths = table.where(task=task).distinct("width")
        axes.set_xticks(widths, [f"×{width:g}" for width in widths])
        axes.minorticks_off()
        axes.set_title(f"{task} digits")
        axes.set_xlabel("width")
    figure.axes[0].set_ylabel(f"{split} accuracy (percent)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure
