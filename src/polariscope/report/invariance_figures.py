"""Figures of codes in two parts."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from polariscope.report.figures import LIGHT, SUBJECTS, styled


@styled
def signal_bars(signal: ArrayLike, noise: ArrayLike, property_latents: int) -> Figure:
    """Signal and noise of each latent side by side, with a line between Z0 and Z1."""
    heights = [np.asarray(values, dtype=np.float64) for values in (signal, noise)]
    places = np.arange(len(heights[0]))
    figure = Figure(figsize=(5.2, 2.6), layout="constrained")
    axes: Axes = figure.subplots()
    for number, (name, values) in enumerate(zip(("signal", "noise"), heights, strict=True)):
        axes.bar(places + 0.4 * number - 0.2, values, 0.4, label=name, color=LIGHT[SUBJECTS[number]])
    axes.axvline(property_latents - 0.5, color="0.4", linestyle="--", linewidth=1)
    top = axes.get_ylim()[1]
    axes.text(property_latents - 0.6, top, "Z0", ha="right", va="top")
    axes.text(property_latents - 0.4, top, "Z1", ha="left", va="top")
    axes.set_xticks(places, [f"z{place}" for place in places])
    axes.set_ylabel("standard deviation")
    axes.legend()
    return figure
