"""Temporally sparse transitions: closed forms against quadrature, SciPy, draws and the numbers of spec 001a."""

import numpy as np
import pytest
from scipy.integrate import quad, trapezoid
from scipy.optimize import approx_fprime, minimize
from scipy.special import ndtr
from scipy.stats import gennorm, kstest, kurtosis, laplace, norm

from polariscope.theory.transitions import (
    collapse_threshold,
    collapsed_std,
    density,
    distribution,
    entropy,
    fit,
    folded_normal_mean,
    gaussian_laplace_kl,
    gaussian_laplace_kl_slopes,
    ks_distance,
    laplace_cross_entropy,
    latent_var,
    log_density,
    moments,
    rate_of_scale,
    sample,
    sample_sequences,
    scale_of_rate,
)

# Spec 001a, section 2.1: α, kurtosis, std / s, mean abs / s.
MOMENTS = [
    (0.3, 173.969, 361.412, 140.033),
    (0.45, 34.749, 18.676, 9.658),
    (0.5, 25.2, 10.9545, 6.0),
    (0.55, 19.382, 7.209, 4.138),
    (0.69, 11.396, 3.265, 2.061),
    (1.0, 6.0, 1.41421, 1.0),
    (1.5, 3.762, 0.859, 0.660),
    (2.0, 3.0, 0.70711, 0.5642),
]

JUMPS, WEIGHTS = np.polynomial.laguerre.laggauss(60)


def near(draws: np.ndarray, errors: float = 5.0):
    """Whatever agrees with the mean of some draws up to some standard errors."""
    return pytest.approx(draws.mean(), abs=errors * draws.std() / np.sqrt(len(draws)))


# Densities, draws and moments


@pytest.mark.spec("001a/TH-01")
@pytest.mark.parametrize("rate", [0.5, 6.0])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 1.5, 2.0])
def test_the_density_integrates_to_one_and_is_scipys(alpha: float, rate: float) -> None:
    # Powers of ten on the axis: for α = 0.3 a thousandth of the mass lies beyond a thousand scales.
    mass = quad(lambda y: 2 * np.exp(y) * float(density(np.exp(y), alpha, rate)), -60, 25, limit=400, points=[-5, 5])[0]
    assert mass == pytest.approx(1, abs=1e-9)
    theirs = gennorm(alpha, scale=rate ** (-1 / alpha))
    u = np.linspace(-4, 4, 41)
    assert log_density(u, alpha, rate) == pytest.approx(theirs.logpdf(u), rel=1e-12, abs=1e-12)
    assert distribution(u, alpha, rate) == pytest.approx(theirs.cdf(u), abs=1e-12)
    assert float(entropy(alpha, rate)) == pytest.approx(theirs.entropy(), abs=1e-12)


@pytest.mark.spec("001a/TH-01")
@pytest.mark.parametrize(("alpha", "kurt", "std", "mean_abs"), MOMENTS)
def test_moments_are_those_of_the_table_and_of_scipy(alpha: float, kurt: float, std: float, mean_abs: float) -> None:
    unit = moments(alpha, 1.0)
    assert float(unit.kurtosis) == pytest.approx(kurt, abs=6e-4)
    assert float(np.sqrt(unit.var)) == pytest.approx(std, abs=6e-4)
    assert float(unit.mean_abs) == pytest.approx(mean_abs, abs=6e-4)
    scaled = moments(alpha, 6.0)
    theirs = gennorm(alpha, scale=6 ** (-1 / alpha))
    assert float(scaled.var) == pytest.approx(theirs.var(), rel=1e-10)
    assert float(scaled.kurtosis) == pytest.approx(3 + float(theirs.stats("k")), rel=1e-10)
    tail = quad(lambda y: 2 * np.exp(2 * y) * theirs.pdf(np.exp(y)), -40, 25, limit=400, points=[-5, 5])[0]
    assert float(scaled.mean_abs) == pytest.approx(tail, rel=1e-8)


@pytest.mark.spec("001a/TH-01")
@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 1.5, 2.0])
def test_draws_follow_scipys_distribution(alpha: float) -> None:
    draws = sample(alpha, 6.0, 20_000, seed=3)
    assert kstest(draws, gennorm(alpha, scale=6 ** (-1 / alpha)).cdf).pvalue > 1e-3
    assert (sample(alpha, 6.0, 20_000, seed=3) == draws).all()
    assert not (sample(alpha, 6.0, 20_000, seed=4) == draws).any()


