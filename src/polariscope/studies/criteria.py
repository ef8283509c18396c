"""Criteria: what a table must show for a published finding to have come out, as data.

A criterion names columns of a table, says in a sentence what it asks of them, and judges a table: so no verdict can
disagree with its words. It can also make a small table that meets it and one for each way to fail, from which the
contract kit sees that every claim of a study can come out both ways.

Rows are averaged over each ``seed`` first. Where a criterion speaks of an *effect* (one thing beats another, a curve
rises) the mean effect over the seeds has to reach a least size, and its 95 % interval has to leave out zero: an effect
of that size whose interval holds zero is undecided. Where it speaks of a *bound*, the mean decides and the interval is
shown. A table without seeds is exact, and its numbers decide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
"""Seeds of the tables that criteria make up."""


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
        # Groups of which nothing is asked are left out; one in which a side is missing is not decided.
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

    def _shown(self, values: Values) -> str:
        if len(values) == 1:
            return self._number(values[0])
        low, high = interval_of(values)
        return f"{self._number(values.mean())} [{self._number(low)}, {self._number(high)}]"

    def _along(self, points: Mapping[Any, Any], means: Values) -> str:
        return ", ".join(f"{_plain(value)}: {self._number(mean)}" for value, mean in zip(points, means, strict=True))


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
        return _bounded(self, rows, self.column, self.of, lambda value: value >= self.bound, "smallest", np.min)

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
        return _bounded(self, rows, self.column, self.of, lambda value: value <= self.bound, "largest", np.max)

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
        def inside(value: float) -> bool:
            return self.low <= value <= self.high

        middle = (self.low + self.high) / 2
        return _bounded(self, rows, self.column, self.of, inside, "farthest", lambda v: v[np.abs(v - middle).argmax()])

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
        errors, texts = [], []
        for expected, own in groups.items():
            values = (
                Table(own).column(self.column).astype(float) if self.of == "every" else by_seed(Table(own), self.column)
            )
            found = values if self.of == "every" else np.array([_AVERAGE[self.of](values)])
            size = abs(expected) if self.relative else 1.0
            errors.append(float(np.abs(found - expected).max()) / (size or 1.0))
            texts.append(f"{self._shown(values)} for {self._number(expected)}")
        worst = f"largest error {100 * max(errors):.2g} %" if self.relative else f"largest error {max(errors):.2g}"
        shown = "; ".join(texts) + (f"; {worst}" if len(texts) > 1 or self.of == "every" else "")
        return Finding(shown if len(texts) <= 8 else f"{worst} over {len(known)} rows", max(errors) <= self.by)

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
        by = f" by at least {size}" if self.by else ""
        return (
            f"{self.subject}: {_said(self.first)} is {'above' if self.higher else 'below'} {_said(self.second)}{by}"
            f"{self._scope}"
        )

    def _one(self, rows: Table) -> Finding:
        groups = [rows.where(**self.first), rows.where(**self.second)]
        values = [by_seed(group, self.column) for group in groups]
        if not all(map(len, values)):
            return Finding("", None, "nothing was measured")
        effect = effect_of(*(seeds_of(group, self.column) for group in groups))
        sign = 1 if self.higher else -1
        scale = abs(float(values[1].mean())) if self.relative else 1.0
        text = " against ".join(self._shown(one) for one in values)
        return Finding(text, *reaches(sign * effect / (scale or 1.0), self.by))

    def _good(self) -> list[Row]:
        return self._apart(1)

    def _bad(self) -> list[list[Row]]:
        return [self._apart(0), self._apart(-1)]

    def _apart(self, times: int) -> list[Row]:
        step = 2 * max(self.by * (10 if self.relative else 1), 0.01) * (1 if self.higher else -1)
        return sided(self.column, self.first, self.second, (10 + times * step, 10.0), spread=abs(step) / 100)


@dataclass(frozen=True)
class Alike(_Of):
    """Two groups of rows have the same mean up to ``by`` (a share of the second's, if ``relative``)."""

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
        values = [by_seed(rows.where(**which), self.column) for which in (self.first, self.second)]
        if not all(map(len, values)):
            return Finding("", None, "nothing was measured")
        scale = abs(float(values[1].mean())) if self.relative else 1.0
        difference = abs(values[0].mean() - values[1].mean()) / (scale or 1.0)
        return Finding(" and ".join(self._shown(one) for one in values), bool(difference <= self.by))

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
        by = f" by at least {self.by:g}" if self.by else ""
        steps = (
            "" if self.slack is None else f", no step going back{f' by more than {self.slack:g}' if self.slack else ''}"
        )
        return f"{self.subject} {verb} over {self.over.replace('_', ' ')}{by} from end to end{steps}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        points, means = curve_of(rows, self.over, self.column)
        if len(points) < 2:
            return Finding("", None, "nothing was measured")
        sign = -1 if self.falls else 1
        first, *_, last = points.values()
        effect = effect_of(last, first)
        held, note = reaches(sign * effect, self.by)
        if self.slack is not None and (np.diff(sign * means) < -self.slack).any():
            held, note = False, "a step goes back"
        return Finding(f"{self._along(points, means)}; by {self._shown(effect)}", held, note)

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
    """Means hardly differ along a column: the largest exceeds the smallest by at most ``by``.

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
        points, means = curve_of(rows, self.over, self.column)
        if len(points) < 2:
            return Finding("", None, "nothing was measured")
        scale = abs(means.min()) if self.relative else 1.0
        return Finding(self._along(points, means), bool(np.ptp(means) / (scale or 1.0) <= self.by))

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
        by = f", {self.by:g} or more beyond both" if self.by else ""
        what = "largest" if self.highest else "smallest"
        return f"{self.subject} is {what} at neither end of {self.over.replace('_', ' ')}{by}{self._scope}"

    def _one(self, rows: Table) -> Finding:
        points, means = curve_of(rows, self.over, self.column)
        if len(points) < 3:
            return Finding("", None, "nothing was measured between two ends")
        sign = 1 if self.highest else -1
        seeds = list(points.values())
        best = seeds[1 + int(np.argmax(sign * means[1:-1]))]
        verdicts = [reaches(sign * effect_of(best, end), self.by) for end in (seeds[0], seeds[-1])]
        notes = dict.fromkeys(note for _, note in verdicts if note)
        return Finding(self._along(points, means), all_of([held for held, _ in verdicts]), "; ".join(notes))

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

    Spearman's rank correlation has to reach ``least`` with a one-sided p below 0.05.
    """

    column: str
    other: str
    least: float

    @property
    def sentence(self) -> str:
        how = "at least" if self.least > 0 else "at most"
        return (
            f"the rank correlation of {self.subject} and {self.other.replace('_', ' ')} is {how} {self.least:g}, "
            f"beyond chance{self._scope}"
        )

    def _one(self, rows: Table) -> Finding:
        known = [r for r in rows.rows if r.get(self.column) is not None and r.get(self.other) is not None]
        if len(known) < 4:
            return Finding("", None, "nothing was measured, or too little for a correlation")
        side: Literal["greater", "less"] = "greater" if self.least > 0 else "less"
        found = stats.spearmanr([r[self.column] for r in known], [r[self.other] for r in known], alternative=side)
        rho, p = float(found.statistic), float(found.pvalue)
        text = f"Spearman {rho:.2f} (p = {p:.2g}) over {len(known)} rows"
        strong = rho * np.sign(self.least) >= abs(self.least)
        if strong and p > 0.05:
            return Finding(text, None, "too few to tell from chance")
        return Finding(text, bool(strong))

    def _good(self) -> list[Row]:
        sign = np.sign(self.least)
        return [{self.column: float(i), self.other: float(sign * i)} for i in range(12)]

    def _bad(self) -> list[list[Row]]:
        return [[row | {self.other: -row[self.other]} for row in self._good()]]


@dataclass(frozen=True)
class PowerLaw(_Of):
    """A column falls or grows as a power of another: the exponent is the predicted one, and not a rival's.

    The 95 % interval of the exponent over the seeds has to hold the prediction, or to lie within ``by`` of it without
    being nearer to the rival; where it holds both, nothing is decided. Fewer than five seeds or three sizes decide
    nothing either.
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
        return (
            f"{self.subject} goes as {self.over.replace('_', ' ')} to the power of {self.exponent:.3f} "
            f"(up to {self.by:g}), not of {self.rival:.3f}{self._scope}"
        )

    def _one(self, rows: Table) -> Finding:
        points, _ = curve_of(rows, self.over, self.column)
        if sum(size >= self.smallest for size in points) >= 3:
            points = {size: own for size, own in points.items() if size >= self.smallest}
        sizes = list(points)
        seeds = sorted(set.intersection(*map(set, points.values()))) if points else []
        if len(sizes) < 2 or not seeds or min(min(own.values()) for own in points.values()) <= 0:
            return Finding("", None, "nothing was measured, or an exponent needs two sizes and values above zero")
        curves = np.log([[own[seed] for seed in seeds] for own in points.values()])
        slopes = np.polyfit(np.log(np.asarray(sizes, float)), curves, 1)[0]
        text = f"{self._shown(slopes)} from {_plain(sizes[0])} to {_plain(sizes[-1])}, {len(seeds)} seeds"
        if len(seeds) < 5 or len(sizes) < 3:
            return Finding(text, None, f"{len(seeds)} seeds of {len(sizes)} sizes are too few for an exponent")
        low, high = interval_of(slopes)
        if low <= self.exponent <= high and low <= self.rival <= high:
            return Finding(text, None, f"the interval holds {self.rival:.3f} as well")
        mean = float(slopes.mean())
        near = abs(mean - self.exponent) <= self.by and abs(mean - self.exponent) < abs(mean - self.rival)
        return Finding(text, bool(low <= self.exponent <= high or near))

    def _good(self) -> list[Row]:
        return self._law(self.exponent)

    def _bad(self) -> list[list[Row]]:
        return [self._law(self.rival)]

    def _law(self, exponent: float) -> list[Row]:
        start = max(self.smallest, 10.0)
        return [
            {"seed": seed, self.over: start * size, self.column: float((start * size) ** (exponent + 1e-4 * seed))}
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

_AVERAGE: dict[str, Callable[[Values], Any]] = {"mean": np.mean, "median": np.median}


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """One that failed decides; one that is undecided leaves the rest undecided."""
    return False if False in verdicts else None if None in verdicts else True


def seeds_of(rows: Table, column: str) -> dict[Any, float]:
    """The mean of a column for each seed; a table without seeds is one seed's."""
    values: dict[Any, list[float]] = {}
    for row in rows.rows:
        if row.get(column) is not None:
            values.setdefault(row.get("seed"), []).append(float(row[column]))
    return {seed: float(np.mean(own)) for seed, own in values.items()}


def by_seed(rows: Table, column: str) -> Values:
    return np.array(list(seeds_of(rows, column).values()))


def curve_of(rows: Table, over: str, column: str) -> tuple[dict[Any, dict[Any, float]], Values]:
    """The seeds of a column at each value of another, and their means."""
    points = {value: own for value, group in rows.by(over) if (own := seeds_of(group, column))}
    return points, np.array([np.mean(list(own.values())) for own in points.values()])


def effect_of(first: Mapping[Any, float], second: Mapping[Any, float]) -> Values:
    """First minus second: for each seed both have, else the difference of the means shifted by each seed's own."""
    shared = [seed for seed in first if seed in second]
    if shared and len(shared) == max(len(first), len(second)):
        return np.array([first[seed] - second[seed] for seed in shared])
    one, other = (np.array(list(values.values())) for values in (first, second))
    # Unpaired: numbers whose mean is the difference and whose standard error is that of Welch's comparison.
    count = max(len(one), len(other))
    errors = [values.var(ddof=1) / len(values) if len(values) > 1 else 0.0 for values in (one, other)]
    spread = np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
    unit = spread / spread.std(ddof=1) if count > 1 else spread
    return np.asarray(one.mean() - other.mean() + unit * np.sqrt(sum(errors) * count))


def interval_of(values: Values) -> tuple[float, float]:
    """The 95 % interval of a mean, by Student's t."""
    if len(values) < 2:
        return float(values.mean()), float(values.mean())
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return float(values.mean()) - half, float(values.mean()) + half


def reaches(effect: Values, least: float) -> tuple[bool | None, str]:
    """Whether an effect is there and large enough; undecided where its interval holds zero."""
    mean = float(effect.mean())
    if mean <= 0 or mean < least:
        return False, "" if mean <= 0 or not least else f"the effect is {mean:.2g}, of at least {least:g}"
    low, _ = interval_of(effect)
    return (True, "") if low > 0 else (None, f"over {len(effect)} seeds the interval of the effect holds zero")


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


def _bounded(criterion: Any, rows: Table, column: str, of: Of, passes: Any, extreme: str, worst: Any) -> Finding:
    if not len(rows.column(column)):
        return Finding("", None, "nothing was measured")
    if of == "every":
        values = rows.column(column).astype(float)
        most = float(worst(values))
        return Finding(f"{extreme} {criterion._number(most)} of {len(values)}", bool(passes(most)))
    values = by_seed(rows, column)
    if of == "median":
        middle = float(np.median(rows.column(column).astype(float)))
        return Finding(f"median {criterion._number(middle)}", bool(passes(middle)))
    return Finding(criterion._shown(values), bool(passes(float(values.mean()))))


def _quantified(name: str, of: Of) -> str:
    return {"mean": name, "median": f"the median of {name}", "every": f"every {name}"}[of]


def _said(where: Where) -> str:
    return ", ".join(str(v) if isinstance(v, str) else f"{k.replace('_', ' ')} {_plain(v)}" for k, v in where.items())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)


def _size(bound: float) -> float:
    return max(abs(bound) / 2, 0.1)
