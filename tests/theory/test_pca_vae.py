"""The theory of VAEs and PCA against the numbers of Spec 003 section 9, finite differences, sampling and optimisers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polariscope.measures.orthogonality import haar_distance, orthogonality, random_orientations
from polariscope.theory.gaussian import kl_diagonal, kl_per_variable, kl_standard
from polariscope.theory.orthogonal_noise import (
    descend_to_orthogonality,
    gram_gap,
    hands_on_example,
    likelihood_bounds,
    log_volume,
    minimal_noise_cost,
    minimal_stochastic_loss,
    noise_cost,
    noise_objective,
    noise_objective_bound,
    optimal_var,
    orthogonality_gap,
    reconstruction_split,
    rotation_penalty,
    stochastic_loss,
)
from polariscope.theory.pca_vae import (
    collapse_betas,
    decoder_variance,
    effective_noise_variance,
    encoder_of,
    fit_linear_vae,
    linear_autoencoder,
    linear_vae_loss,
    minimum_loss,
    optimum,
    pca_alignment,
)
from polariscope.theory.polarised_regime import (
    active_units,
    best_scale,
    kl_approximation_error,
    polarised_kl,
    polarised_share,
    precision_bits,
    principal_order,
)

SPECTRUM = np.array([1 / 3, 1 / 12, 0])
seeds = st.integers(0, 2**32 - 1)


def turn(degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def covariance(seed: int, spectrum=SPECTRUM) -> np.ndarray:
    basis = random_orientations(1, len(spectrum), seed)[0]
    return basis * np.asarray(spectrum) @ basis.T


# --- the scale of the loss ---


@pytest.mark.spec("003/F3-005")
def test_the_effective_noise_variance_in_three_conventions():
    assert effective_noise_variance(0.4) == pytest.approx(0.2)
    assert effective_noise_variance(0.4, "mean", m=3) == pytest.approx(0.6)
    assert effective_noise_variance(0.4, "halved") == pytest.approx(0.4)


@pytest.mark.spec("003/F3-005", "003/F3-009")
@pytest.mark.parametrize(
    ("convention", "expected"), [("summed", (2 / 3, 1 / 6)), ("mean", (2 / 9, 1 / 18)), ("halved", (1 / 3, 1 / 12))]
)
def test_each_component_is_given_up_at_its_beta(convention, expected):
    """O7, and the count of active latents steps down exactly there."""
    thresholds = collapse_betas(SPECTRUM[:2], convention, m=3)
    np.testing.assert_allclose(thresholds, expected, rtol=1e-12)
    for index, beta in enumerate(thresholds):
        assert optimum(SPECTRUM, 2, beta * 0.999, convention).active_count == index + 1
        assert optimum(SPECTRUM, 2, beta * 1.001, convention).active_count == index


@pytest.mark.spec("003/F3-005")
def test_conventions_are_the_same_loss_in_other_units():
    C = covariance(0)
    best = optimum(C, 2, 0.03)
    args = best.W, encoder_of(best), best.var, C
    summed = linear_vae_loss(*args, beta=0.03).value
    assert linear_vae_loss(*args, beta=0.01, convention="mean").value == pytest.approx(summed / 3, rel=1e-12)
    assert linear_vae_loss(*args, beta=0.015, convention="halved").value == pytest.approx(summed / 2, rel=1e-12)
    assert minimum_loss(optimum(C, 2, 0.01, "mean")) == pytest.approx(summed / 3, rel=1e-12)


def test_unknown_conventions_are_refused():
    with pytest.raises(ValueError, match="'summed', 'mean' or 'halved'; got 'median'"):
        decoder_variance("median")
    with pytest.raises(ValueError, match="pass m="):
        effective_noise_variance(1.0, "mean")
    with pytest.raises(ValueError, match="beta needs to be positive"):
        effective_noise_variance(0.0)


# --- the linear VAE ---

MINIMA = {
    1e-4: 9.111728e-4,
    1e-3: 6.809143e-3,
    1e-2: 0.04506558,
    0.1: 0.22039728,
    0.15: 0.26977615,
    0.18: 0.29117333,
    0.3: 0.35310949,
    0.6: 0.41494149,
    0.7: 0.41666667,
}


@pytest.mark.spec("003/F3-008")
@pytest.mark.parametrize(("beta", "expected"), MINIMA.items())
def test_an_optimiser_finds_the_closed_form(beta, expected):
    """O1 and O2: the printed minimum, the formula and L-BFGS from random starts agree."""
    C = covariance(1)
    best = optimum(C, 2, beta)
    assert minimum_loss(best) == pytest.approx(expected, rel=2e-7)
    for seed in range(3):
        fit = fit_linear_vae(C, 2, beta, seed=seed)
        assert fit.loss == pytest.approx(minimum_loss(best), rel=1e-9)
        np.testing.assert_allclose(np.sort(fit.noise), best.var, atol=1e-6)


@pytest.mark.spec("003/F3-008")
def test_the_numbers_at_the_optimum():
    """O2 to O6."""
    vars_ = {1e-4: (1.5e-4, 6e-4), 0.01: (0.015, 0.06), 0.1: (0.15, 0.6), 0.18: (0.27, 1), 0.6: (0.9, 1)}
    for beta, expected in vars_.items():
        np.testing.assert_allclose(optimum(SPECTRUM, 2, beta).var, expected, rtol=1e-12)
    for beta, expected in {0.01: (0.328333, 0.078333), 0.1: (0.283333, 0.033333)}.items():
        np.testing.assert_allclose(np.sum(optimum(SPECTRUM, 2, beta).W ** 2, axis=0), expected, atol=5e-7)
    for beta, rate in {1e-4: 8.111728, 1e-3: 5.809143, 1e-2: 3.506558}.items():
        assert optimum(SPECTRUM, 2, beta).rate == pytest.approx(rate, abs=5e-7)


@pytest.mark.spec("003/F3-008", "003/F3-034")
@pytest.mark.parametrize("beta", [1e-4, 0.01, 0.1, 0.745 / 6, 0.755 / 6, 0.795 / 6, 0.805 / 6, 0.18, 0.6])
def test_means_and_noise_share_the_prior_variance(beta):
    """O4: Var mu + var = 1 for latents in use, and both rules for latents in use agree with the optimum (O2)."""
    C = covariance(2)
    best = optimum(C, 2, beta)
    encoder = encoder_of(best)
    spread = np.diag(encoder @ C @ encoder.T)
    np.testing.assert_allclose((spread + best.var)[best.active], 1, rtol=1e-12)
    mean, var = np.sqrt(spread) * [[1], [-1]], np.tile(best.var, (2, 1))
    np.testing.assert_array_equal(active_units(mean, var, "mean"), best.var < 0.75)
    np.testing.assert_array_equal(active_units(mean, var, "variance"), best.var < 0.8)


@pytest.mark.spec("003/F3-007")
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("convention", ["summed", "mean", "halved"])
def test_gradients_of_the_loss_against_finite_differences(full, convention):
    rng = np.random.default_rng(3)
    C, D, E = covariance(3), rng.normal(size=(3, 2)), rng.normal(size=(2, 3))
    root = np.array([[0.8, 0.0], [0.3, 0.5]])
    noise = root @ root.T if full else np.array([0.4, 0.9])

    def loss(d, e, s):
        return linear_vae_loss(d.reshape(3, 2), e.reshape(2, 3), s.reshape(noise.shape), C, 0.7, convention)

    result = loss(D, E, noise)

    def slope(value, start, step=1e-6):
        moves = step * np.eye(start.size)
        return np.array([(value(start.ravel() + h) - value(start.ravel() - h)) / (2 * step) for h in moves])

    np.testing.assert_allclose(result.decoder.ravel(), slope(lambda p: loss(p, E, noise).value, D), atol=1e-7)
    np.testing.assert_allclose(result.encoder.ravel(), slope(lambda p: loss(D, p, noise).value, E), atol=1e-7)
    np.testing.assert_allclose(result.noise.ravel(), slope(lambda p: loss(D, E, p).value, noise), atol=1e-7)


@pytest.mark.spec("003/F3-007")
@pytest.mark.parametrize("full", [False, True])
def test_the_loss_is_the_average_over_samples(full):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(200_000, 3)) @ np.diag([1.0, 0.6, 0.3])
    x -= x.mean(0)
    D, E = rng.normal(size=(3, 2)), rng.normal(size=(2, 3))
    root = np.array([[0.8, 0.0], [0.3 if full else 0.0, 0.5]])
    noise = root @ root.T
    mean = x @ E.T
    z = mean + rng.normal(size=mean.shape) @ root.T
    error = np.sum((x - z @ D.T) ** 2, axis=1)
    divergence = 0.5 * (np.sum(mean**2, axis=1) + np.trace(noise) - np.linalg.slogdet(noise)[1] - 2)
    sampled = error + 0.7 * divergence
    result = linear_vae_loss(D, E, noise if full else np.diag(noise), x.T @ x / len(x), beta=0.7)
    assert result.value == pytest.approx(sampled.mean(), abs=4 * sampled.std() / math.sqrt(len(x)))
    assert result.kl == pytest.approx(divergence.mean(), rel=1e-9)
    assert result.value == pytest.approx(result.deterministic + result.stochastic + 0.7 * result.kl)


def test_shapes_and_noise_are_checked():
    D, E, C = np.ones((3, 2)), np.ones((2, 3)), np.eye(3)
    with pytest.raises(ValueError, match="goes with an encoder"):
        linear_vae_loss(D, D, [1, 1], C, 1.0)
    with pytest.raises(ValueError, match="not positive definite"):
        linear_vae_loss(D, E, [1, 0], C, 1.0)


@pytest.mark.spec("003/F3-002")
def test_linear_autoencoders_are_equally_good_in_any_orientation():
    C = covariance(5, [3.0, 2.0, 0.5, 0.1])
    distances = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        D, E = linear_autoencoder(C, random_orientations(1, 2, rng)[0], rng.uniform(0.5, 2, 2) * [1, 3])
        loss = linear_vae_loss(D, E, [1.0, 1.0], C, 1.0)
        assert loss.deterministic == pytest.approx(0.6, rel=1e-9)  # the variance that two components leave
        distances.append(orthogonality(D).value)
    assert np.ptp(distances) > 0.2
    aligned, _ = linear_autoencoder(C, np.eye(2)[::-1], [1.0, 3.0])
    assert orthogonality(aligned).value == pytest.approx(0, abs=1e-9)


@pytest.mark.spec("003/F3-028", "003/F3-038")
@settings(max_examples=settings.default.max_examples // 3)
@given(seed=seeds)
def test_the_fitted_linear_vae_is_pca(seed):
    """Directions up to signed permutation within 1e-4 rad, and precision orders latents as PCA orders components."""
    C = covariance(seed, [2.0, 1.0, 0.4, 0.1])
    fit = fit_linear_vae(C, 3, beta=0.1, seed=seed)
    result = pca_alignment(fit.decoder, C)
    assert sorted(result.components.tolist()) == [0, 1, 2]
    assert result.angles.max() < 1e-4
    np.testing.assert_array_equal(result.components[principal_order(np.tile(fit.noise, (2, 1)))], [0, 1, 2])
    assert orthogonality(fit.decoder).value < 1e-4


@pytest.mark.spec("003/F3-028")
def test_alignment_measures_the_angle_and_leaves_unused_latents_out():
    C = np.diag([3.0, 2.0, 1.0])
    decoder = np.zeros((3, 3))
    decoder[:2, 0], decoder[:2, 2] = 5 * turn(0.01)[:, 1], -0.1 * turn(0.01)[:, 0]
    result = pca_alignment(decoder, C)
    assert result.latents.tolist() == [0, 2]
    assert result.components.tolist() == [1, 0]
    np.testing.assert_allclose(result.angles, np.radians(0.01), rtol=1e-6)


@pytest.mark.spec("003/F3-028")
def test_the_lengths_of_columns_do_not_decide_which_component_they_are():
    columns = np.array([[0.8, 0.9], [0.6, np.sqrt(1 - 0.81)]])
    for lengths in ([1, 1], [10, 1], [1, 10]):
        result = pca_alignment(columns * lengths, np.diag([3.0, 1.0]))
        assert result.components.tolist() == [1, 0]
        np.testing.assert_allclose(result.angles, np.arccos([0.6, 0.9]))


@pytest.mark.spec("003/F3-026")
def test_a_full_posterior_fits_as_well_in_any_orientation():
    """O9: the same minimum from every start, but the orientation is that of chance."""
    C = covariance(6)
    least = minimum_loss(optimum(C, 2, 1e-2))
    fits = [fit_linear_vae(C, 2, 1e-2, "full", seed=seed) for seed in range(40)]
    np.testing.assert_allclose([fit.loss for fit in fits], least, rtol=1e-9)
    best = optimum(C, 2, 1e-2, posterior="full")
    for degrees in (10, 45, 80):
        R = turn(degrees)
        value = linear_vae_loss(best.W @ R, R.T @ encoder_of(best), R.T * best.var @ R, C, 1e-2).value
        assert value == pytest.approx(least, rel=1e-12)
    distances = np.array([orthogonality(fit.decoder).value for fit in fits])
    chance = haar_distance(2)
    assert distances.mean() == pytest.approx(chance.mean, abs=4 * chance.std / math.sqrt(40))
    assert distances.std() > 0.15


@pytest.mark.spec("003/F3-026")
def test_the_divergence_is_blind_to_rotations_and_its_diagonal_truncation_is_not():
    """O15 and section 2.3."""
    root = np.array([[1.0, 0.0], [2.0, 3.0]])
    assert kl_standard([1, -1], root @ root.T) == pytest.approx(5.90139, abs=5e-6)
    mean, cov, R = np.array([1.0, 0.0]), np.diag([0.01, 1.0]), turn(45)
    turned = R @ cov @ R.T
    assert kl_standard(mean, cov) == pytest.approx(2.30759, abs=5e-6)
    assert kl_standard(R @ mean, turned) == pytest.approx(2.30759, abs=5e-6)
    assert float(kl_diagonal(R @ mean, np.diag(turned))) == pytest.approx(0.68820, abs=5e-6)


# --- the price of rotations ---


@pytest.mark.spec("003/F3-010")
@pytest.mark.parametrize(("degrees", "expected"), [(0, 0), (10, 0.031863), (22.5, 0.123918), (45, 0.223144), (90, 0)])
def test_what_a_rotation_costs(degrees, expected):
    """O8, against the closed form in the plane and against the loss itself with the noise re-optimised."""
    result = float(rotation_penalty([1 / 3, 1 / 12], turn(degrees)))
    assert result == pytest.approx(expected, abs=5e-7)
    assert result == pytest.approx(0.5 * math.log(1 + 9 / 16 * math.sin(2 * math.radians(degrees)) ** 2), abs=1e-12)
    beta, R = 0.05, turn(degrees)
    best = optimum(SPECTRUM, 2, beta)
    D = best.W @ R
    var = (beta / 2) / (np.sum(D**2, axis=0) + beta / 2)
    loss = linear_vae_loss(D, R.T @ encoder_of(best), var, np.diag(SPECTRUM), beta).value
    assert loss - minimum_loss(best) == pytest.approx(beta * result, abs=1e-12)


@pytest.mark.spec("003/F3-010")
@pytest.mark.parametrize(
    ("ratio", "expected"), [(1.05, 0.001190), (1.1, 0.004535), (1.2, 0.016529), (1.5, 0.080043), (2, 0.223144)]
)
def test_what_half_a_right_angle_costs_by_ratio(ratio, expected):
    result = float(rotation_penalty([ratio**2, 1.0], turn(45)))
    assert result == pytest.approx(expected, abs=5e-7)
    assert result == pytest.approx(math.log((ratio**2 + 1) / (2 * ratio)), abs=1e-12)


@pytest.mark.spec("003/F3-017")
@given(seed=seeds, d=st.integers(2, 5))
def test_the_gap_is_zero_for_orthogonal_columns_only(seed, d):
    rng = np.random.default_rng(seed)
    columns = random_orientations(1, d + 2, rng)[0][:, :d] * rng.uniform(0.1, 10, d)
    assert float(orthogonality_gap(columns)) == pytest.approx(0, abs=1e-12)
    bent = columns.copy()
    bent[:, 0] += 0.1 * bent[:, 1]
    # the angle of the pair alone decides: -1/2 log(1 - cos^2)
    cosine = bent[:, 0] @ bent[:, 1] / np.linalg.norm(bent[:, 0]) / np.linalg.norm(bent[:, 1])
    assert float(orthogonality_gap(bent)) == pytest.approx(-0.5 * math.log(1 - cosine**2), rel=1e-6)
    assert float(orthogonality_gap(bent * rng.uniform(0.1, 10, d))) == pytest.approx(
        float(orthogonality_gap(bent)), rel=1e-6
    )


def test_dependent_columns_cost_everything_and_missing_ones_are_refused():
    assert math.isinf(orthogonality_gap([[1.0, 2.0], [1.0, 2.0]]))
    with pytest.raises(ValueError, match="column is zero"):
        orthogonality_gap([[1.0, 0.0], [1.0, 0.0]])
    assert float(orthogonality_gap([[1.0, 0.0], [1.0, 0.0]], noise_var=0.1)) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="noise_var"):
        orthogonality_gap(np.eye(2), noise_var=-1)


@pytest.mark.spec("003/F3-083")
def test_the_gap_between_likelihood_and_bound_by_precision():
    """O30: the printed table, for every x; the regularised likelihood is the bound's limit."""
    precisions = [0.001, 0.01, 0.1, 1, 10, 1000]
    table = {
        0: [0.00001, 0.00052, 0.01036, 0.04084, 0.05436, 0.05638],
        1: [0.00026, 0.01758, 0.27199, 0.68527, 0.80112, 0.81654],
    }
    x = np.random.default_rng(7).normal(size=(4, 3))
    for which, expected in table.items():
        decoder = hands_on_example()[which]
        for rows in (x, x[:1], 5 * x):
            result = likelihood_bounds(decoder, rows, precisions)
            np.testing.assert_allclose(result.gap, expected, atol=6e-6)
        limit = float(orthogonality_gap(decoder))
        assert limit == pytest.approx([0.05640, 0.81670][which], abs=6e-6)
        np.testing.assert_allclose(result.regularised, result.log_likelihood - limit)
        far = likelihood_bounds(decoder, x, [1e5])
        assert far.elbo[0] == pytest.approx(far.regularised[0], abs=1e-4)
        assert (result.elbo > result.regularised).all()


