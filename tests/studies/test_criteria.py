"""Criteria by hand-made tables: on both sides of every bound, and where a table is too little to decide."""

import numpy as np
import pytest
from scipy import stats

from polariscope.studies.criteria import (
    Alike,
    All,
    AtLeast,
    AtMost,
    Beats,
    Between,
    Cell,
    Correlates,
    Criterion,
    Estimate,
    Finding,
    Flat,
    Near,
    Peaks,
    PowerLaw,
    Rises,
    all_of,
    cell_of,
    effect_of,
    estimate_of,
    reaches,
    shortage,
)
from polariscope.studies.rows import Row, Table, difference, duels
from polariscope.studies.study import Claim

A, B = {"model": "a"}, {"model": "b"}


def rows(*values: float | None, seed: int = 0, **same: object) -> list[Row]:
    """A row for each value of x, with seeds from ``seed`` on."""
    return [{"seed": seed + number, "x": value, **same} for number, value in enumerate(values)]


def exact(*values: float) -> Table:
    """Values without seeds."""
    return Table([{"x": value} for value in values])


def duel(first: float, second: float) -> Table:
    return Table([{"x": first, **A}, {"x": second, **B}])


def curve(*values: float) -> Table:
    """Exact values along t = 0, 1, ..."""
    return Table([{"t": place, "x": value} for place, value in enumerate(values)])


def curves(*seeds: tuple[float, ...]) -> Table:
    """A curve for each seed."""
    return Table([{"seed": s, "t": t, "x": x} for s, values in enumerate(seeds) for t, x in enumerate(values)])


def around(level: float, spread: float) -> tuple[float, ...]:
    """Five numbers whose mean has an interval of ± 1.96 spread: t(4) = 2.776, times 1.581 spread / √5."""
    return tuple(level + spread * step for step in (-2, -1, 0, 1, 2))


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "inside", "outside"),
    [
        (AtLeast("x", 2), (2.0, 3.0), (1.99, -2.0)),
        (AtMost("x", 2), (2.0, -3.0), (2.01,)),
        (Between("x", 1, 3), (1.0, 2.0, 3.0), (0.99, 3.01)),
        (Near("x", 2, by=0.5), (1.5, 2.5), (1.49, 2.51)),
        (Near("x", 4, by=0.25, relative=True), (3.0, 5.0), (2.9, 5.1)),
        (Near("x", -4, by=0.25, relative=True), (-3.0, -5.0), (-2.9, -5.1, 4.0)),
        (Near("x", 0, by=0.25, relative=True), (0.0,), (0.04, -0.26)),  # a share of nothing is nothing
    ],
)
def test_a_bound_belongs_to_what_is_allowed(criterion, inside, outside) -> None:
    assert [criterion.judge(exact(value)).held for value in inside] == [True] * len(inside)
    assert [criterion.judge(exact(value)).held for value in outside] == [False] * len(outside)


SKEWED = [{"seed": seed, "x": x} for seed in range(5) for x in (0.0, 0.0, 6.0)]
"""For each seed mean 2, median 0."""


@pytest.mark.parametrize(
    ("make", "mean", "median", "every"),
    [
        (lambda of: AtLeast("x", 2, of=of), True, False, False),
        (lambda of: AtLeast("x", 0, of=of), True, True, True),
        (lambda of: AtMost("x", 1, of=of), False, True, False),
        (lambda of: AtMost("x", 6, of=of), True, True, True),
        (lambda of: Between("x", -1, 1, of=of), False, True, False),
        (lambda of: Between("x", 1, 7, of=of), True, False, False),
        (lambda of: Near("x", 0, by=1, of=of), False, True, False),
        (lambda of: Near("x", 2, by=1, of=of), True, False, False),
        (lambda of: Near("x", 3, by=3, of=of), True, True, True),
    ],
)
def test_the_mean_the_median_or_every_single_one(make, mean, median, every) -> None:
    result = {of: make(of).judge(Table(SKEWED)).held for of in ("mean", "median", "every")}
    assert result == {"mean": mean, "median": median, "every": every}


def test_rows_are_averaged_over_each_seed_first() -> None:
    """Seed 0 has a hundred rows, the others one each."""
    table = Table([*rows(0, 3, 3, 3, 3), *(row for _ in range(99) for row in rows(0))])
    assert AtLeast("x", 1).judge(table).measured == "2.40 [0.73, 4.07]"
    assert AtLeast("x", 1, of="median").judge(table).measured == "median 3.00 [0.00, 3.00]", "over seeds, not over rows"
    assert Near("x", 2.4, by=2).judge(table).held
    assert Beats("x", A, B, by=1).judge(Table(rows(3, 3, 3, 3, 3, **A) + [r | B for r in table.rows])).measured == (
        "3.00 against 2.40 [0.73, 4.07]"
    )


