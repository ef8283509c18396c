"""The information of a kernel's leading modes about the labels: rows, readings and figures.

Rows are of one kernel each: ``part`` of the net, ``time``, ``size`` of the training set, ``seed``, and whether it was
``centred``. (Spec 004, sections 5.3 to 5.7; figures 9 and 10 of Paccolat et al. 2021.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from polariscope.kernels.principal import kernel_pca, separability, target_alignment
from polariscope.measures.mutual_information import information_floor, label_information
from polariscope.report.kernel_figures import component_scatter, information_curves, projection_bars
from polariscope.studies.rows import Row, Table

MODES = 10
SHOWN = 400  # points of each scatter plot
TIMES = {"start": "initial", "t_star": "at t*", "end": "final"}
PARTS: tuple[Literal["tangent", "last_layer"], ...] = ("tangent", "last_layer")
NAMES = {"tangent": "NTK", "last_layer": "last layer"}
PUBLISHED = (("tangent", "start"), ("tangent", "end"), ("last_layer", "end"))
"""The kernels of figures 9 and 10."""
KERNEL = ("size", "seed", "part", "centred")
"""Columns that say which kernel a row is about, whatever the time."""


def modes_of(gram: Tensor, labels: Tensor, center: bool = True) -> tuple[Row, Tensor]:
    """What the leading modes of a kernel matrix know of the labels, JSON-ready, and the first two modes."""
    pca = kernel_pca(gram, MODES, center)
    projections = pca.projections(labels)
    plane = pca.functions[:, :2]
    row = {
        "projections": projections.tolist(),
        "captured": projections.sum().item(),
        "information": [label_information(mode, labels) for mode in pca.functions.T],
        "alignment": target_alignment(gram, labels, center),
        "separability": separability(plane, labels),
        "shares": pca.shares.tolist(),
    }
    return row, plane


def scatter_of(plane: Tensor, labels: Tensor) -> Row:
    """The first two modes of some points with their labels, rounded for a table."""
    return {"scatter": plane[:SHOWN].numpy().round(3).tolist(), "labels": labels[:SHOWN].int().tolist()}


def read_modes(table: Table) -> Table:
    """Every row with what it says of single modes, and beside the same kernel at the start; then a row a component."""
    starts = {_kernel_of(row): row for row in table.where(time="start").rows}
    rows = [row | _single_modes(row) | _over_start(row, starts.get(_kernel_of(row), {})) for row in table.rows]
    components = [
        {name: row[name] for name in (*KERNEL, "time")} | {"component": number, "bits": bits}
        for row in table.rows
        for number, bits in enumerate(row.get("information", ()), start=1)
    ]
    return Table(rows + components)


def _kernel_of(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in KERNEL)


def _over_start(row: Row, start: Row) -> Row:
    return {
        f"{name}_of_start": row[name] / start[name]
        for name in ("error", "alignment", "captured", "dimension")
        if start.get(name) and row.get(name) is not None
    }


def _single_modes(row: Row) -> Row:
    modes: Row = {"kernel": NAMES.get(row["part"])}
    if "information" in row:
        (bits, *other_bits), (share, second, *later) = row["information"], row["projections"]
        modes |= {"first_bits": bits, "other_bits": float(np.mean(other_bits)), "most_bits": max(bits, *other_bits)}
        modes |= {"first_share": share, "second_share": second, "later_share": max(later)}
        modes["others_of_first_bits"] = modes["other_bits"] / bits if bits else None
        modes["runner_up"] = max(second, *later) / share if share else None
    return modes


def pictures(table: Table) -> dict[str, Figure]:
    """Figures 9 and 10 from rows of one p: labels and bits by component over the seeds, and the planes of a net."""

    def middle(name: str) -> dict[str, list[float]]:
        medians = {}
        for part, time in PUBLISHED:
            rows = table.where(part=part, time=time)
            medians[f"{NAMES[part]}, {TIMES[time]}"] = np.median(rows.column(name), axis=0).tolist()
        return medians

    shown = [row for at in PUBLISHED for row in table.where(part=at[0], time=at[1]).rows if row.get("scatter")]
    names = [f"{NAMES[row['part']]}, {TIMES[row['time']]}" for row in shown]
    return {
        "projections": projection_bars(middle("projections")),
        "information": information_curves(middle("information"), information_floor()),
        "scatter": component_scatter(
            {name: row["scatter"] for name, row in zip(names, shown, strict=True)},
            shown[0]["labels"],
            {name: row["separability"] for name, row in zip(names, shown, strict=True)},
        ),
    }


def listing(values: Sequence[float], digits: int = 2) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)
