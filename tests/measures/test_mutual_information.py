"""Information of a continuous variable about a label: the oracles of Spec 004, section 5.6."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_classif
from sklearn.metrics import mutual_info_score

from polariscope.measures.mutual_information import information_floor, label_information, permutation_floor


def stripe(x: np.ndarray) -> np.ndarray:
    return ~((x > -0.3) & (x < 1.18549))


@pytest.mark.spec("004/F50")
@pytest.mark.parametrize(("count", "bits"), [(500, 0.698), (2000, 0.866), (10_000, 0.956)])
def test_a_label_that_x_determines(count: int, bits: float) -> None:
    x = np.random.default_rng(count).standard_normal(count)
    assert label_information(x, stripe(x)) == pytest.approx(bits, abs=0.025)


@pytest.mark.spec("004/F50")
def test_a_label_in_noise_is_at_the_capacity_of_the_channel() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], 10_000)
    x = y + rng.standard_normal(10_000)
    assert label_information(x, y) == pytest.approx(0.4859, abs=0.03)
    theirs = mutual_info_classif(x[:, None], y, random_state=0)[0] / np.log(2)
    assert label_information(x, y) == pytest.approx(theirs, abs=0.04)


@pytest.mark.spec("004/F50")
def test_a_variable_that_knows_only_the_size() -> None:
    x, noise = np.random.default_rng(1).standard_normal((2, 10_000))
    assert label_information(x * noise, stripe(x)) == pytest.approx(0.179, abs=0.02)


@pytest.mark.spec("004/F51")
@pytest.mark.parametrize(("k", "floor"), [(1, 0.27865), (3, 0.11034), (5, 0.068546), (10, 0.03517), (20, 0.01781)])
def test_the_floor_has_a_formula_and_the_estimate_reaches_it(k: int, floor: float) -> None:
    assert information_floor(k) == pytest.approx(floor, abs=5e-6)
    assert information_floor(k) == pytest.approx(1 - (digamma(2 * k + 1) - digamma(k + 1)) / np.log(2))
    x = np.random.default_rng(k).standard_normal(5000)
    y = np.arange(5000) % 2
    assert label_information(x, y, k) == pytest.approx(floor, abs=0.012)


@pytest.mark.spec("004/F51")
def test_both_ways_to_take_the_floor_off() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(3000), np.arange(3000) % 2
    raw = label_information(x, y)
    assert label_information(x, y, debias="formula") == pytest.approx(raw - information_floor(5))
    shuffled = label_information(x, y, debias="permutation", seed=3)
    assert shuffled == pytest.approx(raw - permutation_floor(x, y, seed=3))
    assert abs(shuffled) < 0.01
    # Three classes of different sizes have another floor, which the formula does not know.
    three = rng.choice(3, 3000, p=[0.6, 0.3, 0.1])
    assert abs(label_information(x, three, debias="permutation")) < 0.012
    with pytest.raises(ValueError, match="two classes"):
        label_information(x, three, debias="formula")


def test_classes_that_x_tells_apart_give_the_entropy_of_the_labels() -> None:
    y = np.random.default_rng(0).choice(4, 4000, p=[0.4, 0.3, 0.2, 0.1])
    x = np.stack([100.0 * y, 100.0 * y**2], 1) + np.random.default_rng(1).standard_normal((4000, 2))
    share = np.bincount(y) / 4000
    assert label_information(x, y) == pytest.approx(-(share * np.log2(share)).sum(), abs=0.01)


@given(st.integers(0, 2**31), st.floats(-50, 50), st.floats(0.01, 100))
def test_shifts_scales_and_names_do_not_matter(seed: int, shift: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(80)
    y = np.arange(80) % 2
    value = label_information(x, y)
    assert label_information(-scale * x + shift, np.where(y == 1, -3, 9)) == pytest.approx(value, abs=1e-6)
    assert value <= 1


def test_ties_are_no_ratio_of_zeros() -> None:
    x = np.repeat([0.0, 1.0], 50)
    assert label_information(x, x) == pytest.approx(1)
    mixed = label_information(x, np.arange(100) % 2)
    assert mixed == pytest.approx(0, abs=1e-9)


def test_many_equal_samples_are_counted() -> None:
    """A variable of few values has neighbours at distance 0 in every class: their numbers are the information."""
    rng = np.random.default_rng(0)
    labels = np.arange(4000) % 2
    noisy = np.where(rng.random(4000) < 0.1, 1 - labels, labels)
    for x in (noisy, np.rint(rng.normal(size=4000) + 2 * labels)):
        plug_in = mutual_info_score(x, labels) / np.log(2)
        assert 0.3 < plug_in < 0.7
        assert label_information(x, labels) == pytest.approx(plug_in, abs=0.01)


def test_a_point_is_not_its_own_neighbour() -> None:
    # With k = 1 a point that found itself would always be sure of its label, and independence would give 1 bit.
    x = np.random.default_rng(0).standard_normal(2000)
    assert label_information(x, np.arange(2000) % 2, k=1) < 0.32


@pytest.mark.parametrize(
    ("x", "y", "options", "sentence"),
    [
        (np.zeros(20), np.arange(20) % 2, {}, "constant"),
        (np.arange(20.0), np.zeros(20), {}, "at least 2 classes"),
        (np.arange(20.0), np.arange(19) % 2, {}, "as many labels"),
        (np.arange(8.0), np.arange(8) % 2, {}, "smallest class has 4"),
        (np.arange(20.0), np.arange(20) < 3, {}, "smallest class has 3"),
        (np.arange(20.0), np.arange(20) % 2, {"k": 0}, "at least 1"),
        (np.arange(20.0), np.arange(20) % 2, {"debias": "some"}, "debias is one of"),
        (np.arange(20.0), np.arange(20) % 2, {"debias": "permutation", "permutations": 0}, "permutations"),
        (np.full(20, np.nan), np.arange(20) % 2, {}, "NaN"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(x, y, options, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        label_information(x, y, **options)
