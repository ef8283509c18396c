"""Findings on the terminal: headline, tables, values and notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text as Words

from polariscope.console import Terminal
from polariscope.findings import Findings, Records, Value, Values
from polariscope.strict_json import json_text

ROWS = 30
"""Rows of a table that are shown at most; the page and JSON have them all."""
STYLES = {"held": "green", "weaker form held": "green", "not held": "red", "undecided": "yellow"}


def show(findings: Findings, saved: object = None, console: Terminal | None = None, heading: bool = False) -> None:
    """Print findings and the path of the page; with a ``heading`` if several follow each other."""
    console = console or Terminal(markup=False, emoji=False, highlight=False)
    if heading:
        console.print()
        console.print(Words(findings.title, "bold underline"))
    for number, part in enumerate(findings.parts, 1):
        for shown in part.terminal(findings.parts[number:]):
            console.print(shown)
    console.print(Words(findings.headline, "bold"))
    for note in findings.notes:
        console.print(f"note: {note}")
    if saved is not None:
        console.print(f"report: {saved}", soft_wrap=True)


def answer(findings: Findings | Sequence[Findings], saved: object, as_json: bool, **more: Any) -> int:
    """The output of a command: the findings for people, or one line of JSON with the path of the page (``report``), the
    entries of ``more``, and the document, or several as ``findings``. Returns exit code 0."""
    several = [findings] if isinstance(findings, Findings) else list(findings)
    if as_json:
        document = (
            several[0].json() if isinstance(findings, Findings) else {"findings": [one.json() for one in several]}
        )
        print(json_text({"report": None if saved is None else str(saved), **more, **document}))
        return 0
    for one in several:
        show(one, heading=len(several) > 1 or not isinstance(findings, Findings))
    if saved is not None:
        Terminal(markup=False, emoji=False, highlight=False).print(f"report: {saved}", soft_wrap=True)
    return 0


def side_by_side(several: Sequence[Findings], console: Terminal | None = None) -> None:
    """The values of several findings, a column each."""
    console = console or Terminal(markup=False, emoji=False, highlight=False)
    table = Table("", *(findings.title for findings in several), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    names = {
        (part.name, entry.name): entry.title
        for findings in several
        for part in findings.of(Values)
        for entry in part.entries
    }
    seen: set[str] = set()
    for key, title in names.items():
        if title in seen:  # a headline repeats some of the measures
            continue
        seen.add(title)
        table.add_row(title, *(_cell(findings, key) for findings in several))
    console.print(table)


def _cell(findings: Findings, key: tuple[str, str]) -> str:
    entries = [e for part in findings.of(Values) if part.name == key[0] for e in part.entries if e.name == key[1]]
    return _short(entries[0]) if entries else "-"


def titled(title: str, lines: Iterable[str]) -> Iterator[RenderableType]:
    """Lines below a title, which is set as rich sets the titles of tables."""
    yield Words(title, "italic")
    yield from (f"  {line}" for line in lines)


def table(part: Records) -> Iterator[RenderableType]:
    """Rows below the title, and the number of rows that do not fit."""
    shown = Table(title=part.title, title_justify="left", box=None)
    columns = [column for column in part.shown if not column.aside]
    for column in columns:
        shown.add_column(column.short or column.title, justify="right" if column.numeric else "left", overflow="fold")
    for row in part.rows[:ROWS]:
        shown.add_row(*(Words(text, STYLES.get(text, "")) for text in (column.text(row) for column in columns)))
    yield shown
    if len(part.rows) > ROWS:
        yield f"  and {len(part.rows) - ROWS} more rows, listed in the report and with --json"


def _short(entry: Value) -> str:
    if entry.shares:
        return " / ".join(map(str, entry.shares.values()))
    if entry.value is None:
        return "undefined"
    return f"chance ({entry.value:.4g})" if entry.within_chance else f"{entry.value:.4g}"
