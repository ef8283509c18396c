"""Invariance compared fairly: as a frontier over the errors of observations and of the property, never as one row.

A model that encodes less of its observations keeps a property more easily. Models are therefore compared at equal
errors (Spec 000, sections 6.4 and 6.5, F110). Each setting of a model (a compression, a weight of the invariance term)
is a point with an interval over its seeds; a model's points are its frontier. Between two points of a frontier the
deviation is interpolated; it is not extrapolated beyond the ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from polariscope.examination.adversary import adversary_notes
from polariscope.examination.invariance import audit_invariance
from polariscope.findings import Chart, Column, Findings, Part, Records, rows_of
from polariscope.grammar import counted
from polariscope.lab.store import Run
from polariscope.report.invariance_figures import frontier_plot
from polariscope.tabular import Tabular

MAY_DIFFER = ("seed", "count")
"""Settings of the data in which runs of one comparison may differ."""
NOT_SHOWN = ("training.seed", *(f"training.{name}_every" for name in ("checkpoint", "evaluate", "log", "snapshot")))
"""Settings of a training that do not distinguish points of a frontier."""
SEEDS = 5
"""Smallest number of seeds of each point for a decided comparison."""
TOLERANCE = 0.1
"""Share by which the errors of observations and property may exceed the smallest ones and still count as matched."""

MATCHED_COLUMNS = (
    Column("model", "Model"),
    Column("rival", "Rival"),
    Column("x_error", "Error of observations", "%.4g"),
    Column("deviation", "Deviation", "%.4g"),
    Column("rival_deviation", "of the rival", "%.4g"),
    Column("ratio", "Ratio", "%.2f"),
    Column("decided", "Decided"),
)


@dataclass(frozen=True)
class Audited:
    """One trained model and the results of its audit."""

    model: str
    setting: float | str
    """The weight (or compression) that is varied along the frontier, or its name."""
    seed: int
    x_error: float
    y_error: float
    deviation: float
    """Deviation of the property of generated observations, by the truth if known, else by the judge."""
    tells_property: bool = True
    """Whether the code encodes the property at all; without it, a small deviation means nothing."""
    leakage: float | None = None
    """R² of the property from Z1, if it was measured."""


@dataclass(frozen=True)
class Point:
    """A setting of a model over its seeds."""

    model: str
    setting: float | str
    seeds: int
    x_error: float
    y_error: float
    deviation: float
    interval: tuple[float, float]
    """Student's 95 % interval; for one seed, the point itself."""
    tells_property: bool = True
    """Whether the code of every seed encodes the property. Other points are shown, and never compared."""
    leakage: float | None = None
    """R² of the property from Z1, on average over the seeds of which it is known."""


@dataclass(frozen=True)
class Matched:
    """Two models at equal errors of observations."""

    model: str
    rival: str
    x_error: float
    deviation: float
    rival_deviation: float
    decided: bool
    """Whether the intervals do not overlap and each has at least five seeds."""

    @property
    def ratio(self) -> float:
        return self.deviation / self.rival_deviation if self.rival_deviation else float("inf")