@pytest.mark.parametrize(
    ("make", "held", "across", "fails"),
    [
        (lambda of: AtLeast("x", 1, of=of), (1.2, 9), (1.05, 0.95), (0.85, -9)),
        (lambda of: AtMost("x", 1, of=of), (0.8, -9), (1.05, 0.95), (1.15, 9)),
        (lambda of: Between("x", 1, 3, of=of), (1.2, 2, 2.8), (0.95, 1.05, 2.95, 3.05), (0.85, 3.15)),
        (lambda of: Near("x", 2, by=0.5, of=of), (2, 1.65, 2.35), (1.55, 1.45, 2.45, 2.55), (1.3, 2.7)),
        (lambda of: Near("x", 4, by=0.25, relative=True, of=of), (4, 3.15, 4.85), (3.05, 2.95, 5.05), (2.8, 5.2)),
    ],
)
@pytest.mark.parametrize("of", ["mean", "median"])
def test_the_interval_decides_about_a_bound(make, of, held, across, fails) -> None:
    """Five seeds whose mean is known to ± 0.098, and whose median to ± 0.1."""
    criterion = make(of)
    for levels, verdict in ((held, True), (across, None), (fails, False)):
        for level in levels:
            result = criterion.judge(Table(rows(*around(level, 0.05))))
            assert result.held is verdict, (level, result)
            assert ("lies across" in result.note) == (verdict is None), result.note


def test_an_interval_across_a_bound_is_shown_in_the_note() -> None:
    result = AtLeast("x", 0.9).judge(Table(rows(*around(0.92, 0.05))))
    assert result == Finding("0.92 [0.82, 1.02]", None, "the interval [0.82, 1.02] lies across 0.90")
    between = Between("x", 1, 3, digits=1).judge(Table(rows(*around(1.0, 0.6))))
    assert between.note == "the interval [-0.2, 2.2] lies across 1.0 and 3.0"


@pytest.mark.parametrize(
    ("criterion", "measured"),
    [
        (AtLeast("x", 1, of="every"), "smallest 0.00 of 15"),
        (AtMost("x", 1, of="every"), "largest 6.00 of 15"),
        (Between("x", 1, 3, of="every"), "farthest 6.00 of 15"),
        (AtLeast("x", 1, of="median"), "median 0.00"),
        (AtLeast("x", 1, digits=1), "2.0"),
        (Near("x", 2, by=1), "2.00 for 2.00"),
        (Near("x", 2, by=1, of="every"), "2.00 for 2.00; largest error 4"),
        (Near("x", 2, by=1, of="every", relative=True), "2.00 for 2.00; largest error 2e+02 %"),
    ],
)
def test_what_was_measured_is_said_with_its_spread(criterion, measured) -> None:
    assert criterion.judge(Table(SKEWED)).measured == measured


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (0.005, "0.01"), (0.004, "0.004"), (-0.004, "-0.004"), (-123456.0, "-1.2e+05")]
)
def test_a_number_keeps_digits_that_say_something(value, text) -> None:
    assert AtLeast("x", 1).judge(exact(value)).measured == text


def test_each_prediction_is_held_against_its_own_rows() -> None:
    near = Near("x", "theory", by=0.5)
    table = [{"x": 1.5, "theory": 1.0}, {"x": 2.75, "theory": 3.0}, {"x": 9.0, "theory": None}, {"theory": 7.0}]
    assert near.judge(Table(table)) == Finding("1.50 for 1.00; 2.75 for 3.00; largest error 0.5", True)
    assert near.judge(Table([*table, {"x": 3.4, "theory": 4.0}])).held is False
    many = [{"x": place + 0.25, "theory": float(place)} for place in range(9)]
    assert near.judge(Table(many)) == Finding("largest error 0.25 over 9 rows", True)
    assert near.judge(Table(many[:8])).measured.startswith("0.25 for 0.00; 1.25 for 1.00")
    shares = Near("x", "theory", by=0.5, relative=True)
    assert shares.judge(Table([{"x": 15.0, "theory": 10.0}, {"x": 1.0, "theory": 2.0}])).held
    assert not shares.judge(Table([{"x": 10.0, "theory": 10.0}, {"x": 0.9, "theory": 2.0}])).held


# --- two groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "held", "fails"),
    [
        (Beats("x", A, B, by=1), [(3, 2), (5, 2)], [(2.99, 2), (2, 2), (2, 3)]),
        (Beats("x", A, B, by=1, higher=False), [(2, 3), (2, 5)], [(2, 2.99), (2, 2), (3, 2)]),
        (Beats("x", A, B, by=0), [(2.01, 2)], [(2, 2), (2, 3)]),
        (Beats("x", A, B, by=0.5, relative=True), [(15, 10), (-5, -10), (0.5, 0)], [(14, 10), (-6, -10), (0.4, 0)]),
        (Alike("x", A, B, by=0.5), [(10.5, 10), (9.5, 10)], [(10.51, 10), (9.49, 10)]),
        (
            Alike("x", A, B, by=0.5, relative=True),
            [(15, 10), (5, 10), (-15, -10), (0.5, 0)],
            [(15.1, 10), (10, 5.1), (-16, -10)],
        ),
    ],
)
def test_two_groups_on_both_sides_of_the_least_effect(criterion, held, fails) -> None:
    assert [criterion.judge(duel(*pair)).held for pair in held] == [True] * len(held)
    assert [criterion.judge(duel(*pair)).held for pair in fails] == [False] * len(fails)


