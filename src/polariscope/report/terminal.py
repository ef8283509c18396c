"""Findings on the terminal: headline, tables, values and notes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text as Words

from polariscope.console import Terminal
from polariscope.findings import Findings, Records, Text, Value, Values
from polariscope.strict_json import json_text

ROWS = 30
"""Rows of a table that are shown at most; the page and JSON have them all."""
STYLES = {"held": "green", "weaker form held": "green", "not held": "red", "undecided": "yellow"}


def show(findings: Findings, saved: object = None, console: Terminal | None = None, heading: bool = False) -> None:
    """Print findings, and where the page is; with a ``heading`` where several follow each other."""
    console = console or Terminal(markup=False, emoji=False, highlight=False)
    if heading:
        console.print()
        console.print(Words(findings.title, "bold underline"))
    last = {entry.name: entry for part in findings.of(Values) for entry in part.entries}
    for part in findings.parts:
        if isinstance(part, Records) and part.rows:
            _records(part, console)
        elif isinstance(part, Values):
            console.print(Words(part.title, "italic"))  # as rich sets the titles of tables
            for entry in part.entries:
                if entry is last[entry.name]:  # a summary repeats some of what follows
                    console.print(f"  {entry.title}: {entry.text()}")
        elif isinstance(part, Text):
            for line in part.lines:
                console.print(f"  {line}")
    console.print(Words(findings.headline, "bold"))
    for note in findings.notes:
        console.print(f"note: {note}")
    if saved is not None:
        console.print(f"report: {saved}", soft_wrap=True)


def answer(findings: Findings, saved: object, as_json: bool, place: str = "report") -> None:
    """What a command says: the findings for people, or as one line of JSON with the place of the page."""
    if as_json:
        print(json_text({place: str(saved), **findings.json()}))
    else:
        show(findings, saved)


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
    found = [e for part in findings.of(Values) if part.name == key[0] for e in part.entries if e.name == key[1]]
    return _short(found[0]) if found else "-"


def _records(part: Records, console: Terminal) -> None:
    table = Table(title=part.title, title_justify="left", box=None)
    columns = [column for column in part.shown if not column.aside]
    for column in columns:
        table.add_column(column.short or column.title, justify="right" if column.numeric else "left", overflow="fold")
    for row in part.rows[:ROWS]:
        table.add_row(*(Words(text, STYLES.get(text, "")) for text in (column.text(row) for column in columns)))
    console.print(table)
    if len(part.rows) > ROWS:
        console.print(f"  and {len(part.rows) - ROWS} more, which the report and --json list")


def _short(entry: Value) -> str:
    if entry.shares:
        return " / ".join(map(str, entry.shares.values()))
    if entry.value is None:
        return "undefined"
    return f"chance ({entry.value:.4g})" if entry.within_chance else f"{entry.value:.4g}"
