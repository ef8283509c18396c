"""The study kit: what makes a study short. Jobs as a grid, figures that are declared instead of programmed, medians.

>>> grid(beta=(1, 4), seed=range(2))
[{'beta': 1, 'seed': 0}, {'beta': 1, 'seed': 1}, {'beta': 4, 'seed': 0}, {'beta': 4, 'seed': 1}]

A study declares its figures by name in ``drawn``, and has no method ``figures`` then::

    drawn = {"passive": Curve("passive", over="beta", log=True), "mcc": Restarts("mcc", by="model")}

:class:`Panels` puts several curves or scatters side by side.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polariscope.report.figures import LIGHT, heatmap, styled
from polariscope.report.study_figures import COLOURS, over_seeds, plain_ticks, restarts, share_legend, side_by_side
from polariscope.studies.criteria.criterion import plain
from polariscope.studies.published import published
from polariscope.studies.rows import Row, Table, plus_minus

TICKS = 8
"""Whole numbers of a curve's horizontal axis that each have their own tick."""


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
    along: str = ""
    """What the horizontal axis is, in words; the column's name if not given."""
    names: Mapping[Any, str] = field(default_factory=dict)
    """What values are called, where they do not speak for themselves."""

    def draw(self, table: Table) -> Figure | None:
        """The figure, or None if the table has nothing of it."""
        return self._draw(table.where(**self.where))

    @abstractmethod
    def _draw(self, table: Table) -> Figure | None: ...

    def _words(self, column: str) -> str:
        return self.called or column.replace("_", " ")

    def _along(self, column: str) -> str:
        return self.along or column.replace("_", " ")

    def _name(self, value: Any) -> str:
        return self.names.get(value, plain(value))

    def _groups(self, table: Table, column: str) -> list[tuple[Any, Table]]:
        """Values with their rows, in the order of ``names``, then the others in their own."""
        groups = dict(table.by(column))
        order = [*(value for value in self.names if value in groups), *(v for v in groups if v not in self.names)]
        return [(value, groups[value]) for value in order]


@dataclass(frozen=True, kw_only=True)
class Panel(Declared):
    """A figure of one pair of axes, which can also be one of several :class:`Panels`."""

    log: bool = False
    """A logarithmic horizontal axis."""
    from_zero: bool = False
    """Whether the vertical axis begins at 0."""
    mark: float | None = None
    """A place of the horizontal axis to mark by a dashed line."""

    @styled
    def _draw(self, table: Table) -> Figure | None:
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        if not self.onto(figure.subplots(), table):
            return None
        if self._lines:
            figure.axes[0].legend(title=self._lines.replace("_", " "))
        return figure

    def onto(self, axes: Axes, table: Table) -> bool:
        """Draw on given axes; False if the table has nothing to draw."""
        drawn = self._plot(axes, table)
        axes.set(xlabel=self._along(self._across), ylabel=self._words(self._down))
        if self.log:
            axes.set(xscale="log")
            plain_ticks(axes)
        if self.from_zero:
            axes.set_ylim(bottom=0)
        if self.mark is not None:
            axes.axvline(self.mark, color=LIGHT["ink"], linewidth=1, linestyle="--")
        return drawn

    @abstractmethod
    def _plot(self, axes: Axes, table: Table) -> bool: ...

    @property
    @abstractmethod
    def _down(self) -> str:
        """The column of the vertical axis."""

    @property
    @abstractmethod
    def _across(self) -> str:
        """The column of the horizontal axis."""

    @property
    @abstractmethod
    def _lines(self) -> str:
        """The column whose values are told apart by colour; empty if none."""


