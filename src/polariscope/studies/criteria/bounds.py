"""Bounds: a number is at least, at most, or between."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from polariscope.studies.criteria.cells import Estimate, Of, Values, cell_of, count_of
from polariscope.studies.criteria.criterion import ColumnCriterion, Finding, concluded, quantified
from polariscope.studies.criteria.examples import seeded
from polariscope.studies.rows import Row, Table


@dataclass(frozen=True)
class AtLeast(ColumnCriterion):
    """A number is at least a bound: its mean, its median, or every single one.

    >>> AtLeast("score", 0.8, of="every").judge(Table([{"score": 0.9}, {"score": 0.7}]))
    Finding(measured='smallest 0.70 of 2', held=False, note='')
    """

    column: str
    bound: float
    of: Of = "mean"

    @property
    def sentence(self) -> str:
        return f"{quantified(self.subject, self.of)} is at least {self.bound:g}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        return _bounded(self, rows, self.bound, math.inf)

    def _good(self) -> list[Row]:
        return seeded(self.column, self.bound + _size(self.bound))

    def _bad(self) -> list[list[Row]]:
        return [seeded(self.column, self.bound - _size(self.bound))]


@dataclass(frozen=True)
class AtMost(ColumnCriterion):
    """A number is at most a bound: its mean, its median, or every single one."""

    column: str
    bound: float
    of: Of = "mean"

    @property
    def sentence(self) -> str:
        return f"{quantified(self.subject, self.of)} is at most {self.bound:g}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        return _bounded(self, rows, -math.inf, self.bound)

    def _good(self) -> list[Row]:
        return seeded(self.column, self.bound - _size(self.bound))

    def _bad(self) -> list[list[Row]]:
        return [seeded(self.column, self.bound + _size(self.bound))]


@dataclass(frozen=True)
class Between(ColumnCriterion):
    """A number lies in an interval.

    >>> Between("slope", 0.9, 1.1).judge(Table([{"slope": 1.0}])).held
    True
    """

    column: str
    low: float
    high: float
    of: Of = "mean"

    @property
    def sentence(self) -> str:
        return f"{quantified(self.subject, self.of)} lies between {self.low:g} and {self.high:g}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        return _bounded(self, rows, self.low, self.high)

    def _good(self) -> list[Row]:
        return seeded(self.column, (self.low + self.high) / 2, spread=(self.high - self.low) / 100)

    def _bad(self) -> list[list[Row]]:
        width = self.high - self.low
        return [seeded(self.column, value, spread=width / 100) for value in (self.low - width, self.high + width)]


def _bounded(criterion: AtLeast | AtMost | Between, rows: Table, low: float, high: float) -> Finding:
    column, of = criterion.column, criterion.of
    values = rows.column(column).astype(float)
    if not len(values):
        return Finding("", None, "nothing was measured")
    counts = {"": count_of(rows, column)}
    if of == "every":
        worst, name = _worst(values, low, high)
        text = f"{name} {criterion._number(worst)} of {len(values)}"
        return concluded(text, counts, [(Estimate.point(worst).within(low, high), "")])
    estimate = cell_of(rows, column, of).estimate(of)
    text = f"{'median ' if of == 'median' else ''}{criterion._shown(estimate)}"
    return concluded(text, counts, [criterion._placed(estimate, low, high)])


def _worst(values: Values, low: float, high: float) -> tuple[float, str]:
    if math.isinf(high):
        return float(values.min()), "smallest"
    if math.isinf(low):
        return float(values.max()), "largest"
    return float(values[np.abs(values - (low + high) / 2).argmax()]), "farthest"


def _size(bound: float) -> float:
    return max(abs(bound) / 2, 0.1)
