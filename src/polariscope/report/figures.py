"""Figures: data in, a matplotlib ``Figure`` (or, for pictures, an image) out. No global state, one style.

Every colour comes from :data:`PALETTE`, which has a light and a dark variant: figures are drawn in the light one, and a
page that shows them as inline SVG can replace them by its own variables. Types of variables have the same colour
everywhere: active blue, partly used light blue, mixed (and switching) amber, passive grey; these stay distinct under
common colour blindness and in grey print.
"""

from __future__ import annotations

import base64
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO, StringIO
from typing import Any, Protocol

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogFormatter, LogFormatterMathtext, MaxNLocator
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from polariscope.findings import Drawing, Metric
from polariscope.representation import Representation
from polariscope.worlds.pictures import Limits, pictured

PALETTE = {
    "ink": ("#1c2733", "#e4eaf0"),
    "muted": ("#566473", "#9fadba"),
    "line": ("#dbe2e9", "#33404d"),
    "active": ("#1f6fb4", "#5aa9e6"),
    "partly-used": ("#4f95cf", "#9ccbf0"),
    "mixed": ("#c98a12", "#e5b04c"),
    "passive": ("#8b96a2", "#7c8895"),
    "first": ("#0c7c72", "#3fbfae"),
    "second": ("#a2307a", "#e183bd"),
    "third": ("#b4500f", "#ee9a5a"),
    "fourth": ("#5443a6", "#a99bf0"),
}
"""Names to (light, dark) colours."""

LIGHT = {name: light for name, (light, _) in PALETTE.items()}
SUBJECTS = ("first", "second", "third", "fourth")
"""Colours of things compared, in order; a fifth thing starts again with other markers."""
MARKERS = ("o", "s", "^", "D", "v")
TYPES = ("active", "mixed", "passive")
"""Of the published rule."""
KINDS = {
    "active": "active",
    "partly used": "partly-used",
    "switching": "mixed",
    "mixed": "mixed",
    "passive": "passive",
}
"""The types of variables in their order, with their colours."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.color": LIGHT["ink"],
    "text.parse_math": False,  # a dollar in somebody's factor name is a dollar
    "text.usetex": False,
    "axes.labelcolor": LIGHT["muted"],
    "axes.edgecolor": LIGHT["line"],
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": LIGHT["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT["line"],
    "grid.linewidth": 0.6,
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "polariscope",  # the same data gives the same file
}

SEQUENTIAL = LinearSegmentedColormap.from_list("polariscope", ["#f1f5f9", "#9cc3e4", "#1f6fb4", "#0a3359"])
DIVERGING = LinearSegmentedColormap.from_list(
    "polariscope-signed", ["#8a4a06", "#e2b671", "#f4f5f6", "#85b6de", "#0f4f89"]
)

styled = matplotlib.rc_context(STYLE)
"""Decorator: draw in the house style, and leave the user's own settings as they were."""


def subject_colour(number: int) -> str:
    """The colour of the thing of this number among those compared."""
    return LIGHT[SUBJECTS[number % len(SUBJECTS)]]