# --- noise under a budget ---


@pytest.mark.spec("003/F3-024", "003/F3-020")
def test_the_hands_on_example():
    """O10, with a budget: the factor is exp(-C/2)."""
    mixed, turned = hands_on_example()
    np.testing.assert_allclose(np.sum(mixed**2, axis=0), [50, 3])
    np.testing.assert_allclose(np.sum(turned**2, axis=0), [30.5, 22.5])
    assert mixed[:, 0] @ mixed[:, 1] == pytest.approx(-4)
    assert turned[:, 0] @ turned[:, 1] == pytest.approx(23.5)
    best = mixed @ np.linalg.svd(mixed)[2].T
    for budget in (0.0, 3.0):
        for decoder, factor in ((mixed, 24.4949), (turned, 52.3927), (best, 23.1517)):
            result = float(minimal_stochastic_loss(decoder, budget))
            assert result * math.exp(budget / 2) == pytest.approx(factor, abs=5e-5)
    for decoder, ratio in ((mixed, 3 / 50), (turned, 45 / 61), (best, 2.662 / 50.338)):
        var = optimal_var(decoder, 1.3)
        assert var[0] / var[1] == pytest.approx(ratio, rel=2e-4)
    for decoder in (mixed, turned, best):
        assert math.exp(log_volume(decoder)) == pytest.approx(11.575837, abs=5e-7)
    # no rotation does better than the one that makes the columns orthogonal, 4.83 degrees away
    angles = np.linspace(-45, 45, 9001)
    losses = minimal_stochastic_loss(np.stack([mixed @ turn(angle) for angle in angles]), 0.0)
    assert losses.min() >= 23.1516
    assert abs(angles[losses.argmin()]) == pytest.approx(4.83, abs=0.01)


