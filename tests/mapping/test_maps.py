"""Maps from probabilities, their areas, scores and trends, and terrain, against numbers by hand and closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from polariscope.mapping.areas import map_areas, probability_areas, threshold_sweep
from polariscope.mapping.harden import harden, without_weights
from polariscope.mapping.objects import regions, without_small
from polariscope.mapping.scores import object_scores, pixel_scores, retention
from polariscope.mapping.terrain import terrain
from polariscope.mapping.trend import trend

TAUS = (0.2, 0.3, 0.5, 0.8)


def probabilities(seed: int = 0, size: int = 24) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(5, size, size)) * 2
    return np.exp(logits) / np.exp(logits).sum(0)


@pytest.mark.spec("000/F043")
def test_a_threshold_keeps_the_most_probable_class_besides_the_background() -> None:
    p = np.array([0.55, 0.1, 0.2, 0.05, 0.1])
    assert harden(p, 0.5, background=4) == 0
    assert harden(p, 0.6, background=4) == 4
    unsure = np.array([0.35, 0.05, 0.0, 0.0, 0.6])
    assert harden(unsure, 0.3, background=4) == 0, "the background is left out before the maximum is taken"
    assert harden(unsure, [0.4, 0.2, 0.3, 0.5, 0.0], background=4) == 4, "a threshold of its own"
    for bad, words in ((1.5, "expected one threshold"), ([0.1, 0.2], "expected one threshold")):
        with pytest.raises(ValueError, match=words):
            harden(p, bad, background=4)
    with pytest.raises(ValueError, match="probabilities are from 0 to 1"):
        harden(p * 3, 0.5, background=4)


@pytest.mark.spec("000/F044")
def test_areas_add_up_to_the_image() -> None:
    p = probabilities()
    assert probability_areas(p, 0.25).sum() == pytest.approx(24 * 24 * 0.25, abs=1e-6)
    for tau in TAUS:
        assert map_areas(harden(p, tau, 4), 5, 0.25).sum() == pytest.approx(24 * 24 * 0.25, abs=1e-6)
    valid = np.zeros((24, 24), bool)
    valid[:3] = True
    assert probability_areas(p, 1.0, valid).sum() == pytest.approx(72, abs=1e-6)


@pytest.mark.spec("000/F050")
def test_the_area_falls_with_the_threshold_and_picks_one() -> None:
    levels = np.linspace(0, 0.95, 20)
    sweep = threshold_sweep([probabilities(0), probabilities(1)], levels, background=4, pixel_area=1.0)
    totals = sweep.areas.sum(1)
    assert (np.diff(totals) <= 0).all()
    assert totals[0] > 2 * totals[-1]
    assert sweep.matching(totals[7]) == pytest.approx(levels[7])
    assert sweep.areas.shape == (20, 4), "the background is left out"


def test_undone_weights_give_the_posterior_back() -> None:
    truth, weights = np.array([0.02, 0.08, 0.9]), np.array([0.6, 0.39, 0.01])
    weighted = truth * weights / (truth * weights).sum()
    np.testing.assert_allclose(without_weights(weighted, list(weights)), truth, atol=1e-12)
    trail = np.array([0.3, 0.7])
    assert without_weights(trail, [0.4485, 0.01])[0] == pytest.approx(0.0095, abs=1e-4), "section 5.5 of the spec"


@pytest.mark.spec("000/F045")
def test_objects_smaller_than_four_square_metres_go() -> None:
    classes = np.full((12, 12), 4)
    classes[0:4, 0:4] = 0  # 16 pixels: 4 m² at half a metre
    classes[6:9, 0:5] = 1  # 15 pixels
    classes[4, 4] = 0  # touches the first at a corner only: an object of its own
    classes[9, 0:5] = 0  # touches the second, which is of another class
    assert regions(classes, 4).max() == 4
    kept = without_small(classes, 4, pixel_area=0.25)
    assert regions(kept, 4).max() == 1
    assert (kept == 0).sum() == 16
    assert regions(without_small(classes, 4, pixel_area=1.0), 4).max() == 3


@pytest.mark.spec("000/F046")
def test_object_scores_by_hand() -> None:
    predicted, reference = np.full((6, 10), 9), np.full((6, 10), 9)
    predicted[0:2, 0:4] = 0  # 8 pixels, overlaps the reference's 4 in one pixel
    reference[1:3, 3:5] = 0
    predicted[4, 0:3] = 1  # 3 pixels that match nothing
    reference[4:6, 6:9] = 1  # 6 pixels that nothing matches
    scores = object_scores(predicted, reference, background=9)
    assert (scores.hits, scores.false_positives, scores.misses) == (6.0, 3.0, 6.0)
    assert (scores.precision, scores.recall) == (6 / 9, 6 / 12)
    only = object_scores(predicted, reference, background=9, of=0)
    assert (only.precision, only.recall) == (1.0, 1.0)
    strict = pixel_scores(predicted, reference, background=9)
    assert (strict.hits, strict.false_positives, strict.misses) == (1.0, 10.0, 9.0)


@pytest.mark.spec("000/F046")
@given(arrays(np.int64, (8, 8), elements=st.integers(0, 3)), arrays(np.int64, (8, 8), elements=st.integers(0, 3)))
def test_objects_are_scored_no_worse_than_pixels(predicted: np.ndarray, reference: np.ndarray) -> None:
    lenient, strict = (f(predicted, reference, background=3) for f in (object_scores, pixel_scores))
    for share in ("precision", "recall"):
        if not np.isnan(getattr(strict, share)):
            assert getattr(lenient, share) >= getattr(strict, share) - 1e-12


@pytest.mark.spec("000/F047")
def test_f1_of_the_published_precision_and_recall() -> None:
    reference = np.full((1, 20_000), 9)
    predicted = np.full((1, 20_000), 9)
    hits = 84 * 73
    reference[0, : 73 * 100] = 0  # recall 84 * 73 / 7300 = .84
    predicted[0, :hits] = 0
    predicted[0, 10_000 : 10_000 + 84 * 100 - hits] = 0  # precision 84 * 73 / 8400 = .73
    scores = pixel_scores(predicted, reference, background=9)
    assert (scores.precision, scores.recall) == (pytest.approx(0.73), pytest.approx(0.84))
    assert scores.f1 == pytest.approx(0.781, abs=5e-4)
    unlabelled = reference.copy()
    unlabelled[0, 10_000:] = -1
    assert pixel_scores(predicted, unlabelled, background=9).precision == 1.0


@pytest.mark.spec("000/F048")
def test_retention_of_a_superset_is_one() -> None:
    first, second = np.array([[0, 1, 9, 9]]), np.array([[1, 0, 2, 9]])
    assert retention(first, second, 9) == 1.0
    assert retention(second, first, 9) == pytest.approx(2 / 3)
    assert np.isnan(retention(np.full((1, 4), 9), second, 9))


@pytest.mark.spec("000/F049")
def test_a_line_is_recovered_with_its_errors() -> None:
    years = np.array([2000, 2004, 2010, 2013, 2016])
    exact = trend(years, 10 + 1.5 * (years - 2000))
    assert exact.slope == pytest.approx(1.5, abs=1e-12)
    assert exact.relative_increase == pytest.approx(2.4, abs=1e-12)
    assert exact.slope_error == pytest.approx(0, abs=1e-9)
    areas = np.array([10.0, 14.0, 31.0, 26.0, 33.0])
    line = trend(years, areas)
    # By hand: centred sums of squares, as in any textbook.
    t = years - years.mean()
    slope = (t * areas).sum() / (t**2).sum()
    residual = areas - areas.mean() - slope * t
    error = np.sqrt((residual**2).sum() / 3 / (t**2).sum())
    assert (line.slope, line.slope_error) == (pytest.approx(slope), pytest.approx(error))
    assert line.interval == (pytest.approx(slope - 3.182446 * error), pytest.approx(slope + 3.182446 * error))
    low, high = line.extremes
    steep = (slope + error) * 16 / (line.intercept - line.intercept_error)
    assert high == pytest.approx(steep)
    assert low < line.relative_increase < high
    assert line.bootstrap[0] < line.relative_increase < line.bootstrap[1]
    assert line.at(2016) == pytest.approx(line.intercept * (1 + line.relative_increase))
    assert np.isnan(trend([2000, 2016], [1, 2]).slope_error)
    with pytest.raises(ValueError, match="at least two different years"):
        trend([2000, 2000], [1, 2])


def test_intervals_of_a_trend_cover_it() -> None:
    """Student's interval has its coverage; the bootstrap of five years comes near."""
    years, rng = np.array([2000, 2004, 2010, 2013, 2016]), np.random.default_rng(0)
    lines = [trend(years, 20 + 1.0 * (years - 2000) + rng.normal(size=5), seed=i) for i in range(300)]
    covered = np.mean([line.interval[0] <= 1.0 <= line.interval[1] for line in lines])
    assert 0.91 <= covered <= 0.985
    assert np.mean([line.bootstrap[0] <= 0.8 <= line.bootstrap[1] for line in lines]) >= 0.8


