"""What SlowVAE is compared with on pairs: PM-VAE, Ada-GVAE, Ada-ML-VAE and permutation-contrastive learning."""

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.nets import AutoencoderConfig, Diagonal
from polariscope.nets.architecture import MLP
from polariscope.nets.model import Brief
from polariscope.nets.posterior import Point
from polariscope.objectives import Batch
from polariscope.objectives.ada_vae import AdaGVAE, AdaMLVAE, shared
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.pcl import PCL, Regressor
from polariscope.objectives.pm_vae import PMVAE
from polariscope.objectives.several import divergence
from polariscope.objectives.slow_vae import SlowVAE


@pytest.fixture
def without_noise(monkeypatch):
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)


def small_model(seed=0):
    torch.manual_seed(seed)
    config = AutoencoderConfig(4, MLP((16,), (16,), "tanh", "tanh"), likelihood="gaussian", variance=0.5)
    return config.build(Brief((6,))).double()


def pair(count=8):
    x, other = torch.randn(2, count, 6, generator=torch.Generator().manual_seed(7), dtype=torch.double)
    return Batch(x, population=1000, others=(other,))


def posteriors(count=50):
    mean, logvar = torch.randn(2, 2, count, 4, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    return Diagonal(mean[0], logvar[0]), Diagonal(mean[1], logvar[1])


# PM-VAE


@pytest.mark.spec("001a/BL-06")
def test_the_match_is_the_divergence_of_the_posteriors_in_both_directions(without_noise) -> None:
    one, other = posteriors()
    normals = [torch.distributions.Normal(q.mean, q.var.sqrt()) for q in (one, other)]
    torch.testing.assert_close(divergence(one, other), torch.distributions.kl_divergence(*normals))
    model, batch = small_model(), pair()
    q = [model.encode(x) for x in (batch.x, batch.other)]
    match = (divergence(*q) + divergence(*q[::-1])).sum(1).mean() / 2
    result = PMVAE(gamma=7.0, beta=0.5)(model, batch, 0)
    torch.testing.assert_close(result.parts["match"], match)
    without = SlowVAE(gamma=0.0, beta=0.5)(model, batch, 0).loss
    torch.testing.assert_close(result.loss, without + 7 * match)


# Ada-GVAE and Ada-ML-VAE


@pytest.mark.spec("001a/BL-02")
def test_latents_below_half_of_the_range_of_divergences_are_shared() -> None:
    origin = Diagonal(torch.zeros(3, 3), torch.zeros(3, 3))
    # KL = Δ²/2: divergences of (0, 0, 10), of (10, 4.9, 0) and (10, 5.1, 0), with the threshold 5.
    apart = torch.tensor([[0, 0, 10], [10, 4.9, 0], [10, 5.1, 0]]).mul(2).sqrt()
    same = shared(Diagonal(apart, torch.zeros(3, 3)), origin)
    assert same.tolist() == [[True, True, False], [False, True, True], [False, False, True]]
    one, other = posteriors()
    same = shared(one, other)
    assert same.any(1).all(), "the least different one is below half of the range"
    assert not same.all(1).any(), "the most different one is not"
    assert not shared(one, one).any()


@pytest.mark.spec("001a/BL-02", "001a/BL-03")
@pytest.mark.parametrize("kind", [AdaGVAE, AdaMLVAE])
def test_shared_latents_are_equal_across_the_pair_and_the_others_left_alone(kind, without_noise) -> None:
    model, batch = small_model(), pair()
    decoded = []
    decode = model.decode
    model.decode = lambda z: decoded.append(z) or decode(z)
    result = kind(beta=3.0)(model, batch, 0)
    first, second = model.encode(batch.x), model.encode(batch.other)
    same, mean = shared(first, second), kind.average(first, second)
    codes = decoded[0].chunk(2)
    assert torch.equal(codes[0][same], codes[1][same])
    torch.testing.assert_close(codes[0][same], mean.mean[same])
    torch.testing.assert_close(codes[0][~same], first.mean[~same])
    torch.testing.assert_close(codes[1][~same], second.mean[~same])
    kl = [torch.where(same, mean.kl_per_variable(), q.kl_per_variable()).sum(1) for q in (first, second)]
    torch.testing.assert_close(result.parts["kl"], torch.cat(kl).mean())
    rec = model.likelihood.nll(decode(decoded[0]), torch.cat([batch.x, batch.other])).mean()
    torch.testing.assert_close(result.loss, rec + 3 * torch.cat(kl).mean())
    assert float(result.parts["shared"]) == pytest.approx(same.double().sum(1).mean().item())


@pytest.mark.spec("001a/BL-02")
@pytest.mark.parametrize("kind", [AdaGVAE, AdaMLVAE])
def test_two_equal_observations_are_the_beta_vae(kind, without_noise) -> None:
    """All divergences are 0, where a threshold by division would be 0/0."""
    model, x = small_model(), pair().x
    twins = Batch(x, 1000, others=(x,))
    torch.testing.assert_close(kind(beta=2.0)(model, twins, 0).loss, BetaVAE(beta=2.0)(model, twins, 0).loss)


@pytest.mark.spec("001a/BL-02")
def test_ada_gvae_averages_means_and_variances() -> None:
    one, other = posteriors()
    mean = AdaGVAE.average(one, other)
    torch.testing.assert_close(mean.mean, (one.mean + other.mean) / 2)
    torch.testing.assert_close(mean.var, (one.var + other.var) / 2)


@pytest.mark.spec("001a/BL-03")
def test_ada_ml_vae_multiplies_the_posteriors() -> None:
    """σ² = 2σ₁²σ₂²/(σ₁²+σ₂²) and μ = ½σ²(μ₁/σ₁²+μ₂/σ₂²): where the product of both densities has its top."""
    one, other = posteriors()
    mean = AdaMLVAE.average(one, other)
    torch.testing.assert_close(mean.var, 2 * one.var * other.var / (one.var + other.var))
    torch.testing.assert_close(mean.mean, mean.var / 2 * (one.mean / one.var + other.mean / other.var))
    z = mean.mean.clone().requires_grad_()
    (one.log_density(z) + other.log_density(z)).sum().backward()
    torch.testing.assert_close(z.grad, torch.zeros_like(z), atol=1e-9, rtol=0)


# Permutation-contrastive learning


class LinearCode(nn.Module):
    """A linear encoder."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = nn.Parameter(torch.as_tensor(matrix, dtype=torch.double))
        self.latents = len(matrix)

    def encode(self, x):
        return Point(x @ self.matrix.T)


def laplace_steps(count, size, rate, seed=0):
    """z ~ N(0, 1), and one Laplace step later."""
    rng = np.random.default_rng(seed)
    before = rng.standard_normal((count, size))
    return torch.from_numpy(before), torch.from_numpy(before + rng.laplace(scale=1 / rate, size=(count, size)))


def test_the_regressor_begins_as_published() -> None:
    now, before = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 4.0]])
    assert Regressor(2)(now, before).item() == pytest.approx(-(0.5 + 2.0) + (1 + 4))


@pytest.mark.spec("001a/BL-04")
@pytest.mark.parametrize(("rate", "bayes", "near"), [(1.0, 0.62897, 0.01), (6.0, 0.34317, 0.01)])
def test_the_loss_of_bayes_is_approached_and_not_undercut(rate, bayes, near) -> None:
    """The regressor holds p(z) for a Gaussian of some width, which the sources are but for the step, so that its best
    weights come close where steps are small."""
    count = 50_000
    before, now = laplace_steps(count, 1, rate)
    batch = Batch(before, count, others=(now,))
    model, regressor = LinearCode([[0.6]]), Regressor(1).double()
    with torch.no_grad():
        regressor.now.mul_(rate / 0.6)
        regressor.before.mul_(rate / 0.6)
    free = [model.matrix, *regressor.parameters()]
    optimiser = torch.optim.LBFGS(free, max_iter=60, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        torch.manual_seed(0)
        terms = PCL()(model, batch, 0, regressor)
        terms.loss.backward()
        assert terms.players["regressor"] is terms.loss
        return terms.loss

    optimiser.step(loss)
    best = loss().item()
    assert bayes - 4 * 0.5 / math.sqrt(count) < best < bayes + near


@pytest.mark.spec("001a/BL-04")
def test_pcl_undoes_a_linear_mixture() -> None:
    before, now = laplace_steps(2000, 2, 6.0)
    mixing = torch.tensor([[1.0, 0.6], [-0.5, 1.0]], dtype=torch.double)
    batch = Batch(before @ mixing.T, 2000, others=(now @ mixing.T,))
    model, regressor = LinearCode(np.eye(2)), Regressor(2).double()
    optimiser = torch.optim.Adam([*model.parameters(), *regressor.parameters()], lr=0.03)

    def correlation():
        result = np.corrcoef(model.encode(batch.x).mean.detach().numpy().T, before.numpy().T)[:2, 2:]
        return max(abs(result[[0, 1], list(order)]).min() for order in permutations((0, 1)))

    assert correlation() < 0.9
    torch.manual_seed(0)
    for _ in range(400):
        optimiser.zero_grad()
        PCL()(model, batch, 0, regressor).loss.backward()
        optimiser.step()
    assert correlation() > 0.98
