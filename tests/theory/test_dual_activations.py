"""Dual activations against numbers, quadrature, each other and random draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, ndtr

from polariscope.theory.dual_activations import (
    dense_kernels,
    erf_dual,
    gelu_dual,
    quadrature_dual,
    relu_dual,
)


def density(u):
    return np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)


SMOOTH = {
    "erf": (erf_dual, erf, lambda u: 2 / np.sqrt(np.pi) * np.exp(-(u**2))),
    "gelu": (gelu_dual, lambda u: u * ndtr(u), lambda u: ndtr(u) + u * density(u)),
}

# Spec 000, section 3.3: (weight variance, degrees) -> (nngp, ntk) after 1, 2, 3, 4 layers of weights
TABLE = {
    (1, 0): [(1, 1), (0.5, 1), (0.25, 0.75), (0.125, 0.5)],
    (1, 30): [(0.866025, 0.866025), (0.440421, 0.801265), (0.223315, 0.561058), (0.112973, 0.351868)],
    (1, 60): [(0.5, 0.5), (0.304499, 0.471166), (0.170976, 0.337870), (0.092266, 0.217231)],
    (1, 90): [(0, 0), (0.159155, 0.159155), (0.123433, 0.171427), (0.075603, 0.132549)],
    (1, 120): [(-0.5, -0.5), (0.054499, -0.028834), (0.093675, 0.085966), (0.066035, 0.092781)],
    (1, 180): [(-1, -1), (0, 0), (0.079577, 0.079577), (0.061716, 0.085714)],
    (2, 0): [(1, 1), (1, 2), (1, 3), (1, 4)],
    (2, 60): [(0.5, 0.5), (0.608998, 0.942331), (0.683906, 1.351480)],
    (2, 90): [(0, 0), (0.318310, 0.318310), (0.493731, 0.685709)],
    (2, 180): [(-1, -1), (0, 0), (0.318310, 0.318310)],
}


@pytest.mark.spec("000/F014", "000/F015")
@pytest.mark.parametrize(("weight_var", "degrees"), TABLE)
def test_relu_recursion_gives_the_table(weight_var, degrees):
    cosine = np.cos(np.deg2rad(degrees))
    for depth, (nngp, ntk) in enumerate(TABLE[weight_var, degrees], 1):
        result = dense_kernels(cosine, 1.0, 1.0, depth, weight_var=weight_var)
        assert result.nngp == pytest.approx(nngp, abs=1e-6)
        assert result.ntk == pytest.approx(ntk, abs=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("var", [0.3, 4.0])
def test_diagonal_laws_of_relu(depth, var):
    assert dense_kernels(var, var, var, depth, weight_var=2.0) == pytest.approx((var, depth * var))
    halved = var / 2 ** (depth - 1)
    assert dense_kernels(var, var, var, depth, weight_var=1.0) == pytest.approx((halved, depth * halved))


@pytest.mark.parametrize("name", SMOOTH)
@settings(max_examples=settings.default.max_examples // 3)
@given(var1=st.floats(0.05, 3), var2=st.floats(0.05, 3), correlation=st.floats(-0.99, 0.99))
def test_closed_forms_agree_with_quadrature(name, var1, var2, correlation):
    closed, activation, derivative = SMOOTH[name]
    cov = correlation * np.sqrt(var1 * var2)
    expected = quadrature_dual(activation, derivative)(cov, var1, var2)
    np.testing.assert_allclose(closed(cov, var1, var2), expected, rtol=0, atol=2e-7)


@pytest.mark.spec("000/F014", "000/F015")
def test_biases_enter_every_layer_after_the_first():
    """Equal inputs by hand: half of a variance passes a ReLU, and its slope is 1 on half of the line."""
    layers = [tuple(map(float, dense_kernels(1.0, 1.0, 1.0, depth, 2.0, 0.3))) for depth in (1, 2, 3)]
    np.testing.assert_allclose(layers, [(1, 1), (2 * 0.5 + 0.3, 1 + 1.3), (1.3 + 0.3, 2.3 + 1.6)])


@pytest.mark.spec("000/F014")
def test_quadrature_agrees_with_relu_and_with_draws():
    var1, var2, cov = 0.7, 1.9, 0.3
    rough = quadrature_dual(lambda u: np.maximum(u, 0), lambda u: (u > 0).astype(float), nodes=200)
    np.testing.assert_allclose(rough(cov, var1, var2), relu_dual(cov, var1, var2), atol=5e-3)
    draws = np.random.default_rng(0).multivariate_normal([0, 0], [[var1, cov], [cov, var2]], 400_000)
    u, v = np.maximum(draws, 0).T
    assert (u * v).mean() == pytest.approx(
        float(relu_dual(cov, var1, var2).value), abs=4 * (u * v).std() / 400_000**0.5
    )
    both = (draws > 0).all(1)
    assert both.mean() == pytest.approx(float(relu_dual(cov, var1, var2).derivative), abs=4 * 0.5 / 400_000**0.5)


@pytest.mark.parametrize("dual", [relu_dual, erf_dual, gelu_dual])
def test_derivative_is_the_slope_of_the_value(dual):
    """Price's theorem: ∂E[φφ]/∂c = E[φ'φ']."""
    step = 1e-6
    slope = (dual(0.4 + step, 1.2, 0.8).value - dual(0.4 - step, 1.2, 0.8).value) / (2 * step)
    assert slope == pytest.approx(float(dual(0.4, 1.2, 0.8).derivative), rel=1e-7)


def test_relu_is_homogeneous_and_safe_at_the_ends():
    np.testing.assert_allclose(relu_dual(6 * 0.3, 4, 9).value, 6 * relu_dual(0.3, 1, 1).value)
    slightly_more = np.nextafter(1.0, 2)  # rounding can push a cosine past 1: no NaN then
    assert np.isfinite(relu_dual([slightly_more, 0.0], [1, 0], [1, 2])).all()


def test_no_such_gaussian_is_refused():
    with pytest.raises(ValueError, match="exceeds"):
        relu_dual(2.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="non-negative"):
        erf_dual(0.0, -1.0, 1.0)
    with pytest.raises(ValueError, match="NaN"):
        gelu_dual(np.nan, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least 1"):
        dense_kernels(0, 1, 1, depth=0)
