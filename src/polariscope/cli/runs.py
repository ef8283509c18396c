"""``polariscope runs``: list and query the runs, name and tag them, and draw their learning curves."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from polariscope.cli import commands
from polariscope.cli.parsing import parse, take_first
from polariscope.console import Terminal
from polariscope.grammar import counted
from polariscope.lab.labels import label
from polariscope.lab.listing import EXAMINED, Listing
from polariscope.lab.query import Limits, Rows
from polariscope.lab.store import Run, Store
from polariscope.printable import say
from polariscope.registry import nearest
from polariscope.strict_json import json_text

USUAL = ("id", "name", "tags", "status", "data", "objective", "model_latents", "step", "held_out_loss")
WHOLE = ("id", "run")
"""Columns whose cells users copy, and which are therefore neither cut nor wrapped."""
NARROW = 10
"""Smallest width of any other column, if its cells need that much."""
MOST_NAMED = 12


@dataclass(frozen=True)
class Options:
    """List the runs, oldest first; filter with --where, compare settings over their seeds with --over-seeds, or query
    the tables runs, metrics and results (measures and their examples) with --sql.

    polariscope runs name RUN NAME, runs tag RUN TAG ..., runs note RUN "TEXT" label a run; runs curves [RUN ...] --out
    curves.html draws learning curves in one figure; runs findings RUN lists the documents about a run; runs export [RUN
    ...] writes TensorBoard event files or CSV.
    """

    where: str = "true"
    """SQL condition on a run's columns, e.g. "objective = 'beta-vae' and train_loss < 60"."""
    tag: tuple[str, ...] = ()
    """Only runs that have all of these tags."""
    columns: tuple[str, ...] = ()
    """Columns to show; settings are named by section and name, such as training_seed."""
    wide: bool = False
    """Show every column in full, even if the terminal is too narrow."""
    over_seeds: tuple[str, ...] = ()
    """Columns to compare over seeds instead, one row per setting, e.g. measures_mig held_out_loss."""
    sql: str | None = None
    """A full query instead, e.g. "select run, min(value) from metrics where term = 'kl' group by run"."""
    max_seconds: float = Limits.seconds
    """Time after which a query is stopped."""
    max_megabytes: int = Limits.megabytes
    """Largest memory of a query."""
    max_rows: int = Limits.rows
    """Largest number of rows of a query's result."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


@commands.register(
    "runs",
    "list, filter and query runs; name, tag and annotate them; overlay and export their curves",
    group="training",
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    act = take_first(arguments)
    if act is not None:
        if act not in ACTS:
            raise ValueError(f"'polariscope runs' cannot {act!r}: {nearest(act, ACTS)}")
        return ACTS[act](arguments)
    options = parse(Options, arguments, "runs")
    limits = Limits(options.max_seconds, options.max_megabytes, options.max_rows)
    listing = Store(options.runs).listing()
    if not listing.ids and not listing.problems:
        say("[]" if options.json else f"no runs in {options.runs}; 'polariscope train sprites' makes one")
        return 0
    try:
        return _answer(listing, options, limits)
    finally:
        for problem in listing.problems:
            say(f"skipped: {problem}", file=sys.stderr)


def _answer(listing: Listing, options: Options, limits: Limits) -> int:
    if options.sql is not None:
        _say_bases(options.sql, listing.bases())
        return _show(listing.query(options.sql, limits), options.json, wide=options.wide)
    _check_columns((*options.columns, *options.over_seeds), listing)
    if options.over_seeds:
        from polariscope.cli.seed_tables import over_seeds  # measures are heavy, and a listing needs none

        return over_seeds(listing, _filtered(listing, options, limits, None), options.over_seeds, options.json)
    columns = options.columns or tuple(c for c in USUAL if c not in ("name", "tags") or _any(listing, c))
    rows = _filtered(listing, options, limits, ("id", "tags", "examined_on", *columns))
    bases = listing.bases(row["id"] for row in rows)
    if len(bases) > 1 and any(column.startswith(EXAMINED) for column in columns) and "examined_on" not in columns:
        columns = (*columns, "examined_on")
    shown = [{column: row[column] for column in columns} for row in rows]
    return _show(shown, options.json, droppable=not options.columns, wide=options.wide)


def _filtered(listing: Listing, options: Options, limits: Limits, columns: tuple[str, ...] | None) -> Rows:
    rows = listing.where(options.where, None if columns is None else tuple(dict.fromkeys(columns)), limits)
    return [row for row in rows if set(options.tag) <= set(row["tags"] or ())]


def _any(listing: Listing, column: str) -> bool:
    return any(listing.column(column).to_pylist())


def _say_bases(sql: str, bases: dict[str, int]) -> None:
    """Warn users who average measures over runs that were examined on different examples."""
    text = sql.lower()
    if len(bases) > 1 and any(begin in text for begin in EXAMINED) and "examined_on" not in text:
        several = "; ".join(f"{count} runs on {basis}" for basis, count in bases.items())
        say(f"note: the measures of these runs were computed on different examples ({several}): "
        "group by examined_on, or query the table results", file=sys.stderr)  # fmt: skip


def _check_columns(wanted: tuple[str, ...], listing: Listing) -> None:
    """Columns of the default table may be empty; at least one run must have any other column."""
    known = {*USUAL, *listing.columns}
    for column in wanted:
        if column not in known:
            raise ValueError(f"no run has a column {column!r}: {nearest(column, known, MOST_NAMED)}")


def _show(rows: Rows, as_json: bool, droppable: bool = False, wide: bool = False) -> int:
    if as_json:
        print(json_text(rows))
        return 0
    if not rows:
        say("no runs match" if droppable else "no rows")
        return 0
    cells = [[_text(value) for value in row.values()] for row in rows]
    names = [_text(name) for name in rows[0]]
    natural = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    least = [width if name in WHOLE else min(width, NARROW) for name, width in zip(names, natural, strict=True)]
    console = Terminal(markup=False, emoji=False, highlight=False)
    limited = not wide and (console.is_terminal or "COLUMNS" in os.environ)
    room = console.width if limited else _needed(natural)
    kept = len(names)
    while droppable and kept > 1 and _needed(natural[:kept]) > room:
        kept -= 1
    if _needed(natural[:kept]) <= room:
        for line in (names, *cells):  # a table of rich would take a second for a thousand rows
            say("".join(f" {text}{' ' * (w - cell_len(text))} " for text, w in zip(line[:kept], natural, strict=False)))
    else:
        table = Table(box=None)
        for name, width in zip(names[:kept], least, strict=False):
            table.add_column(Text(name), overflow="fold", no_wrap=name in WHOLE, min_width=width)
        for line in cells:
            table.add_row(*map(Text, line[:kept]))
        Terminal(markup=False, emoji=False, width=max(room, _needed(least[:kept]))).print(table)
    if kept < len(names):
        say(f"(no room for {', '.join(names[kept:])}: --wide shows all, --columns chooses)", file=sys.stderr)
    return 0


def _needed(widths: list[int]) -> int:
    return sum(widths) + 2 * len(widths)


def _text(value: Any) -> str:
    """A cell, without control characters that could move the cursor."""
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if text.isprintable() else repr(text)


@dataclass(frozen=True)
class LabelOptions:
    """Name a run, tag it or add a note to it; 'polariscope runs' shows the labels."""

    runs: Path = Path("runs")
    """Folder of the runs."""
    remove: bool = False
    """Remove the tags, the name or the note."""
    json: bool = False
    """Print JSON for machines."""


def _labelled(act: str, arguments: list[str]) -> int:
    words = _words(arguments)
    options = parse(LabelOptions, arguments, f"runs {act} RUN {act.upper()}")
    if not words or (len(words) < 2) != (options.remove and act != "tag") or (act != "tag" and len(words) > 2):
        what = {"name": "NAME", "tag": "TAG ...", "note": '"TEXT"'}[act]
        raise ValueError(f"'polariscope runs {act} RUN {what}' sets it, --remove removes it")
    store = Store(options.runs)
    run, given = store.open(words[0]), words[1:]
    if act == "tag":
        old = run.labels.tags
        labels = label(store, run, tags=[tag for tag in old if tag not in given] if options.remove else [*old, *given])
    else:
        labels = label(store, run, **{act: given[0] if given else ""})
    if options.json:
        print(json_text({"id": run.id, **vars(labels)}))
        return 0
    shown = [f"name {labels.name}" if labels.name else "", f"tags {', '.join(labels.tags)}" if labels.tags else ""]
    shown += [f"note: {_text(labels.note)}" if labels.note else ""]
    say(f"{run.id}: {'; '.join(filter(None, shown)) or 'no labels'}")
    return 0


@dataclass(frozen=True)
class CurveOptions:
    """polariscope runs curves [RUN ...] [options]: draw the learning curves of several runs on one page."""

    where: str = "true"
    """SQL condition that selects runs by their columns, if no run is named."""
    tag: tuple[str, ...] = ()
    """Only runs that have all of these tags."""
    term: tuple[str, ...] = ("loss",)
    """Terms to draw."""
    out: Path = Path("curves.html")
    """Page to write."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def _curves(arguments: list[str]) -> int:
    from polariscope.examination.learning_curves import learning_curves  # figures are heavy, and a listing needs none
    from polariscope.findings import save

    names = _words(arguments)
    options = parse(CurveOptions, arguments, "runs curves")
    store = Store(options.runs)
    runs = _chosen(store, names, options.where, options.tag)
    several = learning_curves(runs, options.term)
    saved = save(several, options.out, "Learning curves")
    if options.json:
        print(json_text({"report": saved, "runs": [findings.facts["run"] for findings in several]}))
    else:
        say(f"{counted(len(several), 'run')}: {', '.join(options.term)}\nreport: {saved}")
    return 0


