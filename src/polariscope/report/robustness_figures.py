"""Figures of robustness: accuracy over the size of a perturbation, between what attacks reach and bounds guarantee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from polariscope.report.figures import LIGHT, styled

Curve = tuple[str, NDArray[np.float64], NDArray[np.float64] | None, float]
"""Name of the norm, distances of the nearest adversarials, lower bounds if there are any, and the threshold."""


@styled
def sandwich(curves: Sequence[Curve]) -> Figure:
    """A panel for each norm: accuracy after attacks above, guaranteed accuracy below, the gap between them shaded."""
    figure = Figure(figsize=(0.6 + 2.6 * len(curves), 2.6), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (name, distances, bounds, threshold) in zip(panels, curves, strict=True):
        finite = distances[np.isfinite(distances)]
        end = 1.15 * max(float(finite.max(initial=0.0)), threshold)
        at = np.unique(np.concatenate([np.linspace(0, end, 200), finite]))
        above = (distances[:, None] > at).mean(0)
        below = np.zeros_like(above) if bounds is None else (bounds[:, None] > at).mean(0)
        axes.fill_between(at, below, above, color=LIGHT["line"], step="post", linewidth=0)
        axes.step(at, above, color=LIGHT["first"], where="post", label="after attacks (upper bound)")
        if bounds is not None:
            axes.step(at, below, color=LIGHT["second"], where="post", label="guaranteed (lower bound)")
        axes.axvline(threshold, color=LIGHT["muted"], linestyle=":", linewidth=1)
        axes.set_xlim(0, end)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(f"{name} size of the perturbation")
        axes.set_title(name)
    panels[0].set_ylabel("accuracy")
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    panels[0].legend(fontsize="small")
    return figure
