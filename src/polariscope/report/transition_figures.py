"""Figures of transitions: their densities, two factors at a time, their shape over time (Spec 001a, section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from polariscope.measures.transition_statistics import ShapeAtGap, checked, dependence, fitted_factor, permuted
from polariscope.measures.transitions import TransitionFit
from polariscope.report.figures import LIGHT, MARKERS, SUBJECTS, panels, styled, subject_colour

REACH = 5.0
"""Range of the axis in standard deviations."""


@styled
def transition_histogram(
    transitions: Mapping[str, ArrayLike],
    bins: int = 101,
    reach: float = 5.0,
    fits: Mapping[str, TransitionFit] | None = None,
) -> Figure:
    """Histogram of the changes of factors on a logarithmic axis, with the three fitted densities.

    The axis ends ``reach`` standard deviations from 0; larger changes are counted in the last bins. ``fits`` are those
    of the table beside the figure; by default each factor is fitted in the same way.
    """
    figure, row = panels(len(transitions), 2.6, 2.6, (0.6, 0.0))
    for axes, (name, deltas) in zip(row, transitions.items(), strict=True):
        u = np.asarray(deltas, dtype=float).ravel()
        fit = fits[name] if fits is not None else fitted_factor(u, name).fit
        end = reach * u.std()
        edges = np.linspace(-end, end, bins + 1).tolist()
        axes.hist(u.clip(-end, end), edges, density=True, color=LIGHT["passive"], alpha=0.5)
        at = np.linspace(-end, end, 401)
        for colour, family in zip(SUBJECTS, fit.log_likelihood, strict=False):
            label = f"generalised, α = {fit.alpha:.2f}" if family == "generalised" else family
            axes.semilogy(at, fit.density(at, family), color=LIGHT[colour], linewidth=1.2, label=label)
        axes.set(ylim=(0.5 / (len(u) * 2 * end / bins), None), xlim=(-end, end), xlabel=f"change of {name}")
        axes.legend(fontsize=7)
    return figure


@styled
def transition_planes(deltas: ArrayLike, names: Sequence[str], bins: int = 61, seed: int = 0) -> Figure:
    """Two factors' changes ``(n, factors)`` at a time, in standard deviations: as they are above, permuted below.

    Mass off the axes above, but not below, shows that the factors change together (Klindt et al. 2021, figure 11).
    """
    table = checked(deltas, names)
    pairs = dependence(table, names, seed=seed)
    if not pairs:
        raise ValueError(f"planes need two factors; got {len(names)}")
    scaled = table / table.std(0)
    figure = Figure(figsize=(2.1 * len(pairs), 4.4), layout="constrained")
    rows = zip(figure.subplots(2, len(pairs), squeeze=False), (scaled, permuted(scaled, seed)), strict=True)
    edges = np.linspace(-REACH, REACH, bins + 1)
    for row, (axes_of_row, shown) in enumerate(rows):
        for axes, (i, j), pair in zip(axes_of_row, combinations(range(len(names)), 2), pairs, strict=True):
            axes.hist2d(shown[:, i], shown[:, j], [edges, edges], norm=LogNorm(), cmap="Blues", rasterized=True)
            correlation = round(pair.permuted if row else pair.natural, 2) + 0.0  # no minus before nothing
            axes.set(
                title=f"{'permuted' if row else 'as they are'}, ρ = {correlation:.2f}",
                xlabel=f"change of {names[i]}",
                ylabel=f"change of {names[j]}",
                aspect="equal",
            )
            axes.grid(False)
    return figure


@styled
def shape_over_gap(gaps: Sequence[ShapeAtGap], unit: str = "frames") -> Figure:
    """The shape α of changes over the time between frames, one line per factor; dashed are Laplace and normal
    densities."""
    if not gaps:
        raise ValueError("a figure of shapes over time needs changes at one gap at least; got none")
    figure, (axes,) = panels(1, 3.6, 2.6)
    for number, name in enumerate(dict.fromkeys(at.factor for at in gaps)):
        own = [at for at in gaps if at.factor == name]
        colour, marker = subject_colour(number), MARKERS[number % len(MARKERS)]
        axes.plot([at.gap for at in own], [at.alpha for at in own], color=colour, marker=marker, label=name)
    for alpha in (1.0, 2.0):
        axes.axhline(alpha, color=LIGHT["muted"], linewidth=1, linestyle="--")
    axes.set(ylim=(0, None), xlabel=f"time between frames ({unit})", ylabel="shape α")
    axes.legend()
    return figure
