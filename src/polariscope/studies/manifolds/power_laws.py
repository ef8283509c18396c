"""Power laws of the number of points: measured curves, their exponents, and their figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from polariscope.kernels.learning_curves import LearningCurve
from polariscope.studies.kit import Curve
from polariscope.studies.rows import Row, Table

ASYMPTOTIC = 200
"""Points from which on an exponent is fitted: below, neither regime follows its power law (Spec 004, section 12)."""
STEEPER = "below some thousand points curves are steeper than the asymptotic law (Spec 004, A16)"


def curve(table: Table, column: str, over: str = "points") -> LearningCurve:
    """Values of a column over the numbers of points, for as many seeds as all of them have."""
    values = [rows.column(column) for _, rows in table.by(over)]
    fewest = min(map(len, values))
    return LearningCurve(np.array(table.distinct(over)), np.array([v[:fewest] for v in values], dtype=float))


def log_log(column: str | tuple[str, ...], over: str, by: str = "", **more: Any) -> Curve:
    """A column over another on logarithmic axes."""
    return Curve(column, over, by, log=True, log_y=True, **more)


def power(table: Table, column: str) -> float:
    """The exponent of a column over the numbers of points: least squares of the logarithms."""
    return float(np.polyfit(np.log(table.column("points")), np.log(table.column(column)), 1)[0])


def fitted(errors: LearningCurve, smallest: int = 0) -> Row:
    """For people to read: the exponent of the medians, these at each number of points, and how many seeds they have."""
    law = errors.power_law(smallest) if (errors.sizes >= smallest).sum() > 1 else None
    medians = zip(errors.sizes, errors.medians, strict=True)
    return {
        "exponent of the medians here" + (f", p ≥ {smallest}" if smallest else ""): (
            f"{law.exponent:.2f} ({law.low:.2f} to {law.high:.2f})" if law else "-"
        ),
        "median test error by p": ", ".join(f"{points}: {error:.4f}" for points, error in medians),
        "seeds": errors.values.shape[1],
    }
