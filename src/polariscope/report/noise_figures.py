"""Figures of learned noise."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from polariscope.report.figures import LIGHT, SUBJECTS, styled


@styled
def density_curves(edges: ArrayLike, densities: Mapping[str, ArrayLike]) -> Figure:
    """Densities of pixels' noise over the same bins, by name: channels, or moments of a training."""
    figure = Figure(figsize=(4.6, 2.6), layout="constrained")
    axes: Axes = figure.subplots()
    for number, (name, values) in enumerate(densities.items()):
        axes.stairs(values, edges, color=LIGHT[SUBJECTS[number % len(SUBJECTS)]], label=name)
    axes.set_xlabel("noise δ of a pixel")
    axes.set_ylabel("density")
    if len(densities) > 1:
        axes.legend()
    return figure
