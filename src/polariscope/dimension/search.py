"""Searches for the largest number of latents (or strength β) at which a statistic stays below its threshold.

A search does not depend on models: it calls ``statistic(n)``, which may take minutes of training, so every value is
computed once and the path is stored. Spec 002, sections 12.2 to 12.6; Bonheme 2023, section 8.3 and appendix D.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step of a search: the statistic at ``n``, and the bounds before it."""

    n: int
    value: float
    lower: int
    upper: float
    """The least n known to exceed the threshold; infinite as long as none is known."""


@dataclass(frozen=True)
class Search:
    """The result of a search, with its steps."""

    answer: int
    """The largest n whose statistic is at most the threshold; 0 if there is none."""
    visited: tuple[int, ...]
    """The n that were evaluated, in order: each costs a training."""
    log: tuple[Step, ...]
    """All evaluations, including repeated ones."""
    threshold: float
    capped: bool
    """The search ended at its limit, so the true answer may be larger."""


def fondue(statistic: Callable[[int], float], start: int, threshold: float = 1.0, cap: int = 1024) -> Search:
    """FONDUE (algorithm 1): double n while the statistic is at most the threshold, then bisect.

    ``start`` is usually the intrinsic dimension of the data; it changes the cost, not the answer. The answer is exact
    for a statistic that grows with n. For any other statistic the search still ends, at an n that passes beside one
    that does not. With a start of 0 the answer is 0, as in the published loop.

    >>> search = fondue(lambda n: n - 19 + 0.5, start=4)
    >>> search.answer, search.visited
    (19, (4, 8, 16, 32, 24, 20, 18, 19))
    """
    n, cap = operator.index(start), operator.index(cap)
    if not 0 <= n <= cap:
        raise ValueError(f"a search starts between 0 and its cap of {cap}; got start {n}")
    known: dict[int, float] = {}
    log: list[Step] = []
    lower, upper = 0, cap + 1
    unbounded = True
    while n != lower:
        value = _ask(statistic, n, known)
        log.append(Step(n, value, lower, math.inf if unbounded else upper))
        if value <= threshold:
            lower, n = n, min(2 * n, cap if unbounded else upper)
        else:
            unbounded, upper, n = False, n, (lower + n) // 2
    return Search(n, tuple(known), tuple(log), threshold, capped=unbounded and n == cap)


def binary_search(statistic: Callable[[int], float], low: int = 1, high: int = 200, threshold: float = 1.0) -> Search:
    """BS_FONDUE, or IB with the information-bottleneck statistic: bisect a given range.

    ``high`` itself is never evaluated: if every n below it passes, the answer is ``high`` − 1 and ``capped`` is True.

    >>> search = binary_search(lambda n: n - 19 + 0.5)
    >>> search.answer, len(search.visited)
    (19, 8)
    """
    lower, upper = operator.index(low), operator.index(high)
    if not 1 <= lower < upper:
        raise ValueError(f"a binary search needs 1 <= low < high; got low {lower} and high {upper}")
    limit = upper - 1
    known: dict[int, float] = {}
    log: list[Step] = []
    while lower < upper:
        n = (lower + upper) // 2
        value = _ask(statistic, n, known)
        log.append(Step(n, value, lower - 1, upper))
        if value <= threshold:
            lower = n + 1
        else:
            upper = n
    return Search(lower - 1, tuple(known), tuple(log), threshold, capped=lower - 1 == limit)


def _ask(statistic: Callable[[int], float], n: int, known: dict[int, float]) -> float:
    if n not in known:
        known[n] = float(statistic(n))
        if math.isnan(known[n]):
            raise ValueError(f"the statistic at {n} latents is NaN: a search needs numbers")
    return known[n]


@dataclass(frozen=True)
class BetaSearch:
    """The largest β that keeps the statistic at or below its threshold, up to the search's precision."""

    answer: float | None
    """None if even the smallest β exceeds the threshold."""
    log: tuple[tuple[float, float], ...]
    """(β, statistic) in the order of evaluation."""
    threshold: float
    capped: bool
    """The statistic stays below the threshold over the whole range."""


def fondue_over_beta(
    statistic: Callable[[float], float],
    low: float = 1 / 64,
    high: float = 64.0,
    threshold: float = 1.0,
    precision: float = 1.1,
) -> BetaSearch:
    """FONDUE for the regularisation: the largest β for a fixed number of latents.

    The trace gap grows with β, so β is bisected on a logarithmic scale until the largest that passes and the smallest
    that does not are within a factor of ``precision``. Suggested as future work by Bonheme 2023, section 8.9.

    >>> search = fondue_over_beta(lambda beta: beta / 3, precision=1.01)
    >>> 3 / 1.01 < search.answer <= 3
    True
    """
    if not (0 < low < high and precision > 1):
        raise ValueError(f"a search over β needs 0 < low < high and precision > 1; got {low}, {high} and {precision}")
    log: list[tuple[float, float]] = []

    def passes(beta: float) -> bool:
        value = float(statistic(beta))
        if math.isnan(value):
            raise ValueError(f"the statistic at β = {beta:g} is NaN: a search needs numbers")
        log.append((beta, value))
        return value <= threshold

    if not passes(low):
        return BetaSearch(None, tuple(log), threshold, capped=False)
    if passes(high):
        return BetaSearch(high, tuple(log), threshold, capped=True)
    while high / low > precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if passes(middle) else (low, middle)
    return BetaSearch(low, tuple(log), threshold, capped=False)
