"""The published tables on networks, their linearisations and their infinite-width kernels, in percent, by data.

Rows are named by split and network, "test standard" for instance; columns are width factors. What the networks are
called is said in :mod:`polariscope.studies.informed.widths`.
"""

from __future__ import annotations

from polariscope.studies.published import Published, published

Rows = dict[str, dict[float, Published]]

WIDTHS = (1, 2, 5, 10, 25, 60)
ALEXNET_WIDTHS = (1, 2, 3, 4)


def _by_data(kind: str, *data: str) -> dict[str, Rows]:
    return {name: published(f"informed/{kind}-{name.replace(' ', '-')}").numbered for name in data}


def _kernels(name: str) -> dict[str, dict[str, float]]:
    return {data: {k: cell.mean for k, cell in row.items()} for data, row in published(name).rows.items()}


PARAMETERS = {
    network: {width: int(cell.mean) for width, cell in row.items()}
    for rows in _by_data("parameters", "lenet", "alexnet").values()
    for network, row in rows.items()
}
"""Tables B.1 and B.2: how many parameters are trained."""
FINITE = _by_data("finite", "mnist", "shifted mnist", "cifar-10")
"""Table B.3: LeNet and its linearisation over five seeds."""
SNAKES = published("informed/snakes").numbered
"""Table B.4: AlexNet on ten kinds of snakes."""
PIXELS = published("informed/pixels").rows["mnist"]
"""Logistic regression on the pixels of MNIST (section 6.4.1)."""
BINARY = _by_data("binary", "mnist", "shifted mnist")
"""Tables 6.1 and 6.2: zero against the rest with one output, a single run."""
BINARY_RATIOS: dict[float, float] = {k: (58_944 * k**2 + 364 * k + 1) / 60_000 for k in WIDTHS}
"""Parameters of LeNet with one output over training images in those tables: the narrowest is at the threshold."""
KERNELS = _kernels("informed/kernels")
"""Table 6.3: test accuracy of the infinitely wide network, last layer trained (NNGP) and fully trained (NTK)."""
NTK_NETWORKS = _by_data("ntk", "mnist", "shifted mnist", "shifted-resized mnist", "cifar-10")
"""Tables B.5 to B.8: LeNet with average pooling in the NTK parametrisation, over five seeds."""
RANDOM_LABELS = _by_data("random", "mnist", "shifted mnist", "shifted-resized mnist")
RANDOM_KERNELS = _kernels("informed/random-kernels")
"""Tables B.9 to B.11, and the kernels' test accuracy: MNIST and its variants with the same random labels."""


def gap(rows: Rows, split: str = "test") -> dict[float, float]:
    """Accuracy of the standard network less that of the linearised one at each width, in percentage points.

    >>> {width: round(points, 2) for width, points in gap(FINITE["shifted mnist"]).items() if width in (1, 60)}
    {1.0: 27.65, 60.0: 3.91}
    """
    linear = rows[f"{split} linearised"]
    return {width: cell.mean - linear[width].mean for width, cell in rows[f"{split} standard"].items()}
