"""Types of variables over the strength of a regularisation, with a measure of the means and of the samples."""

from __future__ import annotations

from matplotlib.figure import Figure

from polariscope.report.figures import types_by_strength
from polariscope.studies.rows import Table

TYPES = ("active", "mixed", "passive")


def type_bars(table: Table, strength: str, means: str, samples: str, measure: str) -> Figure:
    """Bars of the mean counts at each strength, and lines of two columns; a column may be missing at a strength."""
    groups = list(table.by(strength))
    counts = [{kind: group.mean(kind) for kind in TYPES} for _, group in groups]
    lines = {
        side: [group.mean(column) if len(group.column(column)) else float("nan") for _, group in groups]
        for side, column in (("means", means), ("samples", samples))
    }
    return types_by_strength([value for value, _ in groups], counts, lines, strength=strength, measure=measure)