def test_shapes_and_rates_broadcast_and_scales_are_rates() -> None:
    alphas, rates = np.array([[0.5], [1.0], [2.0]]), np.array([0.5, 6.0])
    assert density(0.3, alphas, rates).shape == (3, 2)
    assert float(density(0.3, alphas, rates)[2, 1]) == pytest.approx(norm(scale=12**-0.5).pdf(0.3))
    assert sample(alphas, rates, (3, 2), seed=0).shape == (3, 2)
    assert rate_of_scale(scale_of_rate(rates, alphas), alphas) == pytest.approx(np.broadcast_to(rates, (3, 2)))
    assert float(scale_of_rate(9.0, 2.0)) == pytest.approx(1 / 3)


# The generative model


@pytest.mark.spec("001a/TH-02")
@pytest.mark.parametrize(("alpha", "rate", "expected"), [(1.0, 1.0, 3.0), (1.0, 6.0, 1.0556), (2.0, 0.5, 2.0)])
def test_the_variance_grows_by_that_of_the_transition(alpha: float, rate: float, expected: float) -> None:
    latents = sample_sequences(200_000, 1, alpha, rate, seed=0, steps=2).latents[..., 0]
    assert float(latent_var(alpha, rate)) == pytest.approx(expected, abs=5e-5)
    for t in range(3):
        assert float(latent_var(alpha, rate, t)) == near(latents[:, t] ** 2)
    assert kstest(latents[:5000, 0], norm.cdf).pvalue > 1e-3
    step = gennorm(alpha, scale=rate ** (-1 / alpha))
    for t in (1, 2):  # each change has the density, whatever came before
        change = latents[:, t] - latents[:, t - 1]
        assert kstest(change[:5000], step.cdf).pvalue > 1e-3
        assert near(change * latents[:, t - 1]) == 0.0


