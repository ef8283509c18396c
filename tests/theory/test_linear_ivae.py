"""The linear iVAE: scalar triples, fixed points, who is pruned, and why two learned moments are one too many."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from polariscope.theory import linear_vae
from polariscope.theory.linear_ivae import (
    activity_cost,
    both_learned_objective,
    kl_at_optimal_prior,
    objective,
    optimal_prior_var,
    optimal_var,
    reconstruction,
    scalar_solution,
    solve,
)

seeds = st.integers(0, 2**32 - 1)
TRIPLES = [
    (2, 1, 0.1, (0.45, 0.0225, 0.225)),
    (1, 3, 0.5, (2.8333333, 0.4722222, 8.5)),
    (0.7, -2, 1, (-2.142857, 1.530612, 6.122449)),
]


@pytest.mark.spec("002/I02")
@pytest.mark.parametrize(("w", "x", "gamma", "expected"), TRIPLES)
def test_the_scalar_triples_three_ways(w, x, gamma, expected):
    closed = scalar_solution(w, x, gamma)
    assert (float(closed.mean), float(closed.var), float(closed.prior_var)) == pytest.approx(expected, abs=5e-7)
    iterated = solve([[w]], [[x]], gamma)
    got = iterated.mean.item(), iterated.var.item(), iterated.prior_var.item()
    assert got == pytest.approx(expected, abs=5e-7)

    def negative(p):
        mean, var, prior = p[0], np.exp(p[1]), np.exp(p[2])
        return -objective([[x]], [[w]], gamma, [[mean]], [var], prior_var=[prior]).item()

    result = minimize(negative, [x / w, 0.0, 0.0], method="BFGS")
    assert (result.x[0], *np.exp(result.x[1:])) == pytest.approx(expected, rel=1e-3)


@pytest.mark.spec("002/I02")
@given(w=st.floats(0.2, 3), share=st.floats(0.05, 0.95), gamma=st.floats(0.05, 2))
def test_an_input_below_the_noise_is_passive(w, share, gamma):
    x = np.sqrt(share * gamma)
    closed, iterated = scalar_solution(w, x, gamma), solve([[w]], [[x]], gamma)
    assert (float(closed.mean), float(closed.var), float(closed.prior_var)) == (0, 0, 0)
    assert not iterated.active.any()
    assert iterated.mean.item() == pytest.approx(0, abs=1e-6)
    assert iterated.var.item() == pytest.approx(iterated.prior_var.item(), abs=1e-9)


@pytest.mark.spec("002/I02")
@given(mean=st.floats(0.01, 20), norm=st.floats(0.1, 5), gamma=st.floats(0.01, 5))
def test_the_variance_solves_its_own_equation(mean, norm, gamma):
    var = float(optimal_var(mean, norm, gamma))
    assert var == pytest.approx(1 / (norm**2 / gamma + 1 / (var + mean**2)), rel=1e-9)
    textbook = mean**2 / 2 * (np.sqrt(1 + 4 * gamma / (norm * mean) ** 2) - 1)
    assert var == pytest.approx(textbook, rel=1e-5)
    assert float(optimal_var(mean, norm, 1e-9)) == pytest.approx(1e-9 / norm**2, rel=1e-3)


def test_a_variable_without_a_mean_has_no_variance_and_costs_nothing():
    assert optimal_var([0.0, 1.0], 1.0, 0.5)[0] == 0
    assert activity_cost([0.0, 1.0], 1.0, 0.5)[0] == 0
    np.testing.assert_array_equal(kl_at_optimal_prior([0.0, 0.0], [0.1, 7.0]), 0)


@pytest.mark.spec("002/I02")
@given(seed=seeds)
def test_the_kl_at_the_optimal_prior_is_the_least(seed):
    rng = np.random.default_rng(seed)
    mean, var = rng.normal(size=(1, 3)), rng.uniform(0.1, 2, size=(1, 3))
    prior = optimal_prior_var(mean, var)

    def kl(prior_var):
        zeros = np.zeros((1, 2))
        return (
            reconstruction(zeros, np.zeros((2, 3)), 1, mean, var)
            - objective(zeros, np.zeros((2, 3)), 1, mean, var, prior_var=prior_var)
        ).item()

    assert kl(prior) == pytest.approx(kl_at_optimal_prior(mean, var).sum(), rel=1e-9)
    assert kl(prior) < kl(prior * np.exp(0.1 * rng.choice([-1, 1], size=3)))


@pytest.mark.spec("002/I02")
@given(seed=seeds, gamma=st.floats(0.1, 1))
@example(seed=69, gamma=1.0)  # alternating between posterior and prior re-excites a latent that is all but passive
def test_a_fixed_point_satisfies_the_four_conditions(seed, gamma):
    rng = np.random.default_rng(seed)
    W, bias, x = rng.normal(size=(5, 3)), rng.normal(size=5), 2 * rng.normal(size=(6, 5))
    s = solve(W, x, gamma, bias)
    A = W.T @ W
    np.testing.assert_allclose(s.prior_var, s.var + s.mean**2, rtol=1e-7)
    np.testing.assert_allclose(1 / s.var, np.diag(A) / gamma + 1 / s.prior_var, rtol=1e-9)
    for row in range(6):
        cov = W @ np.diag(s.prior_var[row]) @ W.T + gamma * np.eye(5)  # μ by the other form of the same inverse
        mean = s.prior_var[row] * (W.T @ np.linalg.solve(cov, x[row] - bias))
        np.testing.assert_allclose(s.mean[row], mean, atol=1e-9)
    # equation (5.15): the objective with every variance at its own optimum
    value = objective(x, W, gamma, s.mean, s.var, prior_var=s.prior_var, bias=bias)
    error = np.sum((x - bias - s.mean @ W.T) ** 2, axis=1) / gamma
    logs = np.log(np.diag(A) * (s.var + s.mean**2) + gamma).sum(axis=1)
    shares = (s.mean**2 / (s.mean**2 + s.var)).sum(axis=1)
    profile = -0.5 * ((5 - 3) * np.log(gamma) + shares + error + logs + 5 * np.log(2 * np.pi))
    np.testing.assert_allclose(value, profile, rtol=1e-7)


@pytest.mark.spec("002/I02")
@settings(max_examples=settings.default.max_examples // 4)
@given(seed=seeds, gamma=st.floats(1e-6, 3), latents=st.integers(1, 6))
def test_no_latent_alone_can_raise_the_objective(seed, gamma, latents):
    rng = np.random.default_rng(seed)
    W, x, groups = rng.normal(size=(4, latents)), 2 * rng.normal(size=(6, 4)), np.array([0, 0, 0, 1, 1, 2])
    s = solve(W, x, gamma, groups=groups)

    def best_objective(prior_var):
        """With posterior means and variances at their optimum for the given prior."""
        means = []
        for row, prior in zip(x, prior_var, strict=True):
            stacked = np.vstack([W * np.sqrt(prior), np.sqrt(gamma) * np.eye(latents)])
            means.append(np.sqrt(prior) * np.linalg.lstsq(stacked, np.append(row, np.zeros(latents)))[0])
        var = 1 / (np.sum(W**2, axis=0) / gamma + 1 / prior_var)
        return objective(x, W, gamma, means, var, prior_var=prior_var)

    result = best_objective(s.prior_var)
    for latent in range(latents):
        for other in (1e-300, 1e-4, 0.5, 0.99, 1.01, 2.0, 1e2):
            moved = s.prior_var.copy()
            moved[:, latent] = other * np.where(s.active[:, latent], moved[:, latent], gamma)
            gain = np.bincount(groups, best_objective(moved) - result)
            assert (gain <= 1e-9 * np.abs(result).max()).all()


@pytest.mark.spec("002/I02")
def test_of_equal_columns_one_stays_active():
    """Theorem 5.2.2 again; halves of the work are a fixed point too, but one latent alone can leave it."""
    s = solve([[0.6, 0.6], [0.8, 0.8]], [[3.0, 4.0]], gamma=0.5)
    assert s.active.sum() == 1
    assert s.mean.sum() == pytest.approx((25 - 0.5) / 5)


@pytest.mark.parametrize("latents", [2, 4, 7])
def test_without_noise_the_code_reconstructs_what_the_decoder_can(latents):
    rng = np.random.default_rng(latents)
    W, x = rng.normal(size=(4, latents)), rng.normal(size=(5, 4))
    s = solve(W, x, gamma=1e-10)
    np.testing.assert_allclose(s.mean @ W.T, x @ (W @ np.linalg.pinv(W)).T, atol=1e-6)


@pytest.mark.spec("002/I02")
def test_rows_that_share_u_share_one_prior_set_by_their_mean_square():
    x = np.array([[3.0], [1.0], [0.2], [0.1]])
    s = solve([[0.5]], x, gamma=0.4, groups=["a", "a", "b", "b"])
    np.testing.assert_allclose(s.prior_var[:2, 0], ((9 + 1) / 2 - 0.4) / 0.25, rtol=1e-9)
    assert s.active[:, 0].tolist() == [True, True, False, False]
    assert s.mean[0, 0] == pytest.approx(3 * s.mean[1, 0])


@pytest.mark.spec("002/I02")
@given(mean=st.floats(0.05, 5), extra=st.floats(0.05, 5), gamma=st.floats(0.05, 2), norm=st.floats(0.2, 3))
def test_an_extra_active_variable_with_the_same_reconstruction_is_strictly_worse(mean, extra, gamma, norm):
    """Theorem 5.2.2: the second column adds nothing (its direction is the first one's), so it must stay passive."""
    direction = np.array([[0.6], [0.8]])
    W = norm * np.hstack([direction, direction])
    x = (norm * (mean + extra) * direction).T

    def at(code):
        code = np.atleast_2d(code)
        var = np.maximum(optimal_var(code, norm, gamma), 1e-12)  # a passive variance may be anything; take it small
        return objective(x, W, gamma, code, var, prior_var=optimal_prior_var(code, var)).item()

    one, two = at([mean + extra, 0.0]), at([mean, extra])
    np.testing.assert_allclose([[mean + extra, 0.0]] @ W.T, [[mean, extra]] @ W.T, atol=1e-12)
    assert one > two
    costs = activity_cost([mean, extra], norm, gamma).sum() - activity_cost(mean + extra, norm, gamma)
    assert one - two == pytest.approx(costs, rel=1e-4, abs=1e-6)


@pytest.mark.spec("002/I02")
def test_as_many_variables_stay_active_as_the_reconstruction_can_use():
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.normal(size=(6, 4)))[0] * [2.0, 1.0, 1.5, 0.5]
    code = np.array([[2.0, -3.0, 0.0, 0.0]])
    s = solve(W, code @ W.T, gamma=0.05)
    assert s.active.tolist() == [[True, True, False, False]]
    np.testing.assert_allclose(s.mean, code, rtol=0.05, atol=1e-6)
    assert (s.var[0, :2] < 0.1).all()
    np.testing.assert_allclose(s.prior_var[0, :2], s.mean[0, :2] ** 2, rtol=0.05)


