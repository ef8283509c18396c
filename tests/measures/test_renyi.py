"""Matrix-based Rényi entropies: limits, the table for white codes, saturation, and the measures built on them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist, squareform

from polariscope.measures.renyi import (
    bottleneck_gap,
    gaussian_code_entropy,
    information_plane,
    normalised_kernel,
    renyi_entropy,
    renyi_joint_entropy,
    renyi_mutual_information,
    spi,
    truncate,
)

seeds = st.integers(0, 2**32 - 1)
WHITE = {1: 2.299, 2: 4.045, 3: 5.288, 5: 6.389, 7: 6.603, 8: 6.627, 9: 6.637, 10: 6.641}
MEASURED = {1: 2.322, 2: 4.061, 3: 5.309, 5: 6.394, 7: 6.604, 8: 6.627, 9: 6.638, 10: 6.641}


@pytest.mark.parametrize("alpha", [1, 1.01, 2, 3])
def test_the_entropy_runs_from_coinciding_to_unrelated_samples(alpha):
    assert float(renyi_entropy(np.eye(100) / 100, alpha)) == pytest.approx(6.64386, abs=5e-6)
    assert float(renyi_entropy(np.ones((100, 100)) / 100, alpha)) == pytest.approx(0, abs=1e-9)
    assert float(renyi_mutual_information(np.eye(100) / 100, np.eye(100) / 100, alpha)) == pytest.approx(
        6.64386, abs=5e-6
    )


def test_the_two_by_two_example():
    kernel = np.array([[1.0, 0.5], [0.5, 1.0]]) / 2
    assert float(renyi_entropy(kernel)) == pytest.approx(0.67807, abs=5e-6)
    assert float(renyi_entropy(kernel, 3)) == pytest.approx(-0.5 * np.log2(0.75**3 + 0.25**3), rel=1e-12)


@settings(deadline=None)
@given(seed=seeds)
def test_the_shortcut_equals_the_eigenvalues_and_order_lowers_the_entropy(seed):
    kernel = normalised_kernel(np.random.default_rng(seed).normal(size=(12, 3)))
    assert float(renyi_entropy(kernel, 2)) == pytest.approx(float(renyi_entropy(kernel, 2 + 1e-9)), abs=1e-6)
    assert float(renyi_entropy(kernel, 1)) == pytest.approx(float(renyi_entropy(kernel, 1 + 1e-7)), abs=1e-5)
    entropies = [float(renyi_entropy(kernel, alpha)) for alpha in (0.5, 1, 1.01, 2, 5)]
    assert entropies == sorted(entropies, reverse=True)
    assert 0 <= entropies[-1] <= entropies[0] <= np.log2(12) + 1e-9


@settings(deadline=None)
@given(seed=seeds)
def test_the_kernel_is_the_gaussian_one_of_trace_one_and_ignores_rotation_and_scale(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(9, 4)) * 3 + 100
    width = x.std() * 9 ** (-1 / 8)
    kernel = normalised_kernel(x)
    np.testing.assert_allclose(kernel, np.exp(-(cdist(x, x) ** 2) / (2 * width**2)) / 9, atol=1e-9)
    assert np.trace(kernel) == pytest.approx(1)
    np.testing.assert_allclose(normalised_kernel(7 * x), kernel, atol=1e-9)


def test_joint_entropy_and_information_of_unrelated_and_equal_samples():
    rng = np.random.default_rng(0)
    x, y = normalised_kernel(rng.normal(size=(80, 1))), normalised_kernel(rng.normal(size=(80, 1)))
    np.testing.assert_allclose(renyi_joint_entropy(x, np.ones((80, 80)) / 80), renyi_entropy(x), rtol=1e-12)
    assert float(renyi_mutual_information(x, np.ones((80, 80)) / 80)) == pytest.approx(0, abs=1e-9)
    assert float(renyi_joint_entropy(x, y)) >= max(float(renyi_entropy(x)), float(renyi_entropy(y)))
    assert float(renyi_mutual_information(x, x)) > 3 * float(renyi_mutual_information(x, y))


def test_stacks_of_kernels_give_one_number_each():
    rng = np.random.default_rng(0)
    stack = np.stack([normalised_kernel(rng.normal(size=(10, 2))) for _ in range(5)])
    np.testing.assert_allclose(renyi_entropy(stack, 1.01), [renyi_entropy(k, 1.01) for k in stack], rtol=1e-12)
    np.testing.assert_allclose(
        renyi_mutual_information(stack, stack[::-1]),
        [renyi_mutual_information(a, b) for a, b in zip(stack, stack[::-1], strict=True)],
    )


@pytest.mark.parametrize("dimension", WHITE)
def test_the_entropy_of_white_codes(dimension):
    assert gaussian_code_entropy(dimension) == pytest.approx(WHITE[dimension], abs=5.1e-4)
    rng = np.random.default_rng(dimension)
    codes, x = rng.normal(size=(6000, dimension)), rng.normal(size=(6000, 60))
    gap = bottleneck_gap(codes, x, x)
    assert (gap.batches, gap.batch) == (60, 100)
    assert gap.entropy == pytest.approx(MEASURED[dimension], abs=0.025)
    assert gap.information == 6.64
    assert gap.saturated
    assert gap.gap == round(gap.entropy - 6.64, 2)


def test_with_saturated_information_white_codes_always_select_nine_dimensions():
    """The statistic is H(z) − 6.64, both truncated, against −0.01: only truncated and in decimals does it say 9."""
    passing = [
        n for n in range(1, 30) if round(truncate(gaussian_code_entropy(n)) - truncate(np.log2(100)), 2) <= -0.01
    ]
    assert max(passing) == 9


def test_unsaturated_information_is_not_flagged():
    x = np.random.default_rng(0).normal(size=(400, 1))
    gap = bottleneck_gap(x, x, x, batch=100)
    assert not gap.saturated
    assert gap.information < 3
    assert gap.gap == pytest.approx(gap.entropy - gap.information, abs=1e-9)


def test_batches_leave_out_what_does_not_fill_one_and_shrink_to_few_samples():
    x = np.random.default_rng(0).normal(size=(250, 2))
    assert bottleneck_gap(x, x, x).batches == 2
    assert bottleneck_gap(x, x, x) == bottleneck_gap(x[:200], x[:200], x[:200])
    assert bottleneck_gap(x[:30], x[:30], x[:30]).batch == 30


@pytest.mark.parametrize(
    ("value", "expected"), [(6.649, 6.64), (6.64, 6.64), (0.29, 0.29), (1.999, 1.99), (-0.019, -0.01), (0.0, 0.0)]
)
def test_truncation_cuts_and_does_not_round(value, expected):
    assert truncate(value) == expected


def test_the_information_plane_of_a_copy_lies_on_the_diagonal_and_noise_below_it():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    copy, noise = information_plane(x, x, x), information_plane(x, x, rng.normal(size=(300, 2)))
    assert copy.encoded == copy.decoded
    assert noise.encoded == copy.encoded
    assert noise.decoded < noise.encoded - 0.5
    assert (copy.alpha, copy.batches) == (1.01, 3)


@pytest.mark.spec("002/D13")
def test_spi_is_zero_for_perfect_reconstructions_and_sums_cosine_differences_otherwise():
    rng = np.random.default_rng(0)
    x, other = rng.normal(size=(15, 2, 3)), rng.normal(size=(15, 2, 3))
    assert spi(x, x) == 0
    assert spi(x, 3 * x) == pytest.approx(0, abs=1e-12)
    flat, flat_other = x.reshape(15, 6), other.reshape(15, 6)
    expected = np.abs(squareform(pdist(flat, "cosine") - pdist(flat_other, "cosine"))).sum() / 15
    assert spi(x, other) == pytest.approx(expected, rel=1e-9)


def test_images_and_tensors_are_taken_as_they_come():
    x = torch.randn(100, 1, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    flat = x.detach().numpy().reshape(100, 16)
    assert bottleneck_gap(x[:, 0, 0], x, x) == bottleneck_gap(flat[:, :4], flat, flat)


X = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: renyi_entropy(np.eye(3)), "trace 1"),
        (lambda: renyi_entropy(np.ones((2, 3)) / 2), "square"),
        (lambda: renyi_entropy(np.eye(2) / 2, alpha=0), "alpha needs to be positive"),
        (lambda: renyi_joint_entropy(np.eye(2) / 2, np.eye(3) / 3), "same samples"),
        (lambda: normalised_kernel(np.ones((5, 2))), "all equal"),
        (lambda: normalised_kernel(X, width=0.0), "width needs to be positive"),
        (lambda: bottleneck_gap(X, X, X[:10]), "same number of samples"),
        (lambda: bottleneck_gap(X, X, X, batch=1), "batch needs at least 2"),
        (lambda: information_plane(X, X[:19], X, batch=10), "same number of samples"),
        (lambda: gaussian_code_entropy(0), "dimension of at least 1"),
        (lambda: spi(X, np.zeros((20, 2))), "all-zero samples"),
        (lambda: spi(X, X[:10]), "same number of samples"),
        (lambda: spi(X, X * np.nan), "NaN"),
    ],
)
def test_bad_samples_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
