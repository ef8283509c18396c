"""Figures of generalisation: predictions over each factor's range, regression to the mean, and the errors by factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from polariscope.report.figures import LIGHT, panels, styled

COLUMNS = 4
"""Panels in a row."""
VALUES = 60
"""Largest number of values of a factor in a panel; a factor with more is binned."""
FURTHEST = 2.0
"""Ratio at the end of the axis; larger ratios are counted in the last bin."""


@styled
def prediction_ranges(
    targets: NDArray[np.floating],
    predictions: NDArray[np.floating],
    shown: NDArray[np.bool_],
    names: Sequence[str],
    new_values: Sequence[ArrayLike],
    steps: Sequence[float],
) -> Figure:
    """Predictions over each factor's range, one panel per factor: median and quartiles at each true value.

    ``shown`` ``(n, factors)`` marks the samples of each panel. Values in no training example are shaded
    (``new_values``, ``steps`` wide each); the thin line is the truth (Schott et al. 2022, figures 15 to 18).
    """
    figure, places = panels(len(names), 1.9, 1.9, (0.4, 0.4), COLUMNS)
    for number, (axes, name) in enumerate(zip(places, names, strict=True)):
        y, f = targets[shown[:, number], number], predictions[shown[:, number], number]
        for value in np.atleast_1d(np.asarray(new_values[number], dtype=float)):
            half = steps[number] / 2
            axes.axvspan(value - half, value + half, color=LIGHT["mixed"], alpha=0.25, linewidth=0)
        at, spread = _quartiles(y, f)
        axes.plot(at, at, color=LIGHT["muted"], linewidth=0.8)
        axes.fill_between(at, spread[0], spread[2], color=LIGHT["active"], alpha=0.3, linewidth=0)
        axes.plot(at, spread[1], color=LIGHT["active"], marker="o", markersize=2.5)
        axes.set(title=name, xlabel="truth")
    places[0].set_ylabel("prediction")
    return figure


@styled
def ratio_histogram(ratios: Mapping[str, ArrayLike], bins: int = 40) -> Figure:
    """The distance of predictions of new values from the training mean, relative to the true distance, stacked by
    factor. Left of 1 they are drawn to the mean (Schott et al. 2022, figure 6)."""
    figure, (axes,) = panels(1, 4.6, 2.6)
    edges = np.linspace(0, FURTHEST, bins + 1)
    bottom = np.zeros(bins)
    colours = ("first", "second", "third", "fourth", "active", "mixed", "passive")
    for number, (name, values) in enumerate(ratios.items()):
        heights, _ = np.histogram(np.clip(np.asarray(values, dtype=float), 0, FURTHEST), edges)
        axes.bar(
            edges[:-1], heights, edges[1], bottom, align="edge", color=LIGHT[colours[number % len(colours)]], label=name
        )
        bottom += heights
    axes.axvline(1.0, color=LIGHT["ink"], linewidth=1, linestyle="--")
    axes.set(xlabel="distance from the training mean: predicted / true", ylabel="examples", xlim=(0, FURTHEST))
    axes.legend(loc="upper right")  # to find the best place among many bars takes seconds
    return figure


@styled
def attribution_bars(names: Sequence[str], new: ArrayLike, others: ArrayLike) -> Figure:
    """R² of a factor where it alone is new, beside that of the other factors there. Negative ones are cut off at 0."""
    figure, (axes,) = panels(1, 1.2 + 0.9 * len(names), 2.6)
    at = np.arange(len(names))
    for shift, values, colour, label in (
        (-0.2, new, "mixed", "the new factor"),
        (0.2, others, "active", "the other factors"),
    ):
        axes.bar(at + shift, np.clip(np.asarray(values, dtype=float), 0, None), 0.38, color=LIGHT[colour], label=label)
    axes.set_xticks(at, names)
    axes.set(ylabel="R²", ylim=(0, 1.02))
    axes.grid(False, axis="x")
    figure.legend(loc="outside upper left", ncols=2)
    return figure


def _quartiles(y: NDArray[np.floating], f: NDArray[np.floating]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Places along the truth, and ``(3, places)`` quartiles of the predictions there."""
    at, place = np.unique(y, return_inverse=True)
    if len(at) > VALUES:
        edges = np.linspace(y.min(), y.max(), VALUES + 1)
        at, place = np.unique(np.digitize(y, edges[1:-1]), return_inverse=True)
        at = (edges[at] + edges[at + 1]) / 2
    spread = [np.quantile(f[place == number], (0.25, 0.5, 0.75)) for number in range(len(at))]
    return at, np.reshape(spread, (-1, 3)).T
