"""The bound of a diagonal posterior for non-linear decoders, against closed forms and its limit."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from polariscope.theory.nonlinear_bounds import diagonal_bound, jacobian_of
from polariscope.theory.orthogonal_noise import hands_on_example, likelihood_bounds, orthogonality_gap


@pytest.mark.parametrize("precision", [1.0, 1000.0])
def test_a_linear_decoder_has_the_closed_form(precision: float) -> None:
    matrix = hands_on_example()[1]
    z = np.array([0.3, -0.4])
    result = diagonal_bound(lambda points: points @ matrix.T, z, precision, grid=241)
    expected = likelihood_bounds(matrix, [matrix @ z], [precision])
    assert result.log_likelihood == pytest.approx(expected.log_likelihood[0], abs=1e-6)
    assert result.elbo == pytest.approx(expected.elbo[0], abs=1e-6)


@pytest.mark.spec("003/F3-084")
def test_one_latent_has_no_other_to_be_orthogonal_to() -> None:
    slope = np.array([[2.0], [1.0]])
    result = diagonal_bound(lambda points: points @ slope.T, [0.3], precision=4.0)
    spread = multivariate_normal([0, 0], slope @ slope.T + np.eye(2) / 4)
    assert result.log_likelihood == pytest.approx(spread.logpdf([0.6, 0.3]), abs=1e-6)
    assert result.gap == pytest.approx(0, abs=1e-6)
    bent = diagonal_bound(lambda points: np.concatenate([points, np.sinh(points)], 1), [0.5], precision=1e4)
    assert bent.gap == pytest.approx(0, abs=1e-3)


@pytest.mark.spec("003/F3-084")
def test_the_gap_of_a_bent_decoder_tends_to_its_distance_from_orthogonality() -> None:
    def bent(z):
        return np.stack([z[:, 0] + 0.3 * z[:, 1] ** 2, np.sinh(z[:, 1]) + 0.5 * z[:, 0], 0.4 * z[:, 0] * z[:, 1]], 1)

    codes = np.array([[0.5, 0.2], [-0.3, 0.8], [0.1, -0.6]])
    contrast = np.mean([orthogonality_gap(jacobian_of(bent, z)) for z in codes])
    gaps = [np.mean([diagonal_bound(bent, z, g).gap for z in codes]) for g in (10.0, 100.0, 10_000.0)]
    assert (np.array(gaps) > 0).all()
    off = np.abs(np.array(gaps) - contrast)
    assert (np.diff(off) < 0).all()
    assert off[-1] < 0.01 * contrast
    assert contrast > 0.05


def test_orthogonal_columns_leave_no_gap_in_the_limit() -> None:
    def polar(z):
        radius = np.exp(z[:, 0])
        return np.stack([radius * np.cos(z[:, 1]), radius * np.sin(z[:, 1])], 1)

    assert diagonal_bound(polar, [0.2, 0.5], 1e5).gap < 1e-3


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or 2 latents"):
        diagonal_bound(lambda z: z, np.zeros(3), 1.0)
    with pytest.raises(ValueError, match="positive"):
        diagonal_bound(lambda z: z, np.zeros(2), 0.0)