@dataclass(frozen=True)
class ExportOptions:
    """polariscope runs export [RUN ...] [options]: write curves and results of runs for other programs."""

    to: Literal["tensorboard", "csv"] = "tensorboard"
    """TensorBoard event files (open them with 'tensorboard --logdir OUT'), or two CSV tables of runs and metrics."""
    where: str = "true"
    """SQL condition that selects runs by their columns, if no run is named."""
    tag: tuple[str, ...] = ()
    """Only runs that have all of these tags."""
    out: Path = Path("export")
    """Folder to write to."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def _export(arguments: list[str]) -> int:
    from polariscope.lab.exports import export

    names = _words(arguments)
    options = parse(ExportOptions, arguments, "runs export")
    store = Store(options.runs)
    runs = _chosen(store, names, options.where, options.tag)
    if not runs:
        raise ValueError(f"no runs match in {options.runs}: 'polariscope runs' lists all runs")
    files = export(runs, options.out, options.to)
    if options.json:
        print(json_text({"files": [str(file) for file in files]}))
    else:
        say(f"{counted(len(runs), 'run')} written to {options.out}")
    return 0


def _chosen(store: Store, names: list[str], where: str, tags: tuple[str, ...]) -> list[Run]:
    """Runs by name, or all runs that meet a condition and have the given tags."""
    if names:
        return [store.open(name) for name in names]
    listing = store.listing()
    rows = listing.where(where, ("id", "tags"))
    wanted = {row["id"] for row in rows if set(tags) <= set(row["tags"] or ())}
    return [run for run in listing.runs if run.id in wanted]


def _words(arguments: list[str]) -> list[str]:
    """The words before the first option, which are removed."""
    words = []
    while (word := take_first(arguments)) is not None:
        words.append(word)
    return words


@dataclass(frozen=True)
class DocumentOptions:
    """polariscope runs findings RUN [options]: list the documents about a run, with their headlines and pages."""

    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def _findings(arguments: list[str]) -> int:
    from polariscope.lab.run_documents import run_findings
    from polariscope.report.terminal import answer

    words = _words(arguments)
    options = parse(DocumentOptions, arguments, "runs findings")
    if len(words) != 1:
        raise ValueError("which run? 'polariscope runs findings RUN' lists the documents about it")
    run = Store(options.runs).open(words[0])
    page = run.path / "report.html"
    return answer(run_findings(run), page if page.is_file() else None, options.json, run=run.id)


ACTS = {
    "findings": _findings,
    "name": lambda arguments: _labelled("name", arguments),
    "tag": lambda arguments: _labelled("tag", arguments),
    "note": lambda arguments: _labelled("note", arguments),
    "curves": _curves,
    "export": _export,
}
