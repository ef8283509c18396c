"""Figures of generated samples: their properties, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from polariscope.report.figures import LIGHT, panels, styled, subject_colour

Floats = NDArray[np.float64]
AROUND = np.linspace(0, 2 * np.pi, 200)


@styled
def property_histograms(
    titles: Sequence[str], wanted: Floats, opinions: Mapping[str, Floats], low: Floats, high: Floats
) -> Figure:
    """The distribution of each property of the samples in each opinion, with the wanted value and the mean interval."""
    figure, rows = panels(len(titles), 5.2, 2.4, across=1)
    for place, (title, axes) in enumerate(zip(titles, rows, strict=True)):
        _histogram(axes, title, place, wanted, opinions, low, high)
    rows[0].legend()
    return figure


def _histogram(
    axes: Axes, title: str, place: int, wanted: Floats, opinions: Mapping[str, Floats], low: Floats, high: Floats
) -> None:
    columns = [values[:, place] for values in opinions.values()]
    together = np.concatenate([*columns, wanted[:, place]])
    ends = float(together.min()), float(together.max())
    bins: Any = np.linspace(*ends, 41) if ends[1] > ends[0] else 10
    for number, (name, values) in enumerate(zip(opinions, columns, strict=True)):
        colour = subject_colour(number)
        axes.hist(values, bins, label=name, histtype="step", color=colour, linewidth=1.4)
    if np.ptp(wanted[:, place]) <= 1e-9 * np.abs(wanted[:, place]).max():
        axes.axvline(wanted[0, place], color=LIGHT["ink"], linewidth=1, label="wanted")
        axes.axvspan(low[:, place].mean(), high[:, place].mean(), color=LIGHT["line"], alpha=0.5, label="mean interval")
    axes.set(xlabel=title, ylabel="samples")


@styled
def level_plot(world: Any, points: ArrayLike, levels: ArrayLike, window: float = 2.2) -> Figure:
    """Points of the square (or cube) over the true level sets of some levels; the square of the data is dotted."""
    x = np.asarray(points, dtype=np.float64)
    figure, (axes,) = panels(1, 3.6, 3.6)
    for level in np.asarray(levels, dtype=np.float64)[:12]:
        if level >= 0:
            curve = world.level_set(float(level), AROUND)
            axes.plot(curve[:, 0], curve[:, 1], color=LIGHT["muted"], linewidth=1)
    axes.plot(x[:2000, 0], x[:2000, 1], ".", markersize=3, color=LIGHT["first"])
    side = world.half_width * np.array([-1, 1, 1, -1, -1])
    axes.plot(side, world.half_width * np.array([-1, -1, 1, 1, -1]), ":", color=LIGHT["muted"], linewidth=1)
    axes.set(xlim=(-window, window), ylim=(-window, window), aspect="equal", xlabel="x₁", ylabel="x₂")
    return figure


@styled
def boxes(names: Sequence[str], quantiles: ArrayLike, band: float, measured: str) -> Figure:
    """A box for each row of quantiles (5, 25, 50, 75 and 95 %), over a band around 0."""
    table = np.asarray(quantiles, dtype=np.float64)
    figure, (axes,) = panels(1, 1.0 + 0.9 * len(names), 3.0)
    axes.axhspan(-band, band, color=LIGHT["line"], alpha=0.5, label="error of the model")
    keys = ("whislo", "q1", "med", "q3", "whishi")
    ink = {"color": LIGHT["ink"], "linewidth": 1.0}
    axes.bxp(
        [dict(zip(keys, row, strict=True)) | {"label": name} for name, row in zip(names, table.tolist(), strict=True)],
        showfliers=False,
        boxprops=ink,
        whiskerprops=ink,
        capprops=ink,
        medianprops={"color": LIGHT["first"], "linewidth": 1.4},
    )
    axes.set_ylabel(measured)
    axes.legend()
    return figure