@pytest.mark.spec("003/F3-020")
@given(seed=seeds, d=st.integers(1, 5), budget=st.floats(-3, 10))
def test_the_budget_is_spent_so_that_every_column_costs_the_same(seed, d, budget):
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(6, d))
    var = optimal_var(jacobian, budget)
    assert -np.log(var).sum() == pytest.approx(budget, abs=1e-9)
    costs = np.sum(jacobian**2, axis=0) * var
    np.testing.assert_allclose(costs, costs[0], rtol=1e-9)
    least = float(minimal_stochastic_loss(jacobian, budget))
    assert least == pytest.approx(d * math.exp((np.log(np.sum(jacobian**2, axis=0)).sum() - budget) / d), rel=1e-9)
    moved = rng.normal(scale=0.3, size=d)
    other = var * np.exp(moved - moved.mean())
    assert float(stochastic_loss(jacobian, other)) >= least - 1e-12


@pytest.mark.spec("003/F3-019")
def test_the_linearised_stochastic_loss_is_what_noise_adds():
    """O21, by sampling: within one percent."""
    rng = np.random.default_rng(8)
    jacobian, var = rng.normal(size=(5, 3)), np.array([0.2, 0.05, 1.0])
    noise = rng.normal(size=(200_000, 3)) * np.sqrt(var)
    sampled = np.sum((noise @ jacobian.T) ** 2, axis=1).mean()
    assert float(stochastic_loss(jacobian, var)) == pytest.approx(sampled, rel=0.01)


