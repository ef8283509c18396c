"""Outcomes of studies in Markdown: a page for one, and one page over a whole folder of tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polariscope.studies.study import VERDICTS, Outcome, Row, studies


def study_page(outcome: Outcome, figures: Sequence[str]) -> str:
    """Title, claims, the published table with ours in it, the pictures beside the page, and how it was made."""
    study = studies.get(outcome.name)()
    pictures = [f"![{name}]({name}.png)\n" for name in figures]
    return "\n".join([f"# {study.title}", "", *_body(outcome, level=2), "", *pictures, _made(outcome), ""])


def results_page(outcomes: Sequence[Outcome], folder: Path) -> str:
    """Every study of a folder: first the verdicts counted, then each with its claims.

    ``note.md`` beside a table holds what a person has to say about it, and is put behind its claims.
    """
    missing = sorted(set(studies.names()) - {outcome.name for outcome in outcomes})
    lines = [
        "# Measured results",
        "",
        f"What came out where a study was run in full. This page is made by `polariscope results {folder}` from the",
        f"tables in `{folder}`, which hold every row that was measured; the verdicts are those of the present code.",
        "",
        *verdicts(outcomes),
    ]
    if missing:
        lines += ["", f"No table yet: {', '.join(missing)}."]
    if (folder / "earlier.md").exists():
        lines += ["", f"Runs made before tables were kept: [earlier results]({folder.name}/earlier.md)."]
    for outcome in outcomes:
        study = studies.get(outcome.name)()
        lines += ["", f"## {study.title}", "", *_body(outcome, level=3), "", _made(outcome)]
        note = outcome.path / "note.md"
        if note.exists():
            lines += ["", note.read_text(encoding="utf-8").strip()]
    return "\n".join([*lines, ""])


def verdicts(outcomes: Sequence[Outcome], linked: bool = False) -> list[str]:
    """A row for each study: how many of its claims came out how."""
    lines = [f"| study | scale | seeds | {' | '.join(VERDICTS)} |", "|---" * (3 + len(VERDICTS)) + "|"]
    for outcome in outcomes:
        found = [claim.verdict for claim in outcome.claims]
        name = f"[{outcome.name}]({outcome.path.name}/README.md)" if linked else outcome.name
        counts = " | ".join(str(found.count(verdict)) for verdict in VERDICTS)
        lines.append(f"| {name} | {outcome.scale} | {outcome.origin.seeds or '-'} | {counts} |")
    return lines


def _body(outcome: Outcome, level: int) -> list[str]:
    study = studies.get(outcome.name)()
    claims: list[Row] = [
        {
            "claim": claim.text,
            "tested": claim.tested,
            "published": claim.published,
            "measured here": claim.measured,
            "verdict": f"**{claim.verdict}**" + (f": {claim.note}" if claim.note else ""),
        }
        for claim in outcome.claims
    ]
    lines = [study.question, "", f"Source: {study.source}.", "", *_table(claims)]
    beside = study.beside(outcome.table)
    if beside:
        lines += ["", f"{'#' * level} Published and measured", "", *_table(beside)]
    return lines


def _made(outcome: Outcome) -> str:
    origin = outcome.origin
    seeds = f"{origin.seeds} seeds; " if origin.seeds else ""
    made = ", ".join(f"{key} {value}" for key, value in origin.made.items() if key != "study")
    return (
        f"`polariscope reproduce {origin.study} --scale {origin.scale}`: {len(outcome.table)} rows; {seeds}"
        f"{origin.seconds / 60:.1f} minutes of one core; made with {made}."
    )


def _table(rows: Sequence[Row]) -> list[str]:
    """Rows of the same columns."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return lines + ["| " + " | ".join(_cell(str(row[name])) for name in columns) + " |" for row in rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
