"""Statistics of the transitions of several factors: the density of each, and whether they move together.

The tables and figures of Klindt, Schott, Sharma and others, Towards nonlinear disentanglement in natural data with
temporal sparse coding (2021), appendix G.1, for any data (Spec 001a, section 4.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from polariscope.measures.transitions import TransitionFit, fit_transitions
from polariscope.tabular import Row, Tabular
from polariscope.theory.transitions import ks_distance

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FittedFactor:
    """The densities fitted to the transitions of one factor of one data set."""

    data: str
    factor: str
    n: int
    fit: TransitionFit
    ks: Mapping[str, float]
    """Kolmogorov and Smirnov's distance from each family, 0 to 1."""
    jittered: bool
    """Whether the changes were whole numbers and noise of ±½ was added, since a density has no atoms."""

    @property
    def excess_kurtosis(self) -> float:
        """Kurtosis of the changes minus 3, which is 0 for a normal density."""
        return self.fit.kurtosis - 3

    def record(self) -> Row:
        """One row: the shape, and the location, scale, log-likelihood and distance of each family.

        The scale of a normal density is its standard deviation, as in the published tables.
        """
        row: Row = {"data": self.data, "factor": self.factor, "n": self.n, "alpha": self.fit.alpha}
        for family, density in self.fit.families.items():
            row |= {
                f"{family}_location": density.location,
                f"{family}_scale": density.scale / math.sqrt(2) if family == "normal" else density.scale,
                f"{family}_log_likelihood": density.log_likelihood,
                f"{family}_ks": self.ks[family],
            }
        return row | {"excess_kurtosis": self.excess_kurtosis}


@dataclass(frozen=True)
class Dependence:
    """Spearman's rank correlation of the sizes of two factors' changes: 0 if they are independent, 1 if they have the
    same order."""

    data: str
    first: str
    second: str
    natural: float
    permuted: float
    """The correlation after the changes of each factor are permuted independently: its chance level."""
    noise: float
    """Standard deviation of the correlation of independent changes, 1/√(n − 1)."""


@dataclass(frozen=True)
class ShapeAtGap:
    """The shape of changes between frames, for one time gap."""

    factor: str
    gap: float
    alpha: float
    n: int


@dataclass(frozen=True, repr=False)
class TransitionStatistics(Tabular):
    """The statistics of the transitions of some data sets."""

    rows: tuple[FittedFactor, ...]
    dependence: tuple[Dependence, ...] = ()
    gaps: tuple[ShapeAtGap, ...] = ()

    @property
    def headline(self) -> str:
        alphas = [row.fit.alpha for row in self.rows]
        sparse = sum(row.fit.log_likelihood["laplace"] > row.fit.log_likelihood["normal"] for row in self.rows)
        return (
            f"transitions have shapes α from {min(alphas):.2f} to {max(alphas):.2f} (1 is Laplace, 2 normal); "
            f"Laplace steps are likelier than normal steps for {sparse} of {len(alphas)} factors"
        )

    def records(self) -> list[Row]:
        return [row.record() for row in self.rows]


def transition_statistics(
    deltas: ArrayLike | Mapping[str, ArrayLike],
    names: Sequence[str],
    by_gap: Mapping[float, ArrayLike] | None = None,
    *,
    location: float | None = None,
    seed: int = 0,
) -> TransitionStatistics:
    """The fits, the dependence and the shape against the time gap of changes ``(n, factors)``.

    ``deltas`` may be several data sets by name. ``by_gap`` has the changes between frames for each time gap. The
    location of each family is fitted unless it is given. If all changes are whole numbers (areas), uniform noise of ±½
    is added before the fit; ``seed`` determines it and the permutations. Klindt et al. 2021, tables 6 to 13, figures 11
    and 14; Spec 001a, section 4.4. Known bias: steps of one video are not independent, so the uncertainty is larger
    than ``n`` suggests.

    >>> steps = np.random.default_rng(0).laplace(size=(2000, 2))
    >>> statistics = transition_statistics(steps, ("x", "y"))
    >>> [round(row.fit.alpha) for row in statistics.rows], abs(statistics.dependence[0].natural) < 0.1
    ([1, 1], True)
    """
    sets = deltas if isinstance(deltas, Mapping) else {"data": deltas}
    if not sets:
        raise ValueError("transition statistics need at least one data set; got none")
    changes = {data: checked(table, names) for data, table in sets.items()}
    return TransitionStatistics(
        tuple(
            fitted_factor(column, factor, data, location=location, seed=seed)
            for data, table in changes.items()
            for factor, column in zip(names, table.T, strict=True)
        ),
        tuple(statistics for data, table in changes.items() for statistics in dependence(table, names, data, seed)),
        shapes_by_gap(by_gap or {}, names, seed, location=location),
    )


