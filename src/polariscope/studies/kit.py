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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from polariscope.kernels.learning_curves import LearningCurve
from polariscope.report.figures import LIGHT, MARKERS, heatmap, styled
from polariscope.report.figures import panels as grid_of
from polariscope.report.study_figures import COLOURS, dots, over_seeds, plain_ticks, share_legend
from polariscope.studies.criteria.criterion import plain
from polariscope.studies.published import published
from polariscope.studies.rows import Row, Table, plus_minus

Guide = float | Callable[[NDArray[Any]], ArrayLike]
TICKS = 8
"""Whole numbers of a curve's horizontal axis that each have their own tick."""


def grid(**choices: Iterable[Any]) -> list[dict[str, Any]]:
    """One job for every combination of choices, the last varying fastest. A word or a number is a single choice."""
    several = {
        name: [v] if isinstance(v, str) or not isinstance(v, Iterable) else list(v) for name, v in choices.items()
    }
    return [dict(zip(several, values, strict=True)) for values in itertools.product(*several.values())]


def in_order(values: Iterable[Any]) -> dict[Any, str]:
    """Names that give an order and nothing else: each value is called as it is.

    >>> list(in_order(["vae", 2.0]).items())
    [('vae', 'vae'), (2.0, '2')]
    """
    return {value: plain(value) for value in values}


def medians(table: Table, columns: Iterable[str], by: Iterable[str]) -> Table:
    """A row for each combination of ``by``: the medians over its rows, which are its seeds; ``of_seeds`` is how many
    seeds the column has that fewest have.

    >>> rows = [{"beta": 1, "seed": s, "kl": k} for s, k in enumerate((3.0, 9.0, 4.0))]
    >>> medians(Table(rows), ["kl"], by=["beta"]).rows
    [{'beta': 1, 'of_seeds': 3, 'kl': 4.0}]
    """
    columns, by = list(columns), list(by)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple(row.get(name) for name in by), []).append(row)
    result: list[Row] = []
    for key, rows in groups.items():
        known = {name: [row for row in rows if row.get(name) is not None] for name in columns}
        known = {name: own for name, own in known.items() if own}
        fewest = min((len({row.get("seed") for row in own}) for own in known.values()), default=0)
        middle = {name: float(np.median(Table(own).column(name))) for name, own in known.items()}
        result.append(dict(zip(by, key, strict=True)) | {"of_seeds": fewest} | middle)
    return Table(result)


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
    title: str = ""
    log_y: bool = False
    guides: Mapping[str, Guide] = field(default_factory=dict)
    """Dashed lines by their names: functions of the horizontal axis, or heights."""

    @styled
    def _draw(self, table: Table) -> Figure | None:
        figure = Figure(figsize=(4.6, 3.0), layout="constrained")
        if not self.onto(figure.subplots(), table):
            return None
        if figure.axes[0].get_legend_handles_labels()[0]:
            figure.axes[0].legend(title=self._columns[2].replace("_", " "))
        return figure

    def onto(self, axes: Axes, table: Table) -> bool:
        """Draw on given axes; False if the table has nothing to draw."""
        axes.set(xscale="log" if self.log else "linear", yscale="log" if self.log_y else "linear")
        if self.log or self.log_y:
            plain_ticks(axes)
        drawn = self._plot(axes, table)
        down, across, _ = self._columns
        axes.set(xlabel=self._along(across), ylabel=self._words(down), title=self.title)
        if drawn and self.guides:
            ends = table.column(across).min(), table.column(across).max()
            at = np.geomspace(*ends, 200) if self.log else np.linspace(*ends, 200)
            for (name, guide), style in zip(self.guides.items(), itertools.cycle(("--", ":"))):
                heights = guide(at) if callable(guide) else np.full(len(at), guide)
                axes.plot(at, heights, style, color=LIGHT["muted"], linewidth=1, label=name, zorder=1)
        if self.from_zero:
            axes.set_ylim(bottom=0)
        if self.mark is not None:
            axes.axvline(self.mark, color=LIGHT["ink"], linewidth=1, linestyle="--")
        return drawn

    @abstractmethod
    def _plot(self, axes: Axes, table: Table) -> bool: ...

    @property
    @abstractmethod
    def _columns(self) -> tuple[str, str, str]:
        """Those of the vertical and of the horizontal axis, and the one whose values have colours; empty if none."""


