"""Findings in Markdown, for files in a repository such as the results of studies."""

from __future__ import annotations

from polariscope.findings import Findings


def markdown(findings: Findings, level: int = 1, pictures: str | None = "") -> str:
    """The document, its title a heading of ``level``. Figures are linked to as files in ``pictures``; None leaves
    them out."""
    mark = "#" * level
    lines = [f"{mark} {findings.title}", "", findings.headline]
    for part in findings.parts:
        body = part.markdown(pictures)
        if body is not None:
            hint = [part.hint, ""] if part.hint else []
            lines += ["", f"{mark}# {part.title}", "", *hint, *body]
    if findings.notes:
        lines += ["", *(f"- {note}" for note in findings.notes)]
    return "\n".join([*lines, ""])
