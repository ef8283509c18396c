"""The published tables on networks, their linearisations and their infinite-width kernels, as printed, in percent.

Studies hold their own results against them, in the layout of the originals: a row a network and a split, a column a
width factor. Source: Samarin's dissertation on informed representation learning (2022), chapter 6 and appendix B; Spec
000, section 7. Rows are named by split and network: "standard" is the network itself, "linearised" its linearisation
trained by gradient descent, "solved" the same solved exactly, "last_layer" the network with all but the last layer
frozen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polariscope.studies.published import Published

WIDTHS = (1, 2, 5, 10, 25, 60)
ALEXNET_WIDTHS = (1, 2, 3, 4)

Cells = dict[float, Published]
"""One row of a table: a cell a width."""
Rows = dict[str, Cells]


def _rows(table: dict[str, str], widths: tuple[int, ...] = WIDTHS) -> Rows:
    """Rows written as ``mean spread`` pairs between commas; ``-`` is an empty cell."""
    found: Rows = {}
    for name, text in table.items():
        cells = zip(widths, (cell.split() for cell in text.split(",")), strict=True)
        found[name] = {width: Published(*map(float, cell)) for width, cell in cells if cell != ["-"]}
    return found


PARAMETERS: dict[str, dict[float, int]] = {
    "lenet": {1: 60_074, 2: 238_026, 5: 1_479_210, 10: 5_905_610, 25: 36_868_010, 60: 212_265_610},
    "lenet, last layer": {1: 850, 2: 1_690, 5: 4_210, 10: 8_410, 25: 21_010, 60: 50_410},
    "alexnet": {1: 57_044_810, 2: 228_032_138, 3: 512_961_994, 4: 911_834_378},
}
"""Tables B.1 and B.2: how many parameters are trained."""

FINITE = {
    "mnist": _rows(
        {
            "test linearised": "94.48 1.04, 96.42 .17, 97.86 .02, 98.36 .04, 98.72 .05, 98.91 .10",
            "test standard": "99.15 .10, 99.29 .05, 99.38 .06, 99.40 .03, 99.42 .04, 99.39 .06",
            "train linearised": "94.30 1.07, 96.56 .33, 98.14 .07, 98.82 .05, 99.45 .02, 99.83 .03",
            "train standard": "99.86 .02, 99.94 .01, 99.95 .01, 99.97 .00, 99.97 .01, 99.97 .01",
        }
    ),
    "shifted mnist": _rows(
        {
            "test linearised": "69.95 5.86, 80.91 1.77, 89.57 .49, 92.13 .11, 94.25 .48, 94.66 .58",
            "test standard": "97.60 .16, 98.35 .12, 98.61 .03, 98.63 .13, 98.63 .33, 98.57 .12",
            "train linearised": "68.93 5.44, 80.54 1.64, 88.89 .29, 91.76 .13, 94.00 .10, 94.42 .29",
            "train standard": "97.55 .05, 98.28 .06, 98.59 .03, 98.71 .05, 98.76 .05, 98.77 .03",
        }
    ),
    "cifar-10": _rows(
        {
            "test linearised": "42.98 .53, 48.07 1.12, 54.42 .40, 58.23 .43, 62.47 .26, 65.80 .23",
            "test standard": "63.20 .58, 69.58 .48, 75.76 .22, 77.56 .21, 78.83 .10, 78.97 .13",
            "train linearised": "43.99 .97, 50.30 1.52, 60.45 1.14, 68.32 .92, 81.24 .74, 93.84 .33",
            "train standard": "92.07 .24, 98.53 .07, 99.76 .04, 99.92 .01, 99.96 .00, 99.98 .00",
        }
    ),
}
"""Table B.3: LeNet and its linearisation over five seeds."""

SNAKES = _rows(
    {
        "test linearised, rate 0.1": "30.48 1.68, 33.52 .63, 33.48 1.14, 33.88 1.68",
        "test linearised, rate 1": "33.64 1.26, 35.20 1.53, 36.76 1.52, 36.60 2.05",
        "test standard": "54.04 1.13, 54.72 1.27, 54.72 .98, 55.16 1.54",
        "train linearised, rate 0.1": "36.75 .50, 42.62 .80, 46.64 .54, 49.84 .95",
        "train linearised, rate 1": "51.05 2.17, 64.45 3.12, 72.63 3.02, 79.45 3.12",
        "train standard": "99.15 .05, 99.19 .03, 99.16 .05, 99.16 .04",
    },
    ALEXNET_WIDTHS,
)
"""Table B.4: AlexNet on ten kinds of snakes."""

PIXELS = {"train": Published(93), "test": Published(92)}
"""Logistic regression on the pixels of MNIST (section 6.4.1)."""

BINARY = {
    "mnist": _rows(
        {
            "test solved": "97.8, 99.86, 99.89, -, -, -",
            "test linearised": "99.61, 99.75, 99.81, 99.85, 99.85, 99.89",
            "test standard": "99.89, 99.89, 99.88, 99.89, 99.89, 99.88",
            "train solved": "100, 100, 100, -, -, -",
            "train linearised": "99.42, 99.74, 99.88, 99.97, 99.9983, 100",
            "train standard": "100, 100, 100, 100, 100, 100",
        }
    ),
    "shifted mnist": _rows(
        {
            "test solved": "86.05, 98.7, 99.17, -, -, -",
            "test linearised": "95.48, 98.51, 98.97, 99.31, 99.51, 99.55",
            "test standard": "99.72, 99.80, 99.82, 99.77, 99.82, 99.86",
            "train solved": "100, 100, 100, -, -, -",
            "train linearised": "95.42, 98.29, 98.90, 99.25, 99.49, 99.61",
            "train standard": "99.77, 99.83, 99.86, 99.90, 99.92, 99.90",
        }
    ),
}
"""Tables 6.1 and 6.2: zero against the rest with one output, a single run."""
BINARY_RATIOS: dict[float, float] = {k: (58_944 * k**2 + 364 * k + 1) / 60_000 for k in WIDTHS}
"""Parameters of LeNet with one output over training images in those tables: the narrowest is at the threshold."""

KERNELS = {
    "mnist": {"nngp": 99.40, "ntk": 99.20},
    "shifted mnist": {"nngp": 98.40, "ntk": 98.21},
    "shifted-resized mnist": {"nngp": 98.21, "ntk": 97.47},
    "cifar-10": {"nngp": 69.53, "ntk": 68.77},
}
"""Table 6.3: test accuracy of the infinitely wide network, last layer trained (NNGP) and fully trained (NTK)."""
NTK_NETWORKS = {
    "mnist": _rows(
        {
            "test last_layer": "85.53 .52, 90.75 .48, 95.49 .26, 97.07 .10, 98.15 .10, 98.71 .06",
            "test linearised": "97.90 .14, 98.55 .07, 98.91 .06, 99.06 .03, 99.16 .02, 99.19 .07",
            "test standard": "98.70 .09, 99.04 .07, 99.30 .07, 99.36 .07, 99.35 .02, 99.26 .05",
            "train last_layer": "84.77 .63, 90.34 .48, 95.38 .23, 97.05 .11, 98.46 .03, 99.17 .04",
            "train linearised": "98.44 .09, 99.33 .06, 99.81 .02, 99.89 .01, 99.96 .01, 99.98 .00",
            "train standard": "99.94 .01, 99.98 .01, 99.99 .00, 100, 100, 100",
        }
    ),
    "shifted mnist": _rows(
        {
            "test last_layer": "51.73 2.62, 63.83 1.56, 79.59 .69, 87.41 .46, 92.67 .12, 95.61 .18",
            "test linearised": "92.43 .45, 95.38 .27, 97.10 .11, 97.62 .04, 97.76 .07, 97.95 .06",
            "test standard": "97.21 .17, 98.25 .07, 98.15 .44, 98.36 .14, 98.50 .04, 98.07 .10",
            "train last_layer": "51.10 3.18, 63.54 1.48, 80.12 .80, 88.02 .38, 94.09 .10, 97.19 .06",
            "train linearised": "94.75 .66, 98.24 .13, 99.69 .06, 99.89 .02, 99.96 .01, 99.99 .00",
            "train standard": "99.88 .01, 99.94 .01, 99.98 .01, 99.99 .01, 100, 100",
        }
    ),
    "shifted-resized mnist": _rows(
        {
            "test last_layer": "37.99 2.11, 50.28 1.72, 71.33 .77, 81.70 .57, 90.09 .23, 93.39 .20",
            "test linearised": "87.68 1.00, 92.66 .32, 95.36 .20, 95.85 .15, 96.58 .12, 96.89 .18",
            "test standard": "96.18 .44, 97.67 .38, 97.26 .30, 98.02 .27, 97.88 .09, 97.49 .03",
            "train last_layer": "37.96 2.00, 50.06 1.63, 71.56 .87, 82.35 .48, 91.28 .32, 94.96 .18",
            "train linearised": "89.99 1.20, 95.36 .43, 98.25 .12, 98.89 .10, 99.46 .12, 99.77 .04",
            "train standard": "99.82 .02, 99.92 .02, 99.96 .01, 99.98 .01, 100, 100",
        }
    ),
    "cifar-10": _rows(
        {
            "test last_layer": "30.62 .80, 35.55 .56, 42.04 .25, 47.10 .38, 51.91 .33, 56.24 .53",
            "test linearised": "47.88 .74, 53.45 .70, 58.52 1.05, 60.65 .45, 61.93 .74, 62.42 .60",
            "test standard": "51.72 1.90, 58.48 1.12, 60.37 1.22, 60.73 .77, 60.04 .65, 58.31 .80",
            "train last_layer": "30.80 .78, 36.09 .69, 43.75 .29, 49.49 .18, 58.19 .41, 68.41 .20",
            "train linearised": "63.91 1.11, 82.64 .70, 96.66 1.03, 99.40 .15, 99.90 .05, 99.98 .00",
            "train standard": "95.17 .48, 99.30 .08, 99.90 .02, 100, 100, 100",
        }
    ),
}
"""Tables B.5 to B.8: LeNet with average pooling in the NTK parametrisation, over five seeds."""

RANDOM_KERNELS = {
    "mnist": {"nngp": 9.75, "ntk": 10.05},
    "shifted mnist": {"nngp": 9.68, "ntk": 9.45},
    "shifted-resized mnist": {"nngp": 9.95, "ntk": 10.01},
}
RANDOM_LABELS = {
    "mnist": _rows(
        {
            "test last_layer": "10.01, 9.92, 10.13, 10.13, 10.08, 9.89",
            "test linearised": "10.03, 10.21, 10.05, 10.15, 9.90, 9.67",
            "test standard": "9.98, 9.99, 10.06, 10.11, 10.09, 9.75",
            "train last_layer": "11.94 .11, 12.81 .20, 14.74 .14, 17.04 .16, 22.21 .04, 30.55 .21",
            "train linearised": "28.71 1.80, 44.15 1.71, 67.49 1.95, 78.57 1.75, 88.74 1.85, 95.28 .48",
            "train standard": "57.52 1.11, 95.99 1.11, 100, 100, 100, 100",
        }
    ),
    "shifted mnist": _rows(
        {
            "test last_layer": "10.05, 10.09, 9.99, 9.87, 10.09, 9.73",
            "test linearised": "10.22, 10.01, 9.96, 10.00, 9.85, 10.08",
            "test standard": "10.16, 9.95, 10.07, 9.92, 10.02, 9.99",
            "train last_layer": "12.06 .04, 12.82 .10, 14.97 .16, 17.28 .30, 22.91 .14, 32.55 .24",
            "train linearised": "31.96 1.75, 51.56 1.74, 79.87 2.65, 90.63 1.74, 96.71 .91, 99.21 .11",
            "train standard": "60.02 1.29, 97.38 .66, 100, 100, 100, 100",
        }
    ),
    "shifted-resized mnist": _rows(
        {
            "test last_layer": "9.89, 10.15, 10.06, 10.05, 9.99, 9.75",
            "test linearised": "10.02, 9.96, 9.91, 9.80, 10.07, 9.94",
            "test standard": "9.86, 9.72, 10.08, 9.97, 10.14, 10.07",
            "train last_layer": "11.95 .17, 12.80 .03, 14.80 .21, 17.08 .18, 21.85 .33, 28.33 .30",
            "train linearised": "27.10 1.64, 38.48 2.12, 56.83 2.42, 66.75 2.82, 78.90 2.92, 88.77 1.01",
            "train standard": "56.56 1.26, 94.58 .75, 100, 100, 100, 100",
        }
    ),
}
"""Tables B.9 to B.11, and the kernels' test accuracy: MNIST and its variants with the same random labels."""


