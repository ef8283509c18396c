"""Effects: a group beats another, a curve rises or peaks, two columns correlate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from polariscope.studies.criteria.cells import (
    ROUNDING,
    SEEDS,
    Estimate,
    count_of,
    curve_of,
    effect_of,
    reaches,
)
from polariscope.studies.criteria.criterion import (
    CONFIDENTLY,
    ColumnCriterion,
    Finding,
    Where,
    concluded,
    listed,
    seeds_along,
    seeds_of_sides,
    sides,
)
from polariscope.studies.criteria.examples import along, sided
from polariscope.studies.rows import Row, Table


@dataclass(frozen=True)
class Beats(ColumnCriterion):
    """One group of rows has larger (or smaller) numbers than another, by a least effect.

    Seeds that both groups have are compared with each other, which is surer than comparing the means. ``relative``
    takes the effect as a share of the second mean.

    >>> levels = {"slow": 0.9, "beta": 0.6}
    >>> rows = [{"seed": s, "model": m, "mcc": levels[m] + s / 100} for s in range(5) for m in levels]
    >>> Beats("mcc", {"model": "slow"}, {"model": "beta"}, by=0.1).judge(Table(rows))
    Finding(measured='0.92 [0.90, 0.94] against 0.62 [0.60, 0.64]', held=True, note='')
    """

    column: str
    first: Where
    second: Where
    by: float
    higher: bool = True
    relative: bool = False

    @property
    def sentence(self) -> str:
        size = f"{100 * self.by:g} %" if self.relative else f"{self.by:g}"
        how = "above" if self.higher else "below"
        by = f" by at least {size} in the mean, and {how} it {CONFIDENTLY}" if self.by else f" {CONFIDENTLY}"
        return f"{self.subject}: {listed(self.first)} is {how} {listed(self.second)}{by}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        cells = sides(rows, self.column, self.first, self.second)
        if not all(cell.values for cell in cells):
            return Finding("", None, "nothing was measured")
        first, second = cells
        sign = 1 if self.higher else -1
        scale = (abs(second.mean) if self.relative else 1.0) or 1.0
        text = " against ".join(self._shown(cell.estimate()) for cell in cells)
        return concluded(
            text,
            seeds_of_sides(self.first, self.second, cells),
            [reaches(effect_of(first, second).times(sign / scale), self.by)],
        )

    def _good(self) -> list[Row]:
        return self._apart(1)

    def _bad(self) -> list[list[Row]]:
        return [self._apart(0), self._apart(-1)]

    def _apart(self, times: int) -> list[Row]:
        step = 2 * max(self.by * (10 if self.relative else 1), 0.01) * (1 if self.higher else -1)
        return sided(self.column, self.first, self.second, (10 + times * step, 10.0), spread=abs(step) / 100)


@dataclass(frozen=True)
class NotWorse(ColumnCriterion):
    """One group of rows is not worse than another: at most ``by`` behind it (a share of its mean, if ``relative``).

    It is held if the whole interval of the difference over the seeds lies above that margin, and not held if all of it
    lies below. Without a margin it can hardly be shown that something is not worse: ``by`` says what counts as nothing.

    >>> rows = [{"seed": s, "model": m, "mcc": 0.9 + s / 100} for s in range(5) for m in "ab"]
    >>> NotWorse("mcc", {"model": "a"}, {"model": "b"}, by=0.02).judge(Table(rows)).held
    True
    """

    column: str
    first: Where
    second: Where
    by: float
    higher: bool = True
    relative: bool = False

    @property
    def sentence(self) -> str:
        size = f"{100 * self.by:g} %" if self.relative else f"{self.by:g}"
        worse = "below" if self.higher else "above"
        return f"{self.subject}: {listed(self.first)} is at most {size} {worse} {listed(self.second)}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        cells = sides(rows, self.column, self.first, self.second)
        if not all(cell.values for cell in cells):
            return Finding("", None, "nothing was measured")
        first, second = cells
        sign = 1 if self.higher else -1
        scale = (abs(second.mean) if self.relative else 1.0) or 1.0
        text = " against ".join(self._shown(cell.estimate()) for cell in cells)
        ahead = effect_of(first, second).times(sign / scale)
        verdict = self._placed(ahead, -self.by, math.inf, " of the difference")
        return concluded(text, seeds_of_sides(self.first, self.second, cells), [verdict])

    def _good(self) -> list[Row]:
        return self._apart(0.0)

    def _bad(self) -> list[list[Row]]:
        return [self._apart(-2.0)]

    def _apart(self, times: float) -> list[Row]:
        step = times * max(self.by * (10 if self.relative else 1), 0.01) * (1 if self.higher else -1)
        spread = max(self.by, 0.01) / 100
        return sided(self.column, self.first, self.second, (10 + step, 10.0), spread=spread)


@dataclass(frozen=True)
class Rises(ColumnCriterion):
    """Means rise (or fall) along a column: from its first to its last value by a least effect.

    Steps on the way may go back by ``slack``; with None they are not looked at, and the ends decide.

    >>> rows = [{"beta": b, "seed": s, "passive": b + s / 10} for b in (1, 2, 4) for s in range(5)]
    >>> Rises("passive", "beta", by=1).judge(Table(rows)).measured
    '1: 1.20, 2: 2.20, 4: 4.20; by 3.00 [3.00, 3.00]'
    """

    column: str
    over: str
    by: float
    slack: float | None = 0.0
    falls: bool = False

    @property
    def sentence(self) -> str:
        verb = "falls" if self.falls else "rises"
        by = f" by at least {self.by:g} in the mean" if self.by else ""
        sure = f"{' and' if self.by else ''} {CONFIDENTLY}"
        slack = f" by more than {self.slack:g}" if self.slack else ""
        steps = "" if self.slack is None else f", no step of the means going back{slack}"
        over = self.over.replace("_", " ")
        return f"{self.subject} {verb} over {over} from end to end{by}{sure}{steps}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        points = curve_of(rows, self.over, self.column)
        if len(points) < 2:
            return Finding("", None, "nothing was measured")
        sign = -1 if self.falls else 1
        cells = list(points.values())
        effect = effect_of(cells[-1], cells[0])
        verdicts = [reaches(effect.times(sign), self.by)]
        if self.slack is not None:
            verdicts += [self._step(effect_of(b, a).times(sign), self.slack) for a, b in itertools.pairwise(cells)]
            compared = points
        else:
            compared = {value: points[value] for value in (next(iter(points)), next(reversed(points)))}
        return concluded(f"{self._along(points)}; by {self._shown(effect)}", seeds_along(self.over, compared), verdicts)

    def _step(self, effect: Estimate, slack: float) -> tuple[bool | None, str]:
        """A step of the means is not back; one that is decides if its interval says so as well."""
        if Estimate.point(effect.middle).within(-slack, math.inf):
            return True, ""
        return (False, "a step goes back") if effect.high < -slack else (None, "a step goes back, within its interval")

    def _good(self) -> list[Row]:
        return self._curve((0, 1, 2))

    def _bad(self) -> list[list[Row]]:
        flat = [self._curve((0, 0, 0)), self._curve((2, 1, 0))]
        return flat if self.slack is None else [*flat, self._curve((0, 3, 2))]

    def _curve(self, heights: Sequence[int]) -> list[Row]:
        step = 2 * max(self.by, self.slack or 0.0, 0.1) * (-1 if self.falls else 1)
        return along(self.column, self.over, [10 + step * height for height in heights], spread=abs(step) / 100)


@dataclass(frozen=True)
class Peaks(ColumnCriterion):
    """Means are largest (or smallest) at neither end of a column, by a least effect over both ends."""

    column: str
    over: str
    by: float = 0.0
    highest: bool = True

    @property
    def sentence(self) -> str:
        by = f", {self.by:g} or more beyond both in the mean," if self.by else ""
        what = "largest" if self.highest else "smallest"
        over = self.over.replace("_", " ")
        return f"{self.subject} is {what} at neither end of {over}{by} {CONFIDENTLY}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        points = curve_of(rows, self.over, self.column)
        if len(points) < 3:
            return Finding("", None, "nothing was measured between two ends")
        sign = 1 if self.highest else -1
        first, *inner, last = points.values()
        best = max(inner, key=lambda cell: sign * cell.mean)
        verdicts = [reaches(effect_of(best, end).times(sign), self.by) for end in (first, last)]
        return concluded(self._along(points), seeds_along(self.over, points), verdicts)

    def _good(self) -> list[Row]:
        return self._curve((0, 1, 0))

    def _bad(self) -> list[list[Row]]:
        return [self._curve((0, 1, 2)), self._curve((2, 1, 0))]

    def _curve(self, heights: Sequence[int]) -> list[Row]:
        step = 2 * max(self.by, 0.1) * (1 if self.highest else -1)
        return along(self.column, self.over, [10 + step * height for height in heights], spread=abs(step) / 100)


@dataclass(frozen=True)
class Correlates(ColumnCriterion):
    """Two columns rise together over the rows (or against each other, for a negative ``least``), beyond chance.

    Spearman's rank correlation over all rows has to reach ``least``. Rows of one seed may be stages of one training, so
    its interval is that of the jackknife, which leaves out a seed at a time. Of rows without seeds the one-sided p has
    to be below 0.05.
    """

    column: str
    other: str
    least: float

    @property
    def sentence(self) -> str:
        how, side = ("at least", "above") if self.least > 0 else ("at most", "below")
        return (
            f"the rank correlation of {self.subject} and {self.other.replace('_', ' ')} is {how} {self.least:g}, "
            f"and {side} 0 {CONFIDENTLY}{self._scope}"
        )

    def _one(self, rows: Table) -> Finding:
        known = [r for r in rows.rows if r.get(self.column) is not None and r.get(self.other) is not None]
        if len(known) < 4:
            return Finding("", None, "nothing was measured, or too little for a correlation")
        sign = 1 if self.least > 0 else -1
        rho = self._rho(known)
        seeds = count_of(Table(known), self.column)
        if seeds is None:
            side: Literal["greater", "less"] = "greater" if self.least > 0 else "less"
            p = float(stats.spearmanr(*self._columns(known), alternative=side).pvalue)
            text = f"Spearman {rho:.2f} (p = {p:.2g}) over {len(known)} rows"
            if sign * rho < abs(self.least) - ROUNDING:
                return Finding(text, False)
            return Finding(text, True) if p <= 0.05 else Finding(text, None, "too few to tell from chance")
        estimate = self._jackknifed(known, rho)
        text = f"Spearman {self._shown(estimate)} over {len(known)} rows"
        return concluded(text, {"": seeds}, [reaches(estimate.times(sign), abs(self.least))])

    def _columns(self, rows: Sequence[Row]) -> tuple[list[float], list[float]]:
        return [float(r[self.column]) for r in rows], [float(r[self.other]) for r in rows]

    def _rho(self, rows: Sequence[Row]) -> float:
        one, other = self._columns(rows)
        constant = len(set(one)) == 1 or len(set(other)) == 1
        return 0.0 if constant else float(stats.spearmanr(one, other).statistic)

    def _jackknifed(self, rows: Sequence[Row], rho: float) -> Estimate:
        seeds = list(dict.fromkeys(r["seed"] for r in rows))
        without = np.array([self._rho([r for r in rows if r["seed"] != seed]) for seed in seeds])
        if len(seeds) < 2:
            return Estimate.point(rho)
        error = np.sqrt((len(seeds) - 1) * np.mean((without - without.mean()) ** 2))
        half = float(stats.t.ppf(0.975, len(seeds) - 1) * error)
        return Estimate(rho, max(rho - half, -1.0), min(rho + half, 1.0))

    def _good(self) -> list[Row]:
        sign = np.sign(self.least)
        return [{"seed": i % SEEDS, self.column: float(i), self.other: float(sign * i)} for i in range(4 * SEEDS)]

    def _bad(self) -> list[list[Row]]:
        return [[row | {self.other: -row[self.other]} for row in self._good()]]
