"""What the studies of widths share: their tasks and grids, accuracies over width, the published layout, the picture.

Networks stand beside twins of the same initialisation, told apart by ``twin``: "standard" is the network itself,
"linearised" its linearisation trained by gradient descent, "solved" the same solved exactly, "last_layer" the network
with all but the last layer frozen. Regression on pixels and the kernels of infinitely wide networks have no width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from polariscope.kernels.width_sweep import LabelledInputs as Task
from polariscope.kernels.width_sweep import pixel_ridge
from polariscope.studies.kit import Curve, Declared, Panels
from polariscope.studies.rows import Row, Table, plus_minus
from polariscope.studies.study import Job
from polariscope.worlds.renderers.digit_tasks import DigitTask, standardise

STANDS_FOR = {
    "centred": "mnist",
    "shifted": "shifted mnist",
    "shifted-resized": "shifted-resized mnist",
    "colour": "cifar-10",
}
"""Our tasks, in the order of their demand, and the published data they stand for."""
WIDTHLESS = {"pixels": 0, "nngp": math.inf, "ntk": math.inf}
"""What has no width of its own, and the width it has in tables: that of no network, and of an infinitely wide one."""
LOOKS = {
    "standard": ("network", "first"),
    "linearised": ("linearised", "second"),
    "solved": ("linearised, solved", "fourth"),
    "last_layer": ("last layer only", "third"),
    "pixels": ("pixels", "passive"),
    "nngp": ("NNGP", "third"),
    "ntk": ("NTK", "second"),
}
"""Name and colour of each twin; a kernel has the colour of the networks that it is the limit of."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """How much is done at a scale."""

    tasks: tuple[str, ...]
    widths: tuple[float, ...]
    seeds: int
    train: int
    test: int
    size: int
    batch: int
    """0 is all images."""
    epochs: int
    rates: Mapping[str, float | None]
    """Of each twin; what None means is the study's."""
    drop_every: int = 0

    def job(self, task: str, twin: str) -> Job:
        """What has no width."""
        keys = ("train", "test", "size", "batch", "epochs")
        return {"task": task, "twin": twin} | {key: getattr(self, key) for key in keys}

    def networks(self) -> list[Job]:
        """A job for every task, width, seed and twin."""
        return [
            self.job(task, twin) | {"width": width, "seed": seed, "rate": rate}
            for task, width, seed in itertools.product(self.tasks, self.widths, range(self.seeds))
            for twin, rate in self.rates.items()
        ]


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


# --- accuracies over width -----------------------------------------------------------------------------------------


def in_percent(table: Table) -> list[Row]:
    """The rows with accuracies in percent, a name for the network, and whether it is the narrowest or the widest."""
    widths = table.distinct("width")
    rows = []
    for row in table.rows:
        width = row.get("width")
        new: Row = {name: 100 * row[name] for name in ("train_accuracy", "test_accuracy") if name in row}
        if width is not None:
            new |= {"network": f"{row['task']} ×{width:g}"}
            new |= {"narrowest": width == widths[0], "widest": width == widths[-1]}
        rows.append(row | new)
    return rows


def by_width(table: Table, over: str = "width") -> dict[str, dict[str, dict[float, Table]]]:
    """Rows by task (in the order of demand), twin and width, or another column that goes with the width."""
    return {
        task: {
            twin: {WIDTHLESS[twin]: rows} if twin in WIDTHLESS else dict(rows.by(over))
            for twin, rows in table.where(task=task).by("twin")
        }
        for task in STANDS_FOR
        if len(table.where(task=task))
    }


def accuracies(table: Table, split: str = "test", over: str = "width") -> dict[str, dict[str, dict[float, float]]]:
    """Mean accuracy by task, twin and width."""
    return {
        task: {twin: {k: rows.mean(f"{split}_accuracy") for k, rows in row.items()} for twin, row in twins.items()}
        for task, twins in by_width(table, over).items()
    }


def gap_of(twins: Mapping[str, Mapping[float, float]]) -> dict[float, float]:
    """Accuracy of the network less that of its linearisation at each width, in percentage points."""
    return {k: 100 * (twins["standard"][k] - linear) for k, linear in twins["linearised"].items()}


