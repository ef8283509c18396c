"""The table of fits, the dependence of factors and the shape over time, against SciPy and closed forms."""

import numpy as np
import pytest
from scipy import stats

from polariscope.measures.transition_statistics import (
    dependence,
    permuted,
    shapes_by_gap,
    transition_statistics,
)
from polariscope.report.transition_figures import shape_over_gap, transition_planes
from polariscope.theory.transitions import rate_of_scale, sample

NAMES = ("x", "y", "area")


@pytest.fixture(scope="module")
def tied() -> np.ndarray:
    """Sparse steps that are large together."""
    rng = np.random.default_rng(0)
    return sample(0.7, 1.0, (8000, 3), rng) * rng.exponential(size=(8000, 1)) * (1, 2, 40)


@pytest.mark.spec("001a/NS-03")
def test_the_table_has_a_row_for_each_factor_of_each_data_set(tied) -> None:
    sets = {"sparse": tied + np.array([0.5, 0, 0]), "round": np.random.default_rng(1).normal(size=(5000, 3))}
    result = transition_statistics(sets, NAMES)
    assert [(row["data"], row["factor"]) for row in result.records()] == [(d, n) for d in sets for n in NAMES]
    for row, u in zip(result.records(), [column for table in sets.values() for column in table.T], strict=True):
        assert row["n"] == len(u)
        assert row["normal_location"] == pytest.approx(u.mean())
        assert row["normal_scale"] == pytest.approx(u.std())
        assert row["laplace_location"] == pytest.approx(np.median(u), abs=1e-3)
        assert row["excess_kurtosis"] == pytest.approx(stats.kurtosis(u))
        for family, theirs in {
            "generalised": stats.gennorm(row["alpha"], row["generalised_location"], row["generalised_scale"]),
            "laplace": stats.laplace(row["laplace_location"], row["laplace_scale"]),
            "normal": stats.norm(row["normal_location"], row["normal_scale"]),
        }.items():
            assert row[f"{family}_log_likelihood"] == pytest.approx(theirs.logpdf(u).sum())
            assert row[f"{family}_ks"] == pytest.approx(stats.ks_1samp(u, theirs.cdf).statistic)
        likelihoods = [row[f"{family}_log_likelihood"] for family in ("generalised", "laplace", "normal")]
        if row["data"] == "sparse":
            assert likelihoods == sorted(likelihoods, reverse=True)
            assert row["generalised_ks"] < row["laplace_ks"] < row["normal_ks"]
            assert row["alpha"] < 0.7
        else:
            assert row["alpha"] == pytest.approx(2, abs=0.15)
    assert result.rows[0].fit.families["generalised"].location == pytest.approx(0.5, abs=0.05)
    assert result.rows[0].fit.density(0.5) > 1.5 * result.rows[0].fit.density(0.0), "the density is where the data is"
    assert "Laplace steps are likelier than normal steps for 3 of 6 factors" in result.headline
    assert result.to_arrow().num_rows == 6


@pytest.mark.spec("001a/NS-03")
def test_whole_numbers_are_spread_over_their_pixel() -> None:
    """A fifth of the areas do not change at all: taken as they are, they favour the smallest shape there is."""
    u = np.rint(sample(0.455, rate_of_scale(0.5, 0.455), (20_000, 1), seed=0))
    assert (u == 0).mean() > 0.15
    (row,) = transition_statistics(u, ("area",), location=0.0).rows
    assert row.jittered
    assert row.fit.alpha == pytest.approx(0.455, abs=0.05)
    (as_it_is,) = transition_statistics(u + 1e-9, ("area",), location=0.0).rows
    assert not as_it_is.jittered
    assert as_it_is.fit.alpha < 0.2


