"""Gaussian closed forms against numbers, each other, and quadrature."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from polariscope.theory import gaussian
from polariscope.theory.gaussian import (
    JEFFREYS,
    JENSEN_SHANNON,
    KL,
    REVERSE_KL,
    SQUARED_HELLINGER,
    FDivergence,
    GaussianFit,
    Mixture,
    forward_kl_fit,
    gradient_variances,
    kl_diagonal,
    kl_full,
    kl_per_variable,
    kl_standard,
    reparametrised_gradient,
    reverse_kl,
    reverse_kl_fit,
    score_gradient,
)

seeds = st.integers(0, 2**32 - 1)
TARGET = Mixture((0.5, 0.5), (-3.0, 3.0), (1.0, 1.0))


def random_cov(rng: np.random.Generator, size: int) -> np.ndarray:
    factor = rng.normal(size=(size, size))
    return factor @ factor.T + 0.3 * np.eye(size)


@pytest.mark.spec("002/P01")
def test_the_kl_of_a_shifted_unit_gaussian_is_half_its_squared_norm():
    assert kl_full([2, -1], np.eye(2), [0, 0], np.eye(2)) == pytest.approx(2.5, abs=1e-12)
    assert kl_standard([2, -1], np.eye(2)) == pytest.approx(2.5, abs=1e-12)
    assert float(kl_diagonal([2, -1], [1, 1])) == pytest.approx(2.5, abs=1e-12)


@pytest.mark.spec("002/P01")
@given(seed=seeds, size=st.integers(1, 5))
def test_the_full_the_diagonal_and_the_standard_form_agree(seed, size):
    rng = np.random.default_rng(seed)
    mean, prior_mean = rng.normal(size=(2, size))
    var, prior_var = rng.uniform(0.1, 3, size=(2, size))
    full = kl_full(mean, np.diag(var), prior_mean, np.diag(prior_var))
    assert full == pytest.approx(float(kl_diagonal(mean, var, prior_mean, prior_var)), rel=1e-9, abs=1e-12)
    assert kl_standard(mean, np.diag(var)) == pytest.approx(float(kl_diagonal(mean, var)), rel=1e-9, abs=1e-12)
    cov = random_cov(rng, size)
    assert kl_standard(mean, cov) == pytest.approx(kl_full(mean, cov, np.zeros(size), np.eye(size)), rel=1e-9)


@pytest.mark.spec("002/P01")
@given(seed=seeds, size=st.integers(1, 4))
def test_the_kl_is_positive_and_ignores_a_common_invertible_affine_map(seed, size):
    rng = np.random.default_rng(seed)
    mean, prior_mean, shift = rng.normal(size=(3, size))
    cov, prior_cov, turn = random_cov(rng, size), random_cov(rng, size), random_cov(rng, size)
    before = kl_full(mean, cov, prior_mean, prior_cov)
    after = kl_full(turn @ mean + shift, turn @ cov @ turn.T, turn @ prior_mean + shift, turn @ prior_cov @ turn.T)
    assert before > 0
    assert after == pytest.approx(before, rel=1e-6)
    assert kl_full(mean, cov, mean, cov) == pytest.approx(0, abs=1e-10)


@pytest.mark.spec("002/P01")
def test_a_conditional_prior_differs_from_row_to_row():
    mean, var = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([[0.5, 1.0], [2.0, 0.1]])
    prior_mean, prior_var = mean + np.array([[0.0, 1.0], [0.0, 0.0]]), var * np.array([[1.0, 1.0], [1.0, 2.0]])
    terms = kl_per_variable(mean, var, prior_mean, prior_var)
    np.testing.assert_allclose(terms, [[0, 0.5], [0, 0.5 * (0.5 + np.log(2) - 1)]], atol=1e-12)


def test_the_kl_is_the_integral_it_stands_for():
    p, q = norm(0.7, 0.6), norm(-0.2, 1.3)
    integral, _ = quad(lambda z: p.pdf(z) * (p.logpdf(z) - q.logpdf(z)), -10, 10)
    assert float(kl_diagonal([0.7], [0.36], [-0.2], [1.69])) == pytest.approx(integral, rel=1e-7)


@given(seed=seeds, size=st.integers(1, 5))
def test_the_entropy_agrees_with_scipy(seed, size):
    cov = random_cov(np.random.default_rng(seed), size)
    assert gaussian.entropy(cov) == pytest.approx(multivariate_normal(np.zeros(size), cov).entropy(), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: kl_diagonal([0.0], [-1.0]), "log-variance"),
        (lambda: kl_standard([0, 0], [[1, 2], [2, 1]]), "not positive definite"),
        (lambda: kl_full([0, 0, 0], np.eye(2), [0, 0, 0], np.eye(2)), "disagree"),
        (lambda: gaussian.entropy([1.0]), "square matrix"),
        (lambda: KL([0.5, 0.6], [0.5, 0.5]), "sum to 1"),
        (lambda: KL([1.0], [0.5, 0.5]), "same outcomes"),
        (lambda: Mixture((0.5, 0.6), (0, 1), (1, 1)), "sum to 1"),
        (lambda: Mixture((1.0,), (0, 1), (1, 1)), "as many"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.spec("002/P04")
def test_the_score_estimator_of_the_gradient_of_z_squared_has_variance_30_the_reparametrised_4():
    exact = gradient_variances(lambda z: z**2, lambda z: 2 * z, mean=1.0, var=1.0)
    assert (exact.gradient, exact.score, exact.reparametrised) == pytest.approx((2, 30, 4), abs=1e-8)
    noise = np.random.default_rng(0).normal(size=400_000)
    score = score_gradient(lambda z: z**2, 1.0, 1.0, noise)
    path = reparametrised_gradient(lambda z: 2 * z, 1.0, 1.0, noise)
    assert score.mean() == pytest.approx(2, abs=5 * np.sqrt(30 / noise.size))
    assert path.mean() == pytest.approx(2, abs=5 * np.sqrt(4 / noise.size))
    assert score.var() == pytest.approx(30, rel=0.05)
    assert path.var() == pytest.approx(4, rel=0.02)


@given(mean=st.floats(-2, 2), var=st.floats(0.1, 3))
def test_both_estimators_have_the_same_expectation(mean, var):
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / np.sqrt(2 * np.pi)
    score = weights @ score_gradient(lambda z: z**3, mean, var, points)
    path = weights @ reparametrised_gradient(lambda z: 3 * z**2, mean, var, points)
    assert score == pytest.approx(path, rel=1e-8)
    assert path == pytest.approx(3 * (mean**2 + var), rel=1e-8)


@pytest.mark.spec("002/P03")
def test_the_forward_fit_covers_both_modes_and_the_reverse_fit_takes_one():
    assert forward_kl_fit(TARGET) == GaussianFit(0.0, 10.0)
    left, right = reverse_kl_fit(TARGET, -1.0), reverse_kl_fit(TARGET, 1.0)
    assert (left.mean, right.mean) == pytest.approx((-3, 3), abs=0.05)
    assert (left.var, right.var) == pytest.approx((1, 1), abs=0.05)
    # A Gaussian on one of two far modes pays log 2 for the half of the mass it ignores.
    assert reverse_kl(right, TARGET) == pytest.approx(np.log(2), abs=0.01)
    assert reverse_kl(right, TARGET) < reverse_kl(forward_kl_fit(TARGET), TARGET)


DIVERGENCES = {
    "kl": KL,
    "reverse": REVERSE_KL,
    "jeffreys": JEFFREYS,
    "hellinger": SQUARED_HELLINGER,
    "js": JENSEN_SHANNON,
}


@pytest.mark.spec("002/P02")
@pytest.mark.parametrize("name", DIVERGENCES)
@settings(max_examples=settings.default.max_examples // 2)
@given(seed=seeds, weight=st.floats(0, 1))
def test_f_divergences_are_positive_convex_and_dual(name, seed, weight):
    divergence = DIVERGENCES[name]
    p, q, r, s = np.random.default_rng(seed).dirichlet(np.ones(5), size=4)
    assert divergence(p, q) > 0
    assert divergence(p, p) == pytest.approx(0, abs=1e-12)
    assert divergence.dual()(p, q) == pytest.approx(divergence(q, p), rel=1e-9)
    assert divergence.symmetrised()(p, q) == pytest.approx(0.5 * (divergence(p, q) + divergence(q, p)), rel=1e-9)
    mixed = divergence(weight * p + (1 - weight) * r, weight * q + (1 - weight) * s)
    assert mixed <= weight * divergence(p, q) + (1 - weight) * divergence(r, s) + 1e-12


@pytest.mark.spec("002/P02")
def test_named_divergences_are_what_they_are_called():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    kl = np.sum(p * np.log(p / q))
    assert KL(p, q) == pytest.approx(kl)
    assert KL(p, q) == pytest.approx(-np.sum(p * np.log(q)) + np.sum(p * np.log(p)))  # H(P,Q) − H(P)
    assert REVERSE_KL(p, q) == pytest.approx(KL(q, p))
    assert JEFFREYS(p, q) == pytest.approx(KL(p, q) + KL(q, p))
    assert pytest.approx(0.5 * (KL(p, (p + q) / 2) + KL(q, (p + q) / 2))) == JENSEN_SHANNON(p, q)
    assert pytest.approx(2 - 2 * np.sum(np.sqrt(p * q))) == SQUARED_HELLINGER(p, q)


@pytest.mark.parametrize(
    ("divergence", "expected"),
    [
        (KL, np.inf),
        (REVERSE_KL, np.inf),
        (JENSEN_SHANNON, np.log(2)),
        (SQUARED_HELLINGER, 2.0),
    ],
)
def test_disjoint_distributions_are_as_far_apart_as_the_divergence_allows(divergence: FDivergence, expected):
    assert divergence([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]) == pytest.approx(expected)


@pytest.mark.spec("002/P02")
def test_mass_missing_on_one_side_only_costs_what_the_generator_says_and_duality_exchanges_it():
    corner, even = [1.0, 0.0], [0.5, 0.5]
    assert KL(corner, even) == KL.dual()(even, corner) == pytest.approx(np.log(2))
    assert KL(even, corner) == KL.dual()(corner, even) == np.inf
    half, corner = [0.5, 0.25, 0.25], [1.0, 0.0, 0.0]  # two outcomes that only one side has
    for p, q in ((half, corner), (corner, half)):
        assert pytest.approx(2 - 2 * np.sqrt(0.5)) == SQUARED_HELLINGER(p, q)
        assert pytest.approx(0.25 * np.log(2 / 3) + 0.25 * np.log(2) + 0.5 * np.log(4 / 3)) == JENSEN_SHANNON(p, q)