def test_seeds_that_both_have_are_compared_with_each_other() -> None:
    """Seeds differ by far more than the models do: only pairs can tell the models apart."""
    beats = Beats("x", A, B, by=1)
    second = rows(0, 10, 20, 30, 40, **B)
    assert beats.judge(Table(rows(1, 11, 21.5, 31, 41, **A) + second)).held is True
    for strangers in (rows(1, 11, 21.5, 31, 41, seed=7, **A), rows(1, 11, 21.5, 31, 41, 21, **A)):
        result = beats.judge(Table(strangers + second))
        assert result.held is None
        assert result.note.startswith("the interval of the effect begins at -2")
    assert beats.judge(Table(rows(41, 51, 61, 71, 81, seed=7, **A) + second)).held is True


@pytest.mark.parametrize(
    ("differences", "by", "held", "note"),
    [
        (around(1, 0.6), 1, None, "the interval of the effect begins at -0.18"),
        (around(1, 0.6), 1.01, False, "the effect is 1, of at least 1.01"),
        (around(0, 1), 0, False, ""),
        (around(-0.1, 1), 1, False, ""),  # there is none that could be too small
        (around(-2, 0.5), 1, False, ""),
        (around(1, 0.52), 0.5, None, "the interval of the effect begins at -0.021"),
        (around(1, 0.5), 0.5, True, ""),
        (around(1, 0.5), 1.0, True, ""),  # the mean has to reach it, and the interval to leave out zero
        (around(0.5, 0), 0.5, True, ""),
    ],
)
def test_an_effect_whose_interval_holds_zero_is_undecided(differences, by, held, note) -> None:
    assert reaches(estimate_of(np.array(differences)), by) == (held, note)
    table = Table(rows(*(7 + d for d in differences), **A) + rows(*(7 for _ in differences), **B))
    result = Beats("x", A, B, by=by).judge(table)
    assert (result.held, result.note) == (held, note)


@pytest.mark.parametrize(
    ("level", "held"), [(0, True), (0.35, True), (-0.35, True), (0.45, None), (0.55, None), (0.7, False), (-0.7, False)]
)
def test_two_groups_are_alike_if_the_interval_of_their_difference_is_within_the_margin(level, held) -> None:
    """Much scatter is no agreement."""
    other = rows(10, 10, 10, 10, 10, **B)
    result = Alike("x", A, B, by=0.5).judge(Table(rows(*around(10 + level, 0.05), **A) + other))
    assert result.held is held
    assert ("the interval of the difference" in result.note) == (held is None)
    shares = Alike("x", A, B, by=0.05, relative=True)
    assert shares.judge(Table(rows(*around(10 + level, 0.05), **A) + other)).held is held
    assert Alike("x", A, B, by=0.5).judge(Table(rows(*around(10, 0.5), **A) + other)).held is None


def test_groups_without_seeds_in_common_are_compared_as_welch_does() -> None:
    one, other = [3.0, 5.0, 4.0, 6.5], [1.0, 2.0]
    first, second = (
        Cell(dict(zip(names, own, strict=True)), len(own)) for names, own in (("abcd", one), ("xy", other))
    )
    effect = effect_of(first, second)
    welch = stats.ttest_ind(one, other, equal_var=False)
    assert effect.middle == pytest.approx(np.mean(one) - np.mean(other))
    assert (effect.low, effect.high) == pytest.approx(welch.confidence_interval(0.95))
    exactly = effect_of(first, Cell({None: 1.0}, None))
    alone = stats.ttest_1samp(one, 0).confidence_interval(0.95)
    assert (exactly.low, exactly.high) == pytest.approx((alone.low - 1, alone.high - 1))
    assert effect_of(Cell({None: 3.0}, None), Cell({None: 1.0}, None)) == Estimate(2.0, 2.0, 2.0)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([1.0, 4.0, 2.5, 3.0])
    result = estimate_of(values)
    assert (result.low, result.high) == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval(0.95))
    assert estimate_of(values[:1]) == Estimate(1.0, 1.0, 1.0)


@pytest.mark.parametrize(("count", "place"), [(5, 0), (6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (15, 3), (40, 13)])
def test_the_interval_of_a_median_is_made_of_order_statistics(count, place) -> None:
    values = np.random.default_rng(count).permutation(count).astype(float)
    result = estimate_of(values, "median")
    assert (result.middle, result.low, result.high) == ((count - 1) / 2, place, count - 1 - place)
    outside = 2 * stats.binom.cdf(place, count, 0.5)
    assert outside <= (0.0625 if count == 5 else 0.05)
    assert 2 * stats.binom.cdf(place + 1, count, 0.5) > 0.05, "no narrower one would do"


# --- curves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "held", "fails"),
    [
        (Rises("x", "t", by=1), [(0, 1), (0, 0, 1), (0, 0.5, 2)], [(0, 0.99), (0, 0, 0), (1, 0)]),
        (Rises("x", "t", by=0), [(0, 0.01)], [(0, 0), (0.01, 0)]),
        (Rises("x", "t", by=1, falls=True), [(1, 0), (3, 2, 0)], [(0.99, 0), (0, 1), (3, 3.1, 0)]),
        (Rises("x", "t", by=1, slack=0), [(0, 1, 2)], [(0, 1, 0.99, 2)]),
        (Rises("x", "t", by=1, slack=0.25), [(0, 1, 0.75, 2), (0, 1.25, 1)], [(0, 1, 0.74, 2), (1, 0.7, 1.9)]),
        (Rises("x", "t", by=1, slack=0.25, falls=True), [(2, 1, 1.25, 0)], [(2, 1, 1.26, 0)]),
        (Rises("x", "t", by=1, slack=None), [(0, 9, -9, 1)], [(0, 9, 0.9)]),
        (Flat("x", "t", by=0.5), [(1, 1.5, 1.25), (1.5, 1), (1, 1)], [(1, 1.51), (1, 0.49, 1)]),
        (
            Flat("x", "t", by=0.5, relative=True),
            [(2, 3), (-2, -1), (0, 0.5)],
            [(2, 3.1), (3.1, 2), (-2, -0.9), (0, 0.6)],
        ),
        (Peaks("x", "t"), [(0, 1, 0), (0, 1, 3, 1, 2)], [(0, 1, 2), (2, 1, 0), (0, 1, 1), (1, 1, 0)]),
        (Peaks("x", "t", by=0.5), [(0, 1, 0.5), (0.5, 1, 0)], [(0, 1, 0.51), (0.51, 1, 0)]),
        (Peaks("x", "t", highest=False), [(1, 0, 1), (3, 2, 0, 2, 1)], [(0, 1, 0), (1, 0, 0), (0, 0, 1)]),
    ],
)
def test_curves_on_both_sides_of_what_is_asked(criterion, held, fails) -> None:
    assert [criterion.judge(curve(*values)).held for values in held] == [True] * len(held)
    assert [criterion.judge(curve(*values)).held for values in fails] == [False] * len(fails)