@dataclass(frozen=True, eq=False, repr=False)
class Frontier(Tabular):
    """Points of several models, and their matched comparisons."""

    points: tuple[Point, ...]
    tolerance: float = TOLERANCE
    notes: tuple[str, ...] = ()
    judged: bool = True
    """Whether the truth is known, or the judge predicts the property of real observations; otherwise no deviation
    means anything."""

    def of(self, model: str) -> list[Point]:
        """The points of a model, from small to large errors of observations."""
        return sorted((point for point in self.points if point.model == model), key=lambda point: point.x_error)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(point.model for point in self.points))

    def matched(self, model: str, rival: str) -> Matched | None:
        """Both models at the smallest error of observations that both reach with errors of the property within the
        tolerance; None if there is none. Points whose codes do not encode the property are left out."""
        ours, theirs = ([point for point in self.of(name) if point.tells_property] for name in (model, rival))
        if not ours or not theirs or not self.judged:
            return None
        first, last = max(ours[0].x_error, theirs[0].x_error), min(ours[-1].x_error, theirs[-1].x_error)
        if first > (1 + self.tolerance) * last:
            return None
        enough = min(point.seeds for point in (*ours, *theirs)) >= SEEDS
        # Errors of the property are interpolated between points, so that only the points themselves need a look.
        for at in sorted({first, *(point.x_error for point in (*ours, *theirs) if first < point.x_error <= last)}):
            one, other = _at(ours, at), _at(theirs, at)
            if max(one[3], other[3]) <= (1 + self.tolerance) * min(one[3], other[3]):
                apart = one[2][0] > other[2][1] or one[2][1] < other[2][0]
                return Matched(model, rival, at, one[1], other[1], apart and enough)
        return None

    @property
    def comparisons(self) -> list[Matched]:
        names = self.models
        pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
        return [comparison for a, b in pairs if (comparison := self.matched(a, b)) is not None]

    @property
    def headline(self) -> str:
        comparisons = self.comparisons
        if len(self.models) < 2:
            return f"{self.models[0]} alone: a comparison needs a second model"
        if not any(point.tells_property for point in self.points):
            return "No code encodes the property, so its invariance is meaningless"
        if not self.judged:
            return "The judge hardly predicts the property of real observations, so the models cannot be compared"
        if not comparisons:
            return "The models reach no common error of observations and property, so they cannot be compared"
        best = comparisons[0]
        verb = "keeps" if best.deviation < best.rival_deviation else "does not keep"
        sure = "" if best.decided else " (not decided: intervals overlap, or fewer than five seeds)"
        return (
            f"At the same error of observations ({best.x_error:.3g}), {best.model} {verb} the property better than "
            f"{best.rival}: it moves by {best.deviation:.3g} against {best.rival_deviation:.3g}{sure}"
        )

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "model": point.model,
                "setting": point.setting,
                "seeds": point.seeds,
                "x_error": point.x_error,
                "y_error": point.y_error,
                "tells_property": point.tells_property,
                "deviation": point.deviation,
                "low": point.interval[0] if point.seeds > 1 else None,
                "high": point.interval[1] if point.seeds > 1 else None,
                "leakage": point.leakage,
            }
            for point in self.points
        ]

    def findings(self, title: str = "Invariance frontier", settings: Mapping[str, Any] | None = None) -> Findings:
        groups = {
            name: [(point.x_error, point.deviation, point.interval) for point in self.of(name)] for name in self.models
        }
        parts: list[Part] = [
            Chart(
                name="frontier",
                title="Invariance over the error of observations",
                draw=lambda: frontier_plot(groups, "deviation of the property"),
            ),
            Records(
                name="matched",
                title="Compared at the same error of observations",
                hint=(
                    f"Errors of observations and of the property within {self.tolerance:.0%} of each other. Pairs of "
                    "models without common errors are skipped, and so are settings whose codes do not encode the "
                    "property."
                ),
                rows=rows_of(self.comparisons, MATCHED_COLUMNS),
                columns=MATCHED_COLUMNS,
            ),
            Records(
                name="points",
                title="Points of the frontiers",
                hint="Means over seeds, with 95 % intervals of the deviation; one seed has none.",
                rows=self.records(),
                columns=(
                    Column("model", "Model"),
                    Column("setting", "Setting", "%.4g"),
                    Column("seeds", "Seeds", "%d"),
                    Column("x_error", "Error of observations", "%.4g"),
                    Column("y_error", "Error of the property", "%.4g"),
                    Column("tells_property", "Encoded"),
                    Column("deviation", "Deviation", "%.4g"),
                    Column("low", "From", "%.4g"),
                    Column("high", "To", "%.4g"),
                    Column("leakage", "R² of the property from Z1", "%.2f"),
                ),
            ),
        ]
        notes = [f"{counted(len(self.points), 'setting')} of {counted(len(self.models), 'model')}.", *self.notes]
        mute = [str(point.setting) for point in self.points if not point.tells_property]
        if mute:
            notes.append(f"Not compared, because a code does not encode the property: {', '.join(mute)}.")
        return Findings(title, f"{self.headline}.", parts, notes, settings=settings or {})


def frontier(
    rows: Iterable[Audited], tolerance: float = TOLERANCE, notes: Sequence[str] = (), judged: bool = True
) -> Frontier:
    """Audits of many trained models as frontiers: rows of one model and setting are its seeds. If they are not
    ``judged``, the models are not compared.

    >>> rows = [Audited(name, w, s, x, 0.25, d + s / 1000) for name, d in (("ours", 0.01), ("theirs", 0.05))
    ...         for w, x in ((1.0, 0.1), (2.0, 0.2)) for s in range(5)]
    >>> matched = frontier(rows).matched("ours", "theirs")
    >>> round(matched.ratio, 2), matched.decided
    (0.23, True)
    """
    groups: dict[tuple[str, float | str], list[Audited]] = {}
    for row in rows:
        groups.setdefault((row.model, row.setting), []).append(row)
    if not groups:
        raise ValueError("a frontier needs at least one audited model")
    points = []
    for (model, setting), own in groups.items():
        values = np.array([row.deviation for row in own])
        mean = float(values.mean())
        half = 0.0
        if len(values) > 1:
            half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
        leaks = [row.leakage for row in own if row.leakage is not None]
        points.append(
            Point(
                model,
                setting,
                len({row.seed for row in own}),
                float(np.mean([row.x_error for row in own])),
                float(np.mean([row.y_error for row in own])),
                mean,
                (mean - half, mean + half),
                all(row.tells_property for row in own),
                float(np.mean(leaks)) if leaks else None,
            )
        )
    return Frontier(tuple(points), tolerance, tuple(notes), judged)