@pytest.mark.spec("000/F039")
def test_terrain_of_a_plane_and_a_paraboloid() -> None:
    north, east = np.meshgrid(np.arange(20)[::-1] * 2.0, np.arange(24) * 2.0, indexing="ij")
    plane = terrain(0.3 * east + 0.4 * north + 100, 2.0)
    np.testing.assert_allclose(plane.slope, np.degrees(np.arctan(0.5)), atol=1e-9)
    np.testing.assert_allclose(plane.aspect, np.degrees(np.arctan2(-0.3, -0.4)) % 360, atol=1e-9)
    np.testing.assert_allclose(plane.profile_curvature, 0, atol=1e-9)
    # A dome z = -(x² + y²) / 2r: contour lines are circles of radius d; along the slope it curves by its second
    # derivative over the arc.
    x, y, radius = east - 61.0, north - 63.0, 50.0
    dome = terrain(-(x**2 + y**2) / (2 * radius), 2.0)
    inside = (slice(1, -1), slice(1, -1))
    steepness = np.hypot(x, y) / radius
    np.testing.assert_allclose(np.tan(np.radians(dome.slope))[inside], steepness[inside], rtol=1e-9)
    np.testing.assert_allclose(dome.plan_curvature[inside], (1 / np.hypot(x, y))[inside], rtol=1e-9)
    expected = (1 / radius) / (1 + steepness**2) ** 1.5
    np.testing.assert_allclose(dome.profile_curvature[inside], expected[inside], rtol=1e-9)
    away = np.degrees(np.arctan2(x, y)) % 360
    np.testing.assert_allclose(dome.aspect[inside], away[inside], atol=1e-9)
    level = terrain(np.zeros((3, 3)), 1.0)
    assert np.isnan(level.aspect).all()
    assert (level.plan_curvature == 0).all()
