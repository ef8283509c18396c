"""The table of ``polariscope runs --over-seeds``: statistics over the seeds of each setting."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial

from rich.table import Table
from rich.text import Text

from polariscope.console import Terminal
from polariscope.examination.seed_tables import seed_tables
from polariscope.lab.listing import Listing
from polariscope.lab.query import Rows
from polariscope.measures.seeds import SeedTable, Statistic
from polariscope.printable import say
from polariscope.strict_json import json_text

STYLES = {"best": "bold", "worst": "red", "": ""}


def over_seeds(listing: Listing, rows: Rows, columns: tuple[str, ...], as_json: bool) -> int:
    """Print mean (s.d.) and median (a.d.); bold is significantly best, red worst."""
    compared = seed_tables(listing, rows, columns, partial(say, file=sys.stderr))
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