@pytest.mark.spec("003/F3-021", "003/F3-023")
@given(seed=seeds, d=st.integers(2, 6))
def test_no_start_is_a_trap(seed, d):
    """O16: from any rotation the descent reaches the bound of Theorem 1, never rising, with orthogonal columns."""
    rng = np.random.default_rng(seed)
    jacobians = rng.normal(size=(5, d + 2, d)) * rng.uniform(0.2, 3, d)
    bound = noise_objective_bound(jacobians, budget=4.0)
    start = jacobians @ random_orientations(5, d, rng)
    assert noise_objective_bound(start, budget=4.0) == pytest.approx(bound, abs=1e-9)
    result = descend_to_orthogonality(start, budget=4.0)
    assert result.objective[0] > bound + 1e-9
    assert (np.diff(result.objective) <= 1e-12).all()
    assert result.objective[-1] == pytest.approx(bound, abs=1e-9)
    np.testing.assert_allclose(start @ result.rotations, result.jacobians, atol=1e-9)
    np.testing.assert_allclose(gram_gap(result.jacobians.swapaxes(1, 2) @ result.jacobians), 0, atol=1e-10)
    best = optimal_var(result.jacobians, np.full(5, 4.0 / 5))
    assert noise_objective(result.jacobians, best) == pytest.approx(bound, abs=1e-9)
    # how the budget is split between samples is free; how it is split between latents is not
    uneven = optimal_var(result.jacobians, np.array([4.0, 0, 0, -1, 1]))
    assert noise_objective(result.jacobians, uneven) == pytest.approx(bound, abs=1e-9)
    assert noise_objective(result.jacobians, best * np.exp(np.eye(d)[0] - np.eye(d)[1])) > bound + 1e-3
    # Hadamard: the product of the column norms is the volume where they are orthogonal, and more elsewhere
    norms = np.log(np.linalg.norm(start, axis=1)).sum(axis=1)
    assert (norms > log_volume(start) - 1e-12).all()
    np.testing.assert_allclose(np.log(np.linalg.norm(result.jacobians, axis=1)).sum(axis=1), log_volume(start))