@dataclass(frozen=True)
class Curve(Panel):
    """Medians and quartiles over the seeds of a column over another, a line for each value of a third."""

    column: str
    over: str
    by: str = ""

    def _plot(self, axes: Axes, table: Table) -> bool:
        drawn = 0
        for name, rows in self._groups(table, self.by) if self.by else [("", table)]:
            points = [(x, own.column(self.column).astype(float)) for x, own in rows.by(self.over)]
            points = [(x, values) for x, values in points if len(values)]
            if not points:
                continue
            x, values = zip(*points, strict=True)
            over_seeds(axes, x, values, drawn % len(COLOURS), label=self._name(name))
            drawn += 1
        places = table.distinct(self.over)
        if not self.log and len(places) <= TICKS and all(type(place) is int for place in places):
            axes.set_xticks(places)
        return drawn > 0

    @property
    def _down(self) -> str:
        return self.column

    @property
    def _across(self) -> str:
        return self.over

    @property
    def _lines(self) -> str:
        return self.by


@dataclass(frozen=True)
class Scatter(Panel):
    """A column against another, a colour for each value of a third."""

    column: str
    against: str
    by: str = ""

    def _plot(self, axes: Axes, table: Table) -> bool:
        pairs = Table([r for r in table.rows if r.get(self.column) is not None and r.get(self.against) is not None])
        for i, (name, rows) in enumerate(self._groups(pairs, self.by) if self.by else [("", pairs)]):
            colour = LIGHT[COLOURS[i % len(COLOURS)]]
            axes.scatter(
                rows.column(self.against),
                rows.column(self.column),
                s=14,
                alpha=0.7,
                color=colour,
                label=self._name(name),
            )
        return len(pairs) > 0

    @property
    def _down(self) -> str:
        return self.column

    @property
    def _across(self) -> str:
        return self.against

    @property
    def _lines(self) -> str:
        return self.by


@dataclass(frozen=True)
class Panels(Declared):
    """Several curves or scatters side by side, with one legend. Each has its own ``where``, within that of all."""

    panels: tuple[Panel, ...]

    @styled
    def _draw(self, table: Table) -> Figure | None:
        figure = side_by_side(len(self.panels), 2.9, 2.8)
        drawn = [
            panel.onto(axes, table.where(**panel.where))
            for axes, panel in zip(figure.axes, self.panels, strict=True)
        ]  # fmt: skip
        if not any(drawn):
            return None
        several = {panel._lines for panel in self.panels} - {""}
        if several and figure.axes[0].get_legend_handles_labels()[0]:
            share_legend(figure)
        return figure


@dataclass(frozen=True)
class Restarts(Declared):
    """Every row a dot, the groups side by side: those of a column, or of several, the first varying slowest."""

    column: str
    by: str | tuple[str, ...]
    colours: Mapping[Any, str] = field(default_factory=dict)
    """Colours by the value of the last column, where each group does not have its own."""

    def _draw(self, table: Table) -> Figure | None:
        by = (self.by,) if isinstance(self.by, str) else self.by
        cells: list[tuple[tuple[Any, ...], Table]] = [((), table)]
        for column in by:
            cells = [((*values, value), own) for values, rows in cells for value, own in self._groups(rows, column)]
        known = [(values, rows.column(self.column)) for values, rows in cells if len(rows.column(self.column))]
        groups = [
            ("\n".join(map(self._name, values)), numbers, self.colours.get(values[-1], COLOURS[i % len(COLOURS)]))
            for i, (values, numbers) in enumerate(known)
        ]
        return restarts(groups, self._words(self.column), self._along(by[0])) if groups else None


@dataclass(frozen=True)
class Matrix(Declared):
    """Means of a column over two others, as a table of shades with the numbers in it."""

    column: str
    rows: str
    columns: str
    digits: int = 2

    @styled
    def _draw(self, table: Table) -> Figure | None:
        down, along = self._groups(table, self.rows), self._groups(table, self.columns)
        cells = [[own.where(**{self.columns: value}).column(self.column) for value, _ in along] for _, own in down]
        means = np.array([[float(np.mean(cell)) if len(cell) else np.nan for cell in row] for row in cells])
        if not means.size or np.isnan(means).all():
            return None
        lines, columns = ([self._name(value) for value, _ in groups] for groups in (down, along))
        figure = heatmap(means, lines, columns, self._words(self.column))
        for text, mean in zip(figure.axes[0].texts, means[~np.isnan(means)], strict=False):
            text.set_text(f"{mean:.{self.digits}f}")
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
