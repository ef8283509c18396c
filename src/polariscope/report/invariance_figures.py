"""Figures of codes in two parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from polariscope.report.figures import LIGHT, MARKERS, SEQUENTIAL, SUBJECTS, panels, styled


@styled
def signal_bars(signal: ArrayLike, noise: ArrayLike, property_latents: int) -> Figure:
    """Signal and noise of each latent side by side, with a line between Z0 and Z1."""
    heights = [np.asarray(values, dtype=np.float64) for values in (signal, noise)]
    places = np.arange(len(heights[0]))
    figure, (axes,) = panels(1, 5.2, 2.6)
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


@styled
def traversal_grid(
    points: Sequence[Sequence[NDArray[np.float64]]],
    curves: Sequence[NDArray[np.float64]],
    names: Sequence[str],
    selected: ArrayLike,
    window: float = 3.0,
) -> Figure:
    """A panel for each latent: the points ``(steps, 2 or 3)`` of the walks along it, one colour per level, over the
    true level sets."""
    chosen = np.asarray(selected, dtype=bool)
    figure, row = panels(len(names), 1.9, 2.2, sharex=True, sharey=True)
    for latent, (name, axes) in enumerate(zip(names, row, strict=True)):
        for curve in curves:
            axes.plot(curve[:, 0], curve[:, 1], color=LIGHT["line"], linewidth=1)
        for number, level in enumerate(points):
            colour = SEQUENTIAL(0.25 + 0.75 * number / max(len(points) - 1, 1))
            axes.plot(level[latent][:, 0], level[latent][:, 1], ".", markersize=2, color=colour)
        axes.set(xlim=(-window, window), ylim=(-window, window), aspect="equal")
        axes.set_title(f"{name}, {'selected' if chosen[latent] else 'unused'}")
    return figure


@styled
def awakening_curves(
    lams: ArrayLike,
    signals: ArrayLike,
    property_latents: int,
    predicted: Mapping[str, Sequence[float]],
) -> Figure:
    """The signal of each latent over λ, with the λ at which the theory of linear bottlenecks wakes each component."""
    x, table = np.asarray(lams, dtype=np.float64), np.asarray(signals, dtype=np.float64)
    figure, (axes,) = panels(1, 5.2, 3.0)
    for latent in range(table.shape[1]):
        part = int(latent >= property_latents)
        label = f"Z{part}" if latent in (0, property_latents) else None
        axes.plot(x, table[:, latent], color=LIGHT[SUBJECTS[part]], label=label, linewidth=1.2)
    for number, (name, values) in enumerate(predicted.items()):
        for place, value in enumerate(values):
            axes.axvline(
                value,
                color=LIGHT[SUBJECTS[number]],
                linestyle=":",
                linewidth=1,
                label=f"theory: {name} active" if not place else None,
            )
    axes.axhline(1.0, color=LIGHT["muted"], linewidth=0.8, linestyle="--")
    axes.set(xscale="log", yscale="symlog", xlabel="λ", ylabel="signal / noise")
    axes.legend(fontsize=7)
    return figure


@styled
def frontier_plot(groups: Mapping[str, Sequence[tuple[float, float, tuple[float, float]]]], ylabel: str) -> Figure:
    """Invariance over the error of observations, a curve for each model, with intervals over seeds."""
    figure, (axes,) = panels(1, 5.2, 3.2)
    colours = (*SUBJECTS, "mixed")
    for number, (name, points) in enumerate(groups.items()):
        ordered = sorted(points)
        middle = np.array([point[1] for point in ordered])
        ends = np.array([point[2] for point in ordered])
        axes.errorbar(
            [point[0] for point in ordered],
            middle,
            yerr=np.maximum(np.stack([middle - ends[:, 0], ends[:, 1] - middle]), 0),
            label=name,
            color=LIGHT[colours[number % len(colours)]],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            capsize=2,
        )
    axes.set(xlabel="error of observations", ylabel=ylabel)
    axes.legend()
    return figure
