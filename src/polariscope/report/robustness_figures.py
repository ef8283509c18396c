"""Figures of robustness: accuracy over the size of a perturbation, between what attacks reach and bounds guarantee, and
distances of the nearest adversarials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from polariscope.report.figures import LIGHT, SUBJECTS, styled

Floats = NDArray[np.float64]
Curve = tuple[str, Floats, Floats | None, str, Sequence[float]]
"""Name of the norm, distances of the nearest adversarials, lower bounds if there are any, what these are called, and
the thresholds."""
Bars = tuple[str, Floats, NDArray[np.int64], int, int]
"""Name of the norm, edges, counts between them, images with distance 0, images without an adversarial."""


@styled
def sandwich(curves: Sequence[Curve]) -> Figure:
    """A panel for each norm: accuracy after attacks above, guaranteed accuracy below, the gap between them shaded."""
    figure = Figure(figsize=(0.6 + 2.6 * len(curves), 2.7), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (name, distances, bounds, kind, thresholds) in zip(panels, curves, strict=True):
        finite = distances[np.isfinite(distances)]
        end = 1.15 * max(float(finite.max(initial=0.0)), *thresholds)
        at = np.unique(np.concatenate([np.linspace(0, end, 200), finite]))
        above = (distances[:, None] > at).mean(0)
        below = np.zeros_like(above) if bounds is None else (bounds[:, None] > at).mean(0)
        axes.fill_between(at, below, above, color=LIGHT["line"], step="post", linewidth=0)
        axes.step(at, above, color=LIGHT["first"], where="post", label="after attacks")
        if bounds is not None:
            axes.step(at, below, color=LIGHT["second"], where="post", label=kind)
        for threshold in thresholds:
            axes.axvline(threshold, color=LIGHT["muted"], linestyle=":", linewidth=1)
        axes.set_xlim(0, end)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(f"{name} size of the perturbation")
        axes.set_title(name)
        axes.legend(fontsize="small", loc="upper right")
    panels[0].set_ylabel("accuracy")
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


@styled
def distance_bars(panels_of: Sequence[Bars]) -> Figure:
    """A panel for each norm: how many images have their nearest adversarial at which distance. Bars of their own count
    images that are misclassified anyway, and images without an adversarial."""
    figure = Figure(figsize=(0.6 + 2.6 * len(panels_of), 2.5), layout="constrained")
    panels = figure.subplots(1, len(panels_of), squeeze=False)[0]
    for axes, (name, edges, counts, zero, infinite) in zip(panels, panels_of, strict=True):
        width = edges[1] - edges[0]
        axes.bar(edges[:-1], counts, width=0.9 * width, align="edge", color=LIGHT["first"])
        for at, count, word in ((-1.5 * width, zero, "wrong"), (edges[-1] + 1.5 * width, infinite, "none")):
            if count:
                axes.bar(at, count, width=0.9 * width, color=LIGHT["muted"])
                axes.annotate(word, (at, count), ha="center", va="bottom", fontsize=7, color=LIGHT["muted"])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"{name} distance")
        axes.set_title(name)
    panels[0].set_ylabel("images")
    return figure


@styled
def accuracy_curves(distances: Mapping[str, Floats], thresholds: Sequence[float], norm: str) -> Figure:
    """Accuracy over the size of the perturbation, a line for each classifier."""
    figure = Figure(figsize=(4.6, 3.0), layout="constrained")
    axes = figure.subplots()
    finite = np.concatenate([values[np.isfinite(values)] for values in distances.values()])
    end = 1.15 * max(float(finite.max(initial=0.0)), *thresholds)
    at = np.unique(np.concatenate([np.linspace(0, end, 200), finite]))
    for number, (name, values) in enumerate(distances.items()):
        style = "-" if number < len(SUBJECTS) else "--"
        colour = LIGHT[SUBJECTS[number % len(SUBJECTS)]]
        axes.step(at, (values[:, None] > at).mean(0), style, color=colour, where="post", label=name)
    for threshold in thresholds:
        axes.axvline(threshold, color=LIGHT["muted"], linestyle=":", linewidth=1)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(f"{norm} size of the perturbation")
    axes.set_ylabel("accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(fontsize="small")
    return figure
