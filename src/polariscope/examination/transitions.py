"""How the factors of data change in time, and whether their changes are sparse enough for methods that need this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polariscope.findings import Chart, Column, Findings, Part, Records
from polariscope.grammar import listed
from polariscope.measures.transition_statistics import Dependence, TransitionStatistics, transition_statistics
from polariscope.report.transition_figures import shape_over_gap, transition_histogram, transition_planes
from polariscope.tabular import Row, Tabular
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.views.sequences import Sequenced, transitions
from polariscope.worlds.world import sample_numbers

SPARSE = 1.5
"""Shape α up to which changes count as sparse here: SlowVAE expects 1, and the theory needs less than 2."""
FIT_COLUMNS = (
    Column("factor", "factor"),
    Column("n", "n", "%d"),
    Column("alpha", "shape α", "%.2f", "α"),
    Column("generalised_log_likelihood", "log-likelihood, generalised", "%.3f", "gen."),
    Column("laplace_log_likelihood", "Laplace", "%.3f", "laplace"),
    Column("normal_log_likelihood", "normal", "%.3f", "normal"),
    Column("generalised_ks", "KS distance, generalised", "%.3f", aside=True),
    Column("laplace_ks", "Laplace", "%.3f", aside=True),
    Column("normal_ks", "normal", "%.3f", aside=True),
    Column("excess_kurtosis", "excess kurtosis", "%.1f", "kurtosis"),
)
DEPENDENT = 0.1
"""Rank correlation of two factors' changes from which they count as dependent here, if chance does not explain it."""
DEPENDENCE_COLUMNS = (
    Column("first", "factor"),
    Column("second", "and"),
    Column("natural", "together", "%.2f"),
    Column("permuted", "permuted", "%.2f"),
    Column("noise", "chance", "%.3f"),
)


