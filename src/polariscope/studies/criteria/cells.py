"""What criteria compare: a number for each seed of some rows, with the 95 % interval over the seeds."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from polariscope.studies.rows import Table

Of = Literal["mean", "median", "every"]
Values = NDArray[np.float64]
Verdict = tuple[bool | None, str]
"""Whether something holds, and what to note about it."""
LISTED = 4
"""Groups up to which the figures of all are listed; of more, of those that do not hold."""
SEEDS = 5
"""Seeds that every cell needs for a verdict, and that the tables have which criteria make up."""
ROUNDING = 1e-12
"""Share of a bound by which floating point may miss it."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over the seeds; of an exact number the interval is a point."""

    middle: float
    low: float
    high: float

    @classmethod
    def point(cls, value: float) -> Estimate:
        return cls(float(value), float(value), float(value))

    @property
    def is_point(self) -> bool:
        return self.low == self.high

    def times(self, factor: float) -> Estimate:
        low, high = sorted((factor * self.low, factor * self.high))
        return Estimate(factor * self.middle, low, high)

    def within(self, low: float, high: float) -> bool | None:
        """Whether the interval lies in a range (True), outside of it (False), or across one of its ends (None)."""
        low, high = (end if math.isinf(end) else end + way * ROUNDING * abs(end) for end, way in ((low, -1), (high, 1)))
        if low <= self.low and self.high <= high:
            return True
        return False if self.high < low or high < self.low else None


@dataclass(frozen=True)
class Cell:
    """What a criterion compares: a number for each seed, or an exact one."""

    values: dict[Any, float]
    seeds: int | None
    """How many; None where the number is exact."""

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    def estimate(self, of: Of = "mean") -> Estimate:
        return estimate_of(np.array(list(self.values.values())), of)


def count_of(rows: Table, column: str) -> int | None:
    """How many seeds the numbers of a column are of; None where no row has a seed: those are exact."""
    known = [row for row in rows.rows if row.get(column) is not None]
    seeds = {row["seed"] for row in known if row.get("seed") is not None}
    together = [int(row["of_seeds"]) for row in known if row.get("of_seeds") is not None]
    return len(seeds) if seeds else min(together, default=None)


def seeds_of(rows: Table, column: str, of: Of = "mean") -> dict[Any, float]:
    """The mean (or the median) of a column for each seed; exact rows are under None."""
    values: dict[Any, list[float]] = {}
    for row in rows.rows:
        if row.get(column) is not None:
            values.setdefault(row.get("seed"), []).append(float(row[column]))
    if None in values and len(values) > 1:
        raise ValueError(
            f"some rows of one cell have a seed and some have none, so {column} is neither exact nor drawn"
        )
    average = np.median if of == "median" else np.mean
    return {seed: float(average(own)) for seed, own in values.items()}


def cell_of(rows: Table, column: str, of: Of = "mean") -> Cell:
    return Cell(seeds_of(rows, column, of), count_of(rows, column))


def curve_of(rows: Table, over: str, column: str) -> dict[Any, Cell]:
    """A column at each value of another."""
    points = {value: cell_of(group, column) for value, group in rows.by(over)}
    return {value: points[value] for value in sorted(points, key=_order) if points[value].values}


def _order(value: Any) -> Any:
    """Lists of numbers, such as widths of layers, are in the order of their numbers, and not of their letters."""
    if isinstance(value, str) and value.startswith("["):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


def effect_of(first: Cell, second: Cell) -> Estimate:
    """First minus second: seed by seed if both have the same ones, else of the means, as Welch compares them."""
    if first.values.keys() == second.values.keys():
        return estimate_of(np.array([_apart(first.values[seed], second.values[seed]) for seed in first.values]))
    groups = [np.array(list(cell.values.values())) for cell in (first, second)]
    mean = _apart(float(groups[0].mean()), float(groups[1].mean()))
    errors = [float(own.var(ddof=1)) / len(own) if len(own) > 1 else 0.0 for own in groups]
    if not sum(errors):
        return Estimate.point(mean)
    freedom = sum(errors) ** 2 / sum(e**2 / (len(own) - 1) for e, own in zip(errors, groups, strict=True) if e)
    half = float(stats.t.ppf(0.975, freedom) * np.sqrt(sum(errors)))
    return Estimate(mean, mean - half, mean + half)


def _apart(first: float, second: float) -> float:
    """First minus second; numbers that differ by rounding alone are equal."""
    gap = first - second
    return 0.0 if abs(gap) <= ROUNDING * max(abs(first), abs(second)) else gap


def estimate_of(values: Values, of: Of = "mean") -> Estimate:
    """The mean (or the median) of the seeds' numbers with its 95 % interval."""
    if len(values) < 2:
        return Estimate.point(values[0])
    if of == "median":
        place = max(int(stats.binom.ppf(0.025, len(values), 0.5)), 1)
        ordered = np.sort(values)
        return Estimate(float(np.median(values)), float(ordered[place - 1]), float(ordered[-place]))
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def reaches(effect: Estimate, least: float) -> Verdict:
    """Whether an effect is there and large enough; undecided where its interval holds zero."""
    mean = effect.middle
    if mean <= 0 or mean < least - ROUNDING * abs(least):
        return False, "" if mean <= 0 or not least else f"the effect is {mean:.2g}, of at least {least:g}"
    return (True, "") if effect.low > 0 else (None, f"the interval of the effect begins at {effect.low:.2g}")


def shortage(counts: Mapping[str, int | None]) -> str:
    """What to say of cells that have fewer than five seeds; nothing if none has. Exact cells have None.

    >>> shortage({"CNN": 1, "MLP": 5})
    '1 seed of CNN, 5 of MLP: five of each are needed'
    >>> shortage({"": 3}), shortage({"CNN": 5, "NTK": None})
    ('3 seeds: five are needed', '')
    """
    drawn = {name: count for name, count in counts.items() if count is not None}
    short = {name: count for name, count in drawn.items() if count < SEEDS}
    if not short:
        return ""
    if len(counts) == 1:
        return f"{counted(next(iter(short.values())))}: five are needed"
    (name, count), *others = (drawn if len(drawn) <= LISTED else short).items()
    texts = [f"{counted(count)} of {name}", *(f"{number} of {other}" for other, number in others)]
    return f"{', '.join(texts)}: five of each are needed"


def counted(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds != 1)}"
