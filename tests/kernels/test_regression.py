"""Linear regression: Gauss–Markov, ridge as a posterior mode, bias and variance, the last layer, double descent."""

import numpy as np
import pytest
import torch

from polariscope.kernels.regression import (
    bias_variance,
    double_descent_curve,
    double_descent_risk,
    last_layer_refit,
    least_squares,
    map_ridge,
    ridge_bias_variance,
    ridge_weights,
)
from polariscope.nets.classifiers import mlp

RNG = np.random.default_rng(0)


@pytest.mark.spec("000/F001")
def test_gauss_markov():
    x, truth, noise_sd = RNG.normal(size=(30, 4)), RNG.normal(size=4), 0.7
    noise = noise_sd * RNG.normal(size=(30, 4000))
    estimates = least_squares(x, (x @ truth)[:, None] + noise)
    cov = noise_sd**2 * np.linalg.inv(x.T @ x)
    np.testing.assert_allclose(estimates.mean(1), truth, atol=5 * np.sqrt(cov.diagonal().max() / 4000))
    np.testing.assert_allclose(np.cov(estimates), cov, atol=0.08 * cov.diagonal().max())
    # any other unbiased linear estimator, A X = I, varies more in every direction
    pseudo = np.linalg.pinv(x)
    other = pseudo + RNG.normal(size=(4, 30)) @ (np.eye(30) - x @ pseudo)
    np.testing.assert_allclose(other @ x, np.eye(4), atol=1e-12)
    excess = noise_sd**2 * other @ other.T - cov
    assert np.linalg.eigvalsh(excess)[0] >= -1e-12
    assert np.linalg.eigvalsh(excess)[-1] > 0.1


@pytest.mark.spec("000/F002")
@pytest.mark.parametrize("features", [4, 50])
def test_ridge_is_the_mode_of_the_posterior(features):
    x, y, noise_var, weight_var = RNG.normal(size=(20, features)), RNG.normal(size=20), 0.3, 0.5
    weights = ridge_weights(x, y, map_ridge(noise_var, weight_var))
    gradient = x.T @ (y - x @ weights) / noise_var - weights / weight_var  # of the log-posterior
    np.testing.assert_allclose(gradient, 0, atol=1e-10)
    np.testing.assert_allclose(ridge_weights(x, y, 0.02, mean_loss=True), ridge_weights(x, y, 20 * 0.02))
    with pytest.raises(ValueError, match="positive ridge"):
        ridge_weights(x, y, 0)
    with pytest.raises(ValueError, match="positive"):
        map_ridge(1, 0)


@pytest.mark.spec("000/F004")
def test_bias_and_variance_of_ridge():
    x, truth, noise_var, ridge = RNG.normal(size=(15, 3)), np.array([1.0, -2.0, 0.5]), 0.4, 6.0

    def draw(rng):
        return x, x @ truth + np.sqrt(noise_var) * rng.normal(size=15)

    result = bias_variance(lambda a, b: ridge_weights(a, b, ridge), draw, truth, repeats=4000, seed=1)
    bias, variance = ridge_bias_variance(x, truth, ridge, noise_var)
    assert result.mse == pytest.approx(result.squared_bias + result.variance, rel=1e-12)
    assert result.squared_bias == pytest.approx(float(bias @ bias), rel=0.05)
    assert result.variance == pytest.approx(variance, rel=0.1)
    with pytest.raises(ValueError, match="at least 2"):
        bias_variance(least_squares, draw, truth, repeats=1)


@pytest.mark.spec("000/F012")
def test_refitted_last_layer_is_stationary():
    network = mlp(5, (12, 9), 3).double()
    x, y = torch.randn(30, 5, dtype=torch.float64), torch.randn(30, 3, dtype=torch.float64)
    with torch.no_grad():
        features = network[:-1](x)
    weights = torch.from_numpy(last_layer_refit(features.numpy(), y.numpy(), 0.7)).requires_grad_()
    loss = 0.5 * (y - features @ weights).square().sum() + 0.35 * weights.square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    assert gradient.abs().max() < 1e-8
    dual = (y - features @ weights.detach()) / 0.7  # α_n = (y_n − ⟨φ_n, w⟩)/λ, and w is their sum over features
    torch.testing.assert_close(features.T @ dual, weights.detach())


@pytest.mark.spec("000/F013")
def test_double_descent():
    features = [10, 20, 30, 60, 80, 160]
    expected = [0.0862, 0.2632, 0.8333, 0.8596, 0.7564, 0.8340]
    np.testing.assert_allclose(double_descent_risk(40, features), expected, atol=5e-5)
    measured = double_descent_curve(40, [10, 20, 40, 80, 160], repeats=300, seed=0)
    np.testing.assert_allclose(measured[[0, 1, 3, 4]], double_descent_risk(40, [10, 20, 80, 160]), rtol=0.08)
    assert measured.argmax() == 2
    assert np.isinf(double_descent_risk(40, [39, 40, 41])).all()
