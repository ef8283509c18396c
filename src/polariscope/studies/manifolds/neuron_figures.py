"""Figures of the study of single neurons: paths, attractors, the output along the informative direction, arrows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polariscope.report.figures import LIGHT, SUBJECTS, panels, styled
from polariscope.report.study_figures import plain_ticks, side_by_side
from polariscope.studies.manifolds.stripe_nets import draw, world_of
from polariscope.studies.study import Row, Table
from polariscope.theory.stripe import FixedPoint, Layers, attractors, density, intercept_drift
from polariscope.worlds.points.stripes import FloatArray

STRIPE = Layers()
WEIGHTS = ("ω₁", "ω⊥", "b", "β")


def neuron_figure(table: Table) -> Figure:
    """One neuron an attractor: lines are the network, dashes the equation."""
    rows = [row for row in table.rows if row.get("neuron")]
    figure = side_by_side(len(rows), 2.9, 2.7)
    for axes, row in zip(figure.axes, rows, strict=True):
        neuron = row["neuron"]
        for number, name in enumerate(WEIGHTS):
            colour = LIGHT[SUBJECTS[number]]
            axes.plot(neuron["time"], neuron["network"][number], color=colour, label=name)
            axes.plot(neuron["time"], neuron["theory"][number], "--", color=LIGHT["ink"], linewidth=0.9)
        axes.set(title=f"to {row['attractor']}", xlabel="time / τ", yscale="symlog")
        plain_ticks(axes)
    figure.axes[0].set_ylabel("weights (dashes: equations 5, 7)")
    figure.axes[0].legend()
    return figure


@styled
def fixed_point_figure(dimension: int = 2) -> Figure:
    """G(ζ) on either side, dashed where neurons cannot align (Figure 3b); dots are the attractors."""
    zeta = np.linspace(-2.5, 2.5, 1001)
    figure, (axes,) = panels(1, 4.2, 2.8)
    for side, colour in ((1, LIGHT["first"]), (-1, LIGHT["second"])):
        _, c_1 = STRIPE.half_line(zeta, side)
        drift = intercept_drift(STRIPE, dimension, zeta, side)
        aligns = np.abs(c_1) > np.sign(c_1) * side * STRIPE(zeta) * density(zeta)
        label = f"ω₁ {'>' if side > 0 else '<'} 0"
        axes.plot(zeta, np.where(aligns, drift, np.nan), color=colour, label=label)
        axes.plot(zeta, np.where(aligns, np.nan, drift), "--", color=colour, linewidth=1)
    for point in attractors(STRIPE, dimension):
        axes.plot(point.position, 0, "o", color=LIGHT["ink"], markersize=4)
    axes.axhline(0, color=LIGHT["muted"], linewidth=0.7)
    axes.set(xlabel="intercept ζ", ylabel="d C_b + ζ C₁", title=f"fixed points, d = {dimension}")
    axes.legend()
    return figure


def path_figure(table: Table, goals: Mapping[str, FixedPoint]) -> Figure:
    """Paths of some neurons up to the onset, with the attractors."""
    (row,) = [row for row in table.rows if row.get("paths")]
    figure, (axes,) = panels(1, 4.4, 3.4)
    for path in np.array(row["paths"]):
        axes.plot(*path.T, color=LIGHT["active"], alpha=0.5, linewidth=0.7)
        axes.plot(*path[-1], ".", color=LIGHT["active"], markersize=3)
    for name, point in goals.items():
        axes.plot(point.position, 0, "o", color=LIGHT["ink"], markersize=5)
        axes.annotate(name, (point.position, 0), (3, 5), textcoords="offset points")
    axes.set(xlim=(-2.5, 2.5), ylim=(-2, 2), xlabel="z₁", ylabel="z⊥", title="neurons up to the onset")
    return figure


def decision_figure(
    table: Table, times: Mapping[str, str], places: FloatArray, edges: FloatArray, goals: Mapping[str, FixedPoint]
) -> Figure:
    """The output at ``places`` along e₁ at each of the ``times``, over a histogram of where neurons switch on."""
    rows = [row for row in table.rows if row["when"] in times]
    figure = side_by_side(len(rows), 2.8, 2.8)
    for axes, row in zip(figure.axes, rows, strict=True):
        output = np.array(row["output"])
        height = np.abs(output).max()
        heights = np.array(row["intercepts"]) / max(row["intercepts"])
        axes.bar(edges[:-1], heights, np.diff(edges), bottom=-1, align="edge", color=LIGHT["line"])
        axes.plot(places, output / height, color=LIGHT["active"])
        for interface in STRIPE.interfaces:
            axes.axvline(interface, color=LIGHT["mixed"], linestyle="--", linewidth=0.9)
        if row["when"] == "t_star":
            axes.plot([p.position for p in goals.values()], [-1] * 3, "x", color=LIGHT["ink"], clip_on=False)
        axes.axhline(0, color=LIGHT["muted"], linewidth=0.7)
        axes.set(title=f"{times[row['when']]}, {row['time']:.0f} τ", xlabel="x₁", xlim=(-2.5, 2.5), ylim=(-1, 1.05))
    figure.axes[0].set_ylabel("output / its largest; ζ below")
    return figure


def arrow_figure(strips: dict[str, tuple[Table, tuple[int, int]]]) -> Figure:
    """A row a strip of frames, seen in a plane; arrows along βω, their lengths the square root of its norm."""
    columns = max(len(rows) for rows, _ in strips.values())
    figure = Figure(figsize=(0.4 + 1.9 * columns, 2.1 * len(strips)), layout="constrained")
    grid = figure.subplots(len(strips), columns, squeeze=False)
    for cells, (name, (rows, plane)) in zip(grid, strips.items(), strict=True):
        for axes in cells[len(rows) :]:
            axes.set_axis_off()
        for axes, row in zip(cells, rows.rows, strict=False):
            _frame(axes, row, plane)
        cells[0].set_ylabel(name)
    return figure


def _frame(axes: Axes, row: Row, plane: tuple[int, int]) -> None:
    x, y = draw(world_of(row), 300, row["seed"], "train")
    for label, colour in ((1, LIGHT["active"]), (-1, LIGHT["mixed"])):
        first, second = x[y == label][:, plane].T
        axes.scatter(first, second, s=2, color=colour, alpha=0.35, linewidths=0)
    arrows = np.array(row["arrows"])[:, plane]
    size = np.linalg.norm(arrows, axis=1, keepdims=True)
    arrows = 2.4 * arrows / np.sqrt(np.where(size > 0, size, 1.0))
    origin = np.zeros(len(arrows))
    axes.quiver(origin, origin, *arrows.T, angles="xy", scale_units="xy", scale=1, width=0.008, color=LIGHT["ink"])
    axes.set(xlim=(-3, 3), ylim=(-3, 3), xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"{row['time']:.3g} τ{', ' + row['stage'] if row['stage'] else ''}")
