"""Figures of kernels: how well each is aligned with the labels, before and after training.

Kernels are mappings from names to numbers, so that figures can be drawn for any kernels. (Spec 004, section 7: figures
9 and 10 of Paccolat et al. 2021.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from polariscope.report.figures import LIGHT, MARKERS, panels, styled, subject_colour

SHOWN = 600
"""Points of a scatter plot: more would hide each other and swell the page."""


@styled
def projection_bars(projections: Mapping[str, Sequence[float]], chance: float | None = None) -> Figure:
    """ω², the share of the labels in each leading component, one bar per kernel; ``chance`` is for random labels."""
    count = _modes(projections)
    figure, (axes,) = panels(1, max(4.2, 0.44 * count), 2.6)
    width = 0.82 / len(projections)
    for number, (name, values) in enumerate(projections.items()):
        at = np.arange(1, len(values) + 1) + (number - (len(projections) - 1) / 2) * width
        axes.bar(at, values, width=width, color=subject_colour(number), label=name)
    if chance is not None:
        axes.axhline(chance, color=LIGHT["ink"], linewidth=1, linestyle="--", label="random labels")
    _finish(axes, "share of the labels ω²", count)
    axes.grid(False, axis="x")
    _legend(figure, axes)
    return figure


@styled
def information_curves(information: Mapping[str, Sequence[float]], floor: float | None = None) -> Figure:
    """Information in bits of each leading component about the label; ``floor`` is the estimate for shuffled labels."""
    return _curves(information, "information (bits)", floor, "shuffled labels")


@styled
def spectrum_curves(shares: Mapping[str, Sequence[float]]) -> Figure:
    """Leading eigenvalues as shares of the trace, on a logarithmic axis: gaps show how many directions count."""
    figure = _curves(shares, "share of the trace")
    figure.axes[0].set_yscale("log")
    return figure


@styled
def component_scatter(
    scatters: Mapping[str, ArrayLike], labels: ArrayLike, scores: Mapping[str, float] | None = None
) -> Figure:
    """The plane of the first two components: one panel per kernel, one colour per class, ``scores`` in the titles."""
    classes = np.asarray(labels)
    names = np.unique(classes)
    # Two side by side are still legible on a telephone.
    figure, places = panels(len(scatters), 2.2, 2.2, (0.0, 0.5), across=2)
    for axes, (name, points) in zip(places, scatters.items(), strict=True):
        plane = np.asarray(points)[:SHOWN]
        for number, label in enumerate(names):
            x, y = plane[classes[:SHOWN] == label].T
            axes.plot(x, y, ".", markersize=3, alpha=0.7, color=_class_colour(number, len(names)), label=f"{label}")
        score = f"\nneighbour accuracy {scores[name]:.0%}" if scores and name in scores else ""
        axes.set(title=f"{name}{score}", xlabel="component 1", ylabel="component 2")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_locator(MaxNLocator(4))
    handles, texts = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower left", ncols=min(5, len(texts)), title="class", markerscale=2)
    return figure


def _curves(
    curves: Mapping[str, Sequence[float]], label: str, level: float | None = None, level_name: str = ""
) -> Figure:
    figure, (axes,) = panels(1, 4.2, 2.6)
    for number, (name, values) in enumerate(curves.items()):
        colour, marker = subject_colour(number), MARKERS[number % len(MARKERS)]
        at = np.arange(1, len(values) + 1)
        axes.plot(at, values, color=colour, marker=marker, markersize=4, markeredgecolor="white", label=name)
    if level is not None:
        axes.axhline(level, color=LIGHT["ink"], linewidth=1, linestyle="--", label=level_name)
    _finish(axes, label, _modes(curves))
    _legend(figure, axes)
    return figure


def _finish(axes: Axes, label: str, count: int) -> None:
    axes.set(xlabel="principal component", ylabel=label, xlim=(0.4, count + 0.6))
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, texts = axes.get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper left", ncols=3)


def _modes(curves: Mapping[str, Sequence[float]]) -> int:
    if not curves:
        raise ValueError("a figure needs at least one kernel; got none")
    return max(len(values) for values in curves.values())


def _class_colour(number: int, classes: int) -> Any:
    """Two classes in the two colours that are easiest to distinguish, more classes from the colour wheel."""
    if classes == 2:
        return LIGHT[("active", "third")[number]]
    return matplotlib.colormaps["tab10"](number % 10)