def test_noise_that_costs_nothing_is_refused():
    with pytest.raises(ValueError, match="its noise is free"):
        optimal_var([[1.0, 0.0]], 1.0)
    with pytest.raises(ValueError, match="singular value is zero"):
        log_volume([[1.0, 0.0], [0.0, 0.0]])


@pytest.mark.spec("003/F3-027")
def test_unequal_noise_picks_the_principal_axes():
    """O18 and Schur-Horn."""
    C, noise = np.diag([1 / 3, 1 / 12]), np.array([1.5e-4, 6e-4])
    assert minimal_noise_cost(C, noise) == pytest.approx(1e-4, rel=1e-9)
    for degrees, expected in {0: 1e-4, 45: 1.5625e-4, 90: 2.125e-4}.items():
        assert noise_cost(turn(degrees), C, noise) == pytest.approx(expected, rel=1e-9)


@pytest.mark.spec("003/F3-027")
@given(seed=seeds, d=st.integers(1, 5))
def test_no_orthonormal_directions_are_cheaper_than_the_principal_ones(seed, d):
    rng = np.random.default_rng(seed)
    C = covariance(seed, np.sort(rng.uniform(0.1, 3, 6))[::-1])
    noise = rng.uniform(0.01, 1, d)
    # all noise is on d of the 6 axes; leaving the largest variances out would be cheaper, so compare within their span
    top = np.linalg.eigh(C)[1][:, ::-1][:, :d]
    least = minimal_noise_cost(C, noise)
    assert noise_cost(top @ random_orientations(1, d, rng)[0], C, noise) >= least - 1e-12
    assert noise_cost(top[:, np.argsort(np.argsort(noise))], C, noise) == pytest.approx(least, rel=1e-9)