def audit_frontier(runs: Sequence[Run], tolerance: float = TOLERANCE, **settings: Any) -> Frontier:
    """The frontier of trained runs: runs of one objective are a model, runs that differ only in their seed are a point.

    The runs need the same data, of which the seed and the number of examples may differ. ``settings`` are those of
    :func:`~polariscope.examination.invariance.audit_invariance`.
    """
    _check_same_data(runs)
    rows, notes, judged = [], [], True
    names = [str(run.config.get("objective", {}).get("name", run.id)) for run in runs]
    plain = [{key: value for key, value in _flat(run.config).items() if key not in NOT_SHOWN} for run in runs]
    for run, name, settings_of_run in zip(runs, names, plain, strict=True):
        audit = audit_invariance(run, **settings)
        judged = judged and audit.judged
        notes += [f"{run.id}: {weakness}" for weakness in adversary_notes(run)]
        rivals = [other for other, its in zip(plain, names, strict=True) if its == name]
        setting = _distinguishing(settings_of_run, rivals)
        seed = int(run.config.get("training", {}).get("seed", 0))
        errors = audit.x_error, audit.y_error, audit.outside.generated
        rows.append(Audited(name, setting, seed, *errors, audit.tells_property, audit.leakage))
    return frontier(rows, tolerance, notes, judged)


def _flat(settings: Any, name: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    if not isinstance(settings, Mapping):
        return {name: settings}
    return {
        key: value
        for part, under in settings.items()
        for key, value in _flat(under, f"{name}.{part}" if name else str(part)).items()
    }


def _distinguishing(settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The settings in which a run differs from others of its model, without their section: ``beta 5``."""
    names = sorted({name for other in (settings, *others) for name in other})
    apart = [name for name in names if any(other.get(name) != settings.get(name) for other in others)]
    return ", ".join(f"{name.partition('.')[2] or name} {settings.get(name)}" for name in apart) or "all alike"


def _check_same_data(runs: Sequence[Run]) -> None:
    """Errors and deviations of different data have different units and scales."""
    first = _flat(runs[0].config.get("world", {}))
    for run in runs[1:]:
        other = _flat(run.config.get("world", {}))
        for name in dict.fromkeys((*first, *other)):
            if name.rpartition(".")[2] not in MAY_DIFFER and first.get(name) != other.get(name):
                raise ValueError(
                    f"the data of compared runs must be the same, but its {name} is {first.get(name)} for "
                    f"{runs[0].id} and {other.get(name)} for {run.id}: name runs of the same data"
                )


def raise_weight(
    audit: Callable[[float], Audited], weights: Sequence[float], tolerance: float = TOLERANCE
) -> tuple[list[Audited], Audited]:
    """The published protocol: raise the weight of the invariance term until the error of observations or of the
    property exceeds that of the first weight by the tolerance. Returns all audits, and the last within the tolerance.

    ``audit`` trains with a weight and audits; ``weights`` increase; errors are compared with those of the first weight
    (usually 0). The search stops at the first weight that costs too much.
    """
    if not weights or any(b <= a for a, b in pairwise(weights)):
        raise ValueError(f"the weights must increase; got {list(weights)}")
    curve: list[Audited] = []
    chosen: Audited | None = None
    for weight in weights:
        point = audit(weight)
        curve.append(point)
        start = curve[0]
        allowed = point.x_error <= (1 + tolerance) * start.x_error and point.y_error <= (1 + tolerance) * start.y_error
        if not allowed:
            break
        chosen = point
    assert chosen is not None
    return curve, chosen


def _at(points: Sequence[Point], x: float) -> tuple[float, float, tuple[float, float], float]:
    """Deviation, its interval and the error of the property of a frontier at an error of observations."""
    places = np.array([point.x_error for point in points])

    def between(values: Sequence[float]) -> float:
        return float(np.interp(x, places, values))

    low, high = between([p.interval[0] for p in points]), between([p.interval[1] for p in points])
    return x, between([p.deviation for p in points]), (low, high), between([p.y_error for p in points])
