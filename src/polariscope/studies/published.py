"""The numbers of the published tables, as printed: mean and spread over restarts.

Studies hold their own results against them. Sources: Rolinek, Zietlow and Martius 2019 and Zietlow, Rolinek and
Martius 2021, as collected in Zietlow's dissertation (2022); Spec 003, sections 5 and 6.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A cell of a table: mean ± spread.

    >>> str(Published(0.76, 0.08))
    '0.76 ± 0.08'
    """

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")


def _cells(columns: tuple[str, ...], rows: dict[str, str]) -> dict[str, dict[str, Published]]:
    """A table written as ``mean spread`` pairs, ``-`` for an empty cell."""
    table: dict[str, dict[str, Published]] = {}
    for name, text in rows.items():
        cells = [cell.split() for cell in text.split(",")]
        table[name] = {
            column: Published(*map(float, cell)) for column, cell in zip(columns, cells, strict=True) if cell != ["-"]
        }
    return table


POLARISED_SHARE = _cells(
    ("dependent", "ten"),
    {
        "dsprites": "97.8, 90.6",
        "fmnist": "99.8, 97.7",
        "mnist": "99.8, 99.5",
        "square-linear": "99.8, 96.7",
        "square-nonlinear": "99.9, 98.5",
    },
)
"""Table 3.2: percent of the training in the polarised regime, for latents as many as factors, and for ten."""

_MODELS = ("beta-vae", "vae", "ae", "full-beta-vae", "random")
DISENTANGLEMENT = _cells(
    _MODELS,
    {
        "dsprites": "0.33 0.15, 0.21 0.10, 0.09 0.04, 0.12 0.06, -",
        "square-linear": "0.99 0.01, -, 0.71 0.19, 0.71 0.31, -",
        "square-nonlinear": "0.73 0.16, -, 0.59 0.30, 0.42 0.24, -",
    },
)
"""Table 3.3, Disentanglement Score."""
ORTHOGONALITY = _cells(
    _MODELS,
    {
        "dsprites": "0.76 0.08, 1.08 0.15, 1.62 0.03, 1.73 0.14, 1.86 0.11",
        "square-linear": "0.00 0.00, -, 0.33 0.18, 0.34 0.35, 0.79 0.21",
        "square-nonlinear": "0.18 0.02, -, 0.54 0.13, 0.55 0.02, 0.89 0.16",
        "mnist": "-, 1.59 0.08, 1.83 0.05, 1.93 0.08, 2.11 0.11",
        "fmnist": "-, 1.36 0.05, 1.87 0.03, 2.02 0.08, 2.11 0.11",
    },
)
"""Table 3.3, distance to orthogonality."""
DEGENERATE = _cells(
    ("1.0", "1.2", "1.5"),
    {"score": "0.51 0.28, 0.76 0.25, 0.98 0.06", "distance": "0.49 0.32, 0.20 0.24, 0.01 0.06"},
)
"""Table 3.4: the linear beta-VAE on a square stretched by these ratios."""

_DATA = tuple(f"{data} {kind}" for data in ("dsprites", "shapes3d") for kind in ("original", "modified", "noise"))
MANIPULATED = {
    "mig": _cells(
        _DATA,
        {
            "ae": ".09 .06, .05 .02, .06 .03, .06 .03, .05 .03, .07 .03",
            "beta-vae": ".23 .08, .07 .09, .14 .07, .60 .31, .09 .14, .66 .05",
            "factor-vae": ".27 .11, .20 .12, .16 .08, .27 .18, .07 .05, .33 .20",
            "beta-tc-vae": ".25 .08, .14 .10, .20 .04, .58 .20, .24 .16, .60 .11",
            "slow-vae": ".39 .08, .27 .08, .37 .09, .53 .19, .13 .08, .60 .10",
            "pcl": ".21 .03, .24 .07, .24 .07, .44 .06, .47 .08, .40 .07",
            "weakly supervised gan": ".45 .05, .36 .02, .36 .01, .69 .12, .66 .12, .77 .13",
        },
    ),
    "dci": _cells(
        _DATA,
        {
            "beta-vae": ".11 .03, .08 .11, .14 .07, .73 .14, .43 .06, .56 .06",
            "factor-vae": ".37 .10, .27 .11, .24 .09, .39 .18, .25 .08, .57 .20",
            "beta-tc-vae": ".34 .06, .19 .10, .27 .03, .67 .08, .41 .05, .59 .09",
            "slow-vae": ".47 .07, .40 .07, .47 .08, .65 .10, .33 .08, .73 .09",
            "pcl": ".28 .03, .30 .03, .29 .06, .70 .06, .67 .09, .71 .07",
        },
    ),
    "factor-vae-score": _cells(
        _DATA,
        {
            "beta-vae": ".47 .07, .38 .13, .50 .10, .80 .17, .54 .10, .71 .06",
            "factor-vae": ".67 .11, .62 .14, .60 .11, .63 .15, .48 .05, .71 .15",
            "beta-tc-vae": ".68 .09, .53 .15, .60 .12, .76 .07, .57 .07, .71 .06",
            "slow-vae": ".77 .03, .77 .04, .76 .07, .87 .10, .62 .06, .85 .08",
            "pcl": ".77 .09, .82 .05, .77 .08, .80 .06, .77 .07, .80 .06",
        },
    ),
    "sap": _cells(
        _DATA,
        {
            "beta-vae": ".04 .01, .02 .02, .03 .03, .16 .08, .03 .03, .09 .02",
            "factor-vae": ".07 .03, .06 .03, .08 .01, .07 .04, .04 .01, .08 .03",
            "beta-tc-vae": ".08 .01, .06 .03, .05 .02, .08 .02, .04 .02, .06 .03",
            "slow-vae": ".08 .01, .07 .01, .07 .01, .09 .04, .04 .01, .09 .05",
            "pcl": ".07 .03, .10 .03, .10 .03, .07 .01, .07 .01, .07 .01",
        },
    ),
}
"""Tables 4.2 to 4.5: scores on original, modified and noisy data, over ten restarts."""
