"""Criteria: what a table must show for a published finding to have come out, as data.

A criterion names columns of a table, says in a sentence what it asks of them, and judges a table: so no verdict can
disagree with its words. It can also make a small table that meets it and one for each way to fail, from which the
contract kit sees that every claim of a study can come out both ways.

**Seeds.** A *cell* is what a criterion compares: the rows of a model, of a point on a curve. Its rows are averaged over
each ``seed`` first. With fewer than five seeds in any cell nothing is decided, and the note says how many each has.
Only rows that have no seed are exact (closed forms, kernels in the limit), and their numbers decide. A number made of
all seeds together, such as a p-value or a range, says of how many in ``of_seeds``.

**Intervals** are 95 % intervals over the seeds: Student's for a mean, Welch's for a difference of groups that do not
have the same seeds, order statistics for a median (of five seeds the smallest and the largest, which are 94 %).

- A *bound* (``AtLeast``, ``AtMost``, ``Between``): held if the interval lies within it, not held if it lies wholly
  outside, undecided across it. Asked of *every* number, the worst one decides.
- An *equality* (``Near``, ``Alike``, ``Flat``, ``PowerLaw``): the same of the difference and the margin, so that much
  scatter is no agreement.
- An *effect* (``Beats``, ``Rises``, ``Peaks``, ``Correlates``): the mean effect has to reach a least size, else it is
  not held; and its interval has to lie above zero, else it is undecided. The sentence says both.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from polariscope.studies.rows import Row, Table

Of = Literal["mean", "median", "every"]
Values = NDArray[np.float64]
Where = Mapping[str, Any]
LISTED = 4
"""Groups up to which the figures of all are listed; of more, of those that do not hold."""
SEEDS = 5
"""Seeds that every cell needs for a verdict, and that the tables have which criteria make up."""
CONFIDENTLY = "with 95 % confidence"
ROUNDING = 1e-12
"""Share of a bound by which floating point may miss it."""


@dataclass(frozen=True)
class Finding:
    """What a criterion found: the figures in words, and whether they meet it; None where they do not decide."""

    measured: str
    held: bool | None
    note: str = ""


class Criterion(ABC):
    """A condition on a table that says itself in a sentence."""

    @property
    def subject(self) -> str:
        """What the figures are called among those of other criteria."""
        return ""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """What is asked, in words."""

    @abstractmethod
    def judge(self, table: Table) -> Finding:
        """What the table says."""

    @abstractmethod
    def met(self) -> list[Row]:
        """Rows that meet the criterion."""

    @abstractmethod
    def missed(self) -> list[list[Row]]:
        """Rows that do not, once for each way to fail."""


@dataclass(frozen=True, kw_only=True)
class _Of(Criterion):
    """What most criteria share: which rows they look at, and what the numbers are called."""

    where: Where = field(default_factory=dict)
    """Values that rows must have in other columns."""
    each: str = ""
    """A column: the criterion has to be met by the rows of each of its values."""
    called: str = ""
    """What the numbers are, in words; the column's name if not given."""
    digits: int = 2
    """Decimals to show."""

    @property
    def subject(self) -> str:
        return self.called or self._column.replace("_", " ")

    @property
    def _column(self) -> str:
        return str(getattr(self, "column", ""))

    @property
    def _scope(self) -> str:
        of = ", ".join(str(value) for value in self.where.values() if isinstance(value, str))
        return (f" ({of})" if of else "") + (f", for each {self.each.replace('_', ' ')}" if self.each else "")

    def judge(self, table: Table) -> Finding:
        rows = table.where(**self.where)
        if not self.each:
            return self._one(rows)
        # Skip groups without this column; one in which a side is missing is not decided.
        found = {value: self._one(group) for value, group in rows.by(self.each) if self._applies(group)}
        if not any(one.measured for one in found.values()):
            return Finding("", None, "nothing was measured")
        held = [one.held for one in found.values()]
        notes = dict.fromkeys(f"{value}: {one.note}" for value, one in found.items() if one.note)
        shown = {value: one for value, one in found.items() if len(found) <= LISTED or not one.held}
        texts = [f"{_plain(value)}: {one.measured or '-'}" for value, one in shown.items()]
        texts += (
            [f"{'all' if not shown else 'the other'} {len(found) - len(shown)} hold"] if len(shown) < len(found) else []
        )
        return Finding("; ".join(texts), all_of(held), "; ".join(notes))

    def _applies(self, rows: Table) -> bool:
        """Whether anything is asked of these rows."""
        return len(rows.column(self._column)) > 0

    @abstractmethod
    def _one(self, rows: Table) -> Finding:
        """The judgement of one group; nothing measured where the rows lack the column."""

    @abstractmethod
    def _good(self) -> list[Row]: ...

    @abstractmethod
    def _bad(self) -> list[list[Row]]: ...

    def met(self) -> list[Row]:
        return self._grouped(self._good(), self._good())

    def missed(self) -> list[list[Row]]:
        return [self._grouped(self._good(), rows) for rows in self._bad()]

    def _grouped(self, first: list[Row], second: list[Row]) -> list[Row]:
        """One group, or two where the criterion is for each of several: then the second is the one that differs."""
        rows = (
            [row | {self.each: 1} for row in first] + [row | {self.each: 2} for row in second] if self.each else second
        )
        return [dict(self.where) | row for row in rows]

    def _number(self, value: float) -> str:
        return (
            f"{value:.{self.digits}f}"
            if abs(value) < 1e5 and (not value or abs(value) >= 10.0**-self.digits / 2)
            else f"{value:.2g}"
        )

    def _shown(self, estimate: Estimate) -> str:
        middle = self._number(estimate.middle)
        return middle if estimate.is_point else f"{middle} {self._interval(estimate)}"

    def _interval(self, estimate: Estimate) -> str:
        return f"[{self._number(estimate.low)}, {self._number(estimate.high)}]"

    def _along(self, points: Mapping[Any, Cell]) -> str:
        return ", ".join(f"{_plain(value)}: {self._number(cell.mean)}" for value, cell in points.items())

    def _placed(self, estimate: Estimate, low: float, high: float, of: str = "") -> Verdict:
        """Whether an interval lies within a range; undecided, with the interval, where it lies across an end."""
        held = estimate.within(low, high)
        ends = " and ".join(self._number(end) for end in (low, high) if math.isfinite(end))
        return held, "" if held is not None else f"the interval{of} {self._interval(estimate)} lies across {ends}"


