"""The table of ``polariscope runs --over-seeds``: statistics over the seeds of each setting."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from polariscope.console import Terminal
from polariscope.lab.listing import EXAMINED, Listing
from polariscope.lab.query import Rows
from polariscope.lab.results import Examined, current
from polariscope.measures import measures
from polariscope.measures.seeds import SeedTable, Statistic, seed_table
from polariscope.printable import say
from polariscope.strict_json import json_text
from polariscope.training.sweep import by_setting

STYLES = {"best": "bold", "worst": "red", "": ""}


def over_seeds(listing: Listing, rows: Rows, columns: tuple[str, ...], as_json: bool) -> int:
    """Mean (s.d.) and median (a.d.) over the seeds of each setting; bold is significantly best, red worst.

    Measures on different examples are not comparable: each basis has a table of its own.
    """
    trainings = [row for row in rows if row.get("kind") == "train" and row.get("training_seed") is not None]
    if not trainings:
        raise ValueError(
            f"none of the {len(rows)} runs is a training: 'polariscope train WORLD --seeds 5' makes some to compare"
        )
    tables = {basis: values for basis, values in _values(listing, trainings, columns).items() if values}
    if not tables:
        raise ValueError(
            f"no setting has two seeds with {' or '.join(columns)}: 'polariscope train --seeds 5' trains "
            "several, 'polariscope examine' adds the measures"
        )
    directions = {column: _higher_is_better(column) for column in columns}
    compared = {basis: seed_table(values, directions) for basis, values in tables.items()}
    if as_json:
        cells = [
            {"setting": name, "examined_on": basis or None, "column": column, **asdict(summary), "mark": mark}
            for basis, table in compared.items()
            for name, row in table.cells.items()
            for column, summary in row.items()
            for mark in [table.marks[name][column]]
        ]
        print(json_text(cells))
        return 0
    for basis, table in compared.items():
        _show(table, f" on {basis}" if basis else "")
    return 0


def _values(listing: Listing, rows: Rows, columns: Sequence[str]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Scores by basis, setting and column. If all measures have one basis, results of training are in the same table;
    if they have several, results of training have a table of their own, without a basis."""
    wanted = {row["id"] for row in rows}
    entries = {run.id: current(run.record) for run in listing.runs if run.id in wanted}
    measured = [column for column in columns if column.startswith(EXAMINED)]
    texts = [entry.on.text() for row in rows for entry in entries[row["id"]] if entry.values.keys() & set(measured)]
    bases = list(dict.fromkeys(texts))
    if len(bases) > 1:
        say(
            f"note: {' and '.join(measured)} were computed on {len(bases)} sets of examples: a table each",
            file=sys.stderr,
        )
    scores: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name, seeds in by_setting(rows).items():
        for column in columns:
            for basis in (bases or [""]) if column in measured else bases if len(bases) == 1 else [""]:
                all_scores = [_score(row, entries[row["id"]], column, basis) for row in seeds]
                known = [score for score in all_scores if score is not None]
                if len(known) >= 2:
                    scores.setdefault(basis, {}).setdefault(name, {})[column] = known
                else:
                    on = f" on {basis}" if len(bases) > 1 and basis else ""
                    say(f"skipped: {name} has {len(known)} seeds with a {column}{on}, of at least 2", file=sys.stderr)
    return scores


def _score(row: Mapping[str, Any], entries: Sequence[Examined], column: str, basis: str) -> float | None:
    if not column.startswith(EXAMINED):
        return row.get(column)
    return next((entry.values.get(column) for entry in entries if entry.on.text() == basis), None)


def _show(compared: SeedTable, on: str) -> None:
    statistics: tuple[Statistic, ...] = ("mean", "median")
    for statistic, spread in zip(statistics, ("s.d.", "a.d."), strict=True):
        table = Table("setting", *compared.scores, box=None)
        for name, row in compared.cells.items():
            styles = {column: STYLES[compared.marks[name][column]] for column in row}
            texts = [Text(row[c].text(statistic), styles[c]) if c in row else Text("-") for c in compared.scores]
            table.add_row(Text(name), *texts)
        say(f"{statistic} ({spread}){on}")
        Terminal(markup=False, emoji=False).print(table)


def _higher_is_better(column: str) -> bool | None:
    """Whether higher is better: measures declare it, losses are better low; other columns are not marked."""
    name = column.removeprefix("measures_")
    if name != column and name in measures.names():
        return measures.get(name).higher_is_better
    return False if column.endswith("loss") else None