def test_a_curve_that_seeds_do_not_agree_on_is_undecided() -> None:
    ends = around(1, 0.6)
    scattered = curves(*((0, 5, end) for end in ends))
    rises = Rises("x", "t", by=1, slack=None)
    result = rises.judge(scattered)
    assert (result.held, result.note) == (None, "the interval of the effect begins at -0.18")
    assert result.measured == "0: 0.00, 1: 5.00, 2: 1.00; by 1.00 [-0.18, 2.18]"
    steps = Rises("x", "t", by=1).judge(scattered)
    assert (steps.held, steps.note) == (False, "a step goes back")
    assert rises.judge(curves(*((10 * s, 5, 10 * s + 1 + s % 2 / 10) for s in range(5)))).held, "paired by seed"

    peaks = Peaks("x", "t")
    assert peaks.judge(curves(*((0, middle, 0) for middle in ends))) == Finding(
        "0: 0.00, 1: 1.00, 2: 0.00", None, "the interval of the effect begins at -0.18"
    )
    assert peaks.judge(curves(*((2, middle, 0) for middle in ends))).held is False, "an end that is higher decides"


def test_a_step_back_of_the_means_decides_if_the_seeds_agree() -> None:
    rises = Rises("x", "t", by=1, slack=0.1)
    back = rises.judge(curves(*((0, 2 + noise, 1.7) for noise in around(0, 0.05))))
    assert (back.held, back.note) == (False, "a step goes back")
    perhaps = rises.judge(curves(*((0, 2 + noise, 1.7) for noise in around(0, 0.5))))
    assert (perhaps.held, perhaps.note) == (None, "a step goes back, within its interval")
    assert rises.judge(curves(*((0, 2 + noise, 1.95) for noise in around(0, 0.5)))).held, "the means do not go back"


@pytest.mark.parametrize(("level", "held"), [(0, True), (0.35, True), (0.45, None), (0.55, None), (0.7, False)])
def test_a_curve_is_flat_if_no_two_of_its_points_can_differ_by_more(level, held) -> None:
    table = curves(*((10, 10 + shift, 10) for shift in around(level, 0.05)))
    result = Flat("x", "t", by=0.5).judge(table)
    assert result.held is held
    assert ("the interval of the difference of 0 and 1" in result.note) == (held is None)
    assert Flat("x", "t", by=0.05, relative=True).judge(table).held is held


# --- correlations and power laws -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "order", "held"),
    [
        (0.5, (1, 2, 3, 4), True),
        (0.89, (1, 2, 3, 5, 4), True),  # 0.9, p = 0.019
        (0.91, (1, 2, 3, 5, 4), False),
        (0.5, (1, 2, 4, 3), None),  # 0.8, p = 0.1
        (0.5, (1, 4, 2, 3), False),  # 0.4
        (0.5, (5, 4, 3, 2, 1), False),
        (-0.5, (5, 4, 3, 2, 1), True),
        (-0.89, (5, 4, 3, 1, 2), True),
        (-0.91, (5, 4, 3, 1, 2), False),
        (-0.5, (1, 2, 3, 4, 5), False),
        (-0.5, (4, 3, 1, 2), None),
        (0.5, (1, 2, 3), None),
    ],
)
def test_a_rank_correlation_of_exact_rows_has_to_be_strong_and_beyond_chance(least, order, held) -> None:
    table = [{"x": place**3, "y": rank} for place, rank in enumerate(order)]
    result = Correlates("x", "y", least).judge(Table([*table, {"x": 9.0}, {"y": 0.0}]))
    assert result.held is held
    assert bool(result.note) == (held is None)
    assert bool(result.measured) == (len(order) > 3)


