"""Types of variables over the strength of a regularisation, with a measure of the means and of the samples."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from polariscope.report.figures import TYPES, types_by_strength
from polariscope.studies.kit import Declared
from polariscope.studies.rows import Table


@dataclass(frozen=True)
class TypeBars(Declared):
    """Bars of the mean counts at each strength, and lines of two columns; a column may be missing at a strength."""

    strength: str
    means: str
    samples: str

    def _draw(self, table: Table) -> Figure:
        groups = list(table.by(self.strength))
        counts = [{kind: group.mean(kind) for kind in TYPES} for _, group in groups]
        lines = {
            side: [group.mean(column) if len(group.column(column)) else float("nan") for _, group in groups]
            for side, column in (("means", self.means), ("samples", self.samples))
        }
        strengths = [value for value, _ in groups]
        return types_by_strength(strengths, counts, lines, strength=self.strength, measure=self.called)
