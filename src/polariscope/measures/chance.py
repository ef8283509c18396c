"""Chance levels and confidence intervals of measures.

Codes without information about the factors do not score 0: estimated mutual information is biased upwards, the gap
between two chance values is not 0, and some guesses are right. The chance level is the score after the rows of the
factors are permuted together. This keeps the distributions of codes and factors and removes the relation between them
(a permutation test; Fisher 1935). The confidence interval comes from random halves of the examples, drawn without
replacement: a score varies over such halves as much as over samples of the full size. Unlike a bootstrap sample, a half
repeats no example; repeated examples would add mutual information.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from polariscope.measures.information import FloatArray
from polariscope.measures.measure import Measure, Undefined
from polariscope.representation import Representation

LEVEL = 0.05
"""Probability that any of the numbers examined together exceeds chance by accident."""


@dataclass(frozen=True)
class Chance:
    """The chance level of a measure."""

    level: float
    """Mean over the permutations."""
    reach: float
    """Distance from the level that chance values rarely exceed."""
    permutations: int

    def holds(self, value: float, higher_is_better: bool | None = True) -> bool:
        """Whether ``value`` is within chance: not beyond the reach on the better side (None: on either side)."""
        above, below = value > self.level + self.reach, value < self.level - self.reach
        return not (above or below) if higher_is_better is None else not (above if higher_is_better else below)


def chance_of(permuted: Sequence[float], looks: int = 1) -> Chance | None:
    """The chance level from values with permuted factors; None if there are fewer than two.

    The reach is the one-sided prediction bound of one more value, t √(1 + 1/m) s, with the standard deviation s of the
    m permuted values. Fewer permutations give a wider reach. ``LEVEL`` holds for all ``looks`` numbers together
    (Bonferroni).

    >>> chance = chance_of([0.1, 0.2, 0.3], looks=5)
    >>> round(chance.level, 6), chance.holds(0.5), chance.holds(2.0)
    (0.2, True, False)
    """
    if len(permuted) < 2:
        return None
    level, reach = chance_of_each(np.asarray(permuted, dtype=np.float64), looks)
    return Chance(float(level), float(reach), len(permuted))


def chance_of_each(permuted: FloatArray, looks: int, level: float = LEVEL) -> tuple[FloatArray, FloatArray]:
    """Level and reach (see :func:`chance_of`) of each entry of a table, from one table for each permutation."""
    count = len(permuted)
    quantile = float(student.ppf(1 - level / looks, count - 1)) * np.sqrt(1 + 1 / count)
    # Equal values differ by rounding where the same sums are added up in another order.
    reach = np.maximum(quantile * permuted.std(axis=0, ddof=1), 1e-12)
    return np.asarray(permuted.mean(axis=0)), np.asarray(reach)


def interval_of_halves(
    value: float, repeated: Sequence[float], low: float = 0.0, high: float = 1.0
) -> tuple[float, float] | None:
    """A 95 % interval around ``value`` from its values on random halves, clipped to its range; None if there are fewer
    than two halves.

    >>> low, high = interval_of_halves(0.5, [0.4, 0.5, 0.6])
    >>> round(low, 4), round(high, 4), interval_of_halves(0.5, [0.5])
    (0.0697, 0.9303, None)
    """
    if len(repeated) < 2:
        return None
    reach = float(student.ppf(0.975, len(repeated) - 1) * np.std(repeated, ddof=1))
    return max(value - reach, low), min(value + reach, high)


@dataclass(frozen=True, eq=False)
class Trials:
    """Copies of a representation with permuted factors, and random halves of it. All measures use the same ones."""

    permuted: Sequence[Representation]
    halves: Sequence[Representation]

    @classmethod
    def of(cls, representation: Representation, permutations: int, halves: int, seed: int = 0) -> Trials:
        """Draw the trials. Halves in which fewer factors vary are skipped: their scores would not be comparable."""
        rep, rng = representation, np.random.default_rng(seed)
        permuted = []
        if rep.factors is not None:
            orders = [rng.permutation(rep.count) for _ in range(permutations)]
            permuted = [replace(rep, factors=rep.factors[order]) for order in orders]
        drawn = [rng.permutation(rep.count)[: rep.count // 2] for _ in range(halves)] if rep.count >= 4 else []
        parts = [_part(rep, rows) for rows in drawn]
        return cls(permuted, [part for part in parts if _varying(part) == _varying(rep)])

    def interval(self, measure: Measure, value: float) -> tuple[float, float] | None:
        """The confidence interval of a measure's value on the whole representation."""
        repeated = _values(measure.quick(), self.halves[: measure.halves])
        return interval_of_halves(value, repeated, measure.low, measure.high)

    def chance(self, measure: Measure, looks: int = 1) -> Chance | None:
        """The chance level of a measure; None if the measure needs no factors."""
        if "factors" not in measure.needs:
            return None
        return chance_of(_values(measure.quick(), self.permuted[: measure.permutations]), looks)


def _values(measure: Measure, representations: Sequence[Representation]) -> list[float]:
    """The values of the representations on which the measure is defined; on a small one it may not be."""
    values = []
    for representation in representations:
        try:
            values.append(measure.value(representation))
        except Undefined:
            continue
    return values


def _part(representation: Representation, rows: NDArray[np.int64]) -> Representation:
    rep = representation

    def some(array: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if array is None else array[rows]

    return Representation(
        rep.mean[rows],
        some(rep.var),
        some(rep.sample),
        some(rep.factors),
        rep.factor_info,
        prior_mean=some(rep.prior_mean),
        prior_var=some(rep.prior_var),
    )


def _varying(representation: Representation) -> int:
    factors = representation.factors
    return 0 if factors is None else int((factors != factors[0]).any(axis=0).sum())