def test_a_rank_correlation_is_as_sure_as_its_seeds_agree() -> None:
    """Ten stages of each training: one training that goes the other way takes the certainty, not only a tenth of it."""
    together = [{"seed": s, "x": 10 * s + t, "y": 10 * s + t} for s in range(5) for t in range(10)]
    result = Correlates("x", "y", 0.5).judge(Table(together))
    assert (result.held, result.measured) == (True, "Spearman 1.00 over 50 rows")
    mixed = [{"seed": s, "x": t, "y": t if s < 3 else -t} for s in range(5) for t in range(10)]
    doubtful = Correlates("x", "y", 0.05).judge(Table(mixed))
    assert doubtful.held is None
    assert stats.spearmanr([r["x"] for r in mixed], [r["y"] for r in mixed], alternative="greater").pvalue < 0.1
    opposite = [row | {"y": -row["y"]} for row in together]
    assert Correlates("x", "y", 0.5).judge(Table(opposite)).held is False
    assert Correlates("x", "y", -0.5).judge(Table(opposite)).held is True
    constant = [row | {"y": 1.0} for row in together]
    assert Correlates("x", "y", 0.5).judge(Table(constant)).held is False


def law(slopes: tuple[float, ...], sizes: tuple[float, ...] = (10.0, 100.0, 1000.0)) -> list[Row]:
    """For each seed a power of the size, times something of its own."""
    return [{"seed": s, "n": n, "x": (s + 1) * n**slope} for s, slope in enumerate(slopes) for n in sizes]


@pytest.mark.parametrize(
    ("slopes", "rival", "held"),
    [
        (around(-1, 0), -0.5, True),
        (around(-0.5, 0), -0.5, False),
        (around(-1.07, 0.01), -0.5, True),  # within 0.1
        (around(-1.09, 0.01), -0.5, None),  # up to -1.11
        (around(-1.13, 0.01), -0.5, False),
        (around(-0.93, 0.01), -0.5, True),
        (around(-0.91, 0.01), -0.5, None),
        (around(-0.87, 0.01), -0.5, False),
        (around(-1.05, 0.01), -1.15, True),
        (around(-1.07, 0.01), -1.15, None),  # within 0.1, but perhaps nearer to the rival
        (around(-1.1, 0.01), -1.15, False),
        (around(-1, 0.16), -0.5, None),  # -1 ± 0.31: much scatter is no law
    ],
)
def test_an_exponent_is_the_predicted_one_and_not_its_rival(slopes, rival, held) -> None:
    result = PowerLaw("x", "n", -1, rival).judge(Table(law(slopes)))
    assert result.held is held
    assert result.measured.endswith("from 10 to 1000, 5 seeds")
    assert ("lies across" in result.note) == (held is None)


def test_an_exponent_needs_seeds_sizes_and_values_above_zero() -> None:
    good = PowerLaw("x", "n", -1, -0.5)
    few = good.judge(Table(law((-1,) * 4)))
    assert (few.held, few.note) == (None, "4 seeds: five are needed")
    two = good.judge(Table(law((-1,) * 5, (10, 100))))
    assert (two.held, two.note) == (None, "2 sizes are too few for an exponent")
    zero = [row | {"x": 0.0} if row["n"] == 10 and row["seed"] == 2 else row for row in law((-1,) * 5)]
    for nothing in (law((-1,) * 5, (10,)), zero):
        assert good.judge(Table(nothing)) == Finding(
            "", None, "nothing was measured, or an exponent needs two sizes and values above zero"
        )
    missing = [row for row in law((-1,) * 6) if (row["seed"], row["n"]) != (5, 100)]
    assert good.judge(Table(missing)).measured.endswith("5 seeds"), "a seed counts that every size has"


@pytest.mark.parametrize(("smallest", "held"), [(0, False), (10, True), (11, False)])
def test_sizes_before_the_law_are_left_out_while_three_remain(smallest, held) -> None:
    early = [row | {"x": 1e-3} for row in law((-1,) * 5, (1.0,))]
    result = PowerLaw("x", "n", -1, -0.5, smallest=smallest).judge(Table(early + law((-1,) * 5)))
    assert result.held is held
    assert f"from {10 if held else 1} to 1000" in result.measured


# --- groups, several criteria, nothing to judge ----------------------------------------------------------------------

EVERY_KIND: list[Criterion] = [
    AtLeast("x", 0.5),
    AtLeast("x", -2.0, of="median", where={"kind": "k"}),
    AtMost("x", 0.5, of="every", each="group"),
    Between("x", 1, 3),
    Near("x", 2, by=0.1),
    Near("x", "y", by=0.1, relative=True),
    Near("x", 2, by=0.1, of="every"),
    Beats("x", A, B, by=0.1),
    Beats("x", A, B, by=0, higher=False, each="group"),
    Beats("x", A, B, by=0.1, relative=True),
    Alike("x", A, B, by=0.1),
    Alike("x", A, B, by=0.1, relative=True, where={"kind": "k"}),
    Rises("x", "t", by=1),
    Rises("x", "t", by=1, slack=0.3, falls=True),
    Rises("x", "t", by=1, slack=None, each="group"),
    Flat("x", "t", by=0.1),
    Flat("x", "t", by=0.1, relative=True),
    Peaks("x", "t", by=0.2),
    Peaks("x", "t", highest=False, each="group"),
    Correlates("x", "y", 0.5),
    Correlates("x", "y", -0.5),
    PowerLaw("x", "n", -1, -0.5),
    PowerLaw("x", "n", 0.5, 1, smallest=100, each="group"),
    All(AtLeast("x", 0.5), AtMost("y", 0.5)),
]


