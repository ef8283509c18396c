"""Equalities: a number is near a prediction, two groups are alike, a curve is flat or a power law."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from polariscope.studies.criteria.cells import (
    SEEDS,
    Estimate,
    Of,
    Verdict,
    cell_of,
    count_of,
    counted,
    curve_of,
    effect_of,
    estimate_of,
)
from polariscope.studies.criteria.criterion import (
    ColumnCriterion,
    Finding,
    Where,
    all_of,
    concluded,
    listed,
    plain,
    quantified,
    seeds_along,
    seeds_of_sides,
    sides,
)
from polariscope.studies.criteria.examples import along, seeded, sided
from polariscope.studies.rows import Row, Table


@dataclass(frozen=True)
class Near(ColumnCriterion):
    """A number is near a prediction, which is a number or another column of the row.

    ``by`` is the distance that is allowed, as a share of the prediction if ``relative``. Figures of one prediction are
    averaged over the seeds first, unless ``of`` asks for every single one.

    >>> table = Table([{"gap": 1.02, "theory": 1.0}, {"gap": 1.97, "theory": 2.0}])
    >>> Near("gap", "theory", by=0.05, of="every").judge(table).held
    True
    """

    column: str
    prediction: float | str
    by: float
    relative: bool = False
    of: Of = "mean"
    to: str = ""
    """What the prediction is, in words."""

    @property
    def sentence(self) -> str:
        number = "" if isinstance(self.prediction, str) else f"{self.prediction:.4g}"
        to = self.to or number or str(self.prediction).replace("_", " ")
        if self.to and not isinstance(self.prediction, str):
            to = f"{self.to} ({self.prediction:.4g})"
        by = f"{100 * self.by:g} %" if self.relative else f"{self.by:g}"
        return f"{quantified(self.subject, self.of)} is within {by} of {to}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        known = Table([r for r in rows.rows if r.get(self.column) is not None and self._expected(r) is not None])
        if not len(known):
            return Finding("", None, "nothing was measured")
        groups: dict[float, list[Row]] = {}
        for row in known.rows:
            groups.setdefault(float(self._expected(row)), []).append(row)
        counts = {self._number(expected): count_of(Table(own), self.column) for expected, own in groups.items()}
        if self.of == "every":  # then a prediction may be of a single row
            counts = {"": count_of(known, self.column)}
        errors: list[float] = []
        texts: list[str] = []
        verdicts: list[Verdict] = []
        for expected, own in groups.items():
            average: Of = "mean" if self.of == "every" else self.of
            estimate = cell_of(Table(own), self.column, average).estimate(average)
            size = abs(expected) if self.relative else 1.0
            low, high = expected - self.by * size, expected + self.by * size
            size = size or 1.0  # the error of a prediction of 0 is shown as it is
            if self.of == "every":
                values = Table(own).column(self.column).astype(float)
                errors.append(float(np.abs(values - expected).max()) / size)
                verdicts.append((all_of([Estimate.point(value).within(low, high) for value in values]), ""))
            else:
                errors.append(abs(estimate.middle - expected) / size)
                verdicts.append(self._placed(estimate, low, high))
            texts.append(f"{self._shown(estimate)} for {self._number(expected)}")
        worst = f"largest error {100 * max(errors):.2g} %" if self.relative else f"largest error {max(errors):.2g}"
        shown = "; ".join(texts) + (f"; {worst}" if len(texts) > 1 or self.of == "every" else "")
        return concluded(shown if len(texts) <= 8 else f"{worst} over {len(known)} rows", counts, verdicts)

    def _applies(self, rows: Table) -> bool:
        return any(row.get(self.column) is not None and self._expected(row) is not None for row in rows.rows)

    def _expected(self, row: Row) -> Any:
        return row.get(self.prediction) if isinstance(self.prediction, str) else self.prediction

    def _good(self) -> list[Row]:
        return self._off(0.0)

    def _bad(self) -> list[list[Row]]:
        return [self._off(2.0), self._off(-2.0)]

    def _off(self, times: float) -> list[Row]:
        aim = 2.0 if isinstance(self.prediction, str) else self.prediction
        allowed = self.by * (abs(aim) if self.relative else 1.0)
        rows = seeded(self.column, aim + times * (allowed or 1.0), spread=allowed / 100)
        return [row | {self.prediction: aim} for row in rows] if isinstance(self.prediction, str) else rows


@dataclass(frozen=True)
class Alike(ColumnCriterion):
    """Two groups of rows have the same mean up to ``by`` (a share of the second's, if ``relative``).

    >>> rows = [{"seed": s, "model": m, "mcc": 0.9 + s / 100} for s in range(5) for m in "ab"]
    >>> Alike("mcc", {"model": "a"}, {"model": "b"}, by=0.02).judge(Table(rows)).held
    True
    """

    column: str
    first: Where
    second: Where
    by: float
    relative: bool = False

    @property
    def sentence(self) -> str:
        by = f"{100 * self.by:g} %" if self.relative else f"{self.by:g}"
        return f"{self.subject}: {listed(self.first)} and {listed(self.second)} differ by at most {by}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        cells = sides(rows, self.column, self.first, self.second)
        if not all(cell.values for cell in cells):
            return Finding("", None, "nothing was measured")
        first, second = cells
        scale = (abs(second.mean) if self.relative else 1.0) or 1.0
        text = " and ".join(self._shown(cell.estimate()) for cell in cells)
        verdict = self._placed(effect_of(first, second).times(1 / scale), -self.by, self.by, " of the difference")
        return concluded(text, seeds_of_sides(self.first, self.second, cells), [verdict])

    def _good(self) -> list[Row]:
        return self._apart(0)

    def _bad(self) -> list[list[Row]]:
        return [self._apart(2), self._apart(-2)]

    def _apart(self, times: float) -> list[Row]:
        step = times * self.by * (10 if self.relative else 1)
        return sided(self.column, self.first, self.second, (10 + step, 10.0), spread=self.by / 100)


@dataclass(frozen=True)
class Flat(ColumnCriterion):
    """Means hardly differ along a column: no two of them by more than ``by``.

    As a share of the smallest if ``relative``.
    """

    column: str
    over: str
    by: float
    relative: bool = False

    @property
    def sentence(self) -> str:
        by = f"{100 * self.by:g} %" if self.relative else f"{self.by:g}"
        return f"{self.subject} varies by at most {by} over {self.over.replace('_', ' ')}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        points = curve_of(rows, self.over, self.column)
        if len(points) < 2:
            return Finding("", None, "nothing was measured")
        scale = (abs(min(cell.mean for cell in points.values())) if self.relative else 1.0) or 1.0
        pairs = itertools.combinations(points.items(), 2)
        verdicts = [
            self._placed(
                effect_of(b, a).times(1 / scale),
                -self.by,
                self.by,
                f" of the difference of {plain(one)} and {plain(two)}",
            )
            for (one, a), (two, b) in pairs
        ]
        return concluded(self._along(points), seeds_along(self.over, points), verdicts)

    def _good(self) -> list[Row]:
        return self._curve(0.0)

    def _bad(self) -> list[list[Row]]:
        return [self._curve(2.0)]

    def _curve(self, times: float) -> list[Row]:
        step = times * self.by * (10 if self.relative else 1)
        return along(self.column, self.over, (10.0, 10 + step, 10.0), spread=self.by / 100)


@dataclass(frozen=True)
class PowerLaw(ColumnCriterion):
    """A column falls or grows as a power of another: the exponent is the predicted one, and not a rival's.

    The interval of the exponent over the seeds has to lie within ``by`` of the prediction, and nearer to it than to the
    rival. An exponent needs three sizes.
    """

    column: str
    over: str
    exponent: float
    rival: float
    by: float = 0.1
    smallest: float = 0.0
    """Sizes below are left out, as long as three are left."""

    @property
    def sentence(self) -> str:
        over = self.over.replace("_", " ")
        return (
            f"{self.subject} goes as {over} to a power within {self.by:g} of {self.exponent:.3f} "
            f"and nearer to it than to {self.rival:.3f}{self._scope}"
        )

    def _one(self, rows: Table) -> Finding:
        points = curve_of(rows, self.over, self.column)
        if sum(size >= self.smallest for size in points) >= 3:
            points = {size: own for size, own in points.items() if size >= self.smallest}
        sizes = list(points)
        shared = set.intersection(*(set(cell.values) for cell in points.values())) if points else set()
        seeds = sorted(shared, key=str)
        if len(sizes) < 2 or not seeds or min(min(cell.values.values()) for cell in points.values()) <= 0:
            return Finding("", None, "nothing was measured, or an exponent needs two sizes and values above zero")
        curves = np.log([[cell.values[seed] for seed in seeds] for cell in points.values()])
        slopes = estimate_of(np.polyfit(np.log(np.asarray(sizes, float)), curves, 1)[0])
        exact = all(cell.seeds is None for cell in points.values())
        of = "" if exact else f", {counted(len(seeds))}"
        text = f"{self._shown(slopes)} from {plain(sizes[0])} to {plain(sizes[-1])}{of}"
        if len(sizes) < 3:
            return Finding(text, None, f"{len(sizes)} sizes are too few for an exponent")
        return concluded(text, {"": None if exact else len(seeds)}, [self._placed(slopes, *self._band())])

    def _band(self) -> tuple[float, float]:
        """What is near the prediction, and nearer to it than to the rival."""
        low, high, middle = self.exponent - self.by, self.exponent + self.by, (self.exponent + self.rival) / 2
        return (max(low, middle), high) if self.rival < self.exponent else (low, min(high, middle))

    def _good(self) -> list[Row]:
        return self._law(self.exponent)

    def _bad(self) -> list[list[Row]]:
        return [self._law(self.rival)]

    def _law(self, exponent: float) -> list[Row]:
        start = max(self.smallest, 10.0)
        return [
            {
                "seed": seed,
                self.over: start * size,
                self.column: float((start * size) ** (exponent + self.by * (seed - SEEDS // 2) / 1000)),
            }
            for size in (1, 2, 4, 8)
            for seed in range(SEEDS)
        ]
