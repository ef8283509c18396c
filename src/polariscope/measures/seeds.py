"""Statistics over training seeds: averages, tests between models, ranks over many scores.

One seed is not evidence: scores of one model vary over seeds as much as scores of different models (Spec 001a, section
6; Spec 003, section 12). These functions take the scores of all seeds, or the printed mean and standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata, ttest_ind_from_stats

from polariscope.measures.information import FloatArray

Mark = Literal["best", "worst", ""]
Statistic = Literal["mean", "median"]


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (ddof 1), median, and median absolute deviation from it."""

    mean: float
    sd: float
    median: float
    ad: float
    count: int

    def __str__(self) -> str:
        return self.text("mean")

    def text(self, statistic: Statistic) -> str:
        """``mean (s.d.)`` or ``median (a.d.)``, as tables print them."""
        middle, spread = (self.mean, self.sd) if statistic == "mean" else (self.median, self.ad)
        return f"{middle:.3g} ({spread:.2g})"


def summarise(scores: ArrayLike) -> Summary:
    """Summary of one score over seeds.

    >>> print(summarise([0.1, 0.2, 0.6]))
    0.3 (0.26)
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(f"a summary needs the finite scores of at least 2 seeds; got shape {x.shape}")
    median = float(np.median(x))
    return Summary(float(x.mean()), float(x.std(ddof=1)), median, float(np.median(np.abs(x - median))), len(x))


def compare(first: Summary, second: Summary, equal_var: bool = True) -> tuple[float, float]:
    """t statistic and two-sided p-value of the hypothesis that two models' scores have the same mean: Student's
    independent t-test as published (Spec 001a, section 6), or Welch's with ``equal_var=False``.

    >>> a, b = Summary(79.6, 5.8, 79.6, 0, 10), Summary(67.6, 6.7, 67.6, 0, 10)
    >>> round(compare(a, b)[1], 5)
    0.00045
    """
    test = ttest_ind_from_stats(
        first.mean, first.sd, first.count, second.mean, second.sd, second.count, equal_var=equal_var
    )
    return float(test.statistic), float(test.pvalue)


def marks(summaries: list[Summary], level: float = 0.05, higher_is_better: bool = True) -> list[Mark]:
    """Which model is significantly better than the next best, and which is significantly worse than the next worst.

    >>> marks([Summary(90, 1, 90, 0, 10), Summary(80, 1, 80, 0, 10), Summary(79.9, 1, 79.9, 0, 10)])
    ['best', '', '']
    """
    out: list[Mark] = [""] * len(summaries)
    order = sorted(range(len(summaries)), key=lambda i: summaries[i].mean, reverse=higher_is_better)
    if len(order) < 2:
        return out
    if compare(summaries[order[0]], summaries[order[1]])[1] < level:
        out[order[0]] = "best"
    if compare(summaries[order[-1]], summaries[order[-2]])[1] < level:
        out[order[-1]] = "worst"
    return out


@dataclass(frozen=True)
class SeedTable:
    """Models (rows) by scores (columns). Each cell is a summary over seeds, with a mark if it stands out in its column.

    The marks come from a t-test of the means, even if medians are shown.
    """

    cells: Mapping[str, Mapping[str, Summary]]
    """Model to score to summary; a model need not have every score."""
    marks: Mapping[str, Mapping[str, Mark]]

    @property
    def scores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(score for row in self.cells.values() for score in row))

    def markdown(self, statistic: Statistic = "mean") -> str:
        """The table as text: bold is significantly above the next best, a ▼ significantly below the next worst."""
        heads = ["", *self.scores]
        lines = [heads, ["---"] * len(heads)]
        for model, row in self.cells.items():
            words = {"": "{}", "best": "**{}**", "worst": "{} ▼"}
            texts = {score: words[self.marks[model][score]].format(row[score].text(statistic)) for score in row}
            lines.append([model, *(texts.get(score, "-") for score in self.scores)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def seed_table(
    scores: Mapping[str, Mapping[str, ArrayLike | Summary]],
    higher_is_better: bool | Mapping[str, bool | None] = True,
    level: float = 0.05,
) -> SeedTable:
    """The table of several models' scores over seeds, ``{model: {score: values}}``, as published (Spec 001a, sections 6
    and 7): mean (s.d.) or median (a.d.), with the marks of :func:`marks`.

    ``higher_is_better`` may differ between scores; a score for which it is None gets no marks. If only the printed
    numbers are known, give a :class:`Summary` instead of the values.

    >>> print(seed_table({"a": {"MIG": [0.6, 0.7, 0.8]}, "b": {"MIG": [0.1, 0.1, 0.4]}}).markdown("median"))
    |  | MIG |
    | --- | --- |
    | a | **0.7 (0.1)** |
    | b | 0.1 (0) ▼ |
    """
    cells = {
        model: {score: v if isinstance(v, Summary) else summarise(v) for score, v in row.items()}
        for model, row in scores.items()
    }
    standing: dict[str, dict[str, Mark]] = {model: dict.fromkeys(row, "") for model, row in cells.items()}
    for score in dict.fromkeys(score for row in cells.values() for score in row):
        higher = higher_is_better if isinstance(higher_is_better, bool) else higher_is_better.get(score)
        if higher is not None:
            column = {model: row[score] for model, row in cells.items() if score in row}
            for model, mark in zip(column, marks(list(column.values()), level, higher), strict=True):
                standing[model][score] = mark
    return SeedTable(cells, standing)


def relative_change(before: ArrayLike, after: ArrayLike) -> FloatArray:
    """(after − before)/before, element by element.

    >>> relative_change([0.60, 0.44], [0.09, 0.47]).round(2).tolist()
    [-0.85, 0.07]
    """
    before, after = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if not np.all(before != 0):
        raise ValueError("a relative change from 0 is undefined")
    return np.asarray((after - before) / before)


def ranks(scores: ArrayLike, higher_is_better: bool = True) -> FloatArray:
    """Rank of each model in each row (a data set and score) of ``scores`` (rows, models); 1 is best, ties share.

    The mean over rows is the published average rank (Spec 001a, section 5.8).

    >>> ranks([[0.9, 0.5, 0.5], [0.1, 0.2, 0.3]]).tolist()
    [[1.0, 2.5, 2.5], [3.0, 2.0, 1.0]]
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"ranks need finite scores of shape (rows, models); got {x.shape}")
    return np.asarray(rankdata(-x if higher_is_better else x, axis=1))


def permutation_test(
    first: ArrayLike, second: ArrayLike, permutations: int = 100_000, seed: int | np.random.Generator = 0
) -> float:
    """Two-sided p-value of the mean difference of two models' paired values (ranks, say), under random signs.

    Differences of ranks are multiples of ½, so sums are compared after rounding.

    >>> permutation_test([1.0] * 8, [2.0] * 8) < 0.02
    True
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if difference.ndim != 1 or not len(difference):
        raise ValueError(f"a permutation test needs two lists of paired values; got shape {difference.shape}")
    signs = 2 * np.random.default_rng(seed).integers(0, 2, (permutations, len(difference)), dtype=np.int8) - 1
    reached = np.abs(signs @ difference).round(9)
    return float((1 + np.sum(reached >= np.abs(difference.sum()).round(9))) / (permutations + 1))
