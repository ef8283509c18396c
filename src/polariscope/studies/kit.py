"""The study kit: what makes a study short. Jobs as a grid, figures that are declared instead of programmed, medians.

>>> grid(beta=(1, 4), seed=range(2))
[{'beta': 1, 'seed': 0}, {'beta': 1, 'seed': 1}, {'beta': 4, 'seed': 0}, {'beta': 4, 'seed': 1}]

A study declares its figures by name in ``drawn``, and has no method ``figures`` then::

    drawn = {"passive": Curve("passive", over="beta", log=True), "mcc": Restarts("mcc", by="model")}
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from polariscope.report.figures import LIGHT, styled
from polariscope.report.study_figures import COLOURS, over_seeds, plain_ticks, restarts
from polariscope.studies.criteria.criterion import plain
from polariscope.studies.published import published
from polariscope.studies.rows import Row, Table, plus_minus


def grid(**choices: Iterable[Any]) -> list[dict[str, Any]]:
    """One job for every combination of choices, the last varying fastest. A word or a number is a single choice."""
    several = {
        name: [v] if isinstance(v, str) or not isinstance(v, Iterable) else list(v) for name, v in choices.items()
    }
    return [dict(zip(several, values, strict=True)) for values in itertools.product(*several.values())]


def medians(table: Table, columns: Iterable[str], by: Iterable[str]) -> Table:
    """A row for each combination of ``by``: the medians over all its rows, which are its seeds.

    >>> rows = [{"beta": 1, "seed": s, "kl": k} for s, k in enumerate((3.0, 9.0, 4.0))]
    >>> medians(Table(rows), ["kl"], by=["beta"]).rows
    [{'beta': 1, 'of_seeds': 3, 'kl': 4.0}]
    """
    columns, by = list(columns), list(by)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(row.get(name) for name in by), []).append(row)
    return Table(
        [
            dict(zip(by, key, strict=True))
            | {"of_seeds": len({row.get("seed") for row in rows})}
            | {name: float(np.median(values)) for name in columns if len(values := Table(rows).column(name))}
            for key, rows in groups.items()
        ]
    )


@dataclass(frozen=True, kw_only=True)
class Declared(ABC):
    """A figure of a table that says what it shows; rows are those with the values of ``where``."""

    where: Mapping[str, Any] = field(default_factory=dict)
    called: str = ""
    """What the numbers are, in words; the column's name if not given."""

    def draw(self, table: Table) -> Figure | None:
        """The figure, or None if the table has nothing of it."""
        return self._draw(table.where(**self.where))

    @abstractmethod
    def _draw(self, table: Table) -> Figure | None: ...

    def _words(self, column: str) -> str:
        return self.called or column.replace("_", " ")


@dataclass(frozen=True)
class Curve(Declared):
    """Medians and quartiles over the seeds of a column over another, a line for each value of a third."""

    column: str
    over: str
    by: str = ""
    log: bool = False

    @styled
    def _draw(self, table: Table) -> Figure | None:
        lines = list(table.by(self.by)) if self.by else [("", table)]
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        axes = figure.subplots()
        drawn = 0
        for name, rows in lines:
            points = [(x, own.column(self.column).astype(float)) for x, own in rows.by(self.over)]
            points = [(x, values) for x, values in points if len(values)]
            if not points:
                continue
            x, values = zip(*points, strict=True)
            over_seeds(axes, x, values, drawn % len(COLOURS), label=plain(name))
            drawn += 1
        if not drawn:
            return None
        axes.set(xlabel=self.over.replace("_", " "), ylabel=self._words(self.column))
        if self.log:
            axes.set(xscale="log")
            plain_ticks(axes)
        if self.by:
            axes.legend(title=self.by.replace("_", " "))
        return figure


