"""SAP: the vectorised support vector machines are LIBLINEAR's, and the published ceilings follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from polariscope.measures.sap import linear_svms, sap
from polariscope.measures.score import split, top_two_gap


@given(
    seed=st.integers(0, 2**16),
    classes=st.integers(2, 6),
    scale=st.sampled_from([1e-3, 1.0, 40.0]),
    balanced=st.booleans(),
    discrete=st.booleans(),
)
@settings(max_examples=settings.default.max_examples // 2)
def test_the_machines_are_those_of_liblinear(seed, classes, scale, balanced, discrete):
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.choice(classes, 200, p=rng.dirichlet(np.ones(classes)))])
    z = labels + (rng.integers(-1, 2, len(labels)) if discrete else rng.normal(size=len(labels))) + rng.normal()
    slope, offset = linear_svms(scale * z[:, None], labels, classes, 0.01, balanced)
    reference = LinearSVC(C=0.01, class_weight="balanced" if balanced else None, dual=False, tol=1e-9, max_iter=100_000)
    reference.fit(scale * z[:, None], labels)
    ours = slice(1, 2) if classes == 2 else slice(None)
    assert slope[0, ours] == pytest.approx(reference.coef_[:, 0], rel=1e-4, abs=1e-5)
    assert offset[0, ours] == pytest.approx(reference.intercept_, rel=1e-4, abs=1e-5)


@pytest.mark.spec("001a/MT-08")
def test_top_two_difference_agrees_with_one_machine_at_a_time():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, (2, 3, 7), size=(1500, 3))
    codes = factors @ rng.normal(size=(3, 4)) + 0.5 * rng.normal(size=(1500, 4))
    rows, held = split(1500, 5)
    table = np.empty((4, 3))
    for i in range(4):
        for k in range(3):
            machine = LinearSVC(C=0.01, class_weight="balanced", tol=1e-7, max_iter=100_000)
            machine.fit(codes[rows][:, [i]], factors[rows, k])
            table[i, k] = machine.score(codes[held][:, [i]], factors[held, k])
    score = sap(codes, factors, seed=5)
    assert score.table == pytest.approx(table, abs=2.5 / len(held))  # a sample or two may lie on a threshold
    by_hand = [np.sort(column)[-1] - np.sort(column)[-2] for column in table.T]
    assert top_two_gap(table) == pytest.approx(by_hand)
    assert score.value == pytest.approx(np.mean(by_hand), abs=5 / len(held))


@pytest.mark.spec("001a/MT-08", "001a/MT-09")
def test_a_perfect_dsprites_code_scores_about_a_fifth():
    factors = np.random.default_rng(1).integers(0, (3, 6, 40, 32, 32), size=(6000, 5))
    standard = (factors - factors.mean(0)) / factors.std(0)
    for codes in (factors, standard):
        score = sap(codes, factors, train=4000, test=2000)
        assert 0.20 < score.value < 0.26
        assert score.per_factor[0] == pytest.approx(0.66, abs=0.02)
        assert (score.per_factor[2:] < 0.08).all()


@pytest.mark.spec("003/F3-045")
def test_binary_factors_score_one_half_and_nothing_once_rotated():
    factors = np.random.default_rng(2).integers(0, 2, size=(6000, 2))
    assert sap(2.0 * factors - 1, factors).value == pytest.approx(0.5, abs=0.03)
    assert sap((2.0 * factors - 1) @ [[1, 1], [-1, 1]], factors).value == pytest.approx(0, abs=0.03)


def test_continuous_factors_use_the_squared_correlation():
    rng = np.random.default_rng(3)
    factor = rng.normal(size=4000)
    codes = np.column_stack([factor, factor + rng.normal(size=4000), np.zeros(4000)])
    score = sap(codes, factor)
    assert score.table[:, 0] == pytest.approx([1, np.corrcoef(codes[:, 1], factor)[0, 1] ** 2, 0])
    assert score.settings["correlated_factors"] == [0]


def test_a_value_that_is_missing_from_training_is_never_predicted():
    labels = np.array([0, 0, 2, 2])
    slope, offset = linear_svms(np.array([[0.0], [0.1], [1.0], [1.1]]), labels, 3, 1.0)
    assert offset[0, 1] == -np.inf
    assert np.isfinite(slope).all()


def test_constant_codes_score_nothing_and_bad_input_is_refused():
    factors = np.random.default_rng(4).integers(0, (3, 4), size=(300, 2))
    assert sap(np.ones((300, 3)), factors).value == 0
    with pytest.raises(ValueError, match="penalty .* positive; got 0"):
        sap(factors, factors, penalty=0)
    with pytest.raises(ValueError, match="too few"):
        sap(np.eye(2), np.array([0, 1]), train=2, test=3)