@pytest.mark.spec("003/F3-018")
@pytest.mark.parametrize("linear", [True, False])
def test_the_reconstruction_error_splits(linear):
    """O20: exact for any decoder; no cross term if the decoder is linear (and the noise averages out)."""
    rng = np.random.default_rng(9)
    weight, x, mean = rng.normal(size=(2, 4)), rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    noise = rng.normal(scale=0.5, size=(500, 6, 2))
    noise = np.concatenate([noise, -noise])

    def decode(z):
        return z @ weight if linear else np.tanh(z @ weight)

    result = reconstruction_split(x, decode(mean), decode(mean + noise))
    direct = np.sum((decode(mean + noise) - x) ** 2, axis=2).mean(axis=0)
    np.testing.assert_allclose(result.total, direct, rtol=1e-12)
    if linear:
        np.testing.assert_allclose(result.cross, 0, atol=1e-12)
        expected = stochastic_loss(weight.T, [0.25, 0.25])
        np.testing.assert_allclose(result.stochastic.mean(), expected, rtol=0.1)
    else:
        assert np.abs(result.cross).min() > 1e-3
    with pytest.raises(ValueError, match="at_samples"):
        reconstruction_split(x, decode(mean), decode(mean))


# --- the polarised regime ---


@pytest.mark.spec("003/F3-032")
@pytest.mark.parametrize(("beta", "expected"), [(1e-4, 4.6229e-5), (1e-3, 6.4553e-4), (1e-2, 1.06942e-2)])
def test_the_kl_error_at_the_linear_optimum(beta, expected):
    """O6."""
    var = optimum(SPECTRUM, 2, beta).var
    mean = np.sqrt(1 - var) * [[1], [-1]]
    assert kl_approximation_error(mean, np.tile(var, (2, 1))) == pytest.approx(expected, rel=5e-5)