def panels(
    count: int, width: float, height: float, margin: tuple[float, float] = (0.0, 0.0), across: int = 0, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with axes of a size in inches each, in rows of ``across`` (in one row if 0), beside a margin."""
    columns = min(across or count, count)
    rows = math.ceil(count / columns)
    size = (margin[0] + width * columns, margin[1] + height * rows)
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for spare in places[count:]:
        spare.remove()
    return figure, list(places[:count])


class Variable(Protocol):
    """The facts about a latent variable that figures need."""

    @property
    def number(self) -> int: ...

    @property
    def kind(self) -> str: ...


@styled
def learning_curves(
    runs: Mapping[str, Sequence[Metric]], terms: Sequence[str] | None = None, *, legend: bool = True
) -> Figure:
    """Terms of the loss over training, one panel per term: a faint line while training, dots on held-out data."""
    terms = terms_of(runs.values()) if terms is None else terms
    figure, row = panels(max(1, len(terms)), 3.5, 2.3)
    for term, axes in zip(terms, row, strict=False):
        lowest, falls = math.inf, False
        for number, (name, rows) in enumerate(runs.items()):
            colour = subject_colour(number)
            for split in ("train", "held_out"):
                points = [
                    (step, value) for step, s, t, value in rows if (s, t) == (split, term) and math.isfinite(value)
                ]
                if not points:
                    continue
                steps, heights = zip(*points, strict=True)
                lowest, falls = min(lowest, *heights), falls or max(heights) > 5 * heights[-1]
                if split == "train":
                    axes.plot(steps, heights, color=colour, alpha=0.45, linewidth=1.2, label=f"{name}, training")
                else:
                    marker = MARKERS[number % len(MARKERS)]
                    axes.plot(steps, heights, color=colour, marker=marker, markersize=3, label=f"{name}, held-out")
        if falls and lowest > 0:  # the end is what models are compared by, and a linear axis would flatten it
            axes.set_yscale("log")
        axes.set(title=term, xlabel="step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _short(step)))
        if legend and axes.get_legend_handles_labels()[0]:
            axes.legend()
    return figure


def terms_of(runs: Iterable[Sequence[Metric]]) -> list[str]:
    """The terms in some runs' metrics: the loss first, then its usual parts, then the rest by name."""
    terms = {term for rows in runs for _, _, term, _ in rows}
    usual = [term for term in ("loss", "reconstruction", "kl") if term in terms]
    return usual + sorted(terms - set(usual))


@styled
def heatmap(
    values: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    signed: bool = False,
    annotate: bool | None = None,
    row_colours: Sequence[str] | None = None,
    separators: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Figure:
    """A matrix as coloured cells, with its numbers in them where there is room.

    ``signed`` puts a neutral colour at 0. ``separators`` draws lines before these (rows, columns), for instance where a
    network's encoder ends. Cells that are NaN stay empty.
    """
    table = np.ma.masked_invalid(np.asarray(values, dtype=float))
    if table.shape != (len(rows), len(columns)):
        raise ValueError(f"a heatmap of {len(rows)} rows and {len(columns)} columns got values of shape {table.shape}")
    largest = float(np.abs(table).max()) if table.count() else 1.0
    high = high if high is not None else largest
    low = low if low is not None else -high if signed else min(0.0, float(table.min()) if table.count() else 0.0)
    annotate = annotate if annotate is not None else table.size <= 200
    width, height = (0.66, 0.3) if annotate else (0.24, 0.24)
    letters = max((len(row) for row in rows), default=0)
    figure, (axes,) = panels(1, 1.0 + 0.075 * letters + width * len(columns), 0.75 + height * len(rows))
    norm, colours = Normalize(low, high), DIVERGING if signed else SEQUENTIAL
    # Larger matrices become one embedded picture: a path a cell would weigh megabytes.
    mesh = axes.pcolormesh(
        table, cmap=colours, norm=norm, edgecolors="white" if annotate else "none", linewidth=1.5 * annotate
    )
    mesh.set_rasterized(table.size > 2500)
    if annotate:
        for i, j in np.argwhere(~np.ma.getmaskarray(table)):
            shade = colours(norm(table[i, j]))
            ink = "#10171f" if np.dot(shade[:3], (0.3, 0.59, 0.11)) > 0.5 else "#fafcff"
            axes.text(j + 0.5, i + 0.5, f"{table[i, j]:.2f}", ha="center", va="center", color=ink, fontsize=8)
    crowded = max((len(c) for c in columns), default=0) * 0.085 > width
    axes.set_xticks(
        np.arange(len(columns)) + 0.5, columns, rotation=35 if crowded else 0, ha="left" if crowded else "center"
    )
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.xaxis.tick_top()
    axes.invert_yaxis()
    axes.grid(False)
    axes.spines[:].set_visible(False)
    for label, colour in zip(axes.get_yticklabels(), row_colours or (), strict=False):
        label.set_color(colour)
    for row in separators[0]:
        axes.axhline(row, color=LIGHT["ink"], linewidth=1)
    for column in separators[1]:
        axes.axvline(column, color=LIGHT["ink"], linewidth=1)
    bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02, aspect=25)
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(5)
    bar.update_ticks()
    if title:
        axes.set_title(title, pad=8)
    return figure


def factor_matrix(information: NDArray[np.floating], variables: Sequence[Variable], factors: Sequence[str]) -> Figure:
    """The share of each factor's information (column) in each latent variable (row, most used first), from 0 to 1."""
    return heatmap(
        information[[v.number for v in variables]],
        [variable_label(v) for v in variables],
        factors,
        low=0.0,
        high=1.0,
        annotate=True,
        row_colours=[LIGHT["muted" if v.kind == "passive" else "ink"] for v in variables],
    )


@styled
def variable_histograms(representation: Representation, variables: Sequence[Variable], bins: int = 40) -> Figure:
    """Histograms of the posterior mean, variance and samples of each variable; the prior is dashed.

    A conditional prior is shown as the histogram of its own means and variances, the standard normal as its density.
    """
    rep = representation
    panels = [("posterior mean", rep.mean, rep.prior_mean)]
    if rep.var is not None:
        panels.append(("posterior variance", rep.var, rep.prior_var))
    if rep.sample is not None:
        panels.append(("sample", rep.sample, None))
    size = (2.0 * len(panels) + 0.2, 0.5 + 1.1 * max(1, len(variables)))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))
    grid = figure.subplots(max(1, len(variables)), len(panels), sharex="col", squeeze=False)
    chosen = [v.number for v in variables]
    for column, (title, values, prior) in zip(grid.T, panels, strict=True):
        # One axis per column: a passive variable's mean must look as narrow as it is beside an active one's.
        least, most = (0.0, 1.1) if title == "posterior variance" else (-3.0, 3.0)
        shown = values[:, chosen] if prior is None else np.stack([values[:, chosen], prior[:, chosen]])
        edges = np.linspace(min(least, shown.min(initial=least)), max(most, shown.max(initial=most)), bins + 1)
        column[0].set_title(title)
        column[0].xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        for axes, variable in zip(column, variables, strict=False):
            density, _ = np.histogram(values[:, variable.number], edges, density=True)
            axes.stairs(density, edges, fill=True, color=LIGHT[KINDS[variable.kind]], alpha=0.8)
            _prior(axes, edges, None if prior is None else prior[:, variable.number], title, rep.prior_mean is None)
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
    for axes, variable in zip(grid[:, 0], variables, strict=False):
        axes.set_ylabel(variable_label(variable), color=LIGHT["ink"])
    return figure


