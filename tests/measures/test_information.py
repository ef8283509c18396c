"""Total correlation, averaged mutual information, effective rank: numbers, invariances, biases, refusals."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.stats import entropy, ortho_group
from sklearn.metrics import mutual_info_score

from polariscope.measures.information import (
    averaged_mutual_information,
    discrete_entropy,
    discretise,
    effective_rank,
    gaussian_wasserstein_correlation,
    mutual_information,
    spectral_rank,
    total_correlation,
)

seeds = st.integers(0, 2**32 - 1)


def with_covariance(cov: np.ndarray, samples: int = 60, seed: int = 0) -> np.ndarray:
    """Samples whose sample covariance is exactly ``cov``, so that population formulas hold to rounding."""
    x = np.random.default_rng(seed).normal(size=(samples, len(cov)))
    x -= x.mean(axis=0)
    white = np.sqrt(samples - 1) * np.linalg.svd(x, full_matrices=False)[0]
    return white @ np.linalg.cholesky(cov).T


def pair(rho: float) -> np.ndarray:
    return np.array([[1.0, rho], [rho, 1.0]])


@pytest.mark.spec("002/M01")
@pytest.mark.parametrize(("rho", "expected"), [(0.3, 0.04716), (0.5, 0.14384), (0.9, 0.83037), (0.99, 1.95852)])
def test_the_total_correlation_of_a_pair_is_a_function_of_its_correlation(rho, expected):
    assert total_correlation(with_covariance(pair(rho))) == pytest.approx(-0.5 * np.log(1 - rho**2), rel=1e-10)
    assert total_correlation(with_covariance(pair(rho))) == pytest.approx(expected, abs=5.1e-6)


@pytest.mark.spec("002/M01")
@settings(deadline=None)
@given(seed=seeds, exponent=st.integers(-9, 9))
def test_total_correlation_ignores_scale_shift_sign_and_order_of_columns(seed, exponent):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4))
    value = total_correlation(x)
    assert value >= 0
    scale = 10.0 ** rng.permutation([exponent, 0, -3, 5]) * rng.choice([-1, 1], size=4)
    moved = x[:, rng.permutation(4)] * scale
    assert total_correlation(moved + scale) == pytest.approx(value, rel=1e-6, abs=1e-9)
    log_det = np.linalg.slogdet(np.cov(x, rowvar=False))[1]
    assert value == pytest.approx(0.5 * (np.log(x.var(axis=0, ddof=1)).sum() - log_det), rel=1e-7, abs=1e-9)


@pytest.mark.spec("002/M01")
def test_independent_columns_add_nothing_to_the_total_correlation():
    cov = np.eye(7)
    cov[:2, :2] = pair(0.9)
    assert total_correlation(with_covariance(cov)) == pytest.approx(total_correlation(with_covariance(pair(0.9))))


@pytest.mark.spec("002/M01")
def test_its_finite_sample_bias_is_d_times_d_minus_one_over_4h():
    rng = np.random.default_rng(0)
    columns, samples = 10, 1000
    average = np.mean([total_correlation(rng.normal(size=(samples, columns))) for _ in range(60)])
    assert average == pytest.approx(columns * (columns - 1) / (4 * samples), rel=0.08)


def test_near_collinearity_is_measured_and_exact_collinearity_is_refused():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    near = total_correlation(np.column_stack([x[:, 0], x[:, 0] + 1e-9 * x[:, 1]]))
    assert near == pytest.approx(-np.log(1e-9), abs=0.3)
    with pytest.raises(ValueError, match="infinite: the 3 columns are linearly dependent"):
        total_correlation(np.column_stack([x, x.sum(axis=1)]))
    with pytest.raises(ValueError, match="linearly dependent over 3 samples"):
        total_correlation(rng.normal(size=(3, 4)))


def diluted_pair(columns: int) -> tuple[np.ndarray, float]:
    """One dependent binary pair, crossed with every combination of columns − 2 independent bits: no sampling noise."""
    table = np.array([[4, 1], [1, 2]])
    a, b = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], table.ravel(), axis=0).T
    bits = np.indices((2,) * (columns - 2)).reshape(columns - 2, 2 ** (columns - 2)).T
    rows = np.hstack([np.repeat(np.column_stack([a, b]), len(bits), axis=0), np.tile(bits, (len(a), 1))])
    return rows.astype(float), mutual_info_score(a, b)


@pytest.mark.spec("002/M02")
@pytest.mark.parametrize(("columns", "share"), [(2, 1), (3, 3), (5, 10), (10, 45)])
def test_independent_columns_dilute_one_dependent_pair(columns, share):
    x, information = diluted_pair(columns)
    assert averaged_mutual_information(x) == pytest.approx(information / share, rel=1e-9)


@pytest.mark.spec("002/M02")
@pytest.mark.parametrize(
    ("columns", "observed", "predicted"),
    [(2, 0.793, 0.793), (3, 0.273, 0.264), (5, 0.0929, 0.0793), (10, 0.0326, 0.0176)],
)
def test_the_gaussian_pair_with_its_plug_in_bias(columns, observed, predicted):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10_000, columns))
    x[:, 1] = 0.9 * x[:, 0] + np.sqrt(1 - 0.81) * x[:, 1]
    tolerance = 0.025 * 2 / (columns**2 - columns) + 0.001
    assert averaged_mutual_information(x) == pytest.approx(observed, abs=tolerance)
    assert averaged_mutual_information(x, correction="miller_madow") == pytest.approx(predicted, abs=tolerance + 0.003)


@pytest.mark.spec("002/M02")
@pytest.mark.parametrize(("samples", "bias"), [(10_000, 0.015), (1296, 0.116)])
def test_the_bias_of_independent_columns_scales_with_one_over_the_samples(samples, bias):
    x = np.random.default_rng(0).normal(size=(samples, 10))
    plain = averaged_mutual_information(x)
    corrected = averaged_mutual_information(x, correction="miller_madow")
    assert plain == pytest.approx(bias, rel=0.15)
    assert abs(corrected) < 0.45 * plain


def test_strong_dependence_is_underestimated_by_histograms():
    x = np.random.default_rng(0).multivariate_normal([0, 0], pair(0.99), size=10_000)
    assert averaged_mutual_information(x) == pytest.approx(1.59, abs=0.05)


@settings(deadline=None)
@given(seed=seeds)
def test_averaged_information_ignores_increasing_affine_maps_and_order(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 64, size=(200, 4)).astype(float)  # dyadic, so that binning is exact after scaling
    x[:, 0] = x[:, 1] // 2
    moved = x[:, rng.permutation(4)] * 2.0 ** rng.integers(-8, 8, size=4)
    assert averaged_mutual_information(moved, bins=16) == pytest.approx(averaged_mutual_information(x, bins=16))


@settings(deadline=None)
@given(seed=seeds)
def test_the_information_matrix_agrees_with_scikit_learn_pair_by_pair(seed):
    rng = np.random.default_rng(seed)
    codes, factors = rng.integers(-3, 4, size=(60, 3)), rng.integers(0, 5, size=(60, 2)) * 7
    factors[:, 1] += codes[:, 0]
    expected = [[mutual_info_score(codes[:, i], factors[:, j]) for j in range(2)] for i in range(3)]
    np.testing.assert_allclose(mutual_information(codes, factors), expected, atol=1e-12)
    entropies = [entropy(np.unique(column, return_counts=True)[1]) for column in codes.T]
    np.testing.assert_allclose(discrete_entropy(codes), entropies, atol=1e-12)
    np.testing.assert_allclose(np.diag(mutual_information(codes)), entropies, atol=1e-12)


def test_miller_madow_adds_half_the_occupied_cells_over_the_samples():
    a, b = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 0, 1, 1])
    assert discrete_entropy(a, "miller_madow") - discrete_entropy(a) == pytest.approx(2 / 12)
    # 3 values, 2 values, 4 occupied cells of the joint table
    assert mutual_information(a, b) - mutual_information(a, b, "miller_madow") == pytest.approx((4 - 3 - 2 + 1) / 12)


def test_bins_have_equal_widths_and_the_maximum_falls_into_the_last():
    x = np.array([[0.0, 5.0], [0.1, 5.0], [0.24, 5.0], [0.26, 5.0], [1.0, 5.0]])
    assert discretise(x, 4).T.tolist() == [[0, 0, 0, 1, 3], [0, 0, 0, 0, 0]]


@pytest.mark.spec("002/M03")
@pytest.mark.parametrize(
    ("values", "expected"), [((3, 1), 1.75477), ((1, 0.5, 0.25, 0.125), 3.11714), ((1, 1, 1, 1, 1), 5), ((2, 0), 1)]
)
def test_the_effective_rank_of_a_spectrum(values, expected):
    assert spectral_rank(values) == pytest.approx(expected, abs=5e-6)
    assert effective_rank(with_covariance(np.diag(np.array(values) + 1e-12))) == pytest.approx(expected, abs=5e-6)


@pytest.mark.spec("002/M03")
def test_the_effective_rank_of_correlated_and_of_partly_dead_representations():
    assert effective_rank(with_covariance(pair(0.99))) == pytest.approx(1.032, abs=5e-4)
    assert effective_rank(with_covariance(np.diag([1.0] * 7 + [1e-9] * 3))) == pytest.approx(7, abs=1e-5)
    dead = np.hstack([with_covariance(np.eye(4)), np.full((60, 2), 3.0)])
    assert effective_rank(dead) == pytest.approx(4, rel=1e-9)


@pytest.mark.spec("002/M03")
@settings(deadline=None)
@given(seed=seeds, scale=st.floats(1e-3, 1e3))
def test_the_effective_rank_ignores_rotation_shift_and_common_scale_and_stays_in_range(seed, scale):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 4)) * rng.uniform(0.1, 3, size=4)
    value = effective_rank(x)
    assert 1 <= value <= 4
    turned = scale * x @ ortho_group.rvs(4, random_state=rng) + rng.normal(size=4)
    assert effective_rank(turned) == pytest.approx(value, rel=1e-7)
    assert effective_rank(x, of="data") >= value  # square roots of eigenvalues are closer to each other
    eigenvalues = np.linalg.eigvalsh(np.cov(x, rowvar=False))
    assert value == pytest.approx(spectral_rank(eigenvalues), rel=1e-9)
    assert effective_rank(x, of="data") == pytest.approx(spectral_rank(np.sqrt(eigenvalues)), rel=1e-9)


def test_the_wasserstein_correlation_is_the_distance_to_the_uncorrelated_gaussian():
    cov = np.array([[2.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 0.5]])
    x = with_covariance(cov)
    expected = 2 * np.trace(cov) - 2 * np.trace(sqrtm(cov @ np.diag(np.diag(cov)))).real
    assert gaussian_wasserstein_correlation(x) == pytest.approx(expected, rel=1e-9)
    assert gaussian_wasserstein_correlation(x, normalised=True) == pytest.approx(expected / 3.5, rel=1e-9)
    assert gaussian_wasserstein_correlation(10 * x, normalised=True) == pytest.approx(expected / 3.5, rel=1e-9)
    assert gaussian_wasserstein_correlation(with_covariance(np.diag([3.0, 1.0]))) == pytest.approx(0, abs=1e-9)


def test_tensors_measure_as_arrays_do():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    array = x.detach().numpy()
    assert total_correlation(x) == total_correlation(array)
    assert averaged_mutual_information(x) == averaged_mutual_information(array)
    assert effective_rank(x) == effective_rank(array)
    labels = torch.tensor([[0, 1], [1, 1], [0, 0]])
    assert mutual_information(labels).tolist() == mutual_information(labels.numpy()).tolist()


GOOD = np.random.default_rng(0).normal(size=(20, 3))
CONSTANT, BROKEN = GOOD.copy(), GOOD.copy()
CONSTANT[:, 1] = 0.1
BROKEN[3, 2] = np.nan


@pytest.mark.parametrize("measure", [total_correlation, averaged_mutual_information])
def test_a_constant_column_is_named(measure):
    with pytest.raises(ValueError, match=r"undefined for constant columns: drop columns \[1\]"):
        measure(CONSTANT)


@pytest.mark.parametrize("measure", [total_correlation, averaged_mutual_information, effective_rank, discretise])
def test_nan_single_samples_and_wrong_shapes_are_refused(measure):
    with pytest.raises(ValueError, match=r"NaN or infinite values in columns \[2\]"):
        measure(BROKEN)
    with pytest.raises(ValueError, match="at least 2 samples; got 1"):
        measure(GOOD[:1])
    with pytest.raises(ValueError, match=r"shape \(samples, variables\); got \(20,\)"):
        measure(GOOD[:, 0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: effective_rank(np.ones((5, 2))), "every column is constant"),
        (lambda: gaussian_wasserstein_correlation(np.ones((5, 2))), "every column is constant"),
        (lambda: effective_rank(GOOD, of="cov"), "'covariance' or 'data'"),
        (lambda: averaged_mutual_information(GOOD[:, :1]), "at least 2 columns"),
        (lambda: averaged_mutual_information(GOOD, correction="mm"), "'none' or 'miller_madow'"),
        (lambda: averaged_mutual_information(GOOD, bins=1), "bins needs at least 2"),
        (lambda: mutual_information(GOOD), "discretise continuous columns first"),
        (lambda: mutual_information([[0], [1]], [[0], [1], [1]]), "same samples; got 2 and 3"),
        (lambda: discrete_entropy([[1]]), "at least 2 samples"),
        (lambda: spectral_rank([0.0, 0.0]), "at least one is positive"),
    ],
)
def test_other_bad_input_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