@dataclass(frozen=True)
class AtLeast(_Of):
    """A number is at least a bound: its mean, its median, or every single one.

    >>> AtLeast("score", 0.8, of="every").judge(Table([{"score": 0.9}, {"score": 0.7}]))
    Finding(measured='smallest 0.70 of 2', held=False, note='')
    """

    column: str
    bound: float
    of: Of = "mean"

    @property
    def sentence(self) -> str:
        return f"{_quantified(self.subject, self.of)} is at least {self.bound:g}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        return _bounded(self, rows, self.bound, math.inf)

    def _good(self) -> list[Row]:
        return seeded(self.column, self.bound + _size(self.bound))

    def _bad(self) -> list[list[Row]]:
        return [seeded(self.column, self.bound - _size(self.bound))]


@dataclass(frozen=True)
class AtMost(_Of):
    """A number is at most a bound: its mean, its median, or every single one."""

    column: str
    bound: float
    of: Of = "mean"

    @property
    def sentence(self) -> str:
        return f"{_quantified(self.subject, self.of)} is at most {self.bound:g}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        return _bounded(self, rows, -math.inf, self.bound)

    def _good(self) -> list[Row]:
        return seeded(self.column, self.bound - _size(self.bound))

    def _bad(self) -> list[list[Row]]:
        return [seeded(self.column, self.bound + _size(self.bound))]


@dataclass(frozen=True)
class Between(_Of):
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
        return f"{_quantified(self.subject, self.of)} lies between {self.low:g} and {self.high:g}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        return _bounded(self, rows, self.low, self.high)

    def _good(self) -> list[Row]:
        return seeded(self.column, (self.low + self.high) / 2, spread=(self.high - self.low) / 100)

    def _bad(self) -> list[list[Row]]:
        width = self.high - self.low
        return [seeded(self.column, value, spread=width / 100) for value in (self.low - width, self.high + width)]


