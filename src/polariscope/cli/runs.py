"""``polariscope runs``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from polariscope.cli.parsing import parse
from polariscope.lab.store import Store


@dataclass(frozen=True)
class Options:
    """List the runs, oldest first; filter with --where, or ask anything with --sql over the tables runs and metrics."""

    where: str = "true"
    """SQL condition on a run's columns, e.g. "objective = 'beta-vae' and train_loss < 60"."""
    columns: tuple[str, ...] = ("id", "status", "world", "objective", "model_latents", "step", "held_out_loss")
    """Columns to show; settings are called by section and name, such as training_seed."""
    sql: str | None = None
    """A whole query instead, e.g. "select run, min(value) from metrics where term = 'kl' group by run"."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "runs")
    store = Store(options.runs)
    if not store.runs() and not store.problems:
        if options.json:
            print("[]")
        else:
            print(f"no runs in {options.runs}; 'polariscope train sprites' makes one")
        return 0
    if options.sql is None:
        rows = store.query(f"select * from runs where {options.where} order by created")
        rows = [{column: row.get(column) for column in options.columns} for row in rows]
    else:
        rows = store.query(options.sql)
    for problem in store.problems:
        print(f"skipped: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(rows, default=str))
        return 0
    table = Table(box=None)
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    Console().print(table)
    return 0


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
