"""Figures of dimension selection: traces against the number of latents with the steps of a search, and elbow curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from polariscope.dimension.elbow import CurvePoint, mean_curve
from polariscope.dimension.trained import DimensionSearch
from polariscope.report.figures import LIGHT, panels, styled

INK, FIRST, SECOND, LINE = (LIGHT[name] for name in ("ink", "active", "third", "passive"))


@styled
def trace_curves(searches: Sequence[DimensionSearch]) -> Figure:
    """Left: the traces of means and samples, which diverge where latents become passive. Right: the statistic that
    decided.

    Each search (seed) has a faint line; a vertical line marks the mean answer.
    """
    figure, (traces, statistic) = panels(2, 4.0, 3.0)
    for number, search in enumerate(searches):
        readings = sorted(search.readings, key=lambda r: r.latents)
        ns = [r.latents for r in readings]
        labels = ("samples, Tr Var Z", "means, Tr Var M") if number == 0 else (None, None)
        traces.plot(ns, [r.trace_sample for r in readings], "o-", color=SECOND, alpha=0.8, ms=4, label=labels[0])
        traces.plot(ns, [r.trace_mean for r in readings], "s-", color=FIRST, alpha=0.8, ms=4, label=labels[1])
        values = {step.n: step.value for step in search.search.log}
        statistic.plot(sorted(values), [values[n] for n in sorted(values)], "o-", color=INK, alpha=0.8, ms=4)
    traces.set_title("variance of the representation")
    statistic.set_title(f"statistic of {searches[0].algorithm}")
    statistic.axhline(searches[0].search.threshold, color=LINE, ls="--", lw=1, label="threshold")
    answer, trusted = float(np.mean([search.answer for search in searches])), all(search.trusted for search in searches)
    for axes in (traces, statistic):
        _finish(axes, {f"answer {answer:g}" if trusted else f"ended at {answer:g}, not trusted": answer})
    return figure


@styled
def elbow_figure(points: Sequence[CurvePoint], selected: Mapping[str, float] | None = None) -> Figure:
    """Reconstruction, downstream accuracy and similarity preservation against n, one line per objective.

    ``selected`` are dimensions to mark, each under the name of the method that chose it.
    """
    terms = {"reconstruction": "reconstruction (nats)", "accuracy": "downstream accuracy", "spi": "SPI"}
    drawn = {name: title for name, title in terms.items() if any(getattr(p, name) is not None for p in points)}
    figure, row = panels(len(drawn), 3.6, 3.0)
    for axes, (term, title) in zip(row, drawn.items(), strict=True):
        for number, objective in enumerate(dict.fromkeys(p.objective for p in points)):
            ns, values = mean_curve(points, objective, term)  # type: ignore[arg-type]
            axes.plot(ns, values, "os^D"[number % 4] + "-", color=f"C{number}", ms=4, label=objective)
        axes.set_title(title)
        _finish(axes, selected or {})
    return figure


def _finish(axes: Axes, selected: Mapping[str, float]) -> None:
    for number, (name, n) in enumerate(selected.items()):
        axes.axvline(n, color=INK, ls=(":", "-.", "--")[number % 3], lw=1.2, label=name)
    axes.set_xlabel("latent variables n")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