@pytest.mark.parametrize("criterion", EVERY_KIND, ids=lambda criterion: criterion.sentence)
def test_a_criterion_makes_tables_that_meet_and_miss_it(criterion) -> None:
    assert criterion.judge(Table(criterion.met())).held is True
    missed = criterion.missed()
    assert missed
    assert [criterion.judge(Table(table)).held for table in missed] == [False] * len(missed)


@pytest.mark.parametrize("criterion", EVERY_KIND, ids=lambda criterion: criterion.sentence)
def test_nothing_measured_decides_nothing(criterion) -> None:
    for table in ([], [{"seed": 0, "other": 1.0}], [{"seed": 0, "x": None, "group": 1, "kind": "k", "t": 0, **A}]):
        result = criterion.judge(Table(table))
        assert (result.measured, result.held) == ("", None)
        assert "nothing was measured" in result.note


def with_seeds(table: list[Row], count: int) -> Table:
    return Table([row for row in table if row["seed"] < count])


@pytest.mark.parametrize("criterion", EVERY_KIND, ids=lambda criterion: criterion.sentence)
@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_verdict_needs_five_seeds_in_every_cell(criterion, count) -> None:
    for table, verdict in ((criterion.met(), True), *((missed, False) for missed in criterion.missed())):
        result = criterion.judge(with_seeds(table, count))
        assert result.held is (verdict if count == 5 else None)
        if count < 5:
            assert f"{count} seed{'s' * (count > 1)}" in result.note, result.note
            assert result.note.endswith(("five are needed", "five of each are needed"))


@pytest.mark.parametrize("criterion", EVERY_KIND, ids=lambda criterion: criterion.sentence)
def test_rows_without_seeds_are_exact_and_decide(criterion) -> None:
    for table, verdict in ((criterion.met(), True), *((missed, False) for missed in criterion.missed())):
        exactly = [{key: value for key, value in row.items() if key != "seed"} for row in table]
        assert criterion.judge(Table(exactly)).held is verdict


def test_what_is_made_of_several_seeds_says_of_how_many() -> None:
    for count, held, note in ((4, None, "4 seeds: five are needed"), (5, True, "")):
        result = AtLeast("x", 0.01).judge(Table([{"x": 0.5, "of_seeds": count}]))
        assert (result.held, result.note) == (held, note)


def test_one_side_with_few_seeds_is_enough_to_decide_nothing() -> None:
    few, many = rows(9, **A), rows(1, 1, 1, 1, 1, **B)
    for criterion in (Beats("x", A, B, by=1), Alike("x", A, B, by=99)):
        for table in (few + many, [row | B for row in few] + [row | A for row in many]):
            result = criterion.judge(Table(table))
            assert result.held is None
            assert "five of each are needed" in result.note
    assert Beats("x", A, B, by=1).judge(Table(few + many)).note == "1 seed of a, 5 of b: five of each are needed"
    against_exact = Table([*rows(9, 9, 9, 9, 9, **A), {"x": 1.0, **B}])
    assert Beats("x", A, B, by=1).judge(against_exact).held is True
    uneven = curves(*((0, 1, 2) for _ in range(5))).rows
    short = [row for row in uneven if row["t"] != 1 or row["seed"] < 2]
    assert (
        Rises("x", "t", by=1).judge(Table(short)).note == "5 seeds of t 0, 2 of t 1, 5 of t 2: five of each are needed"
    )
    assert Rises("x", "t", by=1, slack=None).judge(Table(short)).held, "steps between are not looked at"
    assert shortage({"a": None, "b": 5}) == ""


def test_a_cell_is_exact_or_drawn_and_not_both() -> None:
    with pytest.raises(ValueError, match="some rows of one cell have a seed and some have none"):
        cell_of(Table([{"x": 1.0}, {"seed": 0, "x": 2.0}]), "x")


def test_one_of_two_groups_is_nothing_to_compare_with() -> None:
    for criterion in (Beats("x", A, B, by=0), Alike("x", A, B, by=9)):
        for alone in (A, B):
            assert criterion.judge(Table(rows(1, 2, **alone))).held is None
    assert Rises("x", "t", by=0).judge(curve(1)).held is None
    assert Flat("x", "t", by=9).judge(curve(1)).held is None
    assert Peaks("x", "t").judge(curve(0, 1)).note == "nothing was measured between two ends"


def test_only_the_rows_of_its_own_count() -> None:
    table = Table([{"x": 1.0, "kind": "good"}, {"x": -9.0, "kind": "other"}])
    assert AtLeast("x", 1, where={"kind": "good"}).judge(table).held
    assert not AtLeast("x", 1).judge(table).held


