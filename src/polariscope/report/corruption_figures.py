"""Figures of corruptions: accuracy over their severity, a panel each, and one picture under all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike, NDArray

from polariscope.report.figures import LIGHT, SUBJECTS, panels, styled
from polariscope.worlds.pictures import pictured

COLUMNS = 5
"""Panels in a row."""
COLOURS = (*SUBJECTS, "active", "mixed")
"""Of groups, in order."""


@styled
def severity_panels(
    accuracy: ArrayLike, severities: Sequence[int], groups: Mapping[str, str], reference: ArrayLike | None = None
) -> Figure:
    """Accuracy ``(kinds, severities)`` over severity, a panel for each kind, in the order and the colour of ``groups``.

    That of a reference is dashed (Rusak, Schott et al. 2020, appendix, figure 1).
    """
    own, other = np.asarray(accuracy), None if reference is None else np.asarray(reference)
    figure, places = panels(len(groups), 1.5, 1.45, (0.8, 0.5), COLUMNS, sharex=True, sharey=True)
    colours = _colours(groups)
    for number, (axes, (kind, group)) in enumerate(zip(places, groups.items(), strict=True)):
        if other is not None:
            axes.plot(severities, other[number], color=LIGHT["muted"], linewidth=1.2, linestyle="--")
        axes.plot(severities, own[number], color=colours[group], marker="o", markersize=2.5)
        axes.set_title(kind)
        if number + COLUMNS >= len(groups):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("severity")
    places[0].set_ylim(0, 1.03)
    places[0].set_xticks(severities)
    places[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    line = Line2D([], [], color=LIGHT["muted"], linestyle="--", label="reference")
    _legend(figure, colours, [] if other is None else [line])
    return figure


@styled
def corruption_bars(
    accuracy: ArrayLike, groups: Mapping[str, str], clean: float, reference: ArrayLike | None = None
) -> Figure:
    """Accuracy ``(kinds,)`` under corruptions of one severity; the dotted line is the accuracy without corruptions,
    dots are a reference."""
    figure, (axes,) = panels(1, 5.2, 0.9 + 0.24 * len(groups))
    at, colours = np.arange(len(groups)), _colours(groups)
    axes.barh(at, np.asarray(accuracy), 0.7, color=[colours[group] for group in groups.values()])
    axes.axvline(clean, color=LIGHT["ink"], linewidth=1, linestyle=":")
    dots: dict[str, Any] = {"color": LIGHT["ink"], "marker": "D", "linestyle": "", "markersize": 3}
    if reference is not None:
        axes.plot(np.asarray(reference), at, **dots)
    axes.set_yticks(at, list(groups))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.03)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("accuracy")
    axes.grid(False, axis="y")
    _legend(figure, colours, [] if reference is None else [Line2D([], [], label="reference", **dots)])
    return figure


@styled
def corruption_gallery(images: NDArray[Any], names: Sequence[str]) -> Figure:
    """One picture under every corruption ``(n, channels, height, width)``, with the name above each."""
    shown = pictured(images, (0.0, 1.0)).transpose(0, 2, 3, 1)
    figure, places = panels(len(names), 1.3, 1.5, across=COLUMNS + 1)
    for axes, picture, name in zip(places, shown, names, strict=False):
        axes.imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(name, fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(False)
        axes.spines[:].set_visible(True)  # a picture may be as white as the page
    return figure


def _colours(groups: Mapping[str, str]) -> dict[str, str]:
    """A colour for each group."""
    return {group: LIGHT[COLOURS[n % len(COLOURS)]] for n, group in enumerate(dict.fromkeys(groups.values()))}


def _legend(figure: Figure, colours: Mapping[str, str], more: list[Line2D]) -> None:
    """What the colours mean, above everything."""
    handles = [*(Patch(color=colour, label=group) for group, colour in colours.items()), *more]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