def test_the_standard_prior_gives_back_the_linear_vae():
    rng = np.random.default_rng(1)
    W, bias, x, mean = rng.normal(size=(4, 2)), rng.normal(size=4), rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    var = np.array([0.3, 0.8])
    np.testing.assert_allclose(
        objective(x, W, 0.7, mean, var, bias=bias), linear_vae.elbo(x, W, 0.7, mean, var, bias), rtol=1e-12
    )


@pytest.mark.spec("002/I03")
@given(seed=seeds)
def test_with_both_prior_moments_learned_the_objective_only_grows_as_the_posterior_shrinks(seed):
    rng = np.random.default_rng(seed)
    W, x, mean = rng.normal(size=(4, 3)), rng.normal(size=(2, 4)), rng.normal(size=(2, 3))
    scales = np.geomspace(1, 1e-8, 9)
    values = np.array([both_learned_objective(x, W, 0.3, mean, np.full(3, s)) for s in scales])
    assert (np.diff(values, axis=0) > 0).all()
    limit = -0.5 * (4 * np.log(2 * np.pi * 0.3) + np.sum((x - mean @ W.T) ** 2, axis=1) / 0.3)
    np.testing.assert_allclose(values[-1], limit, atol=1e-5)


@pytest.mark.spec("002/I03")
def test_with_exact_reconstruction_it_has_no_upper_bound():
    W, mean = np.eye(3)[:, :2], np.array([[1.0, -2.0]])
    values = [both_learned_objective(mean @ W.T, W, s, mean, np.full(2, s)).item() for s in np.geomspace(1, 1e-12, 13)]
    np.testing.assert_allclose(np.diff(values), 1.5 * np.log(10), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: solve([[1.0]], [[1.0]], 0.0), "gamma needs to be positive"),
        (lambda: solve([[1.0]], [[1.0]], 0.5, groups=[0, 1]), "one entry per row"),
        (lambda: scalar_solution(0.0, 1.0, 0.1), "not 0"),
        (lambda: reconstruction([[1.0]], [[1.0]], -1, [[0.0]], [1.0]), "gamma needs to be positive"),
    ],
)
def test_bad_problems_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_an_exhausted_iteration_says_so():
    with pytest.raises(RuntimeError, match="within 2 iterations"):
        solve([[1.0, 0.5], [0.0, 1.0]], [[2.0, 2.0]], 0.1, most_iterations=2)