@dataclass(frozen=True)
class Near(_Of):
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
        return f"{_quantified(self.subject, self.of)} is within {by} of {to}{self._scope}"

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
            size = (abs(expected) if self.relative else 1.0) or 1.0
            low, high = expected - self.by * size, expected + self.by * size
            if self.of == "every":
                values = Table(own).column(self.column).astype(float)
                errors.append(float(np.abs(values - expected).max()) / size)
                verdicts.append((all(Estimate.point(value).within(low, high) for value in values), ""))
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
class Beats(_Of):
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
        return f"{self.subject}: {_said(self.first)} is {how} {_said(self.second)}{by}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        cells = sides(self, rows)
        if not all(cell.values for cell in cells):
            return Finding("", None, "nothing was measured")
        first, second = cells
        sign = 1 if self.higher else -1
        scale = (abs(second.mean) if self.relative else 1.0) or 1.0
        text = " against ".join(self._shown(cell.estimate()) for cell in cells)
        return concluded(text, counts_of(self, cells), [reaches(effect_of(first, second).times(sign / scale), self.by)])

    def _good(self) -> list[Row]:
        return self._apart(1)

    def _bad(self) -> list[list[Row]]:
        return [self._apart(0), self._apart(-1)]

    def _apart(self, times: int) -> list[Row]:
        step = 2 * max(self.by * (10 if self.relative else 1), 0.01) * (1 if self.higher else -1)
        return sided(self.column, self.first, self.second, (10 + times * step, 10.0), spread=abs(step) / 100)


@dataclass(frozen=True)
class Alike(_Of):
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
        return f"{self.subject}: {_said(self.first)} and {_said(self.second)} differ by at most {by}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        cells = sides(self, rows)
        if not all(cell.values for cell in cells):
            return Finding("", None, "nothing was measured")
        first, second = cells
        scale = (abs(second.mean) if self.relative else 1.0) or 1.0
        text = " and ".join(self._shown(cell.estimate()) for cell in cells)
        verdict = self._placed(effect_of(first, second).times(1 / scale), -self.by, self.by, " of the difference")
        return concluded(text, counts_of(self, cells), [verdict])

    def _good(self) -> list[Row]:
        return self._apart(0)

    def _bad(self) -> list[list[Row]]:
        return [self._apart(2), self._apart(-2)]

    def _apart(self, times: float) -> list[Row]:
        step = times * self.by * (10 if self.relative else 1)
        return sided(self.column, self.first, self.second, (10 + step, 10.0), spread=self.by / 100)


@dataclass(frozen=True)
class Rises(_Of):
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
        return concluded(f"{self._along(points)}; by {self._shown(effect)}", seeds_along(self, compared), verdicts)

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
class Flat(_Of):
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
                f" of the difference of {_plain(one)} and {_plain(two)}",
            )
            for (one, a), (two, b) in pairs
        ]
        return concluded(self._along(points), seeds_along(self, points), verdicts)

    def _good(self) -> list[Row]:
        return self._curve(0.0)

    def _bad(self) -> list[list[Row]]:
        return [self._curve(2.0)]

    def _curve(self, times: float) -> list[Row]:
        step = times * self.by * (10 if self.relative else 1)
        return along(self.column, self.over, (10.0, 10 + step, 10.0), spread=self.by / 100)


@dataclass(frozen=True)
class Peaks(_Of):
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
        return concluded(self._along(points), seeds_along(self, points), verdicts)

    def _good(self) -> list[Row]:
        return self._curve((0, 1, 0))

    def _bad(self) -> list[list[Row]]:
        return [self._curve((0, 1, 2)), self._curve((2, 1, 0))]

    def _curve(self, heights: Sequence[int]) -> list[Row]:
        step = 2 * max(self.by, 0.1) * (1 if self.highest else -1)
        return along(self.column, self.over, [10 + step * height for height in heights], spread=abs(step) / 100)


@dataclass(frozen=True)
class Correlates(_Of):
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


@dataclass(frozen=True)
class PowerLaw(_Of):
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
        text = f"{self._shown(slopes)} from {_plain(sizes[0])} to {_plain(sizes[-1])}{of}"
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


@dataclass(frozen=True)
class All(Criterion):
    """Several criteria, every one of which has to be met: a finding that says more than one thing."""

    parts: tuple[Criterion, ...]

    def __init__(self, *parts: Criterion) -> None:
        object.__setattr__(self, "parts", parts)

    @property
    def sentence(self) -> str:
        return "; and ".join(part.sentence for part in self.parts)

    def judge(self, table: Table) -> Finding:
        found = [part.judge(table) for part in self.parts]
        notes = dict.fromkeys(one.note for one in found if one.note)
        pairs = zip(self.parts, found, strict=True)
        alike = len({part.subject for part in self.parts}) == 1  # then the sentence has said it
        texts = [one.measured if alike else f"{part.subject} {one.measured}" for part, one in pairs if one.measured]
        return Finding("; ".join(texts), all_of([one.held for one in found]), "; ".join(notes))

    def met(self) -> list[Row]:
        return [row for part in self.parts for row in part.met()]

    def missed(self) -> list[list[Row]]:
        """Each part's ways to fail, with all other parts met: any part alone can turn the whole."""
        return [
            [row for other in self.parts if other is not part for row in other.met()] + rows
            for part in self.parts
            for rows in part.missed()
        ]


