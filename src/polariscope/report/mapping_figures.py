"""Figures of maps: areas over years, relative increases, heat maps with thresholds, and overlays with a scale bar."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import ArrayLike, NDArray

from polariscope.report import figures
from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, styled

Colour = tuple[int, int, int]
LOOKS = [(colour, marker) for marker in MARKERS for colour in SUBJECTS]


@styled
def draw_areas(
    years: Sequence[float],
    panels: Mapping[str, Mapping[str, ArrayLike]],
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    unit: str = "ha",
) -> Figure:
    """A panel for each class: areas over the years with a line through those of each source; ``bands`` are intervals
    of the first source of a panel."""
    figure, places = figures.panels(len(panels), 3.6, 2.5, (0.6, 0.3), across=2)
    t = np.asarray(years, float)
    for axes, (title, sources) in zip(places, panels.items(), strict=True):
        if bands and title in bands:
            low, high = (np.asarray(side, float) for side in bands[title])
            axes.fill_between(t, low, high, color=LIGHT["line"], linewidth=0, label="95 % interval")
        for (colour, marker), (name, areas) in zip(LOOKS, sources.items(), strict=False):
            values = np.asarray(areas, float)
            axes.plot(t, values, marker, color=LIGHT[colour], markersize=4, label=name)
            if len(t) > 1:
                slope, start = np.polyfit(t, values, 1)
                axes.plot(t, start + slope * t, color=LIGHT[colour], linewidth=1)
        axes.set(title=title, ylabel=unit, ylim=(0, None))
        axes.set_xticks(t, [f"{year:g}" for year in t], rotation=45)
    places[0].legend(fontsize="small")
    return figure


@styled
def draw_increases(increases: Mapping[str, Sequence[float]], errors: Mapping[str, tuple[float, float]] | None = None
                   ) -> Figure:  # fmt: skip
    """A bar for each source: the relative increase from the first to the last year, with its interval or spread."""
    figure, (axes,) = figures.panels(1, max(3.0, 0.75 * len(increases) + 1.2), 2.8)
    for place, (name, values) in enumerate(increases.items()):
        known = np.asarray([v for v in values if v is not None and math.isfinite(v)], float)
        if not len(known):
            axes.text(place, 0, "undefined", rotation=90, ha="center", va="bottom", color=LIGHT["muted"])
            continue
        middle = float(known.mean())
        axes.bar(place, middle, color=LIGHT["first"], width=0.7)
        low, high = (errors or {}).get(name, (middle - known.std(ddof=1), middle + known.std(ddof=1))
                                       if len(known) > 1 else (math.nan, math.nan))  # fmt: skip
        if math.isfinite(low) and math.isfinite(high):
            axes.plot([place, place], [low, high], color=LIGHT["ink"], linewidth=1)
    axes.set_xticks(range(len(increases)), list(increases), rotation=45, ha="right")
    axes.set_ylabel("relative increase")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    return figure


@styled
def draw_heat(
    picture: NDArray[np.float64],
    shares: ArrayLike,
    thresholds: Sequence[float],
    title: str = "",
    extent: tuple[float, float, float, float] | None = None,
    unit: str = "m",
) -> Figure:
    """A picture ``(h, w, 3)`` and the probabilities over it, with a contour at each threshold. Pixels
    without data are NaN. With an ``extent`` (left, bottom, right and top), there is a scale bar."""
    where = None if extent is None else (extent[0], extent[2], extent[1], extent[3])
    p = np.asarray(shares, float)
    height = 3.4 * p.shape[0] / p.shape[1]
    figure = Figure(figsize=(7.2, min(max(height, 2.0), 8.0)), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.imshow(np.clip(picture, 0, 1), extent=where)
    heat = right.imshow(p, cmap="inferno", vmin=0, vmax=1, alpha=0.7, extent=where)
    for (colour, _), tau in zip(LOOKS, thresholds, strict=False):
        if np.isfinite(p).any() and np.nanmin(p) < tau < np.nanmax(p):
            left.contour(p, [tau], colors=[LIGHT[colour]], linewidths=1, extent=where, origin="upper")
        left.plot([], [], color=LIGHT[colour], linewidth=1, label=f"threshold {tau:g}")
    left.legend(fontsize="small", loc="lower left", frameon=True, facecolor="white", framealpha=0.85)
    figure.colorbar(heat, ax=right, label="probability")
    right.set_title(title)
    if extent is not None:
        _scale_bar(right, extent, unit)
    for axes in (left, right):
        axes.set_axis_off()
    return figure


@styled
def draw_curves(thresholds: ArrayLike, curves: Mapping[str, tuple[ArrayLike, ArrayLike]], chosen: float) -> Figure:
    """Precision and recall of each class over the threshold."""
    figure, row = figures.panels(2, 3.4, 2.8, sharey=True)
    for axes, side, name in zip(row, (0, 1), ("precision", "recall"), strict=True):
        for (colour, _), (kind, values) in zip(LOOKS, curves.items(), strict=False):
            axes.plot(np.asarray(thresholds), np.asarray(values[side], float), color=LIGHT[colour], label=kind)
        axes.axvline(chosen, color=LIGHT["muted"], linestyle=":", linewidth=1)
        axes.set(title=name, xlabel="threshold", ylim=(0, 1.02))
    row[1].legend(fontsize="small")
    return figure


@styled
def draw_map(
    picture: NDArray[np.float64] | None,
    classes: NDArray[np.uint8],
    names: Sequence[str],
    colours: Sequence[Colour],
    background: int,
    extent: tuple[float, float, float, float],
    title: str = "",
    unit: str = "m",
) -> Figure:
    """Classes over a picture in coordinates, with a legend of the classes that occur, a scale bar, and coordinates at
    the edges.
    ``extent`` is left, bottom, right and top."""
    left, bottom, right, top = extent
    ratio = (top - bottom) / (right - left)
    figure, (axes,) = figures.panels(1, 8.0, min(max(8.0 * ratio, 2.5), 12.0) + 0.7)
    where = (left, right, bottom, top)
    if picture is not None:
        axes.imshow(np.clip(picture, 0, 1), extent=where, interpolation="nearest")
    shown = np.ma.masked_where((classes == background) | (classes >= len(names)), classes)
    palette = ListedColormap([tuple(c / 255 for c in colour) for colour in colours[: len(names)]])
    axes.imshow(shown, cmap=palette, vmin=-0.5, vmax=len(names) - 0.5, extent=where, interpolation="nearest",
                alpha=0.75 if picture is not None else 1.0)  # fmt: skip
    _scale_bar(axes, extent, unit)
    axes.grid(visible=False)
    axes.ticklabel_format(useOffset=False, style="plain")
    axes.tick_params(labelsize="x-small")
    axes.locator_params(nbins=5)
    axes.set(title=title, xlabel=f"east, {unit}", ylabel=f"north, {unit}")
    handles = [Patch(color=palette(i), label=name) for i, name in enumerate(names) if i != background]
    if (classes == 255).any():
        handles.append(Patch(facecolor="white", edgecolor=LIGHT["muted"], label="no data"))
    axes.legend(handles=handles, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _scale_bar(axes: Axes, extent: tuple[float, float, float, float], unit: str) -> None:
    left, bottom, right, top = extent
    length = round_length((right - left) / 5)
    height = (top - bottom) / 80
    x, y = left + (right - left) / 25, bottom + (top - bottom) / 25
    axes.add_patch(Rectangle((x - length / 10, y - height), 1.2 * length, 6 * height, color="white", alpha=0.8, lw=0))
    axes.add_patch(Rectangle((x, y), length, height, color=LIGHT["ink"], lw=0))
    words = f"{length / 1000:g} km" if unit == "m" and length >= 1000 else f"{length:g} {unit}"
    axes.text(x + length / 2, y + 1.6 * height, words, ha="center", va="bottom", fontsize="small", color=LIGHT["ink"])


def round_length(about: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is no larger.

    >>> [round_length(x) for x in (0.7, 30, 480, 5000)]
    [0.5, 20.0, 200.0, 5000.0]
    """
    power = 10.0 ** math.floor(math.log10(about))
    return max(step * power for step in (1, 2, 5) if step * power <= about * (1 + 1e-9))
