"""Intrinsic dimension against worked examples and clouds of known dimension; neighbours against scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from polariscope.measures import intrinsic_dimension, neighbours
from polariscope.measures.intrinsic_dimension import (
    dimension_profile,
    mle,
    mle_from_distances,
    plateau,
    stable_mle,
    twonn,
)
from polariscope.measures.neighbours import nearest_neighbours

KS = (3, 5, 10, 20)


def cube(dimension, samples=5000, seed=0):
    return np.random.default_rng(seed).uniform(size=(samples, dimension))


def embedded(x, features=40, seed=1):
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(features, x.shape[1])))
    return x @ basis.T + 3


def by_scikit_learn(x, k):
    x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    _, indices = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x).kneighbors()
    return np.linalg.norm(x[indices] - x[:, None], axis=2)


@pytest.mark.spec("002/D01")
def test_worked_example_of_three_neighbours():
    assert mle_from_distances([[1, 1, 2]]) == pytest.approx(1.4427, abs=5e-5)
    assert mle_from_distances([[1, 1, 2]]) == pytest.approx(1 / np.log(2))
    assert mle_from_distances([[1, 1, 2]], "lb") == pytest.approx(1 / np.log(2))
    assert mle_from_distances([[1, 1, 2]], ddof=2) == pytest.approx(0.5 / np.log(2))


@pytest.mark.spec("002/D01")
@pytest.mark.parametrize("average", ["mg", "lb"])
@pytest.mark.parametrize("k", KS)
def test_normalisations_differ_by_k_less_one_over_k_less_two(average, k):
    x = cube(3, 400)
    ratio = mle(x, k, average, ddof=1).value / mle(x, k, average, ddof=2).value
    assert ratio == pytest.approx((k - 1) / (k - 2), rel=1e-12)


@pytest.mark.spec("002/D01")
@pytest.mark.parametrize(
    ("average", "ddof", "expected"),
    [
        ("lb", 1, (4.00, 2.60, 2.23, 2.09)),
        ("lb", 2, (2.00, 1.95, 1.99, 1.98)),
        ("mg", 1, (1.98, 2.00, 1.99, 1.97)),
        ("mg", 2, (0.99, 1.50, 1.77, 1.87)),
    ],
)
def test_uniform_square_reads_as_in_the_table(average, ddof, expected):
    profiles = [dimension_profile(cube(2, seed=seed), KS, average, ddof) for seed in range(3)]
    measured = np.mean([[e.value for e in profile.mle] for profile in profiles], axis=0)
    # With k = 3 the Levina-Bickel average has infinite variance: its row is only roughly reproducible.
    tolerance = [0.08 if average == "lb" else 0.02, 0.025, 0.015, 0.015]
    assert (np.abs(measured / expected - 1) < tolerance).all(), measured


@pytest.mark.spec("002/D01")
@pytest.mark.parametrize(("dimension", "expected"), [(1, 1.00), (2, 1.98), (5, 4.58), (10, 8.31), (20, 14.60)])
def test_unbiased_levina_bickel_on_cubes(dimension, expected):
    assert mle(cube(dimension), 20, "lb", ddof=2).value == pytest.approx(expected, rel=0.03)


@pytest.mark.spec("002/D02")
@pytest.mark.parametrize(
    ("dimension", "uniform", "gaussian"),
    [(1, 1.03, 1.01), (2, 2.00, 2.00), (5, 4.71, 5.12), (10, 8.76, 9.85), (20, 15.57, 17.46)],
)
def test_twonn_on_cubes_and_gaussians(dimension, uniform, gaussian):
    flat = np.mean([twonn(cube(dimension, seed=s)).value for s in range(2)])
    round_ = np.mean([twonn(np.random.default_rng(s).normal(size=(5000, dimension))).value for s in range(2)])
    assert flat == pytest.approx(uniform, rel=0.06)
    assert round_ == pytest.approx(gaussian, rel=0.06)
    if dimension <= 2:
        assert flat == pytest.approx(dimension, rel=0.05)
        assert round_ == pytest.approx(dimension, rel=0.05)


def test_twonn_by_hand():
    # First and second neighbours of 0, 1, 3, 7, 15 on a line are at 1, 3; 1, 2; 2, 3; 4, 6; 8, 12.
    x = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
    logs = np.sort(np.log([3, 2, 3 / 2, 6 / 4, 12 / 8]))[:4]
    ranks = -np.log(1 - np.arange(4) / 5)
    assert twonn(x).value == pytest.approx((logs @ ranks) / (logs @ logs))


@pytest.mark.spec("002/D03")
def test_the_plateau_is_returned():
    assert plateau([0.99, 1.5, 1.77, 1.87]) == slice(2, 4)
    assert plateau([4.0, 2.0, 2.05, 2.1, 9.0]) == slice(1, 4)
    assert plateau([5.0, 5.1, 9.0, 9.1]) == slice(2, 4)
    assert plateau([1.0, 2.0, 4.0]) == slice(2, 3)
    flat = stable_mle(cube(2), KS)
    assert flat.plateau == KS
    assert flat.k == 20
    assert flat.value == pytest.approx(2, rel=0.03)
    reference_code = stable_mle(cube(2), KS, ddof=2)
    assert reference_code.plateau == (10, 20)
    assert reference_code.value == pytest.approx(mle(cube(2), 20, ddof=2).value)


@pytest.mark.spec("002/D03")
def test_a_thick_line_has_no_single_dimension_and_the_plateau_shows_where_it_holds():
    # Noise of the size of the spacing: two-dimensional to the nearest neighbours, a line to the farther ones.
    rng = np.random.default_rng(0)
    line = np.column_stack([rng.uniform(0, 1, 4000), rng.normal(0, 2e-4, 4000)])
    chosen = stable_mle(line, (3, 5, 10, 20, 50, 100, 200))
    assert chosen.k == 200
    assert chosen.value == pytest.approx(1, abs=0.1)
    assert chosen.plateau == (50, 100, 200)
    assert mle(line, 3).value > 1.3


def test_the_profile_is_the_single_estimates_from_one_search(monkeypatch):
    x = embedded(cube(4, 1000))
    searches = []
    search = intrinsic_dimension.nearest_neighbours
    monkeypatch.setattr(intrinsic_dimension, "nearest_neighbours", lambda *a: searches.append(a[1]) or search(*a))
    profile = dimension_profile(x, KS)
    assert searches == [20]
    assert [e.value for e in profile.mle] == pytest.approx([mle(x, k).value for k in KS], rel=1e-12)
    assert [e.k for e in profile.mle] == list(KS)
    assert profile.twonn.value == pytest.approx(twonn(x).value, rel=1e-12)
    assert profile.stable == stable_mle(x, KS)
    assert (profile.twonn.samples, profile.twonn.duplicates) == (1000, 0)


@given(st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-2, 1e3))
@settings(max_examples=settings.default.max_examples // 6)
def test_embedding_scale_and_order_change_nothing(dimension, seed, scale):
    x = cube(dimension, 300, seed)
    moved = scale * embedded(x, seed=seed)[np.random.default_rng(seed).permutation(300)]
    first, second = dimension_profile(x, (3, 10)), dimension_profile(moved, (3, 10))
    assert [e.value for e in second.mle] == pytest.approx([e.value for e in first.mle], rel=1e-6)
    assert second.twonn.value == pytest.approx(first.twonn.value, rel=1e-6)


def test_anchors_average_over_random_samples_and_the_seed_decides():
    x = cube(2, 1000)
    whole = mle(x, 10)
    anchored = mle(x, 10, anchor=0.8, runs=5, seed=0)
    assert anchored == mle(x, 10, anchor=0.8, runs=5, seed=0)
    assert anchored != mle(x, 10, anchor=0.8, runs=5, seed=1)
    assert anchored.value == pytest.approx(whole.value, rel=0.03)
    assert 0 < anchored.spread < 0.1
    assert whole.spread == 0


@pytest.mark.parametrize(
    "x",
    [
        cube(50, 700).astype(np.float32),
        cube(3, 700) + 1e4,
        np.random.default_rng(0).integers(0, 256, (500, 8, 8)).astype(np.uint8),
        (embedded(cube(2, 700), 300) * 5 + 100).astype(np.float32),
        torch.randn(300, 7, 3, generator=torch.Generator().manual_seed(0)),
        np.concatenate([cube(5, 300), cube(5, 300, seed=1) + 500]),
    ],
    ids=["float32", "far", "bytes", "sheet", "torch", "two clusters"],
)
def test_neighbours_are_those_of_scikit_learn(x, monkeypatch):
    monkeypatch.setattr(neighbours, "_PRODUCT_NUMBERS", 50_000)
    monkeypatch.setattr(neighbours, "_DIRECT_NUMBERS", 50_000)
    result = nearest_neighbours(x, 20)
    assert result.distances == pytest.approx(by_scikit_learn(x, 20), rel=1e-6)
    points = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    assert np.linalg.norm(points[result.indices] - points[:, None], axis=2) == pytest.approx(result.distances, rel=1e-6)
    assert (result.indices != np.arange(len(x))[:, None]).all()


def test_near_neighbours_in_a_wide_cloud_keep_their_digits():
    # Pairs 1e-4 apart in a cloud of size 1000: |a|² + |b|² - 2ab in single precision would return noise.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 20)) * 1000
    step = rng.normal(size=(400, 20))
    step *= 1e-4 / np.linalg.norm(step, axis=1, keepdims=True)
    result = nearest_neighbours(np.concatenate([x, x + step]), 3)
    assert result.distances[:, 0] == pytest.approx(1e-4, rel=1e-6)
    assert (result.indices[:400, 0] == np.arange(400, 800)).all()


def test_overlooked_neighbours_are_searched_again_in_double_precision(monkeypatch):
    # Two tight clusters far apart: single-precision products cannot tell the members of a cluster from each other.
    x = np.concatenate([cube(5, 200) * 1e-3, cube(5, 200, seed=1) * 1e-3 + 500])
    expected = np.concatenate([by_scikit_learn(part - part.mean(0), 10) for part in (x[:200], x[200:])])
    assert nearest_neighbours(x, 10).distances == pytest.approx(expected, rel=1e-6)
    seen = set()
    nominate = neighbours._nominate
    monkeypatch.setattr(neighbours, "_nominate", lambda q, *a: seen.add(q.dtype) or nominate(q, *a))
    nearest_neighbours(x, 10)
    assert torch.float64 in seen
    seen.clear()
    nearest_neighbours(cube(5, 400), 10)
    assert seen == {torch.float32}


def test_duplicates_are_removed_or_rejected_by_value():
    x = cube(3, 200).astype(np.float32)
    repeated = np.concatenate([x, x[:30], x[:10]])
    result = nearest_neighbours(repeated, 5)
    assert result.duplicates == 40
    assert result.rows.tolist() == list(range(200))
    assert result.distances == pytest.approx(nearest_neighbours(x, 5).distances)
    assert mle(repeated, 5).duplicates == 40
    assert mle(repeated, 5).value == pytest.approx(mle(x, 5).value)
    with pytest.raises(ValueError, match="40 of 240 samples repeat"):
        twonn(repeated, duplicates="reject")
    shuffled = np.random.default_rng(0).permutation(240)
    again = nearest_neighbours(repeated[shuffled], 5)
    assert (np.sort(repeated[shuffled][again.rows], axis=0) == np.sort(x, axis=0)).all()
    points = repeated[shuffled].astype(np.float64)
    measured = np.linalg.norm(points[again.indices] - points[again.rows][:, None], axis=2)
    assert measured == pytest.approx(again.distances, rel=1e-5)


def test_negative_zero_is_zero_and_equal_sums_are_not_equal_rows():
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    assert nearest_neighbours(x, 1).rows.tolist() == [0, 2, 3]


def test_what_has_no_neighbours_or_no_dimension_is_refused_in_a_sentence():
    x = cube(2, 10)
    with pytest.raises(ValueError, match="there are 10 distinct samples"):
        mle(x, 10)
    with pytest.raises(ValueError, match="there are 1 distinct samples"):
        twonn(np.ones((50, 3)))
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        mle(np.where(x > 0.9, np.nan, x), 3)
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        twonn(np.where(x > 0.5, np.inf, x))
    with pytest.raises(ValueError, match="at least 2 samples"):
        twonn(x[:1])
    with pytest.raises(ValueError, match="ddof 2 needs k of at least 3"):
        mle(x, 2, ddof=2)
    with pytest.raises(ValueError, match="'mg' or 'lb'"):
        mle(x, 3, average="mean")
    with pytest.raises(ValueError, match="anchor is a fraction"):
        mle(x, 3, anchor=0)
    with pytest.raises(ValueError, match="anchor of TwoNN"):
        twonn(x, anchor=1)
    with pytest.raises(ValueError, match="ks is empty"):
        dimension_profile(x, ())
    with pytest.raises(ValueError, match="'remove' or 'reject'"):
        twonn(x, duplicates="keep")
    with pytest.raises(ValueError, match="positive, finite and ascending"):
        mle_from_distances([[2.0, 1.0, 3.0]])


def test_equal_distances_are_undefined_not_infinite():
    corners = np.eye(8)  # all equally far from each other
    with pytest.raises(ValueError, match="TwoNN is undefined"):
        twonn(corners)
    with pytest.raises(ValueError, match="equally far"):
        mle(corners, 3)
    mixed = np.concatenate([np.pad(np.eye(5), ((0, 0), (0, 2))), 50 + cube(7, 20)])
    with pytest.raises(ValueError, match="Levina-Bickel average is infinite"):
        mle(mixed, 3, average="lb")
    assert mle(mixed, 3, average="mg").value > 0
