"""The Gaussian bottleneck against the numbers of Spec 000, against an optimiser, and against log-determinants."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from polariscope.measures.information import mutual_information as counted_information
from polariscope.nets.posterior import Diagonal
from polariscope.theory.gaussian import KL, entropy, kl_diagonal, kl_full
from polariscope.theory.gaussian_bottleneck import (
    channel_information,
    correlation_information,
    log_det,
    mutual_information,
    prediction_bound,
    solve,
)

seeds = st.integers(0, 2**32 - 1)


def random_pair(seed: int, n: int, m: int):
    """Covariances of a random jointly Gaussian pair."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n + m, n + m + 2))
    joint = factor @ factor.T / (n + m) + 0.1 * np.eye(n + m)
    return joint, joint[:n, :n], joint[:n, n:], joint[n:, n:]


def information_of(a, bottleneck) -> tuple[float, float]:
    """(I(X;Z), I(Z;Y)) of any linear code, from log-determinants alone."""
    kept = channel_information(a, bottleneck.cov)
    return kept, kept - channel_information(a, bottleneck.conditional)


@pytest.mark.spec("000/F028")
def test_the_scalar_bottleneck_has_the_numbers_of_the_spec() -> None:
    """ρ² = ½: a² = 2, 0.549306 and 0.202733 nats at λ = 4, nothing at λ ≤ 2 (O13)."""
    bottleneck = solve(1.0, np.sqrt(0.5), 1.0)
    assert bottleneck.critical == pytest.approx([2.0])
    assert bottleneck.projection(4.0) ** 2 == pytest.approx(np.array([[2.0]]))
    assert bottleneck.information(4.0) == pytest.approx((0.549306, 0.202733), abs=1e-6)
    for lam in (0.5, 1.0, 2.0):
        assert not bottleneck.active(lam).any()
        assert bottleneck.projection(lam).shape == (0, 1)
        assert bottleneck.information(lam) == (0.0, 0.0)
    assert bottleneck.active(2.001).all()
    assert bottleneck.information(1e9)[1] == pytest.approx(-0.5 * np.log(0.5), abs=1e-8)