@dataclass(frozen=True)
class Curve(Panel):
    """Medians and quartiles over the seeds of a column over another, a line for each value of a third.

    Of several columns each has its own line, and is called by its name.
    """

    column: str | tuple[str, ...]
    over: str
    by: str = ""
    colours: Mapping[Any, str] = field(default_factory=dict)
    dashed: Collection[Any] = ()
    """Lines that are dashed, by their values or columns: what is predicted, or a beginning."""
    power: Callable[[Row], float | None] | None = None
    """The predicted exponent of a line, by its first row: a dashed power law through the middle of the medians."""

    def _plot(self, axes: Axes, table: Table) -> bool:
        columns = (self.column,) if isinstance(self.column, str) else self.column
        lines = [(column if len(columns) > 1 else "", column, table) for column in columns]
        if self.by:
            lines = [(value, columns[0], rows) for value, rows in self._groups(table, self.by)]
        drawn, laws = 0, 0
        for name, column, rows in lines:
            points = [(x, own.column(column).astype(float)) for x, own in rows.by(self.over)]
            points = [(x, values) for x, values in points if len(values)]
            if not points:
                continue
            x, values = zip(*points, strict=True)
            colour = LIGHT[self.colours.get(name, COLOURS[drawn % len(COLOURS)])]
            marker = MARKERS[(drawn + drawn // len(COLOURS)) % len(MARKERS)]  # another where the colours begin again
            style: dict[str, Any] = {"color": colour, "linestyle": "--" if name in self.dashed else "-"}
            over_seeds(axes, x, values, label=self._name(name), marker=marker, **style)
            drawn += 1
            exponent = None if self.power is None else self.power(rows.rows[0])
            if exponent is not None:
                medians = np.array([[np.median(own)] for own in values])
                law = LearningCurve(np.array(x), medians).guide(exponent)
                label = "" if laws else "predicted slope"
                axes.plot(x, law(x), "--", color=colour, linewidth=1, label=label, zorder=1)
                laws += 1
        places = table.distinct(self.over)
        if len(places) <= TICKS and all(type(place) is int for place in places):
            axes.set_xticks(places)
        return drawn > 0

    @property
    def _columns(self) -> tuple[str, str, str]:
        return self.column if isinstance(self.column, str) else self.column[0], self.over, self.by


@dataclass(frozen=True)
class Scatter(Panel):
    """A column against another, a colour for each value of a third."""

    column: str
    against: str
    by: str = ""
    colours: Mapping[Any, str] = field(default_factory=dict)

    def _plot(self, axes: Axes, table: Table) -> bool:
        pairs = Table([r for r in table.rows if r.get(self.column) is not None and r.get(self.against) is not None])
        for i, (name, rows) in enumerate(self._groups(pairs, self.by) if self.by else [("", pairs)]):
            colour = LIGHT[self.colours.get(name, COLOURS[i % len(COLOURS)])]
            marker = MARKERS[i // len(COLOURS) % len(MARKERS)]  # another where the colours begin again
            x, y = rows.column(self.against), rows.column(self.column)
            axes.scatter(x, y, s=14, alpha=0.7, color=colour, marker=marker, label=self._name(name))
        return len(pairs) > 0

    @property
    def _columns(self) -> tuple[str, str, str]:
        return self.column, self.against, self.by


@dataclass(frozen=True)
class Paths(Panel):
    """Every row a line: a list of numbers against another, such as a course over its steps.

    Each value of a third column has a colour of its own.
    """

    column: str
    over: str
    by: str = ""
    colours: Mapping[Any, str] = field(default_factory=dict)
    dot: str = ""
    """A column with a place of the horizontal axis, which has a dot on the line."""

    def _plot(self, axes: Axes, table: Table) -> bool:
        known = Table([row for row in table.rows if row.get(self.column) and row.get(self.over)])
        for number, (name, rows) in enumerate(self._groups(known, self.by) if self.by else [("", known)]):
            colour = LIGHT[self.colours.get(name, COLOURS[number % len(COLOURS)])]
            for row in rows.rows:
                label = self._name(name) if row is rows.rows[0] else ""
                x, y = row[self.over], row[self.column]
                axes.plot(x, y, color=colour, linewidth=1, label=label)
                if row.get(self.dot) is not None:
                    axes.plot(row[self.dot], np.interp(row[self.dot], x, y), "o", color=colour, markersize=4)
        return len(known) > 0

    @property
    def _columns(self) -> tuple[str, str, str]:
        return self.column, self.over, self.by


@dataclass(frozen=True)
class Panels(Declared):
    """Several panels side by side, with one legend. Each has its own ``where``, within that of all.

    A label that neighbours share stands once, at the left of a row or at the foot of a column.

    ``each`` is a column: the panels stand below each other, once for each of its values, which is their title.
    """

    panels: tuple[Panel, ...]
    each: str = ""
    width: float = 2.9
    height: float = 2.8
    share_y: bool = False
    """One vertical axis for all that stand side by side."""
    across: int = 0
    """Panels in a row; 0 puts all of them in one, or one for each value of ``each``."""

    @styled
    def _draw(self, table: Table) -> Figure | None:
        groups = [(self._name(value), own) for value, own in self._groups(table, self.each)] if self.each else []
        places = [(replace(panel, title=name), own) for panel in self.panels for name, own in groups]
        places = places or [(panel, table) for panel in self.panels]
        across = self.across or len(groups) or len(places)
        shared = "row" if self.share_y else False
        figure = grid_of(len(places), self.width, self.height, (0.6, 0.0), across, sharey=shared)[0]
        drawn = [panel.onto(at, own.where(**panel.where)) for at, (panel, own) in zip(figure.axes, places, strict=True)]
        if not any(drawn):
            return None
        labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
        for number, axes in enumerate(figure.axes):
            along, down = labels[number]
            if number % across and (self.share_y or down == labels[number - 1][1]):
                axes.set_ylabel("")
            if number + across < len(labels) and along == labels[number + across][0]:
                axes.set_xlabel("")
        share_legend(figure, self.panels[0]._columns[2].replace("_", " "))
        return figure


@dataclass(frozen=True)
class Restarts(Panel):
    """Every row a dot, the groups side by side: those of a column, or of several, the first varying slowest.

    The colours are by the value of the last column, where each group does not have its own. Within a group the values
    of yet another column can stand beside each other, each in its own colour, with a legend.
    """

    column: str
    by: str | tuple[str, ...]
    colours: Mapping[Any, str] = field(default_factory=dict)
    line: Callable[[Row], float | None] | None = None
    """The height of a group's short line, by its first row: a published mean. Without it, the mean."""
    tilt: float = 0.0
    """Degrees by which the groups' names are turned."""
    within: str = ""
    """A column whose values stand beside each other in each group."""

    @styled
    def _draw(self, table: Table) -> Figure | None:
        each = 0.55 if self.tilt else 1.1
        figure = grid_of(1, 1.0 + each * max(len(self._cells(table)), 1), 2.6)[0]
        if not self.onto(figure.axes[0], table):
            return None
        if self.within:
            figure.legend(title=self.within.replace("_", " "), loc="outside right upper")
        return figure

    def _cells(self, table: Table) -> list[tuple[tuple[Any, ...], Table]]:
        cells: list[tuple[tuple[Any, ...], Table]] = [((), table)]
        for column in (self.by,) if isinstance(self.by, str) else self.by:
            cells = [((*values, value), own) for values, rows in cells for value, own in self._groups(rows, column)]
        return [(values, rows) for values, rows in cells if len(rows.column(self.column))]

    def _plot(self, axes: Axes, table: Table) -> bool:
        cells = self._cells(table)
        sides = [value for value, _ in self._groups(table, self.within)] if self.within else []
        for place, (values, rows) in enumerate(cells):
            if not sides:
                self._dots(axes, place, rows, values[-1], place)
            for number, side in enumerate(sides):
                at = place + 0.72 * ((number + 0.5) / len(sides) - 0.5)
                self._dots(axes, at, rows.where(**{self.within: side}), side, number)
        for number, side in enumerate(sides):
            dots(axes, 0, [], self._colour(side, number), label=self._name(side))
        names = ["\n".join(map(self._name, values)) for values, _ in cells]
        axes.set_xticks(range(len(cells)), names, rotation=self.tilt, ha="right" if self.tilt else "center")
        return len(cells) > 0

    def _dots(self, axes: Axes, at: float, rows: Table, value: Any, number: int) -> None:
        values = rows.column(self.column)
        if len(values):
            level = rows.mean(self.column) if self.line is None else self.line(rows.rows[0])
            dots(axes, at, values, self._colour(value, number), level)

    def _colour(self, value: Any, number: int) -> str:
        return self.colours.get(value, COLOURS[number % len(COLOURS)])

    @property
    def _columns(self) -> tuple[str, str, str]:
        return self.column, self.by if isinstance(self.by, str) else self.by[0], self.within


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