@pytest.mark.spec("001a/TH-02")
def test_latents_are_independent_and_any_generator_sees_them() -> None:
    bent = sample_sequences(20_000, 3, 0.5, 6.0, seed=1, generator=lambda z: np.tanh(z) @ np.ones((3, 4)))
    assert bent.observations.shape == (20_000, 2, 4)
    assert bent.observations[:99, :, 2] == pytest.approx(np.tanh(bent.latents[:99]).sum(axis=-1))
    plain = sample_sequences(20_000, 3, 0.5, 6.0, seed=1)
    assert (plain.observations == bent.latents).all()
    changes = np.abs(np.diff(plain.latents, axis=1)[:, 0])
    off_diagonal = np.corrcoef(np.sqrt(changes).T)[np.triu_indices(3, 1)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(20_000)


# Gaussian posteriors against the Laplace prior


@pytest.mark.spec("001a/SV-01")
@pytest.mark.parametrize(
    ("delta", "std", "rate", "expected"),
    [
        (0, 1, 1, 0.07209321),
        (0, 1, 6, 2.26975654),
        (1, 1, 6, 4.48223483),
        (0.5, 0.1, 6, 2.78503434),
        (2, 0.5, 1, 1.96736297),
        (-1, 0.3, 6, 4.68682546),
    ],
)
def test_the_kl_is_its_integral_and_the_slopes_its_differences(delta, std, rate, expected) -> None:
    result = float(gaussian_laplace_kl(delta, std**2, rate))
    assert result == pytest.approx(expected, abs=6e-9)
    z = delta + std * np.linspace(-12, 12, 24_001)  # a fine grid: only the kink of |z| is felt, by a millionth or less
    q, p = norm(delta, std), laplace(scale=1 / rate)

    def mean(of: np.ndarray) -> float:
        return float(trapezoid(q.pdf(z) * of, z))

    assert result == pytest.approx(mean(q.logpdf(z) - p.logpdf(z)), abs=2e-6)
    assert float(laplace_cross_entropy(delta, std**2, rate)) == pytest.approx(mean(-p.logpdf(z)), abs=2e-6)
    assert float(folded_normal_mean(delta, std**2)) == pytest.approx(mean(np.abs(z)), abs=2e-6)
    h = 1e-5
    slopes = gaussian_laplace_kl_slopes(delta, std**2, rate)
    by_delta = np.diff(gaussian_laplace_kl([delta - h, delta + h], std**2, rate))[0] / (2 * h)
    by_std = np.diff(gaussian_laplace_kl(delta, np.square([std - h, std + h]), rate))[0] / (2 * h)
    assert float(slopes.delta) == pytest.approx(by_delta, abs=1e-6)
    assert float(slopes.std) == pytest.approx(by_std, abs=1e-6)


@pytest.mark.spec("001a/SV-01")
@pytest.mark.parametrize("rate", [0.5, 1.0, 6.0])
def test_a_gaussian_posterior_never_pays_nothing(rate: float) -> None:
    best = minimize(lambda v: float(gaussian_laplace_kl(v[0], np.exp(v[1]), rate)), [0.3, -1.0], method="Nelder-Mead")
    assert best.fun == pytest.approx(0.04841729, abs=1e-7)
    assert best.x[0] == pytest.approx(0, abs=1e-3)
    assert np.exp(best.x[1] / 2) * rate == pytest.approx(6 * 0.20888569, rel=1e-3)
    assert float(folded_normal_mean(1.0, 1.0)) == pytest.approx(1.16663094, abs=6e-9)


def test_extreme_posteriors_stay_finite_and_precise() -> None:
    deltas = np.array([0.0, 1e-300, 1e-8, 1.0, 1e8, 1e300])
    for var in (1e-300, 1e-30, 1.0, 1e30, 1e300):
        for result in (gaussian_laplace_kl(deltas, var, 6.0), *gaussian_laplace_kl_slopes(deltas, var, 6.0)):
            assert np.isfinite(result).all()
        assert (folded_normal_mean(deltas, var) >= deltas).all()
    # A certain posterior is as far as its mean; shrinking λ as σ grows changes nothing.
    assert float(folded_normal_mean(-3.0, 1e-300)) == 3.0
    assert float(gaussian_laplace_kl(0.0, 1e-280, 1e140)) == pytest.approx(0.07209321, abs=6e-9)
    # Far out the terms that vanish do so without noise: |δ| ≫ σ, against the Mills ratio's first term.
    t = 8.0
    excess = float(folded_normal_mean(t, 1.0)) - t
    assert excess == pytest.approx(2 * norm.pdf(t) / t**2, abs=2e-15)


def test_the_exact_expectation_is_the_mean_over_previous_latents_and_not_below_the_plug_in() -> None:
    assert float(laplace_cross_entropy(0.0, 0.04, 6.0)) == pytest.approx(-0.141151, abs=6e-7)
    assert float(laplace_cross_entropy(0.0, 0.08, 6.0)) == pytest.approx(0.255443, abs=6e-7)
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    deltas, before = np.linspace(-2, 2, 9)[:, None], 0.3**2
    plug_in = laplace_cross_entropy(
        deltas - 0.3 * nodes, 0.5**2, 6.0
    )  # at each latent that the previous posterior draws
    exact = laplace_cross_entropy(deltas[:, 0], 0.5**2 + before, 6.0)
    assert exact == pytest.approx(plug_in @ weights / weights.sum(), abs=1e-6)
    assert (exact > laplace_cross_entropy(deltas[:, 0], 0.5**2, 6.0)).all()


# Collapse


def slow_loss(gains: np.ndarray, kappa: float, rate: float, gamma: float) -> float:
    """The expected loss of a linear SlowVAE on one axis: encoder gain, decoder gain and log σ, by quadrature."""
    encoder, decoder, std = gains[0], gains[1], np.exp(gains[2])
    latent = encoder * kappa  # of one unit of z
    spread = 2 + 2 / rate**2
    rec = (kappa - decoder * latent) ** 2 * spread + 2 * decoder**2 * std**2
    start = (latent**2 + std**2 - 1) / 2 - np.log(std)
    jumps = latent * JUMPS / rate
    folded = std * np.sqrt(2 / np.pi) * np.exp(-(jumps**2) / (2 * std**2)) + jumps * (2 * ndtr(jumps / std) - 1)
    transition = rate * WEIGHTS @ folded - np.log(rate / 2) - 0.5 * np.log(2 * np.pi * np.e) - np.log(std)
    return float(rec + start + gamma * transition)


@pytest.mark.parametrize(
    ("rate", "gamma", "std", "kappa"),
    [(6, 10, 0.22868, 0.39537), (1, 1, 1.07046, 0.42235), (6, 1, 0.38656, 0.24433), (1, 10, 1.19859, 1.13367)],
)
def test_a_collapsed_latent_loses_its_stability_at_the_threshold(rate, gamma, std, kappa) -> None:
    assert float(collapsed_std(rate, gamma=gamma)) == pytest.approx(std, abs=6e-6)
    threshold = float(collapse_threshold(rate, gamma=gamma))
    assert threshold == pytest.approx(kappa, abs=6e-6)
    silent = np.array([0.0, 0.0, np.log(std)])
    slope = approx_fprime(silent, slow_loss, 1e-6, threshold, rate, gamma)
    assert np.abs(slope).max() < 1e-3  # the collapsed state is stationary

    def softest(at: float) -> float:
        h = 1e-3 * np.eye(3)
        hessian = [
            [
                sum(s * r * slow_loss(silent + s * a + r * b, at, rate, gamma) for s in (1, -1) for r in (1, -1)) / 4e-6
                for b in h
            ]
            for a in h
        ]
        return float(np.linalg.eigvalsh(hessian)[0])

    assert softest(0.98 * threshold) > 0 > softest(1.02 * threshold)


def test_the_best_linear_model_gives_the_axis_up_below_the_threshold() -> None:
    for kappa, kept in {0.3: 0.0, 0.5: 0.218, 0.8: 0.527}.items():  # spec 001a, section 3.7
        best = minimize(slow_loss, [1.0, 0.5, -1.0], (kappa, 6.0, 10.0), method="BFGS")
        assert abs(best.x[0] * best.x[1]) == pytest.approx(kept, abs=2e-3)


def test_the_threshold_moves_with_each_weight() -> None:
    assert collapse_threshold(6.0, rec_weight=4.0) == pytest.approx(collapse_threshold(6.0) / 2)
    assert float(collapsed_std(6.0, gamma=0.0)) == 1.0
    # Without the transition term a plain VAE: the variances of the two frames against β/2, at a data rate of 1.
    assert float(collapse_threshold(6.0, 1.0, beta=1.0, gamma=0.0)) == pytest.approx(0.25)
    assert collapse_threshold([1.0, 6.0], gamma=[[1.0], [10.0]]).shape == (2, 2)


# Fits


@pytest.mark.spec("001a/NS-01")
@pytest.mark.parametrize("alpha", [0.5, 1.7])
def test_shape_scale_and_location_are_found_again(alpha: float) -> None:
    u = gennorm.rvs(alpha, loc=0.7, scale=3.0, size=100_000, random_state=0)
    result = fit(u, location=None)
    assert result.alpha == pytest.approx(alpha, abs=0.02)
    assert result.location == pytest.approx(0.7, abs=0.05)
    assert result.scale == pytest.approx(3, rel=0.06)
    theirs = gennorm(result.alpha, result.location, result.scale)
    assert result.log_likelihood == pytest.approx(theirs.logpdf(u).sum(), rel=1e-12)
    assert result.log_likelihood >= gennorm.logpdf(u, alpha, 0.7, 3.0).sum()
    assert ks_distance(u, result) == pytest.approx(kstest(u, theirs.cdf).statistic, abs=1e-12)
    assert ks_distance(u, result) < 2 / np.sqrt(len(u)) < ks_distance(u, fit(u, location=0.0))
    assert float(moments(result.alpha, result.rate).kurtosis) == pytest.approx(kurtosis(u, fisher=False), rel=0.15)


@pytest.mark.spec("001a/NS-01")
def test_laplace_and_normal_fits_are_scipys_and_ordered_by_their_tails() -> None:
    u = gennorm.rvs(0.5, loc=0.2, size=5001, random_state=1)
    as_laplace, as_normal, free = fit(u, 1.0, None), fit(u, 2.0, None), fit(u, location=None)
    assert (as_laplace.location, as_laplace.scale) == pytest.approx(laplace.fit(u))
    assert (as_normal.location, as_normal.scale / np.sqrt(2)) == pytest.approx(norm.fit(u))
    assert as_laplace.log_likelihood == pytest.approx(laplace.logpdf(u, *laplace.fit(u)).sum())
    assert as_normal.log_likelihood == pytest.approx(norm.logpdf(u, *norm.fit(u)).sum())
    assert free.log_likelihood > as_laplace.log_likelihood > as_normal.log_likelihood
    assert ks_distance(u, free) < ks_distance(u, as_laplace) < ks_distance(u, as_normal)


@pytest.mark.spec("001a/NS-01")
def test_closed_likelihoods_reproduce_the_published_tables() -> None:
    # Spec 001a, tables 8 to 13: transitions, shape, published scale (a standard deviation for 2), log-likelihood.
    printed = [
        (82506, 2.0, 23.9, -3.79e5), (82506, 2.0, 1.04, -1.20e5), (82506, 2.0, 0.886, -1.07e5),
        (82506, 1.0, 10.7, -3.35e5), (82506, 1.0, 0.564, -9.25e4), (82506, 1.0, 0.477, -7.86e4),
        (82506, 0.587, 0.169, -8.72e4), (82506, 0.694, 0.232, -7.59e4),
        (234652, 2.0, 116, -1.45e6), (234652, 2.0, 2.68, -5.64e5), (234652, 2.0, 2.47, -5.45e5),
        (234652, 1.0, 52.8, -1.33e6), (234652, 1.0, 1.38, -4.74e5), (234652, 1.0, 1.30, -4.60e5),
        (234652, 0.444, 5.04, -1.29e6), (234652, 0.515, 0.257, -4.50e5), (234652, 0.548, 0.308, -4.40e5),
    ]  # fmt: skip
    for n, alpha, scale, expected in printed:
        s = scale * np.sqrt(2) if alpha == 2 else scale
        assert -n * float(entropy(alpha, rate_of_scale(s, alpha))) == pytest.approx(expected, rel=6e-3)
    # The one fit that had not converged is beaten.
    assert -82506 * float(entropy(0.455, rate_of_scale(1.01, 0.455))) == pytest.approx(-3.122e5, rel=1e-3)


@pytest.mark.spec("001a/NS-02")
def test_cusps_do_not_trap_the_location() -> None:
    rng = np.random.default_rng(4)
    integers = np.round(gennorm.rvs(0.45, loc=1.0, scale=1.0, size=2000, random_state=4))
    u = integers + rng.uniform(-0.5, 0.5, len(integers))
    result = fit(u, location=None)
    naive = gennorm.logpdf(u, *gennorm.fit(u)).sum()
    assert result.log_likelihood >= naive - 1e-6
    # For its shape no transition would be a better location.
    costs = (np.abs(u[:, None] - u) ** result.alpha).sum(axis=1)
    assert (np.abs(u - result.location) ** result.alpha).sum() <= costs.min() * (1 + 1e-4)


# Bad input


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: density(0.0, -1.0, 1.0), "a shape must be a finite number above 0; got -1.0"),
        (lambda: density(np.nan, 1.0, 1.0), "transitions must be finite numbers; got nan"),
        (lambda: moments(1.0, [1.0, 0.0]), "a rate must be a finite number above 0; got 0.0"),
        (lambda: sample_sequences(0, 2, 1.0, 1.0, seed=0), "at least 1; got 0, 2 and 1"),
        (lambda: sample_sequences(4, 2, 1.0, 1.0, seed=0, generator=np.ravel), r"one observation per latent.*\(16,\)"),
        (lambda: latent_var(1.0, 1.0, -1), "0 or more; got -1"),
        (lambda: gaussian_laplace_kl(0.0, 0.0, 1.0), "a variance must be a finite number above 0; got 0.0"),
        (lambda: collapsed_std(1.0, gamma=-1.0), "gamma must be 0 or above; got -1.0"),
        (lambda: fit([1.0]), "at least two transitions; got 1"),
        (lambda: fit([0.0, 0.0]), "differ from their location.*got 2 times 0.0"),
        (lambda: ks_distance([], fit([1.0, 2.0])), "at least one transition"),
    ],
)
def test_bad_input_is_one_sentence(call, match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)
