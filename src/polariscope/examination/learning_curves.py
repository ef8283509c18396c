"""Learning curves of many runs in the same axes, on one page."""

from __future__ import annotations

from collections.abc import Sequence

from polariscope.findings import Column, Curves, Findings, Records
from polariscope.lab.store import Run
from polariscope.registry import nearest

HINT = "Faint line: batches while training. Line with marks: held-out data."
COLUMNS = (
    Column("run", "Run"),
    Column("term", "Term"),
    Column("split", "Data"),
    Column("step", "Last step", "%d"),
    Column("last", "Last", "%.4g"),
    Column("lowest", "Lowest", "%.4g"),
)


def learning_curves(runs: Sequence[Run], terms: Sequence[str] = ("loss",)) -> list[Findings]:
    """A document for each run; :func:`~polariscope.findings.save` draws their curves in the same axes on one page. A
    run that has none of the terms is skipped."""
    if not runs:
        raise ValueError("no run has a learning curve to draw: 'polariscope runs' lists all runs")
    metrics = {run: run.metrics() for run in runs}
    known = {term for rows in metrics.values() for _, _, term, _ in rows}
    for term in terms:
        if term not in known:
            raise ValueError(f"no run has a curve of {term!r}: {nearest(term, known, most=20)}")
    chosen = {run: [row for row in rows if row[2] in terms] for run, rows in metrics.items()}
    return [_findings(run, rows) for run, rows in chosen.items() if rows]


def _findings(run: Run, rows: Sequence[tuple[int, str, str, float]]) -> Findings:
    title = run.labels.name or run.id
    curves = Curves(name="learning", title="Learning curves", hint=HINT, metrics=rows)
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for step, split, term, value in rows:
        points.setdefault((term, split), []).append((step, value))
    table = [
        {
            "run": title,
            "term": term,
            "split": split.replace("_", "-"),
            "step": curve[-1][0],
            "last": curve[-1][1],
            "lowest": min(value for _, value in curve),
        }
        for (term, split), curve in points.items()
    ]
    ends = Records(name="ends", title="Last values", rows=table, columns=COLUMNS)
    first = table[0]
    headline = f"{first['term']} of {title}: {first['last']:.4g} after {first['step']:,} steps."
    return Findings(title, headline, [curves, ends], facts={"run": run.id}, settings=run.config)