@pytest.mark.spec("003/F3-032")
@given(seed=seeds)
def test_the_simplified_kl_leaves_out_what_the_definition_says(seed):
    """Section 2.1: half the active variances, and all that passive latents pay."""
    rng = np.random.default_rng(seed)
    mean, var, active = rng.normal(size=(9, 4)), rng.uniform(0.01, 1.5, (9, 4)), rng.random(4) < 0.5
    left_out = kl_diagonal(mean, var) - polarised_kl(mean, var, active)
    residual = 0.5 * var[:, active].sum(1) + kl_per_variable(mean, var)[:, ~active].sum(1)
    np.testing.assert_allclose(left_out, residual, atol=1e-9)
    assert kl_approximation_error(mean, var, active) == pytest.approx(
        residual.mean() / kl_diagonal(mean, var).mean(), rel=1e-9
    )


def test_the_kl_error_is_one_when_nothing_is_in_use():
    mean, var = np.array([[0.1], [-0.1]]), np.full((2, 1), 0.98)
    assert kl_approximation_error(mean, var) == pytest.approx(1)
    with pytest.raises(ValueError, match="no KL"):
        kl_approximation_error(0 * mean, np.ones((2, 1)))
    with pytest.raises(ValueError, match="'mean' or 'variance'"):
        active_units(mean, var, "both")


