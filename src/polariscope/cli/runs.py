"""``polariscope runs``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polariscope.cli.parsing import parse
from polariscope.lab.store import Run, Store, summary
from polariscope.measures import measures
from polariscope.measures.seeds import Statistic, seed_table
from polariscope.registry import nearest
from polariscope.training.sweep import by_setting

STYLES = {"best": "bold", "worst": "red", "": ""}


@dataclass(frozen=True)
class Options:
    """List the runs, oldest first; filter with --where, hold settings against each other with --over-seeds, or ask
    anything with --sql over the tables runs and metrics."""

    where: str = "true"
    """SQL condition on a run's columns, e.g. "objective = 'beta-vae' and train_loss < 60"."""
    columns: tuple[str, ...] = ("id", "status", "world", "objective", "model_latents", "step", "held_out_loss")
    """Columns to show; settings are called by section and name, such as training_seed."""
    over_seeds: tuple[str, ...] = ()
    """Columns to hold against each other over seeds instead, a row a setting, e.g. measures_mig held_out_loss."""
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
        return _over_seeds(rows, options)
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
    Console().print(table)
    return 0


def _check_columns(wanted: tuple[str, ...], runs: list[Run]) -> None:
    """Columns of the usual table may be empty; any other needs at least one run that has it."""
    known = set(Options.columns).union(*map(summary, runs))
    for column in wanted:
        if column not in known:
            raise ValueError(f"no run has a column {column!r}: {nearest(column, known)}")


def _over_seeds(rows: list[dict[str, Any]], options: Options) -> int:
    """Mean (s.d.) and median (a.d.) over the seeds of each setting; bold is significantly best, red worst."""
    values: dict[str, dict[str, list[float]]] = {}
    for name, seeds in by_setting(rows).items():
        for column in options.over_seeds:
            known = [row[column] for row in seeds if row.get(column) is not None]
            if len(known) < 2:
                print(f"left out: {name} has {len(known)} seeds with a {column}, of at least 2", file=sys.stderr)
            else:
                values.setdefault(name, {})[column] = known
    if not values:
        raise ValueError(
            f"no setting has two seeds with {' or '.join(options.over_seeds)}: 'polariscope train --seeds 5' trains "
            "several, 'polariscope examine' adds the measures"
        )
    found = seed_table(values, {column: _higher_is_better(column) for column in options.over_seeds})
    if options.json:
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
        Console().print(table)
    return 0


def _higher_is_better(column: str) -> bool | None:
    """Measures know it, losses are better low; other columns are not marked."""
    name = column.removeprefix("measures_")
    if name != column and name in measures.names():
        return measures.get(name).higher_is_better
    return False if column.endswith("loss") else None


def _shown(value: Any) -> Text:
    """A cell: as text, for what stands in a file must neither be taken for markup nor move the cursor."""
    if value is None:
        return Text()
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return Text(text if text.isprintable() else repr(text))
