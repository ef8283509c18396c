"""The linear VAE against the numbers of Spec 002 section 5, against probabilistic PCA, and against an optimiser."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, ortho_group

from polariscope.theory.linear_vae import (
    elbo,
    local_var,
    log_likelihood,
    optimal_posterior,
    rate_distortion,
    rotation_gap,
    solve,
    trace_gaps,
)

SPECTRUM = (5, 3, 1.5, 0.8, 0.3, 0.1)
QUARTER_TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
seeds = st.integers(0, 2**32 - 1)


def random_model(seed: int, inputs: int, latents: int):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(inputs, latents)), rng.normal(size=inputs), rng.normal(size=(7, inputs))


@pytest.mark.spec("002/L01")
@given(seed=seeds, inputs=st.integers(1, 6), latents=st.integers(1, 7), gamma=st.floats(0.05, 5))
def test_the_elbo_with_the_full_posterior_is_the_log_likelihood(seed, inputs, latents, gamma):
    W, bias, x = random_model(seed, inputs, latents)
    best = optimal_posterior(W, x, gamma, bias)
    value = elbo(x, W, gamma, best.mean, best.cov, bias)
    np.testing.assert_allclose(value, log_likelihood(x, W, gamma, bias), rtol=1e-10, atol=1e-10)
    reference = multivariate_normal(bias, W @ W.T + gamma * np.eye(inputs)).logpdf(x)
    np.testing.assert_allclose(value, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.spec("002/L01")
@given(seed=seeds, scale=st.floats(1e-3, 0.5), beta=st.floats(0.2, 4))
def test_no_other_posterior_is_better(seed, scale, beta):
    W, bias, x = random_model(seed, 4, 3)
    rng = np.random.default_rng(seed)
    for kind in ("full", "diagonal"):
        best = optimal_posterior(W, x, 0.5, bias, beta, kind)
        top = elbo(x, W, 0.5, best.mean, best.cov, bias, beta)
        moved = best.mean + scale * rng.normal(size=best.mean.shape)
        assert (elbo(x, W, 0.5, moved, best.cov, bias, beta) < top).all()
        stretched = best.var * np.exp(scale * rng.choice([-1, 1], size=3))
        other = np.diag(stretched) if kind == "diagonal" else best.cov + scale * np.diag(best.var)
        assert (elbo(x, W, 0.5, best.mean, other, bias, beta) < top).all()


@pytest.mark.spec("002/L01")
def test_a_full_posterior_cannot_tell_rotations_apart():
    W, bias, x = random_model(0, 5, 3)
    turn = ortho_group.rvs(3, random_state=0)
    np.testing.assert_allclose(log_likelihood(x, W @ turn, 0.3, bias), log_likelihood(x, W, 0.3, bias), atol=1e-10)


@pytest.mark.spec("002/L02")
def test_a_quarter_turn_costs_0_2029_unhalved():
    turned = np.diag([2.0, 1.0]) @ QUARTER_TURN
    assert 2 * rotation_gap(turned, gamma=1.0) == pytest.approx(2 * np.log(3.5) - np.log(10), abs=1e-12)
    assert 2 * rotation_gap(turned, gamma=1.0) == pytest.approx(0.2029, abs=5e-5)
    assert rotation_gap(turned, gamma=1.0) == pytest.approx(0.1015, abs=5e-5)
    assert rotation_gap(np.diag([2.0, 1.0]), gamma=1.0) == pytest.approx(0, abs=1e-14)


@pytest.mark.spec("002/L02")
@given(seed=seeds, gamma=st.floats(0.1, 3), beta=st.floats(0.2, 4))
def test_the_gap_is_what_the_diagonal_posterior_loses(seed, gamma, beta):
    W, bias, x = random_model(seed, 5, 3)
    full, diagonal = (optimal_posterior(W, x, gamma, bias, beta, kind) for kind in ("full", "diagonal"))
    lost = elbo(x, W, gamma, full.mean, full.cov, bias, beta) - elbo(
        x, W, gamma, diagonal.mean, diagonal.var, bias, beta
    )
    np.testing.assert_allclose(lost, rotation_gap(W, gamma, beta), rtol=1e-8, atol=1e-10)
    assert rotation_gap(W, gamma, beta) > 0


@pytest.mark.spec("002/L02")
@given(seed=seeds)
def test_permutations_and_signs_are_free_but_rotations_are_not(seed):
    rng = np.random.default_rng(seed)
    W = ortho_group.rvs(5, random_state=rng)[:, :3] * [3.0, 2.0, 1.0]
    x = rng.normal(size=(4, 5))

    def diagonal_elbo(weight):
        best = optimal_posterior(weight, x, 0.4, posterior="diagonal")
        return elbo(x, weight, 0.4, best.mean, best.cov)

    signed_permutation = np.eye(3)[rng.permutation(3)] * rng.choice([-1, 1], size=3)
    np.testing.assert_allclose(diagonal_elbo(W @ signed_permutation), diagonal_elbo(W), atol=1e-10)
    turn = np.eye(3)
    turn[:2, :2] = QUARTER_TURN
    assert (diagonal_elbo(W @ turn) < diagonal_elbo(W) - 1e-3).all()


@pytest.mark.spec("002/L03")
@pytest.mark.parametrize(
    ("gamma", "expected"), [(0.1, (1 / 41, 1 / 11)), (100.0, (1 / 1.04, 1 / 1.01))], ids=["active", "passive"]
)
def test_the_example_of_two_singular_values(gamma, expected):
    rounded = {0.1: (0.02439, 0.09091), 100.0: (0.96154, 0.99010)}[gamma]
    for kind in ("full", "diagonal"):
        best = optimal_posterior(np.diag([2.0, 1.0]), [3.0, -4.0], gamma, posterior=kind)
        np.testing.assert_allclose(best.var, expected, rtol=1e-12)
        np.testing.assert_allclose(best.var, rounded, atol=5e-6)
        np.testing.assert_allclose(best.mean, [[3 * 2 / (4 + gamma), -4 * 1 / (1 + gamma)]], rtol=1e-12)


@pytest.mark.spec("002/L03")
def test_a_vanishing_decoder_variance_inverts_the_decoder_and_a_huge_one_silences_it():
    sharp = optimal_posterior(np.diag([2.0, 1.0]), [1.0, 1.0], 1e-9)
    np.testing.assert_allclose(sharp.mean, [[0.5, 1.0]], atol=1e-8)
    assert (sharp.var < 1e-8).all()
    blunt = optimal_posterior(np.diag([2.0, 1.0]), [1.0, 1.0], 1e9)
    np.testing.assert_allclose(blunt.mean, 0, atol=1e-8)
    np.testing.assert_allclose(blunt.var, 1, atol=1e-8)


def test_the_local_version_is_the_diagonal_posterior_of_the_jacobian():
    jacobians = np.random.default_rng(0).normal(size=(6, 5, 3))
    expected = [optimal_posterior(j, np.zeros(5), 0.3, beta=2, posterior="diagonal").var for j in jacobians]
    np.testing.assert_allclose(local_var(jacobians, 0.3, beta=2), expected, rtol=1e-12)


@pytest.mark.spec("002/L04")
@given(seed=seeds, gamma=st.floats(0.05, 3), beta=st.floats(0.1, 8))
def test_beta_acts_as_a_factor_of_the_decoder_variance(seed, gamma, beta):
    W, bias, x = random_model(seed, 5, 3)
    for kind in ("full", "diagonal"):
        weighted, plain = (
            optimal_posterior(W, x, gamma, bias, beta, kind),
            optimal_posterior(W, x, beta * gamma, bias, 1, kind),
        )
        np.testing.assert_allclose(weighted.mean, plain.mean, rtol=1e-10)
        np.testing.assert_allclose(weighted.cov, plain.cov, rtol=1e-10)
    weighted, plain = solve(SPECTRUM, 5, gamma, beta), solve(SPECTRUM, 5, beta * gamma, 1)
    np.testing.assert_allclose(weighted.W, plain.W, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(weighted.var, plain.var, rtol=1e-10)
    np.testing.assert_allclose(weighted.gain, plain.gain, rtol=1e-10, atol=1e-12)


TABLE = [
    (0.1, 5, (0.0100, 0.0167, 0.0333, 0.0625, 0.1667), 0.2892, 8.3325, 0.35),
    (0.5, 5, (0.0500, 0.0833, 0.1667, 0.3125, 0.8333), 1.4458, 4.3089, 1.35),
    (1, 4, (0.1000, 0.1667, 0.3333, 0.6250, 1), 2.2250, 2.8315, 2.40),
    (2, 3, (0.2000, 0.3333, 0.6667, 1, 1), 3.2000, 1.5568, 4.20),
    (4, 2, (0.4000, 0.6667, 1, 1, 1), 4.0667, 0.6609, 6.70),
    (12, 0, (1, 1, 1, 1, 1), 5.0000, 0, 10.70),
]


@pytest.mark.spec("002/L05", "002/L09")
@pytest.mark.parametrize(("beta", "active", "var", "gap", "rate", "distortion"), TABLE)
def test_the_table_of_optima(beta, active, var, gap, rate, distortion):
    best = solve(SPECTRUM, latents=5, gamma=0.5, beta=beta)
    assert best.active_count == active
    assert best.active.tolist() == [True] * active + [False] * (5 - active)
    np.testing.assert_allclose(best.var, var, atol=5.1e-5)
    assert (best.trace_gap, best.rate) == pytest.approx((gap, rate), abs=5.1e-5)
    assert best.distortion == pytest.approx(distortion, abs=1e-9)


@pytest.mark.spec("002/L05")
@given(seed=seeds, beta=st.floats(0.1, 6), latents=st.integers(1, 8))
def test_the_fields_of_the_optimum_agree_with_the_objective_it_optimises(seed, beta, latents):
    """Posterior, rate, distortion and ELBO recomputed from W alone, on data with exactly the given covariance."""
    rng = np.random.default_rng(seed)
    basis = ortho_group.rvs(6, random_state=rng)
    cov = basis @ np.diag(SPECTRUM) @ basis.T
    best = solve(cov, latents, gamma=0.5, beta=beta)
    x = np.sqrt(6) * (basis * np.sqrt(SPECTRUM)).T  # six points with mean square exactly cov
    posterior = optimal_posterior(best.W, x, 0.5, beta=beta, posterior="diagonal")
    np.testing.assert_allclose(posterior.var, best.var, rtol=1e-9)
    np.testing.assert_allclose(posterior.cov, optimal_posterior(best.W, x, 0.5, beta=beta).cov, atol=1e-9)
    second_moment = posterior.mean.T @ posterior.mean / 6
    np.testing.assert_allclose(second_moment + posterior.cov, np.eye(latents), atol=1e-9)  # aggregate is N(0, I)
    assert elbo(x, best.W, 0.5, posterior.mean, posterior.cov, beta=beta).mean() == pytest.approx(best.elbo, rel=1e-9)
    error = np.sum((x - posterior.mean @ best.W.T) ** 2, axis=1).mean() + np.sum(best.var * np.sum(best.W**2, axis=0))
    assert error == pytest.approx(best.distortion, rel=1e-9)
    np.testing.assert_allclose(best.gain, np.linalg.norm(posterior.mean.T @ np.linalg.inv(x.T), axis=1), atol=1e-9)


@pytest.mark.spec("002/L05")
@pytest.mark.parametrize("beta", [0.7, 2.0])
def test_an_optimiser_finds_nothing_better_and_orthogonal_columns(beta):
    cov, latents, gamma = np.diag([3.0, 1.2, 0.4]), 2, 0.5
    points = np.sqrt(3) * np.sqrt(cov)

    def negative(flat):
        W = flat.reshape(3, latents)
        best = optimal_posterior(W, points, gamma, beta=beta, posterior="diagonal")
        return -elbo(points, W, gamma, best.mean, best.cov, beta=beta).mean()

    start = np.random.default_rng(0).normal(size=(3, 6))
    result = min((minimize(negative, flat, method="BFGS") for flat in start), key=lambda r: r.fun)
    theory = solve(cov, latents, gamma, beta)
    assert -result.fun == pytest.approx(theory.elbo, abs=1e-7)
    gram = result.x.reshape(3, latents).T @ result.x.reshape(3, latents)
    np.testing.assert_allclose(sorted(np.diag(gram), reverse=True), np.sum(theory.W**2, axis=0), atol=1e-4)
    assert abs(gram[0, 1]) < 1e-4


@pytest.mark.spec("002/L05")
def test_a_full_posterior_attains_the_same_optimum_but_leaves_rotations_free():
    full, diagonal = (solve(SPECTRUM, 5, 0.5, posterior=kind) for kind in ("full", "diagonal"))
    assert full.elbo == diagonal.elbo
    assert (full.freedom, diagonal.freedom) == ("rotation", "signed permutation")


def test_an_unordered_spectrum_is_the_same_data():
    assert solve([0.3, 5, 1.5], 2, 0.5).var.tolist() == solve([5, 1.5, 0.3], 2, 0.5).var.tolist()
    assert np.argmax(np.abs(solve([0.3, 5, 1.5], 2, 0.5).W), axis=0).tolist() == [1, 2]


@pytest.mark.spec("002/L06")
@pytest.mark.parametrize(("latents", "beta", "gamma"), [(2, 1, 0.675), (3, 1, 0.4), (2, 1.5, 0.9), (2, 2, 1.35)])
def test_the_learned_decoder_variance(latents, beta, gamma):
    best = solve(SPECTRUM, latents, gamma=None, beta=beta)
    assert best.gamma == pytest.approx(gamma, abs=1e-12)
    nearby = [solve(SPECTRUM, latents, gamma * factor, beta).elbo for factor in np.geomspace(0.02, 50, 400)]
    assert best.elbo >= max(nearby)


@pytest.mark.spec("002/L06")
@given(
    spectrum=st.lists(st.floats(0.05, 10), min_size=2, max_size=7),
    beta=st.floats(0.3, 6),
    latents=st.integers(1, 6),
)
def test_the_learned_variance_is_the_global_optimum_also_where_strong_beta_collapses_everything(
    spectrum, beta, latents
):
    latents = min(latents, len(spectrum) - 1)
    best = solve(spectrum, latents, gamma=None, beta=beta)
    tried = np.geomspace(1e-3, 100, 300)
    assert best.elbo >= max(solve(spectrum, latents, g, beta).elbo for g in tried) - 1e-9


@pytest.mark.spec("002/L06")
def test_data_of_exactly_low_rank_has_no_learned_variance():
    with pytest.raises(ValueError, match="falls to 0"):
        solve([3, 1, 0, 0], latents=2, gamma=None)
    with pytest.raises(ValueError, match="falls to 0"):
        solve([3, 1], latents=2, gamma=None, beta=0.9)


@pytest.mark.spec("002/L06")
@pytest.mark.parametrize(("spectrum", "beta"), [([3, 0.7], 1.0), ([3, 0.7, 0, 0], 2.0), ([3, 0.7, 0.0], 1.5)])
def test_where_a_range_of_decoder_variances_is_optimal_one_of_them_is_returned(spectrum, beta):
    best = solve(spectrum, latents=2, gamma=None, beta=beta)
    assert best.elbo == pytest.approx(solve(spectrum, 2, best.gamma / 5, beta).elbo, rel=1e-12)


@pytest.mark.spec("002/L09")
def test_the_rate_distortion_curve_passes_through_the_table_with_slope_minus_beta():
    curve = rate_distortion(SPECTRUM, 5, 0.5, [row[0] for row in TABLE])
    np.testing.assert_allclose(curve.rate, [row[4] for row in TABLE], atol=5.1e-5)
    np.testing.assert_allclose(curve.distortion, [row[5] for row in TABLE], atol=1e-9)
    betas = np.linspace(0.15, 9.5, 4000)
    slope = rate_distortion(SPECTRUM, 5, 0.5, betas).slope()
    np.testing.assert_allclose(slope, -(betas[1:] + betas[:-1]) / 2, rtol=1e-3)


@pytest.mark.spec("002/L05")
def test_the_trace_gap_as_a_function_of_the_number_of_latents():
    np.testing.assert_allclose(trace_gaps(SPECTRUM, 6, 0.5), [0.1, 0.2667, 0.6, 1.225, 2.225, 3.225], atol=5e-5)
    few = trace_gaps(SPECTRUM, 9, 0.05)
    np.testing.assert_allclose(few[:6], [0.01, 0.0267, 0.06, 0.1225, 0.2892, 0.7892], atol=5.1e-5)
    np.testing.assert_allclose(np.diff(few[5:]), 1)
    # the largest n whose gap stays within 1 is what FONDUE must return
    assert (trace_gaps(SPECTRUM, 6, 0.5) <= 1).sum() == 3
    assert (few <= 1).sum() == 6
    for n in (1, 4, 6, 9):
        assert trace_gaps(SPECTRUM, 9, 0.5, beta=0.3)[n - 1] == pytest.approx(solve(SPECTRUM, n, 0.5, 0.3).trace_gap)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: solve(SPECTRUM, 0, 0.5), "latents needs to be positive"),
        (lambda: solve(SPECTRUM, 2, -0.5), "gamma needs to be positive"),
        (lambda: solve(SPECTRUM, 2, 0.5, beta=0), "beta needs to be positive"),
        (lambda: solve([1.0, -0.5], 2, 0.5), "no negative eigenvalue"),
        (lambda: solve([[1.0, 0.5], [0.0, 1.0]], 2, 0.5), "symmetric covariance"),
        (lambda: solve([0.0, 0.0], 2, 0.5), "at least one is positive"),
        (lambda: solve(SPECTRUM, 2, 0.5, posterior="diag"), "'diagonal' or 'full'"),
        (lambda: rate_distortion(SPECTRUM, 2, 0.5, [1, 0]), "beta needs to be positive"),
        (lambda: optimal_posterior([1.0], [1.0], 0.5), "shape"),
        (lambda: elbo([1.0], [[1.0]], 0.5, [0.0], [0.0]), "not positive definite"),
    ],
)
def test_bad_models_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
