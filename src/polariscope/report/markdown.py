"""Findings in Markdown: for files that are read where they lie, such as the results of studies."""

from __future__ import annotations

from collections.abc import Sequence

from polariscope.findings import Chart, Findings, Records, Row, Text, Values


def markdown(findings: Findings, level: int = 1, pictures: str | None = "") -> str:
    """The document, its title a heading of ``level``. Figures are linked to as files in ``pictures``; None leaves
    them out."""
    mark = "#" * level
    lines = [f"{mark} {findings.title}", "", findings.headline]
    for part in findings.parts:
        body = _body(part, pictures)
        if body:
            hint = [part.hint, ""] if part.hint else []
            lines += ["", f"{mark}# {part.title}", "", *hint, *body]
    if findings.notes:
        lines += ["", *(f"- {note}" for note in findings.notes)]
    return "\n".join([*lines, ""])


def table(rows: Sequence[Row]) -> list[str]:
    """Rows of the same columns, as they are."""
    columns = list(rows[0]) if rows else []
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return lines + ["| " + " | ".join(_cell(str(row[name])) for name in columns) + " |" for row in rows]


def _body(part: object, pictures: str | None) -> list[str]:
    if isinstance(part, Records) and part.rows:
        return table([{column.title: column.text(row) for column in part.shown} for row in part.rows])
    if isinstance(part, Values):
        return [f"- {entry.title}: {entry.text()}" for entry in part.entries]
    if isinstance(part, Text):
        return [f"- {line}" for line in part.lines]
    if isinstance(part, Chart) and pictures is not None:
        return [f"![{part.title}]({pictures}{part.name}.png)"]
    return []


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
