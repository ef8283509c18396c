"""The table of ``polariscope runs --over-seeds``: what several seeds of each setting say together."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polariscope.measures import measures
from polariscope.measures.seeds import Statistic, seed_table
from polariscope.training.sweep import by_setting

STYLES = {"best": "bold", "worst": "red", "": ""}


def over_seeds(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> int:
    """Mean (s.d.) and median (a.d.) over the seeds of each setting; bold is significantly best, red worst."""
    values: dict[str, dict[str, list[float]]] = {}
    for name, seeds in by_setting(rows).items():
        for column in columns:
            known = [row[column] for row in seeds if row.get(column) is not None]
            if len(known) < 2:
                print(f"left out: {name} has {len(known)} seeds with a {column}, of at least 2", file=sys.stderr)
            else:
                values.setdefault(name, {})[column] = known
    if not values:
        raise ValueError(
            f"no setting has two seeds with {' or '.join(columns)}: 'polariscope train --seeds 5' trains "
            "several, 'polariscope examine' adds the measures"
        )
    found = seed_table(values, {column: _higher_is_better(column) for column in columns})
    if as_json:
        cells = [
            {"setting": name, "column": column, **asdict(summary), "mark": found.marks[name][column]}
            for name, row in found.cells.items()
            for column, summary in row.items()
        ]
        print(json.dumps(cells))
        return 0
    statistics: tuple[Statistic, ...] = ("mean", "median")
    for statistic, spread in zip(statistics, ("s.d.", "a.d."), strict=True):
        table = Table("setting", *found.scores, title=f"{statistic} ({spread})", title_justify="left", box=None)
        for name, row in found.cells.items():
            styles = {column: STYLES[found.marks[name][column]] for column in row}
            texts = [Text(row[c].text(statistic), styles[c]) if c in row else Text("-") for c in found.scores]
            table.add_row(Text(name), *texts)
        Console(markup=False, emoji=False).print(table)
    return 0


def _higher_is_better(column: str) -> bool | None:
    """Measures know it, losses are better low; other columns are not marked."""
    name = column.removeprefix("measures_")
    if name != column and name in measures.names():
        return measures.get(name).higher_is_better
    return False if column.endswith("loss") else None
