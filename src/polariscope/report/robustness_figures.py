"""Figures of robustness: accuracy over the size of a perturbation, between what attacks reach and bounds guarantee, and
distances of the nearest adversarials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from polariscope.report.figures import LIGHT, SUBJECTS, panels, styled, subject_colour

Floats = NDArray[np.float64]
Curve = tuple[str, Floats, Floats | None, str, Sequence[float]]
"""Name of the norm, distances of the nearest adversarials, lower bounds if there are any, what these are called, and
the thresholds."""
Bars = tuple[str, Floats, NDArray[np.int64], int, int]
"""Name of the norm, edges, counts between them, images with distance 0, images without an adversarial."""


@styled
def sandwich(curves: Sequence[Curve], attacked: Sequence[bool]) -> Figure:
    """A panel for each norm: accuracy after attacks above, guaranteed accuracy below, the gap between them shaded.

    Where no attack ran (``attacked``), the upper curve is the accuracy without one.
    """
    figure, row = panels(len(curves), 2.6, 2.7, (0.6, 0.0), sharey=True)
    for axes, ran, (name, distances, bounds, kind, thresholds) in zip(row, attacked, curves, strict=True):
        end, at = _sizes([distances], thresholds)
        above = (distances[:, None] > at).mean(0)
        below = np.zeros_like(above) if bounds is None else (bounds[:, None] > at).mean(0)
        axes.fill_between(at, below, above, color=LIGHT["line"], step="post", linewidth=0)
        axes.step(at, above, color=LIGHT["first"], where="post", label="after attacks" if ran else "no attack ran")
        if bounds is not None:
            axes.step(at, below, color=LIGHT["second"], where="post", label="lower bound")
        _mark(axes, thresholds)
        title = name if bounds is None else f"{name}, {kind}"
        axes.set(xlim=(0, end), ylim=(0, 1.02), xlabel=f"{name} size of the perturbation", title=title)
    handles = {text: line for axes in row for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside upper left", ncols=len(handles), fontsize="small")
    row[0].set_ylabel("accuracy")
    row[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


@styled
def distance_bars(panels_of: Sequence[Bars]) -> Figure:
    """A panel for each norm: how many images have their nearest adversarial at which distance. Bars of their own count
    images that are misclassified anyway, and images without an adversarial."""
    figure, row = panels(len(panels_of), 2.6, 2.5, (0.6, 0.0))
    for axes, (name, edges, counts, zero, infinite) in zip(row, panels_of, strict=True):
        width = edges[1] - edges[0]
        axes.bar(edges[:-1], counts, width=0.9 * width, align="edge", color=LIGHT["first"])
        for at, count, word in ((-1.5 * width, zero, "wrong"), (edges[-1] + 1.5 * width, infinite, "none")):
            if count:
                axes.bar(at, count, width=0.9 * width, color=LIGHT["muted"])
                axes.annotate(word, (at, count), ha="center", va="bottom", fontsize=7, color=LIGHT["muted"])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel=f"{name} distance", title=name)
    row[0].set_ylabel("images")
    return figure


@styled
def accuracy_curves(distances: Mapping[str, Floats], thresholds: Sequence[float], norm: str) -> Figure:
    """Accuracy over the size of the perturbation, a line for each classifier."""
    figure, (axes,) = panels(1, 4.6, 3.0)
    end, at = _sizes(distances.values(), thresholds)
    for number, (name, values) in enumerate(distances.items()):
        style = "-" if number < len(SUBJECTS) else "--"
        colour = subject_colour(number)
        axes.step(at, (values[:, None] > at).mean(0), style, color=colour, where="post", label=name)
    _mark(axes, thresholds)
    axes.set(xlim=(0, end), ylim=(0, 1.02), xlabel=f"{norm} size of the perturbation", ylabel="accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(fontsize="small")
    return figure


def _sizes(distances: Iterable[Floats], thresholds: Sequence[float]) -> tuple[float, Floats]:
    """The end of the axis, and all sizes up to it at which a curve changes."""
    finite = np.concatenate([values[np.isfinite(values)] for values in distances])
    end = 1.15 * max(float(finite.max(initial=0.0)), *thresholds)
    return end, np.unique(np.concatenate([np.linspace(0, end, 200), finite]))


def _mark(axes: Axes, thresholds: Sequence[float]) -> None:
    for threshold in thresholds:
        axes.axvline(threshold, color=LIGHT["muted"], linestyle=":", linewidth=1)
