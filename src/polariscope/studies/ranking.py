"""Settings of a grid by any column of its table, the best first, with an interval over the seeds of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polariscope.findings import Chart, Column, Findings, Part, Records
from polariscope.grammar import counted
from polariscope.measures import measures
from polariscope.registry import nearest
from polariscope.report.study_figures import COLOURS, restarts
from polariscope.studies.criteria import cell_of
from polariscope.studies.criteria.criterion import plain
from polariscope.studies.rows import Row, Table
from polariscope.tabular import Tabular

FEWEST = 2
"""Seeds that an interval needs."""


@dataclass(frozen=True, repr=False)
class Ranking(Tabular):
    """Settings, the best first."""

    column: str
    higher: bool
    settings: Sequence[str]
    """The columns that make a setting."""
    table: Table

    def records(self) -> list[Row]:
        """A row for each setting: its place, its mean with a 95 % interval over the seeds, and how many there are."""
        rows: list[Row] = []
        for values, own in self._groups().items():
            estimate = cell_of(own, self.column).estimate()
            seeds = len(own.distinct("seed"))
            row: Row = dict(zip(self.settings, values, strict=True)) | {"mean": estimate.middle, "seeds": seeds}
            rows.append(row | ({"low": estimate.low, "high": estimate.high} if seeds >= FEWEST else {}))
        rows.sort(key=lambda row: (math.isnan(row["mean"]), -row["mean"] if self.higher else row["mean"]))
        for rank, row in enumerate(rows, 1):
            row["rank"] = rank
            row["apart"] = rank > 1 and _apart(rows[0], row, self.higher)
        return rows

    def _groups(self) -> dict[tuple[Any, ...], Table]:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.table.rows:
            if row.get(self.column) is not None:
                groups.setdefault(tuple(row.get(name) for name in self.settings), []).append(row)
        return {values: Table(rows) for values, rows in groups.items()}

    @property
    def headline(self) -> str:
        rows = self.records()
        if not rows:
            return f"No run has a {self.column}."
        best = rows[0]
        where = ", ".join(f"{name} {plain(best[name])}" for name in self.settings) or "the one setting"
        interval = f" [{best['low']:.4g}, {best['high']:.4g}]" if "low" in best else ""
        equal = sum(not row["apart"] for row in rows[1:])
        ties = (
            "; no other interval overlaps with it"
            if not equal
            else f"; {equal} of the others cannot be distinguished from it"
        )
        end = "highest" if self.higher else "lowest"
        if math.isnan(best["mean"]):
            return f"Every setting has a run whose {self.column} is not a number."
        return f"{where} has the {end} {self.column}: {best['mean']:.4g}{interval}{ties if rows[1:] else ''}."

    def findings(self) -> Findings:
        columns = [
            Column("rank", "Rank", "%d"),
            *(Column(name, name.replace("_", " ")) for name in self.settings),
            Column("mean", f"Mean {self.column}", "%.4g"),
            Column("low", "95 % from", "%.4g"),
            Column("high", "to", "%.4g"),
            Column("seeds", "Seeds", "%d"),
            Column("apart", "Apart from the first"),
        ]
        parts: list[Part] = [Records(name="ranking", title="Ranking", rows=self.records(), columns=columns)]
        if self._groups():
            parts.append(Chart(name="restarts", title="Every run", draw=self._drawn))
        few = [row for row in self.records() if row["seeds"] < FEWEST]
        notes = ["Intervals are Student's 95 % intervals of the mean over the seeds of a setting; a setting is apart "
                 "from the first if the two intervals do not meet."]  # fmt: skip
        lost = sum(math.isnan(row["mean"]) for row in self.records())
        notes += [f"{counted(lost, 'setting')} with runs that diverged (the number is NaN) come last."] if lost else []
        notes += [f"{len(few)} settings have a single seed and no interval: train more seeds."] if few else []
        return Findings(f"Settings by {self.column}", self.headline, parts, notes)

    def _drawn(self) -> Any:
        groups = self._groups()
        order = [tuple(row[name] for name in self.settings) for row in self.records()]
        shown = [("\n".join(map(plain, own)), groups[own].column(self.column), COLOURS[0]) for own in order[:12]]
        return restarts(shown, self.column.replace("_", " "), ", ".join(self.settings))


def rank(table: Table, column: str, settings: Sequence[str], higher: bool | None = None) -> Ranking:
    """Settings by a column. Which direction is better follows from the measure; losses are better low.

    >>> rows = [{"beta": b, "seed": s, "train_loss": b + s / 10} for b in (4, 1) for s in range(3)]
    >>> rank(Table(rows), "train_loss", ["beta"]).headline
    'beta 1 has the lowest train_loss: 1.1 [0.8516, 1.348]; no other interval overlaps with it.'
    """
    known = {name for row in table.rows for name, value in row.items() if type(value) in (int, float)}
    if column not in known:
        raise ValueError(f"no run has a number called {column!r}: {nearest(column, known)}")
    if higher is None:
        higher = direction(column)
    if higher is None:
        raise ValueError(f"neither direction of {column} is better in itself: say --highest or --lowest")
    return Ranking(column, higher, list(settings), table)


def direction(column: str) -> bool | None:
    """Whether a higher number is better."""
    if column in measures.names():
        return measures.get(column).higher_is_better
    return False if column.endswith("loss") else None


def _apart(best: Row, row: Row, higher: bool) -> bool:
    if "low" not in best or "low" not in row:
        return False
    return bool(row["high"] < best["low"] if higher else row["low"] > best["high"])
