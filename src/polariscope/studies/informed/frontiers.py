"""A figure of codes in two parts: how much the property moves, over the error of observations, as training goes on."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from polariscope.examination.frontier import Audited, frontier
from polariscope.report.invariance_figures import frontier_plot
from polariscope.studies.kit import Declared
from polariscope.studies.rows import Table


@dataclass(frozen=True)
class Frontier(Declared):
    """A curve for each model, of the rows whose kind is "along"."""

    column: str
    """How much the property moves."""

    def _draw(self, table: Table) -> Figure | None:
        audits = [
            Audited(row["model"], row["lam"], row["seed"], row["x_error"], row["y_error"], row[self.column])
            for row in table.where(kind="along").rows
            if row[self.column] is not None
        ]
        if not audits:
            return None
        line = frontier(audits)
        curves = {m: [(p.x_error, p.deviation, p.interval) for p in line.of(m)] for m in line.models}
        return frontier_plot(curves, self._words(self.column))