def fitted_factor(
    deltas: ArrayLike, factor: str, data: str = "data", *, location: float | None = None, seed: int = 0
) -> FittedFactor:
    """The fits to the changes of one factor, and how far each is from them."""
    u, jittered = _spread(np.asarray(deltas, dtype=float).ravel(), seed)
    fit = fit_transitions(u, location)
    ks = {family: ks_distance(u, density) for family, density in fit.families.items()}
    return FittedFactor(data, factor, len(u), fit, ks, jittered)


def dependence(deltas: ArrayLike, names: Sequence[str], data: str = "data", seed: int = 0) -> tuple[Dependence, ...]:
    """For each pair of factors, the rank correlation of the sizes of their changes, and its value after permutation.

    Klindt et al. 2021, figure 11, shows it as mass on the diagonals of two-dimensional histograms; Spec 001a, section
    4.4. Range [−1, 1].
    """
    sizes = np.abs(checked(deltas, names))
    still = [name for name, column in zip(names, sizes.T, strict=True) if np.ptp(column) == 0]
    if still:
        raise ValueError(f"a rank correlation needs changes of different sizes, and those of {still[0]} are all equal")
    mixed = permuted(sizes, seed)

    def correlation(table: Floats, i: int, j: int) -> float:
        return float(spearmanr(table[:, i], table[:, j]).statistic)

    noise = float(1 / np.sqrt(len(sizes) - 1))
    return tuple(
        Dependence(data, names[i], names[j], correlation(sizes, i, j), correlation(mixed, i, j), noise)
        for i, j in combinations(range(len(names)), 2)
    )


def permuted(deltas: ArrayLike, seed: int) -> Floats:
    """The changes ``(n, factors)``, permuted independently for each factor."""
    return np.random.default_rng(seed).permuted(np.asarray(deltas, dtype=float), axis=0)


def shapes_by_gap(
    by_gap: Mapping[float, ArrayLike], names: Sequence[str], seed: int = 0, *, location: float | None = None
) -> tuple[ShapeAtGap, ...]:
    """The shape α of each factor's changes ``(n, factors)`` for each time gap, fitted by :func:`fitted_factor`.

    Sums of independent steps tend to a normal density, α = 2; changes in natural videos stay sparse, α < 1. Klindt et
    al. 2021, figure 14; Spec 001a, section 4.4.
    """
    return tuple(
        ShapeAtGap(name, gap, fitted_factor(column, name, location=location, seed=seed).fit.alpha, len(column))
        for gap in sorted(by_gap)
        for name, column in zip(names, checked(by_gap[gap], names).T, strict=True)
    )


def checked(deltas: ArrayLike, names: Sequence[str]) -> Floats:
    """Changes as an array ``(n, factors)`` of finite numbers."""
    table = np.asarray(deltas, dtype=float)
    if table.ndim != 2 or table.shape[1] != len(names) or len(table) < 2:
        raise ValueError(
            f"transitions are at least 2 rows of {len(names)} changes ({', '.join(names)}); got shape {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError(f"transitions are finite; {int((~np.isfinite(table)).any(1).sum())} rows are not: drop them")
    return table


def _spread(u: Floats, seed: int) -> tuple[Floats, bool]:
    """Whole numbers with uniform noise of ±½ (other changes as they are), and whether noise was added."""
    whole = bool((u == np.rint(u)).all() and u.any())
    return (u + np.random.default_rng(seed).uniform(-0.5, 0.5, len(u)), True) if whole else (u, False)