@pytest.mark.spec("000/F028")
@settings(max_examples=settings.default.max_examples // 3)
@given(seed=seeds, rho2=st.floats(0.01, 0.99), lam=st.floats(1.001, 200))
def test_the_scalar_formulas_hold_for_every_correlation(seed, rho2, lam) -> None:
    scale = np.random.default_rng(seed).uniform(0.2, 5)
    bottleneck = solve(scale**2, scale * np.sqrt(rho2), 1.0)
    assert bottleneck.active(lam).any() == (lam > 1 / (1 - bottleneck.eigenvalues[0]))
    if lam > 1.0001 / rho2:
        assert 1 + bottleneck.projection(lam)[0, 0] ** 2 * scale**2 == pytest.approx((lam - 1) * rho2 / (1 - rho2))
        assert bottleneck.information(lam)[1] == pytest.approx(0.5 * np.log((lam - 1) / (lam * (1 - rho2))), abs=1e-9)


@pytest.mark.spec("000/F028")
@settings(max_examples=settings.default.max_examples // 2)
@given(seed=seeds, n=st.integers(1, 5), m=st.integers(1, 4), lam=st.floats(1.01, 500))
def test_the_information_in_closed_form_is_that_of_the_log_determinants(seed, n, m, lam) -> None:
    joint, *covariances = random_pair(seed, n, m)
    bottleneck = solve(*covariances)
    a = bottleneck.projection(lam)
    assert len(a) == bottleneck.active(lam).sum() <= min(n, m)
    if len(a):
        np.testing.assert_allclose(bottleneck.information(lam), information_of(a, bottleneck), rtol=1e-7, atol=1e-8)
        noisy = a @ covariances[0] @ a.T + np.eye(len(a))
        cross = a @ covariances[1]
        information = mutual_information(np.block([[noisy, cross], [cross.T, covariances[2]]]), len(a))
        assert bottleneck.information(lam)[1] == pytest.approx(information, rel=1e-7, abs=1e-8)
    assert bottleneck.limit == pytest.approx(mutual_information(joint, n), rel=1e-7)


@pytest.mark.spec("000/F028")
def test_no_linear_code_beats_the_projection() -> None:
    """An optimiser from several starts reaches the closed form and never goes below it."""
    bottleneck = solve(*random_pair(3, 2, 2)[1:])
    for lam in (bottleneck.critical[0] * 1.3, bottleneck.critical[1] * 1.5):
        kept, information = bottleneck.information(lam)

        def loss(flat, lam=lam) -> float:
            kept, information = information_of(flat.reshape(2, 2), bottleneck)
            return kept - lam * information

        result = [minimize(loss, np.random.default_rng(s).normal(size=4), tol=1e-9).fun for s in range(2)]
        assert min(result) == pytest.approx(kept - lam * information, abs=1e-5)


@pytest.mark.spec("000/F028")
@settings(max_examples=settings.default.max_examples // 3)
@given(seed=seeds)
def test_the_information_curve_rises_and_bends_down(seed) -> None:
    """I(Z;Y) is concave in I(X;Z), and its slope at λ is 1/λ."""
    bottleneck = solve(*random_pair(seed, 4, 3)[1:])
    lams = np.geomspace(bottleneck.critical[0] * 1.01, 1000, 200)
    kept, information = bottleneck.curve(lams).T
    slopes = np.diff(information) / np.diff(kept)
    assert (np.diff(kept) > 0).all()
    assert (np.diff(slopes) < 1e-9).all()
    np.testing.assert_allclose(slopes, 1 / np.sqrt(lams[1:] * lams[:-1]), rtol=0.05)
    assert (information <= np.minimum(kept, bottleneck.limit) + 1e-12).all()


@pytest.mark.spec("000/F025")
@pytest.mark.parametrize(("mean", "var", "number"), [(1.0, 1.0, 0.5), (0.0, 4.0, 0.806853)])
def test_divergences_have_the_numbers_of_the_spec(mean, var, number) -> None:
    """O24: KL(N(1, 1) ‖ N(0, 1)) and KL(N(0, 4) ‖ N(0, 1)), also of a posterior, and the other way round."""
    assert float(kl_diagonal([mean], [var])) == pytest.approx(number, abs=1e-6)
    assert kl_full([mean], [[var]], [0.0], [[1.0]]) == pytest.approx(number, abs=1e-6)
    posterior = Diagonal(torch.tensor([[mean]]), torch.tensor([[var]]).log())
    assert posterior.kl().item() == pytest.approx(number, abs=1e-6)
    reverse = 0.5 * ((1 + mean**2) / var - 1 + np.log(var))
    assert kl_full([0.0], [[1.0]], [mean], [[var]]) == pytest.approx(reverse)


@pytest.mark.spec("000/F025")
def test_discrete_information_is_the_divergence_of_the_joint_from_the_product() -> None:
    """KL of discrete distributions, here of (x, y) from independence: by hand, and from samples with these shares."""
    joint = np.array([[4, 1], [1, 2]]) / 8
    product = joint.sum(1, keepdims=True) * joint.sum(0)
    by_hand = sum(p * np.log(p / q) for p, q in zip(joint.flat, product.flat, strict=True))
    assert KL(joint.ravel(), product.ravel()) == pytest.approx(by_hand)
    assert KL(product.ravel(), joint.ravel()) != pytest.approx(by_hand, abs=1e-3)
    x, y = np.repeat(np.indices((2, 2)).reshape(2, -1), (8 * joint).astype(int).ravel(), axis=1)
    assert counted_information(x, y).item() == pytest.approx(by_hand)


@pytest.mark.spec("000/F025")
def test_gaussian_information_in_numbers() -> None:
    """O24: −½ log(1 − ρ²), of which the penalty of the adversarial bottleneck is the double."""
    rng = np.random.default_rng(0)
    for rho in (0.0, 0.3, -0.9):
        assert mutual_information([[1, rho], [rho, 1]], 1) == pytest.approx(-0.5 * np.log(1 - rho**2))
        x = rng.normal(size=(50, 1))
        x -= x.mean()
        other = rng.normal(size=(50, 1))
        other -= other.mean() + x * (x.T @ other) / (x.T @ x)  # exactly uncorrelated
        y = rho * x / x.std() + np.sqrt(1 - rho**2) * other / other.std()
        assert correlation_information(x, 3 * y + 7) == pytest.approx(-np.log(1 - rho**2), abs=1e-12)
    assert log_det(np.diag([2.0, 5.0])) == pytest.approx(np.log(10))


@given(seed=seeds, k=st.integers(1, 3), m=st.integers(1, 3))
def test_the_penalty_is_never_negative(seed, k, m) -> None:
    rng = np.random.default_rng(seed)
    assert correlation_information(rng.normal(size=(20, k)), rng.normal(size=(20, m))) >= -1e-12


def test_a_free_noise_only_rescales_the_channel() -> None:
    a, cov = np.array([[1.0, 0.5], [0.0, 2.0]]), [[2.0, 0.3], [0.3, 1.0]]
    noise = np.array([0.5, 3.0])
    assert channel_information(a, cov, noise) == pytest.approx(channel_information(a / np.sqrt(noise)[:, None], cov))


@pytest.mark.spec("000/F029")
def test_the_prediction_bound_is_tight_for_the_best_decoder_and_below_for_others() -> None:
    """Decoders of Y from the code at λ = 4 and ρ² = ½: the true conditional reaches I(Z;Y), others stay below."""
    bottleneck = solve(1.0, np.sqrt(0.5), 1.0)
    information = bottleneck.information(4.0)[1]
    a = float(bottleneck.projection(4.0)[0, 0])
    slope = a * np.sqrt(0.5) / (a**2 + 1)

    def nll(slope: float, var: float) -> float:
        error = 1 - 2 * slope * a * np.sqrt(0.5) + slope**2 * (a**2 + 1)
        return 0.5 * (np.log(2 * np.pi * var) + error / var)

    best = 1 - slope * a * np.sqrt(0.5)
    assert prediction_bound(entropy([[1.0]]), nll(slope, best)) == pytest.approx(information)
    for other in ((slope, 2 * best), (0.5 * slope, best), (-slope, 1.0), (0.0, 1.0)):
        assert prediction_bound(entropy([[1.0]]), nll(*other)) < information - 1e-3


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: solve(np.eye(2), np.ones((3, 1)), [[1.0]]), r"cov_xy needs shape \(2, 1\)"),
        (lambda: solve([[1.0]], [[1.0]], [[1.0]]), "mutual information is infinite"),
        (lambda: solve([[1.0, 2.0], [2.0, 1.0]], [[0.1], [0.1]], [[1.0]]), "cov_x is not positive definite"),
        (lambda: solve(1.0, 0.5, 1.0).information(0.0), "lambda is 0.0: it needs to be positive"),
        (lambda: channel_information([[1.0]], [[1.0]], 0.0), "positive variances; got 0"),
        (lambda: channel_information([[1.0, 2.0]], [[1.0]]), "2 columns for a covariance of 1"),
        (lambda: mutual_information(np.eye(2), 2), "both groups of variables need at least one"),
        (lambda: correlation_information([[1.0], [1.0]], [[0.0], [1.0]]), "one of these is constant"),
        (lambda: correlation_information([[1.0], [2.0]], [[0.0]]), "same number of samples; got 2 and 1"),
        (lambda: log_det([[1.0, 2.0]]), "square matrix"),
        (lambda: log_det([[1.0, 2.0], [0.0, 5.0]]), "symmetric matrix"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_too_few_samples_have_no_information_of_their_own() -> None:
    """With as many variables as samples the correlation matrix is singular: rounding had given 35 to 73."""
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="6 variables needs more than 6 samples; got 6"):
        correlation_information(rng.normal(size=(6, 3)), rng.normal(size=(6, 3)))
    assert np.isfinite(correlation_information(rng.normal(size=(8, 3)), rng.normal(size=(8, 3))))