# --- beside the published ones -------------------------------------------------------------------------------------


def measured(table: Table, gaps: bool = False, over: str = "width") -> dict[str, dict[str, dict[float, str]]]:
    """Our accuracies in percent as rows of the published layout, with the gaps if wanted."""
    tables: dict[str, dict[str, dict[float, str]]] = {}
    for task, twins in by_width(table, over).items():
        mine = tables[STANDS_FOR[task]] = {}
        for split, twin in itertools.product(("test", "train"), twins):
            name = f"{split}_accuracy"
            mine[f"{split} {twin}"] = {k: plus_minus(100 * rows.column(name)) for k, rows in twins[twin].items()}
        if gaps:
            mine["test gap"] = rounded(gap_of(accuracies(table)[task]))
    return tables


def layout(
    published: Mapping[str, Mapping[str, Mapping[float, Any]]],
    here: Mapping[str, Mapping[str, Mapping[float, Any]]],
    title: str = "×{:g}",
) -> list[Row]:
    """Tables over widths in the layout of appendix B, each published row (by data and name) followed by ours.

    Columns are all widths that occur, with 0 for a regression on pixels and infinity for a kernel; ``-`` is an empty
    cell.

    >>> published = {"mnist": {"test standard": {1: 99.15, 60: 99.39}, "test ntk": {math.inf: 99.2}}}
    >>> for row in layout(published, {"mnist": {"test standard": {1: 98.0}}}):
    ...     print(*row.values(), sep=" | ")
    mnist | test standard | published | 99.15 | 99.39 | -
    mnist | test standard | here | 98.0 | - | -
    mnist | test ntk | published | - | - | 99.2
    """
    both = {"published": published, "here": here}
    rows = [row for tables in both.values() for rows in tables.values() for row in rows.values()]
    widths = sorted({width for row in rows for width in row})
    titles = {width: {0: "pixels", math.inf: "×∞"}.get(width, title.format(width)) for width in widths}
    names = dict.fromkeys((data, name) for tables in both.values() for data, rows in tables.items() for name in rows)
    order = list(dict.fromkeys([*published, *here]))
    by_data = sorted(names, key=lambda pair: order.index(pair[0]))  # stable: rows keep their order
    return [
        {"data": data, "row": name, "whose": whose}
        | {column: str(tables[data][name].get(width, "-")) for width, column in titles.items()}
        for data, name in by_data
        for whose, tables in both.items()
        if name in tables.get(data, {})
    ]


def rounded(values: Mapping[float, float]) -> dict[float, str]:
    return {width: f"{value:.2f}" for width, value in values.items()}


def listing(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


def over_widths(values: Mapping[float, Any]) -> str:
    """Published cells of a row, each with its width."""
    return ", ".join(f"×{width:g} {cell.mean:.2f}" for width, cell in values.items())


@dataclass(frozen=True, kw_only=True)
class OverWidths(Declared):
    """Accuracy over width, a panel a task; what has no width of its own is a dashed level."""

    split: str = "test"
    over: str = "width"
    twins: Collection[str] = tuple(LOOKS)
    mark: float | None = None
    """A place of the horizontal axis to mark by a dashed line."""

    def _draw(self, table: Table) -> Figure | None:
        widths = table.distinct(self.over)
        rows = [
            row | {self.over: width}
            for row in in_percent(table)
            if row["twin"] in self.twins
            for width in ((widths[0], widths[-1]) if row.get(self.over) is None else (row[self.over],))
        ]
        panel = Curve(
            f"{self.split}_accuracy",
            self.over,
            "twin",
            log=True,
            mark=self.mark,
            along=self.along,
            called=f"{self.split} accuracy (percent)",
            names={twin: name for twin, (name, _) in LOOKS.items()},
            colours={twin: colour for twin, (_, colour) in LOOKS.items()},
            dashed=WIDTHLESS,
        )
        titles = {task: f"{task} digits" for task in STANDS_FOR}
        return Panels((panel,), each="task", names=titles).draw(Table(rows))