@dataclass(frozen=True)
class Restarts(Declared):
    """Every row a dot, the groups side by side."""

    column: str
    by: str

    def _draw(self, table: Table) -> Figure | None:
        groups = [(plain(name), rows.column(self.column), COLOURS[i % len(COLOURS)])
                  for i, (name, rows) in enumerate(table.by(self.by))]  # fmt: skip
        known = [group for group in groups if len(group[1])]
        return restarts(known, self._words(self.column), self.by.replace("_", " ")) if known else None


@dataclass(frozen=True)
class Matrix(Declared):
    """Means of a column over two others, as a table of shades with the numbers in it."""

    column: str
    rows: str
    columns: str
    digits: int = 2

    @styled
    def _draw(self, table: Table) -> Figure | None:
        down, along = table.distinct(self.rows), table.distinct(self.columns)
        if not down or not along:
            return None
        cells = [[table.where(**{self.rows: r, self.columns: c}).column(self.column) for c in along] for r in down]
        means = np.array([[float(np.mean(cell)) if len(cell) else np.nan for cell in row] for row in cells])
        if np.isnan(means).all():
            return None
        figure = Figure(figsize=(1.6 + 0.8 * len(along), 1.0 + 0.45 * len(down)), layout="constrained")
        axes = figure.subplots()
        axes.imshow(means, aspect="auto", cmap="Blues")
        middle = np.nanmean([np.nanmin(means), np.nanmax(means)])
        for (row, column), value in np.ndenumerate(means):
            if not np.isnan(value):
                ink = "white" if value > middle else LIGHT["ink"]
                axes.text(column, row, f"{value:.{self.digits}f}", ha="center", va="center", color=ink)
        axes.set_xticks(range(len(along)), [plain(value) for value in along])
        axes.set_yticks(range(len(down)), [plain(value) for value in down])
        axes.set(
            xlabel=self.columns.replace("_", " "), ylabel=self.rows.replace("_", " "), title=self._words(self.column)
        )
        return figure


@dataclass(frozen=True)
class Scatter(Declared):
    """A column against another, a colour for each value of a third."""

    column: str
    against: str
    by: str = ""

    @styled
    def _draw(self, table: Table) -> Figure | None:
        pairs = Table([r for r in table.rows if r.get(self.column) is not None and r.get(self.against) is not None])
        if not len(pairs):
            return None
        figure = Figure(figsize=(4.2, 3.2), layout="constrained")
        axes = figure.subplots()
        for i, (name, rows) in enumerate(pairs.by(self.by) if self.by else [("", pairs)]):
            colour = LIGHT[COLOURS[i % len(COLOURS)]]
            axes.scatter(
                rows.column(self.against), rows.column(self.column), s=14, alpha=0.7, color=colour, label=plain(name)
            )
        axes.set(xlabel=self.against.replace("_", " "), ylabel=self._words(self.column))
        if self.by:
            axes.legend(title=self.by.replace("_", " "))
        return figure


@dataclass(frozen=True)
class Beside:
    """A published table with our own numbers in it: rows by one column, one or several measured columns."""

    name: str
    """Of the table, as ``work/name``."""
    by: str
    """The column of our rows that names the printed rows."""
    columns: Mapping[str, str]
    """Printed column by our column."""
    names: Mapping[Any, str] = field(default_factory=dict)
    """What our values are called in print, where that differs."""
    where: Mapping[str, Any] = field(default_factory=dict)
    digits: int = 2

    def rows(self, table: Table) -> list[Row]:
        """A row for each of our groups, with the printed and the measured number of each column."""
        printed = published(self.name).rows
        rows: list[Row] = []
        for value, own in table.where(**self.where).by(self.by):
            cells = printed.get(self.names.get(value, str(value)), {})
            row: Row = {self.by.replace("_", " "): plain(value)}
            for column, theirs in self.columns.items():
                values = own.column(column).astype(float)
                row[f"{theirs}, published"] = str(cells[theirs]) if theirs in cells else "-"
                row[f"{theirs}, measured"] = plus_minus(values, self.digits) if len(values) else "-"
            rows.append(row)
        return rows