def test_each_group_has_to_meet_it() -> None:
    each = AtLeast("x", 1, each="group")
    good, bad = rows(2, 2, 2, 2, 2, group="good"), rows(0, 0, 0, 0, 0, group="bad")
    lacking = [{"seed": 0, "group": "lacking"}]
    assert each.judge(Table(good)) == Finding("good: 2.00", True)
    assert each.judge(Table(good + good + bad)) == Finding("bad: 0.00; good: 2.00", False)
    assert each.judge(Table(good + lacking)) == Finding("good: 2.00", True)  # of which nothing is asked
    assert each.judge(Table(good + bad + lacking)).held is False
    sides = Beats("x", {"side": 1}, {"side": 2}, by=1, each="group")
    whole = [row | {"side": side, "x": 5.0 - side * 2, "group": "a"} for side in (1, 2) for row in rows(0, 0, 0, 0, 0)]
    half = rows(3, 3, 3, 3, 3, group="b", side=1)
    assert sides.judge(Table(whole)).held
    assert sides.judge(Table(whole + half)).held is None  # it has one side, and lacks the other
    near = Near("x", "goal", by=1, each="group")
    assert near.judge(Table([row | {"goal": 2.0} for row in good] + bad)).held  # nothing is predicted of the bad
    assert each.judge(Table(lacking)) == Finding("", None, "nothing was measured")
    assert each.judge(Table([row | {"group": 0.5} for row in good])).measured == "0.5: 2.00"
    hidden = AtLeast("x", 1, each="group", where={"group": "good"})
    assert hidden.judge(Table(good + bad)).held


def test_of_many_groups_those_are_listed_that_do_not_hold() -> None:
    each = AtLeast("x", 1, each="group")
    good = [{"x": 2.0, "group": group} for group in "abcde"]
    assert each.judge(Table(good[:4])) == Finding("a: 2.00; b: 2.00; c: 2.00; d: 2.00", True)
    assert each.judge(Table(good)) == Finding("all 5 hold", True)
    assert each.judge(Table([*good, {"x": 0.0, "group": "z"}])) == Finding("z: 0.00; the other 5 hold", False)
    assert each.judge(Table([*good, {"group": "f"}])).measured == "all 5 hold"


def test_several_criteria_name_their_figures_and_all_have_to_be_met() -> None:
    both = All(AtLeast("x", 1, called="score"), AtMost("y_axis", 1))
    assert both.sentence == "score is at least 1; and y axis is at most 1"
    assert both.judge(Table([{"x": 1.0, "y_axis": 1.0}])) == Finding("score 1.00; y axis 1.00", True)
    assert both.judge(Table([{"x": 0.5, "y_axis": 1.0}])).held is False
    assert both.judge(Table([{"x": 1.0, "y_axis": 2.0}])).held is False
    assert both.judge(Table([{"x": 1.0}])) == Finding("score 1.00", None, "nothing was measured")
    assert both.judge(Table([{"x": 0.5}])).held is False, "one that failed decides"
    alike = All(AtLeast("x", 1), AtMost("x", 3))
    assert alike.judge(exact(2.0)).measured == "2.00; 2.00"


def test_verdicts_together() -> None:
    assert all_of([True, True]) is True
    assert all_of([True, None]) is None
    assert all_of([None, False, True]) is False


# --- sentences and claims --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "sentence"),
    [
        (AtLeast("mean_score", 0.8), "mean score is at least 0.8"),
        (AtLeast("x", 0.8, of="every", called="R²", each="data_set"), "every R² is at least 0.8, for each data set"),
        (AtMost("x", 3, of="median", where={"kind": "sparse", "d": 5}), "the median of x is at most 3 (sparse)"),
        (Between("x", 0.9, 1.1), "x lies between 0.9 and 1.1"),
        (Near("x", 2.5, by=0.1), "x is within 0.1 of 2.5"),
        (Near("x", "the_theory", by=0.05, relative=True), "x is within 5 % of the theory"),
        (Near("x", 0.39537, by=0.03, to="the threshold"), "x is within 0.03 of the threshold (0.3954)"),
        (Near("x", "y", by=1, to="theory"), "x is within 1 of theory"),
        (
            Beats("x", A, {"n": 5}, by=0.1),
            "x: a is above n 5 by at least 0.1 in the mean, and above it with 95 % confidence",
        ),
        (
            Beats("x", A, B, by=0.1, relative=True, higher=False),
            "x: a is below b by at least 10 % in the mean, and below it with 95 % confidence",
        ),
        (Beats("x", A, B, by=0), "x: a is above b with 95 % confidence"),
        (Alike("x", A, B, by=0.03), "x: a and b differ by at most 0.03"),
        (Alike("x", A, B, by=0.03, relative=True), "x: a and b differ by at most 3 %"),
        (
            Rises("x", "the_time", by=2),
            "x rises over the time from end to end by at least 2 in the mean and with 95 % confidence, no step of the "
            "means going back",
        ),
        (
            Rises("x", "t", by=0, slack=0.3, falls=True),
            "x falls over t from end to end with 95 % confidence, no step of the means going back by more than 0.3",
        ),
        (Rises("x", "t", by=0, slack=None), "x rises over t from end to end with 95 % confidence"),
        (Flat("x", "t", by=0.5), "x varies by at most 0.5 over t"),
        (Flat("x", "t", by=0.5, relative=True), "x varies by at most 50 % over t"),
        (Peaks("x", "t"), "x is largest at neither end of t with 95 % confidence"),
        (
            Peaks("x", "t", by=0.2, highest=False),
            "x is smallest at neither end of t, 0.2 or more beyond both in the mean, with 95 % confidence",
        ),
        (
            Correlates("x", "y", 0.5),
            "the rank correlation of x and y is at least 0.5, and above 0 with 95 % confidence",
        ),
        (
            Correlates("x", "y", -0.5),
            "the rank correlation of x and y is at most -0.5, and below 0 with 95 % confidence",
        ),
        (PowerLaw("x", "n", -1, -0.5), "x goes as n to a power within 0.1 of -1.000 and nearer to it than to -0.500"),
    ],
)
def test_a_criterion_says_what_it_asks_with_its_bounds(criterion, sentence) -> None:
    assert criterion.sentence == sentence


