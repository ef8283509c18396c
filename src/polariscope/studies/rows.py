"""Rows with named columns: what the jobs of a study give and its criteria judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows with named columns: enough of a data frame for claims.

    >>> table = Table([{"beta": 1, "kl": 4.0}, {"beta": 1, "kl": 6.0}, {"beta": 2, "kl": 1.0}])
    >>> table.where(beta=1).mean("kl"), table.distinct("beta")
    (5.0, [1, 2])
    >>> [(beta, group.mean("kl")) for beta, group in table.by("beta")]
    [(1, 5.0), (2, 1.0)]
    """

    rows: list[Row]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, **conditions: Any) -> Table:
        """Rows whose columns have these values."""
        return Table([row for row in self.rows if all(row.get(k) == v for k, v in conditions.items())])

    def column(self, name: str) -> NDArray[Any]:
        """Values of a column, of the rows that have it."""
        return np.array([row[name] for row in self.rows if row.get(name) is not None])

    def mean(self, name: str) -> float:
        values = self.column(name)
        if not len(values):
            raise ValueError(f"no row has a {name}")
        return float(np.mean(values))

    def std(self, name: str) -> float:
        """Spread over the rows (n - 1); 0 for a single one."""
        values = self.column(name)
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    def distinct(self, name: str) -> list[Any]:
        return sorted({row[name] for row in self.rows if row.get(name) is not None})

    def by(self, name: str) -> Iterator[tuple[Any, Table]]:
        """Each value of a column with the rows that have it, in order of the values."""
        for value in self.distinct(name):
            yield value, self.where(**{name: value})


def plus_minus(values: NDArray[Any] | Sequence[float], digits: int = 2) -> str:
    """``mean ± sd (n)`` of some seeds.

    >>> plus_minus([1.0, 2.0, 3.0])
    '2.00 ± 1.00 (n=3)'
    """
    values = np.asarray(values, dtype=float)
    if len(values) == 1:
        return f"{values[0]:.{digits}f} (n=1)"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f} (n={len(values)})"


def difference(row: Row, first: str, second: str, sign: bool = True) -> float | None:
    """One column minus another, or how far apart they are; None where the row lacks one of them."""
    if row.get(first) is None or row.get(second) is None:
        return None
    gap = float(row[first]) - float(row[second])
    return gap if sign else abs(gap)


def duels(table: Table, column: str, first: str) -> Table:
    """One value of a column against each of the others: all its rows once for every ``rival``, told apart by ``side``.

    >>> rows = [{"model": "a", "x": 1}, {"model": "b", "x": 2}, {"model": "c", "x": 3}]
    >>> [(row["rival"], row["side"], row["x"]) for row in duels(Table(rows), "model", "a").rows]
    [('b', 'a', 1), ('b', 'rival', 2), ('c', 'a', 1), ('c', 'rival', 3)]
    """
    own = table.where(**{column: first}).rows
    rivals = [value for value in table.distinct(column) if value != first]
    return Table(
        [
            row | {"rival": rival, "side": side}
            for rival in rivals
            for side, rows in ((first, own), ("rival", table.where(**{column: rival}).rows))
            for row in rows
        ]
    )


def groups(table: Table, column: str, order: Iterable[Any]) -> Iterator[tuple[Any, Table]]:
    """Each value of a column with the rows that have it, in an order of one's own; a value without rows is left out."""
    own = dict(table.by(column))
    return ((value, own[value]) for value in order if value in own)


def paired(first: Table, second: Table, *keys: str) -> list[tuple[Row, Row]]:
    """Each row of one table with the row of another that has the same seed, and the same values of ``keys``.

    >>> rows = [{"seed": s, "model": m, "x": x} for s, m, x in ((0, "a", 5), (0, "b", 3), (1, "a", 4))]
    >>> [(a["x"], b["x"]) for a, b in paired(Table(rows).where(model="a"), Table(rows).where(model="b"))]
    [(5, 3)]
    """
    others = {tuple(row.get(key) for key in ("seed", *keys)): row for row in second.rows}
    pairs = ((row, others.get(tuple(row.get(key) for key in ("seed", *keys)))) for row in first.rows)
    return [(row, other) for row, other in pairs if other is not None]


def means(table: Table, columns: Mapping[str, str], digits: int = 2, times: float = 1) -> Row:
    """``mean ± sd (n)`` of columns by their headings, times a factor; a dash for a column that no row has.

    >>> means(Table([{"kl": 1.0}, {"kl": 3.0}]), {"KL": "kl", "MIG": "mig"}, 1)
    {'KL': '2.0 ± 1.4 (n=2)', 'MIG': '-'}
    """
    numbers = {heading: table.column(column) for heading, column in columns.items()}
    return {heading: plus_minus(times * own, digits) if len(own) else "-" for heading, own in numbers.items()}


def leads(first: Table, second: Table, column: str, called: str) -> list[Row]:
    """For each seed that two tables have: a column of the first less that of the second, under a name of its own.

    >>> rows = [{"seed": s, "model": m, "x": x} for s, m, x in ((0, "a", 5), (0, "b", 3), (1, "a", 4))]
    >>> leads(Table(rows).where(model="a"), Table(rows).where(model="b"), "x", "lead of a")
    [{'seed': 0, 'lead of a': 2}]
    """
    return [{"seed": one["seed"], called: one[column] - other[column]} for one, other in paired(first, second)]


def rank_correlations(table: Table, rows: Sequence[str], columns: Sequence[str]) -> NDArray[Any]:
    """Of each column of a table with each of others, over the rows that have both; 0 where one of two is constant."""

    def rank(first: str, second: str) -> float:
        both = Table([row for row in table.rows if row.get(first) is not None and row.get(second) is not None])
        one, other = both.column(first), both.column(second)
        return float(first == second) if np.ptp(one) == 0 or np.ptp(other) == 0 else spearmanr(one, other).statistic

    return np.array([[rank(first, second) for second in columns] for first in rows])