@dataclass(frozen=True, eq=False, repr=False)
class TransitionExamination(Tabular):
    """The statistics of the changes of some data, and the changes themselves."""

    statistics: TransitionStatistics
    changes: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...]
    still: tuple[str, ...] = ()
    """Factors that never change; they have no statistics."""
    seed: int = 0
    """Seed of the permuted control."""

    @property
    def sparse(self) -> list[str]:
        """Factors whose changes are more likely Laplace than normal, with a shape clearly different from the normal."""
        rows = self.statistics.rows
        better = (row for row in rows if row.fit.log_likelihood["laplace"] > row.fit.log_likelihood["normal"])
        return [row.factor for row in better if row.fit.alpha <= SPARSE]

    @property
    def dependent(self) -> list[Dependence]:
        """Pairs of factors that change together by more than three standard deviations of chance, the strongest
        first."""
        pairs = (p for p in self.statistics.dependence if abs(p.natural) > max(DEPENDENT, 3 * p.noise))
        return sorted(pairs, key=lambda pair: -abs(pair.natural))

    @property
    def headline(self) -> str:
        """No stronger than the tables: the theory needs sparse *and* independent changes."""
        dense = [name for name in self.names if name not in self.sparse]
        if not dense:
            moved = f"All {len(self.names)} factors move" if len(self.names) > 1 else f"{self.names[0]} moves"
            return f"{moved} sparsely{self._dependence}"
        some = f"{listed(self.sparse)} {'moves' if len(self.sparse) == 1 else 'move'} sparsely, " if self.sparse else ""
        others = f"{listed(dense)} {'does' if len(dense) == 1 else 'do'} not{'' if some else ' move sparsely'}"
        pairs = listed([f"{pair.first} with {pair.second}" for pair in self.dependent])
        together = f". Some also change together ({pairs}), which its theory excludes" if pairs else ""
        return f"{some}{others}: SlowVAE may mix them{together}"

    @property
    def _dependence(self) -> str:
        if not self.dependent:
            alone = " and independently" if self.statistics.dependence else ""
            return f"{alone}: SlowVAE can identify them where its other assumptions hold"
        worst = self.dependent[0]
        return (
            f", but not independently: {worst.first} and {worst.second} change together (rank correlation "
            f"{worst.natural:.2f}, chance {worst.noise:.2f}). The theory of SlowVAE assumes independent factors, so "
            "it does not guarantee that they can be identified here"
        )

    def records(self) -> list[Row]:
        return self.statistics.records()

    def findings(self, title: str = "transitions", settings: Mapping[str, Any] | None = None) -> Findings:
        changes = dict(zip(self.names, self.changes.T, strict=True))
        fits = {row.factor: row.fit for row in self.statistics.rows}
        parts: list[Part] = [
            Records(
                name="fits",
                title="Densities of the changes",
                hint="α is the shape of exp(−|u/s|^α): 1 is Laplace, 2 normal, natural videos have about 0.5. "
                "Log-likelihoods are summed over all changes: the largest indicates the best fit.",
                rows=self.records(),
                columns=FIT_COLUMNS,
            ),
            Chart(
                name="histograms",
                title="Distribution of the changes of factors",
                draw=lambda: transition_histogram(changes, fits=fits),
            ),
        ]
        if self.statistics.dependence:
            parts += [
                Records(
                    name="dependence",
                    title="Do factors move together?",
                    hint="Rank correlation of the sizes of two factors' changes. The theory of SlowVAE assumes none. "
                    "Permuted: after each factor's changes were shuffled. Chance: the standard deviation for "
                    "independent changes.",
                    rows=[asdict(row) for row in self.statistics.dependence],
                    columns=DEPENDENCE_COLUMNS,
                ),
                Chart(
                    name="planes",
                    title="Changes of two factors",
                    draw=lambda: transition_planes(self.changes, self.names, seed=self.seed),
                ),
            ]
        gaps = self.statistics.gaps
        if gaps:
            parts.append(
                Chart(name="gaps", title="Shape over the time between frames", draw=lambda: shape_over_gap(gaps))
            )
        notes = [f"{name} never changes here and was skipped." for name in self.still]
        return Findings(
            title,
            f"{self.headline}.",
            parts,
            notes,
            {
                "sparse": self.sparse,
                "dependent": [[p.first, p.second] for p in self.dependent],
                "gaps": [asdict(gap) for gap in gaps],
            },
            {"changes": self.changes},
            settings=settings or {},
        )


def examine_transitions(
    data: Data, furthest: int = 1, gaps: Sequence[int] = (), count: int = 20_000, seed: int = 0
) -> TransitionExamination:
    """Statistics of the changes in a world of sequences (a video, rendered masks) or of pairs.

    Frames of a sequence are 1 to ``furthest`` apart; at each of ``gaps`` the shape is fitted again.

    >>> from polariscope.worlds.renderers.masks import Walkers
    >>> examine_transitions(Walkers(sequences=20)).sparse
    ['y', 'x', 'area']
    """
    world = as_world(data)
    names = [factor.name for factor in world.factors]
    if isinstance(world, Sequenced):
        changes = transitions(world, furthest)
    elif hasattr(world, "other_factors_of") and names:
        index = sample_numbers(world, count, seed)
        changes = np.asarray(world.other_factors_of(index), float) - np.asarray(world.factors_of(index), float)
    else:
        raise ValueError(
            f"{type(world).__name__} has no changes in time: name your own mask video, a world of sequences (masks), "
            "or one of pairs (pairs, natural-sprites)"
        )
    moving = [column for column in range(changes.shape[1]) if np.ptp(changes[:, column]) > 0]
    if not moving:
        raise ValueError("nothing changes from one observation to the next: there are no transitions to measure")
    kept = [names[column] for column in moving]
    by_gap: dict[float, NDArray[np.float64]] = {}
    if isinstance(world, Sequenced):
        by_gap = {float(gap): transitions(world, gap, gap)[:, moving] for gap in gaps}
    return TransitionExamination(
        transition_statistics(changes[:, moving], kept, by_gap or None, seed=seed),
        changes[:, moving],
        tuple(kept),
        tuple(name for name in names if name not in kept),
        seed,
    )