def test_a_claim_says_its_verdict_and_why() -> None:
    criterion = AtLeast("x", 1)
    plain = Claim("it works", "table 1", criterion, note="on a small world")
    weaker = Claim("it works", "table 1", criterion, weaker="two worlds of five")
    assert [plain.judge(table).verdict for table in (exact(1), exact(0), Table([]))] == [
        "held",
        "not held",
        "undecided",
    ]
    assert [weaker.judge(table).verdict for table in (exact(1), exact(0), Table([]))] == [
        "weaker form held",
        "not held",
        "undecided",
    ]
    assert plain.judge(exact(1)).note == "on a small world"
    assert weaker.judge(exact(1)).note == "weaker than published: two worlds of five"
    assert plain.judge(Table([])).record() == {
        "text": "it works",
        "tested": "x is at least 1",
        "published": "table 1",
        "measured": "-",
        "verdict": "undecided",
        "note": "nothing was measured; on a small world",
    }


def test_a_claim_decides_nothing_unless_its_condition_is_met() -> None:
    claim = Claim("it works", "table 1", AtLeast("x", 1), provided=AtLeast("trained", 0.9))
    good = {"x": 2.0, "trained": 0.9}
    assert claim.judge(Table([good])).held is True
    assert claim.judge(Table([good | {"x": 0.5}])).held is False
    for value in (2.0, 0.5):
        result = claim.judge(Table([good | {"x": value, "trained": 0.5}]))
        assert result.held is None
        assert result.note == "decided only if trained is at least 0.9; here 0.50"
        assert result.measured == f"{value:.2f}", "what was measured is shown all the same"
    assert claim.judge(Table([{"x": 2.0}])).note == "decided only if trained is at least 0.9"
    assert [expected for _, expected in claim.examples()] == [True, False, None]
    assert all(claim.judge(Table(made)).held is expected for made, expected in claim.examples())


# --- rows ------------------------------------------------------------------------------------------------------------


def test_the_difference_of_two_columns() -> None:
    row = {"a": 1, "b": 3.5, "c": None}
    assert difference(row, "a", "b") == -2.5
    assert difference(row, "a", "b", sign=False) == 2.5
    assert difference(row, "a", "c") is None
    assert difference(row, "missing", "a") is None


def test_a_duel_repeats_the_first_for_every_rival() -> None:
    """So that a criterion for each rival compares both sides by seed."""
    table = Table([*rows(5, 6, **A), *rows(4, 4, **B), *rows(1, 7, model="c")])  # two seeds, so nothing is decided
    result = duels(table, "model", "a")
    assert result.distinct("rival") == ["b", "c"]
    assert result.where(rival="b", side="a").column("x").tolist() == [5, 6]
    assert result.where(rival="c", side="a").column("x").tolist() == [5, 6]
    assert result.where(rival="c", side="rival").column("x").tolist() == [1, 7]
    assert len(result) == 8
    ahead = Beats("x", {"side": "a"}, {"side": "rival"}, by=1, each="rival")
    verdicts = ahead.judge(result)
    assert verdicts.held is None
    assert verdicts.measured.startswith("b: 5.50")
    assert len(duels(table.where(**A), "model", "a")) == 0


def test_equal_numbers_do_not_go_back() -> None:
    """0.1 + 0.2 is a little more than 0.3."""
    rows = [{"k": k, "g": g} for k, g in ((1, 0.1), (2, 0.1 + 0.2), (3, 0.3))]
    assert Rises("g", "k", by=0.1).judge(Table(rows)).held
    seeds = [row | {"seed": seed} for row in rows for seed in range(5)]
    assert Rises("g", "k", by=0.1).judge(Table(seeds)).held
    assert Flat("g", "k", by=0).judge(Table([row | {"g": 0.1 + 0.2} if row["k"] > 1 else row for row in rows[1:]])).held


def test_lists_of_numbers_are_in_the_order_of_their_numbers() -> None:
    """Widths of layers: by their letters, [1024] comes before [64]."""
    errors = (("[64]", 0.5), ("[256]", 0.3), ("[1024]", 0.1))
    rows = [{"hidden": hidden, "seed": seed, "error": error} for hidden, error in errors for seed in range(5)]
    finding = Rises("error", "hidden", by=0.1, falls=True).judge(Table(rows))
    assert finding.held
    assert finding.measured.startswith("[64]: 0.50, [256]: 0.30, [1024]: 0.10")


def test_a_share_of_nothing_is_nothing_and_no_number_decides_nothing() -> None:
    rows = [{"seed": seed, "gap": 0.04, "theory": 0.0} for seed in range(5)]
    assert Near("gap", "theory", by=0.05, relative=True).judge(Table(rows)).held is False
    lost = [{"seed": seed, "gap": float("nan") if not seed else 1.0} for seed in range(5)]
    assert Near("gap", 1.0, by=0.1, of="every").judge(Table(lost)).held is None
