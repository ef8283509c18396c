"""``polariscope runs``."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polariscope.cli.parsing import parse
from polariscope.lab.store import Run, Store, summary
from polariscope.registry import nearest


@dataclass(frozen=True)
class Options:
    """List the runs, oldest first; filter with --where, compare settings over their seeds with --over-seeds, or ask
    anything with --sql over the tables runs and metrics."""

    where: str = "true"
    """SQL condition on a run's columns, e.g. "objective = 'beta-vae' and train_loss < 60"."""
    columns: tuple[str, ...] = ("id", "status", "world", "objective", "model_latents", "step", "held_out_loss")
    """Columns to show; settings are called by section and name, such as training_seed."""
    over_seeds: tuple[str, ...] = ()
    """Columns to compare over seeds instead, one row per setting, e.g. measures_mig held_out_loss."""
    sql: str | None = None
    """A whole query instead, e.g. "select run, min(value) from metrics where term = 'kl' group by run"."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "runs")
    store = Store(options.runs)
    runs = store.runs()
    if not runs and not store.problems:
        if options.json:
            print("[]")
        else:
            print(f"no runs in {options.runs}; 'polariscope train sprites' makes one")
        return 0
    _check_columns((*options.columns, *options.over_seeds), runs)
    rows = store.where(options.where) if options.sql is None else store.query(options.sql)
    for problem in store.problems:
        print(f"skipped: {problem}", file=sys.stderr)
    if options.over_seeds and options.sql is None:
        from polariscope.cli.seed_tables import over_seeds  # measures are heavy, and a listing needs none

        return over_seeds(rows, options.over_seeds, options.json)
    if options.sql is None:
        rows = [{column: row.get(column) for column in options.columns} for row in rows]
    if options.json:
        print(json.dumps(rows, default=str))
        return 0
    table = Table(box=None)
    for column in rows[0] if rows else ():
        table.add_column(_shown(column), overflow="fold")
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    Console(markup=False, emoji=False).print(table)
    return 0


def _check_columns(wanted: tuple[str, ...], runs: list[Run]) -> None:
    """Columns of the usual table may be empty; any other needs at least one run that has it."""
    known = set(Options.columns).union(*map(summary, runs))
    for column in wanted:
        if column not in known:
            raise ValueError(f"no run has a column {column!r}: {nearest(column, known)}")


def _shown(value: Any) -> Text:
    """A cell: as text, for what stands in a file must neither be taken for markup nor move the cursor."""
    if value is None:
        return Text()
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return Text(text if text.isprintable() else repr(text))
