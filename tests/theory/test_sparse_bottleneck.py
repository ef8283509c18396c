"""The sparse information term and the water-filling optima, against numerical minimisation (Spec 000, O14 and O15)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from polariscope.theory import sparse_bottleneck as sparse
from polariscope.theory.gaussian_bottleneck import channel_information

EXAMPLES = [(3, 1, 0.5), (10, 0.5, 1 / 3), (1, 1, 0.4), (100, 0.5, 0.02), (2, 3, 4.0)]


def least(loss) -> float:
    """Where a function of one number above 0 is least: a grid first, as one of the losses has two hollows."""
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 2000)])
    at = int(np.argmin([loss(s) for s in grid]))
    if at == 0:
        return 0.0
    return float(minimize_scalar(loss, (grid[at - 1], grid[at], grid[at + 1]), tol=1e-12).x)


@pytest.mark.spec("000/F031")
@pytest.mark.parametrize(("lam", "weight", "variance"), EXAMPLES)
def test_the_signal_of_the_sparse_bottleneck_minimises_its_loss(lam, weight, variance) -> None:
    for offset in (1.0, 10.0):
        best = least(lambda s, o=offset: 0.5 * np.log(s + o) + lam * weight * variance / (1 + s))
        assert sparse.signal_variance(lam, weight, variance, offset) == pytest.approx(best, abs=1e-4, rel=1e-4)
    s = sparse.signal_variance(lam, weight, variance)
    assert variance / (1 + s) == pytest.approx(sparse.residual_error(lam, weight, variance))


@pytest.mark.spec("000/F027")
@pytest.mark.parametrize(("lam", "weight", "variance"), EXAMPLES)
def test_the_free_noise_of_the_beta_vae_minimises_its_loss(lam, weight, variance) -> None:
    """Signal a²v and noise σ² of a linear encoder; the best decoder leaves v σ²/(a²v + σ²)."""

    def loss(p) -> float:
        signal, noise = np.exp(p)
        kl = 0.5 * (signal + noise - 1 - np.log(noise))
        return kl + lam * weight * variance * noise / (signal + noise)

    starts = [(np.log(s), np.log(n)) for s in (1e-4, 0.5) for n in (0.1, 1.0)]
    result = min((minimize(loss, start, tol=1e-12, method="Nelder-Mead") for start in starts), key=lambda r: r.fun)
    signal, noise = np.exp(result.x)
    best = sparse.free_noise_variance(lam, weight, variance)
    assert noise == pytest.approx(best, abs=1e-4)
    assert signal == pytest.approx(1 - best, abs=1e-4), "signal and noise variance add up to 1"
    rate = sparse.component_rate(lam, weight, variance)
    assert result.fun == pytest.approx(rate + lam * weight * sparse.residual_error(lam, weight, variance), abs=1e-6)


@pytest.mark.spec("000/F027", "000/F031")
def test_water_filling_has_the_numbers_of_the_spec() -> None:
    assert sparse.signal_variance(3, 1, 0.5) == pytest.approx(2)
    assert sparse.free_noise_variance(3, 1, 0.5) == pytest.approx(1 / 3)
    assert sparse.signal_variance(10, 0.5, 1 / 3) == pytest.approx(2.3333, abs=1e-4)
    assert sparse.free_noise_variance(10, 0.5, 1 / 3) == pytest.approx(0.3)
    assert sparse.signal_variance(1, 1, 0.4) == 0
    assert sparse.free_noise_variance(1, 1, 0.4) == 1
    assert sparse.activation_value(0.5, 1 / 3) == pytest.approx(3)
    assert sparse.activation_value(1, 23 / 720) == pytest.approx(15.652, abs=1e-3), "the property of the ellipse"


@given(weight=st.floats(0.1, 20), variance=st.floats(0.01, 10), share=st.floats(0.1, 3))
def test_both_optima_select_a_component_at_the_same_value(weight, variance, share) -> None:
    """Selected: the signal exceeds the noise. Both spend ½ log(2λwv)."""
    lam = share * float(sparse.selection_value(weight, variance))
    signal, noise = sparse.signal_variance(lam, weight, variance), sparse.free_noise_variance(lam, weight, variance)
    if abs(share - 1) > 1e-6:
        assert (signal > 1) == (1 - noise > noise) == (share > 1)
    rate = sparse.component_rate(lam, weight, variance)
    assert sparse.sparse_information([signal]) == pytest.approx(rate, abs=1e-9)
    assert -0.5 * np.log(noise) == pytest.approx(rate, abs=1e-9)


def test_an_offset_wakes_a_component_earlier_by_its_factor() -> None:
    asleep = float(sparse.activation_value(0.5, 1 / 3, offset=10))
    assert asleep == pytest.approx(0.3)
    assert sparse.signal_variance(0.999 * asleep, 0.5, 1 / 3, offset=10) == 0
    assert sparse.signal_variance(1.001 * asleep, 0.5, 1 / 3, offset=10) > 0


@pytest.mark.spec("000/F031")
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 30), d=st.integers(1, 5), scale=st.floats(0.01, 30))
def test_the_sparse_term_lies_between_the_gaussian_information_and_the_divergence(seed, n, d, scale) -> None:
    means = scale * np.random.default_rng(seed).normal(size=(n, d)) + 0.3
    bounds = sparse.information_bounds(means)
    centred = 0.5 * np.linalg.slogdet(np.atleast_2d(np.cov(means.T, bias=True)) + np.eye(d))[1]
    assert centred <= bounds.gaussian + 1e-9
    assert bounds.gaussian <= bounds.sparse + 1e-9
    assert bounds.sparse <= bounds.divergence + 1e-9
    if d == 1:
        assert bounds.gaussian == pytest.approx(bounds.sparse)


@pytest.mark.spec("000/F031")
def test_a_rotation_of_the_code_leaves_the_gaussian_information_and_raises_the_sparse_term() -> None:
    """Only zeroing entries of a diagonal projection reduces the information (section 4.3)."""
    cov = np.diag([4.0, 1.0, 0.25])
    turn = np.array([[2.0, 2.0, 1.0], [-2.0, 1.0, 2.0], [1.0, -2.0, 2.0]]) / 3
    assert channel_information(turn, cov) == pytest.approx(channel_information(np.eye(3), cov))
    assert sparse.sparse_information(np.diag(turn @ cov @ turn.T)) > sparse.sparse_information(np.diag(cov)) + 0.05
    fewer = np.diag([1.0, 0.0, 1.0])
    assert channel_information(fewer, cov) < channel_information(np.eye(3), cov) - 0.1


@pytest.mark.spec("000/F031")
def test_a_linear_sparse_bottleneck_does_pca_with_reverse_water_filling() -> None:
    """A full linear encoder and its best decoder, minimised numerically, reach the loss of the closed form."""
    spectrum, lam, weight = np.array([2.0, 0.6, 0.1]), 3.0, 0.5
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    cov = turn @ np.diag(spectrum) @ turn.T

    def loss(flat) -> float:
        a = flat.reshape(3, 3)
        code = a @ cov @ a.T
        left = cov - cov @ a.T @ np.linalg.solve(code + np.eye(3), a @ cov)
        return sparse.sparse_information(np.maximum(np.diag(code), 0)) + lam * weight * np.trace(left)

    runs = [minimize(loss, np.random.default_rng(seed).normal(size=9), tol=1e-10) for seed in range(6)]
    result = min(runs, key=lambda run: run.fun)
    assert result.fun == pytest.approx(sparse.minimum_loss(lam, weight, spectrum), abs=1e-5)
    a = result.x.reshape(3, 3)
    signals = np.sort(np.diag(a @ cov @ a.T))[::-1]
    np.testing.assert_allclose(signals, sparse.signal_variance(lam, weight, spectrum), atol=1e-3)
    assert sparse.active_components(lam, weight, spectrum) == 2
    along = a[np.argsort(-np.diag(a @ cov @ a.T))[:2]] @ turn
    assert np.abs(along[0, 1:]).max() < 1e-3 * np.abs(along[0, 0]), "the first variable is the first component"
    assert np.abs(along[1, [0, 2]]).max() < 1e-2 * np.abs(along[1, 1])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sparse.sparse_information([-1.0]), "second moments are at least 0; got -1"),
        (lambda: sparse.sparse_information([0.0], 0.0), "offsets of the sparse term need to be positive"),
        (lambda: sparse.information_bounds([1.0, 2.0]), r"a table \(n, d\); got shape \(2,\)"),
        (lambda: sparse.signal_variance(1, 1, 1, offset=0.5), "offset of the sparse term is 0.5"),
        (lambda: sparse.signal_variance(0, 1, 1), "need to be positive; got 0 and 1"),
        (lambda: sparse.activation_value(1, 0.0), "variances of components need to be positive"),
        (lambda: sparse.component_rate(1, 1, np.nan), "variances of components need to be at least 0"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
