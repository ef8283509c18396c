"""Figures of learned noise."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from polariscope.report.figures import panels, styled, subject_colour


@styled
def density_curves(edges: ArrayLike, densities: Mapping[str, ArrayLike]) -> Figure:
    """Densities of pixels' noise over the same bins, by name: channels, or moments of a training."""
    figure, (axes,) = panels(1, 4.6, 2.6)
    for number, (name, values) in enumerate(densities.items()):
        axes.stairs(values, edges, color=subject_colour(number), label=name)
    axes.set(xlabel="noise δ of a pixel", ylabel="density")
    if len(densities) > 1:
        axes.legend()
    return figure