# --- what criteria are made of -------------------------------------------------------------------------------------

Verdict = tuple[bool | None, str]
"""Whether something holds, and what to note about it."""


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


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """One that failed decides; one that is undecided leaves the rest undecided."""
    return False if False in verdicts else None if None in verdicts else True


def concluded(measured: str, counts: Mapping[str, int | None], verdicts: Sequence[Verdict]) -> Finding:
    """The finding of several verdicts that all have to hold, if every cell has seeds enough."""
    short = shortage(counts)
    if short:
        return Finding(measured, None, short)
    held = all_of([verdict for verdict, _ in verdicts])
    # What is undecided does not matter beside what failed.
    notes = list(dict.fromkeys(note for verdict, note in verdicts if note and verdict is held))
    more = [f"and {len(notes) - 1} more like it"] if len(notes) > LISTED else []
    return Finding(measured, held, "; ".join(notes[:1] + more if more else notes))


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


def sides(criterion: Beats | Alike, rows: Table) -> tuple[Cell, Cell]:
    first, second = (cell_of(rows.where(**which), criterion.column) for which in (criterion.first, criterion.second))
    return first, second


def counts_of(criterion: Beats | Alike, cells: tuple[Cell, Cell]) -> dict[str, int | None]:
    names = (_said(which) for which in (criterion.first, criterion.second))
    return {name: cell.seeds for name, cell in zip(names, cells, strict=True)}


def curve_of(rows: Table, over: str, column: str) -> dict[Any, Cell]:
    """A column at each value of another."""
    points = {value: cell_of(group, column) for value, group in rows.by(over)}
    return {value: cell for value, cell in points.items() if cell.values}


def seeds_along(criterion: Rises | Flat | Peaks, points: Mapping[Any, Cell]) -> dict[str, int | None]:
    over = criterion.over.replace("_", " ")
    return {f"{over} {_plain(value)}": cell.seeds for value, cell in points.items()}


def effect_of(first: Cell, second: Cell) -> Estimate:
    """First minus second: seed by seed if both have the same ones, else of the means, as Welch compares them."""
    if first.values.keys() == second.values.keys():
        return estimate_of(np.array([first.values[seed] - second.values[seed] for seed in first.values]))
    groups = [np.array(list(cell.values.values())) for cell in (first, second)]
    mean = float(groups[0].mean() - groups[1].mean())
    errors = [float(own.var(ddof=1)) / len(own) if len(own) > 1 else 0.0 for own in groups]
    if not sum(errors):
        return Estimate.point(mean)
    freedom = sum(errors) ** 2 / sum(e**2 / (len(own) - 1) for e, own in zip(errors, groups, strict=True) if e)
    half = float(stats.t.ppf(0.975, freedom) * np.sqrt(sum(errors)))
    return Estimate(mean, mean - half, mean + half)


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


def seeded(column: str, level: float, spread: float = 1e-3) -> list[Row]:
    """Rows of a few seeds around a level."""
    return [{"seed": seed, column: level + spread * (seed - SEEDS // 2) / SEEDS} for seed in range(SEEDS)]


def along(column: str, over: str, levels: Sequence[float], spread: float) -> list[Row]:
    """Such rows at each of several levels, numbered along another column."""
    return [row | {over: number} for number, level in enumerate(levels) for row in seeded(column, level, spread)]


def sided(column: str, first: Where, second: Where, levels: tuple[float, float], spread: float) -> list[Row]:
    """Such rows of two groups."""
    groups = zip((first, second), levels, strict=True)
    return [row | dict(which) for which, level in groups for row in seeded(column, level, spread)]


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


def _quantified(name: str, of: Of) -> str:
    return {"mean": name, "median": f"the median of {name}", "every": f"every {name}"}[of]


def _said(where: Where) -> str:
    return ", ".join(str(v) if isinstance(v, str) else f"{k.replace('_', ' ')} {_plain(v)}" for k, v in where.items())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)


def _size(bound: float) -> float:
    return max(abs(bound) / 2, 0.1)