def _prior(
    axes: Axes, edges: NDArray[np.floating], values: NDArray[np.floating] | None, title: str, standard: bool
) -> None:
    """The prior over a histogram: that of a conditional prior's own values, or the standard normal's density."""
    line: dict[str, Any] = {"color": LIGHT["ink"], "linewidth": 1, "linestyle": "--"}
    if values is not None:
        axes.stairs(np.histogram(values, edges, density=True)[0], edges, **line)
    elif standard and title == "posterior variance":
        axes.axvline(1.0, **line)
    elif standard:
        at = np.linspace(edges[0], edges[-1], 80)
        axes.plot(at, np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi), **line)


@styled
def types_by_strength(
    strengths: Sequence[float | str],
    counts: Sequence[Mapping[str, float]],
    lines: Mapping[str, Sequence[float]] | None = None,
    *,
    strength: str = "regularisation strength",
    measure: str = "measure",
) -> Figure:
    """Stacked bars of how many variables are active, mixed and passive at each strength, with measures as lines."""
    if len(strengths) != len(counts):
        raise ValueError(f"{len(strengths)} strengths need as many counts of types; got {len(counts)}")
    figure, (axes,) = panels(1, max(3.5, 1.2 + 0.6 * len(strengths)), 2.8)
    at = np.arange(len(strengths))
    bottom = np.zeros(len(strengths))
    for kind in TYPES:
        heights = np.array([count.get(kind, 0) for count in counts], dtype=float)
        axes.bar(at, heights, bottom=bottom, width=0.7, color=LIGHT[kind], label=kind)
        bottom += heights
    axes.set_xticks(at, [s if isinstance(s, str) else f"{s:g}" for s in strengths])
    axes.set(xlabel=strength, ylabel="variables")
    axes.grid(False, axis="x")
    handles, labels = axes.get_legend_handles_labels()
    if lines:
        beside = axes.twinx()
        for number, (name, values) in enumerate(lines.items()):
            colour, marker = subject_colour(number), MARKERS[number % len(MARKERS)]
            beside.plot(at, values, color=colour, marker=marker, markersize=4, markeredgecolor="white", label=name)
        beside.set_ylabel(measure)
        beside.grid(False)
        handles += beside.get_legend_handles_labels()[0]
        labels += list(lines)
    figure.legend(handles, labels, loc="outside upper left", ncols=min(5, len(labels)))
    return figure


def image_grid(images: NDArray[Any], *, limits: Limits | None = None, enlarge: int = 1, gap: int = 2) -> Image.Image:
    """Images ``(rows, columns, c, h, w)`` tiled into one, transparent between them; every pixel ``enlarge`` times.

    :func:`~polariscope.worlds.pictures.pictured` converts floats and many channels.
    """
    if images.ndim != 5 or images.dtype.kind not in "uf" or (images.dtype.kind == "u" and images.dtype != np.uint8):
        raise ValueError(
            f"an image grid needs uint8 or floats (rows, columns, channels, h, w); got {images.dtype} {images.shape}"
        )
    rows, columns, _, h, w = images.shape
    tiles = np.zeros((rows, h + gap, columns, w + gap, 4), np.uint8)
    tiles[:, :h, :, :w, :3] = pictured(images, limits).transpose(0, 3, 1, 4, 2)
    tiles[:, :h, :, :w, 3] = 255
    whole = tiles.reshape(rows * (h + gap), columns * (w + gap), 4)[: -gap or None, : -gap or None]
    return Image.fromarray(whole.repeat(enlarge, 0).repeat(enlarge, 1))


def variable_label(variable: Variable) -> str:
    return f"z{variable.number} · {variable.kind}"


def plain_axes(figure: Figure) -> Figure:
    """The figure with plain numbers on logarithmic axes (0.01, 1e-05): Matplotlib's own labels are formulas, which the
    house style shows as they are written."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
                axis.set_major_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
            if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
                axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5)))
    return figure


@styled
def as_svg(figure: Figure) -> str:
    """The figure as SVG text; letters stay letters."""
    file = StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    plain_axes(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's own fonts draw the letters
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return file.getvalue()


def drawing(figure: Figure) -> Drawing:
    """The figure for a page, with its size in pixels."""
    width, height = figure.get_size_inches() * 96
    return Drawing(as_svg(figure), float(width), float(height))


def as_data_uri(image: Image.Image) -> str:
    """The picture as a PNG inside an address, for ``<img src>`` without a second file."""
    file = BytesIO()
    image.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _short(step: float) -> str:
    """Steps as people write them: 500, 2k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(step) >= size:
            return f"{step / size:g}{letter}"
    return f"{step:g}"