def gap(rows: Rows, split: str = "test") -> dict[float, float]:
    """Accuracy of the standard network less that of the linearised one at each width, in percentage points.

    >>> {width: round(points, 2) for width, points in gap(FINITE["shifted mnist"]).items() if width in (1, 60)}
    {1: 27.65, 60: 3.91}
    """
    linear = rows[f"{split} linearised"]
    return {width: cell.mean - linear[width].mean for width, cell in rows[f"{split} standard"].items()}


def layout(
    published: Mapping[str, Mapping[str, Mapping[float, Any]]],
    here: Mapping[str, Mapping[str, Mapping[float, Any]]],
    title: str = "×{:g}",
) -> list[dict[str, str]]:
    """Tables over widths in the layout of appendix B, each published row (by data and name) followed by ours.

    Columns are all widths that occur, with 0 for a regression on pixels and infinity for a kernel; ``-`` is an empty
    cell.

    >>> published = {"mnist": {"test standard": {1: 99.15, 60: 99.39}, "test ntk": {math.inf: 99.2}}}
    >>> for row in layout(published, {"mnist": {"test standard": {1: 98.0}}}):
    ...     print(*row.values(), sep=" | ")
    mnist | test standard | published | 99.15 | 99.39 | -
    mnist | test standard | here | 98.0 | - | -
    mnist | test ntk | published | - | - | 99.2
    """
    both = {"published": published, "here": here}
    rows = [row for tables in both.values() for rows in tables.values() for row in rows.values()]
    widths = sorted({width for row in rows for width in row})
    titles = {width: {0: "pixels", math.inf: "×∞"}.get(width, title.format(width)) for width in widths}
    names = dict.fromkeys((data, name) for tables in both.values() for data, rows in tables.items() for name in rows)
    order = list(dict.fromkeys([*published, *here]))
    by_data = sorted(names, key=lambda pair: order.index(pair[0]))  # stable: rows keep their order
    return [
        {"data": data, "row": name, "whose": whose}
        | {column: str(tables[data][name].get(width, "-")) for width, column in titles.items()}
        for data, name in by_data
        for whose, tables in both.items()
        if name in tables.get(data, {})
    ]
