"""Exponents of learning curves against the table of the work, and against support vector machines on the stripe."""

import numpy as np
import pytest
from sklearn.svm import SVC

from polariscope.theory.dual_activations import dense_kernels
from polariscope.theory.learning_exponents import (
    compression_exponent,
    compression_gain,
    feature_exponent,
    lazy_exponent,
)
from polariscope.worlds.points.stripes import Stripe, compress


@pytest.mark.spec("004/F42")
@pytest.mark.parametrize(
    ("dimension", "lazy", "one", "two"),
    [
        (1, 1, 1, None),
        (2, 1 / 2, 3 / 4, None),
        (3, 3 / 7, 5 / 7, 3.5 / 7),
        (5, 5 / 13, 9 / 13, 6.5 / 13),
        (10, 10 / 28, 19 / 28, 14 / 28),
        (10**9, 1 / 3, 2 / 3, 1 / 2),
    ],
)
def test_exponents_of_the_table(dimension, lazy, one, two) -> None:
    assert lazy_exponent(dimension) == pytest.approx(lazy, abs=1e-8)
    assert feature_exponent(dimension) == pytest.approx(one, abs=1e-8)
    if two is not None:
        assert feature_exponent(dimension, informative=2) == pytest.approx(two, abs=1e-8)


@pytest.mark.spec("004/F42")
@pytest.mark.parametrize("dimension", [4, 7, 30])
@pytest.mark.parametrize("informative", [1, 2, 3])
def test_features_gain_what_compression_by_the_square_root_gains(dimension, informative) -> None:
    ignored = dimension - informative
    gap = ignored / (3 * dimension - 2) if informative == 1 else ignored / (2 * (3 * dimension - 2))
    assert feature_exponent(dimension, informative) - lazy_exponent(dimension) == pytest.approx(gap)
    if informative > 1:
        assert feature_exponent(dimension, informative) == pytest.approx(
            (dimension + ignored / 2) / (3 * dimension - 2)
        )


@pytest.mark.spec("004/F37")
def test_exponent_of_kernels_with_any_cusp() -> None:
    assert lazy_exponent(5, cusp=1.0) == pytest.approx(5 / 13)
    assert lazy_exponent(5, cusp=0.5) == pytest.approx(4.5 / 12.5)
    assert lazy_exponent(2, cusp=1.5) == pytest.approx(2.5 / 4.5)
    smoother = [lazy_exponent(5, cusp) for cusp in (0.1, 0.5, 1.0, 1.9)]
    assert smoother == sorted(smoother)


@pytest.mark.spec("004/F43")
@pytest.mark.parametrize(("dimension", "informative"), [(5, 1), (10, 1), (3, 2), (9, 4)])
def test_compression_by_the_square_root_of_the_points_gives_the_feature_exponent(dimension, informative) -> None:
    points = np.array([100.0, 10_000.0])
    error = points ** -lazy_exponent(dimension) * compression_gain(np.sqrt(points), dimension, informative)
    slope = np.log(error[1] / error[0]) / np.log(points[1] / points[0])
    assert slope == pytest.approx(-feature_exponent(dimension, informative))
    assert compression_exponent(5) == pytest.approx(8 / 13)
    assert compression_exponent(3, 2) == pytest.approx(1 / 7)


def tangent_kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of a wide network with one hidden layer and biases (spec 004, section 4.2)."""
    d = a.shape[1]
    return dense_kernels(a @ b.T / d + 1, (a**2).sum(1)[:, None] / d + 1, (b**2).sum(1) / d + 1, depth=2).ntk


@pytest.mark.spec("004/F43")
def test_a_kernel_gains_from_compression_as_predicted() -> None:
    world, factors, errors = Stripe(dimension=5), (1.0, 16.0), []
    for seed in range(3):
        x, y = world.sample(512, seed=seed)
        x_new, y_new = world.sample(5000, seed=1000 + seed)
        row = []
        for factor in factors:
            train, test = compress(x, 1, factor), compress(x_new, 1, factor)
            machine = SVC(C=1e6, kernel="precomputed").fit(tangent_kernel(train, train), y)
            row.append((machine.predict(tangent_kernel(test, train)) != y_new).mean())
        errors.append(row)
    wide, narrow = np.median(errors, axis=0)
    result = np.log(narrow / wide) / np.log(factors[1] / factors[0])
    assert -0.75 < result < -0.5


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lazy_exponent(0), "1 to dimension"),
        (lambda: lazy_exponent(3, cusp=2.0), "between 0 and 2"),
        (lambda: feature_exponent(3, informative=4), "1 to dimension"),
        (lambda: compression_gain(0.0, 3), "positive"),
    ],
)
def test_impossible_questions_are_refused(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
