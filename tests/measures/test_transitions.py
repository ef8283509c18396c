"""Densities of changes, and their picture."""

import numpy as np
import pytest
from scipy.stats import gennorm, kurtosis

from polariscope.measures.transitions import fit_transitions
from polariscope.report.transition_figures import transition_histogram


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_shape_and_scale_are_found_again(alpha) -> None:
    u = gennorm.rvs(alpha, scale=3.0, size=40_000, random_state=0)
    result = fit_transitions(u)
    assert result.alpha == pytest.approx(alpha, rel=0.05)
    assert result.scale == pytest.approx(3.0, rel=0.12)
    best = max(result.log_likelihood, key=result.log_likelihood.__getitem__)
    assert best == "generalised"
    assert result.log_likelihood["generalised"] == pytest.approx(gennorm.logpdf(u, result.alpha, 0, result.scale).sum())
    assert result.density(u[:9]) == pytest.approx(gennorm.pdf(u[:9], result.alpha, 0, result.scale))


def test_families_are_ordered_by_their_tails() -> None:
    result = fit_transitions(gennorm.rvs(0.5, size=20_000, random_state=1))
    likely = result.log_likelihood
    assert likely["generalised"] > likely["laplace"] > likely["normal"]
    assert result.kurtosis > 10  # 25.2 in the limit, 3 for a normal density


def test_the_kurtosis_is_that_of_scipy_whatever_the_mean() -> None:
    u = 0.7 + np.random.default_rng(0).laplace(size=2000)
    assert fit_transitions(u).kurtosis == pytest.approx(kurtosis(u, fisher=False))


@pytest.mark.parametrize("deltas", [[], [1.0], [np.nan, 1.0], [0.0, 0.0]])
def test_nothing_to_fit_is_one_sentence(deltas) -> None:
    with pytest.raises(ValueError, match=r"at least two finite changes|nothing changes"):
        fit_transitions(deltas)


@pytest.mark.spec("001a/VZ-04")
def test_the_histogram_ends_at_five_standard_deviations() -> None:
    rng = np.random.default_rng(0)
    heavy = gennorm.rvs(0.5, size=10_000, random_state=0)
    figure = transition_histogram({"x": heavy, "y": rng.normal(size=10_000)})
    assert len(figure.axes) == 2
    for axes, u in zip(figure.axes, (heavy, None), strict=True):
        low, high = axes.get_xlim()
        if u is not None:
            assert (low, high) == pytest.approx((-5 * u.std(), 5 * u.std()))
            last = axes.patches[-1]
            beyond = np.mean(u >= last.get_x())  # nothing is dropped: what lies beyond is in the last bin
            assert beyond > 2 * np.mean((u >= last.get_x()) & (u < high))
            assert last.get_height() * last.get_width() == pytest.approx(beyond)
        labels = [line.get_label() for line in axes.lines]
        assert labels[0].startswith("generalised, α = ")
        assert labels[1:] == ["laplace", "normal"]
        assert axes.get_yscale() == "log"
