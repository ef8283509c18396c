"""A condition on a table, what most conditions share, and several of them as one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polariscope.studies.criteria.cells import LISTED, Cell, Estimate, Of, Verdict, cell_of, shortage
from polariscope.studies.rows import Row, Table

Where = Mapping[str, Any]
CONFIDENTLY = "with 95 % confidence"


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
class ColumnCriterion(Criterion):
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
        findings = {value: self._one(group) for value, group in rows.by(self.each) if self._applies(group)}
        if not any(one.measured for one in findings.values()):
            return Finding("", None, "nothing was measured")
        held = [one.held for one in findings.values()]
        notes = dict.fromkeys(f"{value}: {one.note}" for value, one in findings.items() if one.note)
        shown = {value: one for value, one in findings.items() if len(findings) <= LISTED or not one.held}
        texts = [f"{plain(value)}: {one.measured or '-'}" for value, one in shown.items()]
        if len(shown) < len(findings):
            texts.append(f"{'all' if not shown else 'the other'} {len(findings) - len(shown)} hold")
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
        return ", ".join(f"{plain(value)}: {self._number(cell.mean)}" for value, cell in points.items())

    def _placed(self, estimate: Estimate, low: float, high: float, of: str = "") -> Verdict:
        """Whether an interval lies within a range; undecided, with the interval, where it lies across an end."""
        held = estimate.within(low, high)
        ends = " and ".join(self._number(end) for end in (low, high) if math.isfinite(end))
        return held, "" if held is not None else f"the interval{of} {self._interval(estimate)} lies across {ends}"


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
        findings = [part.judge(table) for part in self.parts]
        notes = dict.fromkeys(one.note for one in findings if one.note)
        pairs = zip(self.parts, findings, strict=True)
        alike = len({part.subject for part in self.parts}) == 1  # then the sentence has said it
        texts = [one.measured if alike else f"{part.subject} {one.measured}" for part, one in pairs if one.measured]
        return Finding("; ".join(texts), all_of([one.held for one in findings]), "; ".join(notes))

    def met(self) -> list[Row]:
        return [row for part in self.parts for row in part.met()]

    def missed(self) -> list[list[Row]]:
        """Each part's ways to fail, with all other parts met: any part alone can turn the whole."""
        return [
            [row for other in self.parts if other is not part for row in other.met()] + rows
            for part in self.parts
            for rows in part.missed()
        ]


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


def quantified(name: str, of: Of) -> str:
    return {"mean": name, "median": f"the median of {name}", "every": f"every {name}"}[of]


def listed(where: Where) -> str:
    def words(column: str, value: Any) -> str:
        noun = column.replace("_", " ")
        if isinstance(value, bool):
            return f"with {noun}" if value else f"without {noun}"
        return value if isinstance(value, str) else f"{noun} {plain(value)}"

    return ", ".join(words(column, value) for column, value in where.items())


def plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)


def sides(rows: Table, column: str, first: Where, second: Where) -> tuple[Cell, Cell]:
    """A column in each of two groups of rows."""
    return cell_of(rows.where(**first), column), cell_of(rows.where(**second), column)


def seeds_of_sides(first: Where, second: Where, cells: tuple[Cell, Cell]) -> dict[str, int | None]:
    """How many seeds each of two groups has, by its name."""
    return {listed(which): cell.seeds for which, cell in zip((first, second), cells, strict=True)}


def seeds_along(over: str, points: Mapping[Any, Cell]) -> dict[str, int | None]:
    """How many seeds each point of a curve has, by its name."""
    return {f"{over.replace('_', ' ')} {plain(value)}": cell.seeds for value, cell in points.items()}