@pytest.mark.parametrize(
    ("errors", "share"),
    [
        ([0.01] * 4, 1.0),
        ([0.5, 0.01, 0.01, 0.01], 0.75),
        ([0.01, 0.01, 0.01, 0.5], 0.0),
        ([0.5, 0.01, 0.03, 0.02], 0.25),
    ],
)
def test_how_long_a_run_stays_below_three_percent(errors, share):
    assert polarised_share(errors) == pytest.approx(share)


def test_a_diverged_run_is_not_polarised():
    assert polarised_share([0.01, math.nan]) == 0
    with pytest.raises(ValueError, match="at least one"):
        polarised_share([])


@pytest.mark.spec("003/F3-031")
def test_bits_sum_to_the_rate():
    best = optimum(SPECTRUM, 3, 1e-3)
    bits = precision_bits(best.var)
    assert bits.sum() * math.log(2) == pytest.approx(best.rate, rel=1e-12)
    assert bits[2] == 0
    assert bits[0] == pytest.approx(0.5 * math.log2(1 / 1.5e-3))
    with pytest.raises(ValueError, match="positive variances"):
        precision_bits([-1.0])


def test_the_landscape_of_one_latent():
    """O32, and along mean^2 + var = 1 the price is that of the digits alone."""
    result = kl_per_variable([0, 0, 1], [1, math.exp(-2), math.exp(-2)])
    np.testing.assert_allclose(result, [0, 0.56767, 1.06767], atol=5e-6)
    var = np.linspace(0.01, 1, 50)
    np.testing.assert_allclose(kl_per_variable(np.sqrt(1 - var), var), precision_bits(var) * math.log(2), atol=1e-12)


@pytest.mark.spec("003/F3-029")
@given(seeds)
@settings(max_examples=settings.default.max_examples // 5)
def test_lemmas_of_the_second_theorem(seed: int) -> None:
    """Rescaled means have unit mean square (Lemma 7), and a trace is at least d times a geometric mean (Prop. 7)."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal(50) * 3, rng.uniform(0.5, 2, 50)
    best = best_scale(x)
    assert np.mean((best * x) ** 2) == pytest.approx(1)

    def cost(c: float) -> float:
        return float(np.sum(c**2 * x**2 - np.log(c**2 * y**2)))

    assert all(cost(best) < cost(best * factor) for factor in (0.9, 0.99, 1.01, 1.1))
    # Lemma 8: a matrix without diagonal, times a diagonal one, has no trace, so turning axes changes nothing to first
    # order at an aligned optimum.
    off = rng.standard_normal((4, 4))
    np.fill_diagonal(off, 0)
    assert noise_cost(np.eye(4), off @ np.diag(rng.uniform(1, 2, 4)), np.ones(4)) == pytest.approx(0)
    columns = rng.standard_normal((5, 3))
    noise = rng.uniform(0.1, 1, 3)
    budget = float(-np.log(noise).sum())
    assert stochastic_loss(columns, noise) >= minimal_stochastic_loss(columns, budget) - 1e-12
    assert stochastic_loss(columns, optimal_var(columns, budget)) == pytest.approx(
        3 * np.prod((columns**2).sum(0) * noise) ** (1 / 3)
    )


@pytest.mark.spec("003/F3-030")
def test_the_landscape_of_the_kl() -> None:
    values = kl_per_variable(np.array([0.0, 0.0, 1.0]), np.array([1.0, np.exp(-2), np.exp(-2)]))
    np.testing.assert_allclose(values, [0, 0.56767, 1.06767], atol=1e-5)
    mean, var = np.meshgrid(np.linspace(-2, 2, 41), np.linspace(0.02, 3, 41))
    landscape = kl_per_variable(mean, var)
    assert (landscape >= 0).all()
    middle = kl_per_variable((mean + 0.3) / 2, (var + 0.5) / 2)
    assert (middle <= (landscape + kl_per_variable(0.3, 0.5)) / 2 + 1e-12).all()  # convex
