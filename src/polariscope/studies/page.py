"""One Markdown page over a whole folder of tables: verdicts counted, then every study with its claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polariscope.atomic import atomic
from polariscope.findings import markdown_table
from polariscope.report.markdown import markdown
from polariscope.studies.study import UNJUDGED, VERDICTS, Outcome, Row, studies

HOW_JUDGED = """
A verdict needs five seeds in every cell it compares, or exact numbers. A bound or an equality is *held* if the 95 %
interval over the seeds lies within it, *not held* if it lies wholly outside, and *undecided* otherwise. An effect is
*held* if its mean reaches the smallest size and its interval lies above zero, *not held* if the mean does not reach it,
and *undecided* if the interval contains zero. The note of *weaker form held* says how the tested claim is weaker than
the published one.
"""


def results_page(outcomes: Sequence[Outcome], folder: Path) -> str:
    """Every study of a folder: first the verdicts counted, then each with its claims.

    ``note.md`` beside a table holds what a person has to say about it, and is put behind its claims.
    """
    missing = sorted(set(studies.names()) - {outcome.name for outcome in outcomes})
    lines = [
        "# Measured results",
        "",
        f"Results of the studies that were run in full. This page is made by `polariscope results {folder}` from the",
        f"tables in `{folder}`, which hold every row that was measured; the verdicts are those of the present code.",
        "",
        HOW_JUDGED.strip(),
        "",
        *verdicts(outcomes),
    ]
    if missing:
        lines += ["", f"No table yet: {', '.join(missing)}."]
    if (folder / "earlier.md").exists():
        lines += ["", f"Runs made before tables were kept: [earlier results]({folder.name}/earlier.md)."]
    if (folder / "changes.md").exists():
        lines += ["", f"How verdicts changed with the criteria: [before and after]({folder.name}/changes.md)."]
    for outcome in outcomes:
        lines += ["", markdown(outcome.findings(figures=False), level=2, pictures=None).rstrip()]
        note = outcome.path / "note.md"
        if note.exists():
            lines += ["", note.read_text(encoding="utf-8").strip()]
    return "\n".join([*lines, ""])


def write_results_page(path: Path, outcomes: Sequence[Outcome], folder: Path) -> None:
    with atomic(path) as draft:
        draft.write_text(results_page(outcomes, folder), encoding="utf-8")


def verdicts(outcomes: Sequence[Outcome], linked: bool = False) -> list[str]:
    """A row for each study: how many of its claims came out how; a dash at a scale that judges nothing."""
    rows = []
    for outcome in outcomes:
        judged = [claim.verdict for claim in outcome.claims]
        name = f"[{outcome.name}]({outcome.path.name}/README.md)" if linked else outcome.name
        row: Row = {"study": name, "scale": outcome.scale, "seeds": outcome.origin.seeds or "-"}
        unjudged = outcome.scale in UNJUDGED
        rows.append(row | {verdict: "-" if unjudged else judged.count(verdict) for verdict in VERDICTS})
    return markdown_table(rows)