@pytest.mark.spec("001a/NS-04")
def test_dependence_is_a_rank_correlation_that_permutation_takes_away(tied) -> None:
    result = dependence(tied, NAMES)
    assert [(d.first, d.second) for d in result] == [("x", "y"), ("x", "area"), ("y", "area")]
    for d, (i, j) in zip(result, [(0, 1), (0, 2), (1, 2)], strict=True):
        assert d.natural == pytest.approx(stats.spearmanr(np.abs(tied[:, i]), np.abs(tied[:, j])).statistic)
        assert d.natural > 0.2
        assert abs(d.permuted) < 4 * d.noise
        assert d.noise == pytest.approx(1 / np.sqrt(7999))
    mixed = permuted(tied, seed=0)
    np.testing.assert_array_equal(np.sort(mixed, axis=0), np.sort(tied, axis=0))
    assert all(abs(d.natural) < 4 * d.noise for d in dependence(mixed, NAMES))
    # Signs do not count: only the sizes are tied here.
    assert abs(stats.spearmanr(tied[:, 0], tied[:, 1]).statistic) < 4 * result[0].noise
    assert transition_statistics(tied, NAMES).dependence == result


@pytest.mark.spec("001a/NS-04")
def test_planes_show_the_mass_that_permutation_moves_to_the_axes(tied) -> None:
    figure = transition_planes(tied, NAMES, bins=21)
    assert len(figure.axes) == 6
    assert [axes.get_title("left").split(",")[0] for axes in figure.axes] == 3 * ["as they are"] + 3 * ["permuted"]
    away = np.abs(np.arange(21) - 10) > 2
    for natural, control in zip(figure.axes[:3], figure.axes[3:], strict=True):
        on_diagonals = [
            np.asarray(axes.collections[0].get_array().filled(0)).reshape(21, 21)[np.ix_(away, away)].sum()
            for axes in (natural, control)
        ]
        assert on_diagonals[0] > 1.5 * on_diagonals[1]
    assert figure.axes[0].get_title("left").endswith(f"{dependence(tied, NAMES)[0].natural:.2f}")


@pytest.mark.spec("001a/NS-05")
def test_independent_steps_become_normal_and_lively_sequences_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    gaps = (1, 4, 16, 64)
    steps = rng.laplace(size=(4000, 64))
    independent = {gap: steps[:, :gap].sum(1, keepdims=True) for gap in gaps}
    lively = rng.normal(size=(4000, 64)) * np.exp(1.2 * rng.normal(size=(4000, 1)))
    mixture = {gap: lively[:, :gap].sum(1, keepdims=True) for gap in gaps}
    result = {
        name: [at.alpha for at in shapes_by_gap(changes, ("x",))]
        for name, changes in (("independent", independent), ("mixture", mixture))
    }
    assert result["independent"] == sorted(result["independent"])
    assert result["independent"][0] == pytest.approx(1, abs=0.1)
    assert result["independent"][-1] == pytest.approx(2, abs=0.25)
    assert max(result["mixture"]) < 1
    assert np.ptp(result["mixture"]) < 0.1


@pytest.mark.spec("001a/NS-05")
def test_shapes_over_time_are_in_the_statistics_and_in_a_figure(tied) -> None:
    result = transition_statistics(tied, NAMES, {5: tied[:4000], 1: tied})
    assert [(at.gap, at.factor, at.n) for at in result.gaps] == [
        (gap, name, n) for gap, n in ((1, 8000), (5, 4000)) for name in NAMES
    ]
    lines = shape_over_gap(result.gaps).axes[0].lines
    assert [line.get_label() for line in lines[:3]] == list(NAMES)
    for name, line in zip(NAMES, lines, strict=False):
        assert list(line.get_xdata()) == [1, 5]
        assert list(line.get_ydata()) == [at.alpha for at in result.gaps if at.factor == name]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda u: transition_statistics({}, NAMES), "at least one data set"),
        (lambda u: transition_statistics(u[:, :2], NAMES), r"rows of 3 changes \(x, y, area\); got shape \(8000, 2\)"),
        (lambda u: transition_statistics(u[:1], NAMES), r"at least 2 rows .* got shape \(1, 3\)"),
        (lambda u: transition_statistics(np.where(u > 9, np.nan, u), NAMES), "rows are not: drop them"),
        (lambda u: transition_statistics(u * (1, 1, 0), NAMES), "nothing changes"),
        (lambda u: dependence(u * (1, 1, 0), NAMES), "those of area are all equal"),
        (lambda u: transition_planes(u[:, :1], ("x",)), "planes need two factors; got 1"),
        (lambda u: shape_over_gap(()), "at one gap at least; got none"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(call, sentence, tied) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        call(tied)
    assert "\n" not in str(caught.value)
