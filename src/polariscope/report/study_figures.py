"""Shared parts of the figures of studies: lines over seeds, and readable axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, panels, styled

COLOURS = (*SUBJECTS, "active")


def over_seeds(
    axes: Axes, x: ArrayLike, values: Sequence[ArrayLike] | NDArray[Any], number: int = 0, **style: Any
) -> None:
    """The median over the seeds of ``values`` ``(x, seeds)`` with its quartiles, in the colour and marker of a number.

    Places may have different numbers of seeds. NaN is a seed without a value, and a place without any value is a gap in
    the line. ``style`` goes to Matplotlib's ``errorbar``.
    """
    quartiles = np.full((len(values), 3), np.nan)
    for place, own in enumerate(values):
        known = np.asarray(own, dtype=float)
        known = known[~np.isnan(known)]
        if len(known):
            quartiles[place] = np.quantile(known, [0.25, 0.5, 0.75])
    low, middle, high = quartiles.T
    usual: dict[str, Any] = {
        "color": LIGHT[COLOURS[number]],
        "marker": MARKERS[number],
        "markersize": 4,
        "elinewidth": 0.8,
    }
    axes.errorbar(np.asarray(x), middle, [middle - low, high - middle], **(usual | style))


def dots(axes: Axes, at: float, values: ArrayLike, colour: str, line: float | None = None, label: str = "") -> None:
    """Every restart a dot above a place of x, with a short line at some height: a mean of two modes would hide both."""
    values = np.asarray(values, dtype=float)
    axes.scatter(np.full(len(values), at), values, s=18, alpha=0.7, color=LIGHT[colour], label=label)
    if line is not None:
        axes.plot([at - 0.1, at + 0.1], [line, line], color=LIGHT["ink"], linewidth=1.2)


@styled
def restarts(groups: Sequence[tuple[str, ArrayLike, str]], measured: str, along: str = "") -> Figure:
    """A dot for each restart, group beside group; each group has a name, values and a colour."""
    figure, (axes,) = panels(1, 1.0 + 1.1 * len(groups), 2.6)
    for place, (_, values, colour) in enumerate(groups):
        dots(axes, place, values, colour, float(np.asarray(values).mean()))
    axes.set_xticks(range(len(groups)), [name for name, _, _ in groups])
    axes.set(xlabel=along, ylabel=measured)
    return figure


@styled
def bars(groups: Mapping[str, Sequence[float | None]], names: Sequence[str], measured: str, title: str = "") -> Figure:
    """A bar for each group beside each other at every name; what is None has no bar."""
    figure, (axes,) = panels(1, 1.2 + 0.85 * len(names), 2.7)
    width = 0.8 / len(groups)
    for number, (group, values) in enumerate(groups.items()):
        at = np.arange(len(names)) + (number - (len(groups) - 1) / 2) * width
        heights = np.nan_to_num(np.array(values, dtype=float))
        axes.bar(at, heights, 0.95 * width, color=LIGHT[COLOURS[number]], label=group)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right")
    axes.set(ylabel=measured, title=title)
    axes.legend()
    return figure


class _Decades(LogLocator):
    """1, 2 and 5 of every power of ten; over three powers or more, every power, or some of them."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        ticks = super().tick_values(vmin, vmax) if vmax < 1000 * vmin else ()
        return ticks if len(ticks) else LogLocator(numticks=5).tick_values(vmin, vmax)


def plain_ticks(axes: Axes) -> None:
    """Numbers at the ticks of logarithmic axes: the house style draws no formulas."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(_Decades(subs=(1.0, 2.0, 5.0), numticks=8))
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


def side_by_side(count: int, width: float, height: float) -> Figure:
    """Axes in a row, each of a width in inches."""
    return panels(count, width, height, (0.6, 0.0))[0]


def share_legend(figure: Figure, title: str = "") -> None:
    """One legend under all panels, with each label of any of them once."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=3, title=title)
