"""SlowVAE against quadrature, the worked numbers of Spec 001a, and its limits."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

from polariscope.nets import AutoencoderConfig, Diagonal
from polariscope.nets.architecture import MLP
from polariscope.nets.model import Brief
from polariscope.objectives import Batch
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.slow_vae import SlowVAE, entropy, expected_distance, step_cross_entropy
from polariscope.training import RunConfig, TrainingConfig, train
from polariscope.training.run import load_model
from polariscope.worlds.renderers.mini_sprites import MiniSprites
from polariscope.worlds.views.pairs import Pairs


def diagonal(mean, std):
    """Posteriors ``(n, d)`` in double precision."""
    mean, std = (torch.as_tensor(v, dtype=torch.double).reshape(-1, 1) for v in (mean, std))
    return Diagonal(mean, 2 * std.log())


def small_model(seed=0, posterior="diagonal"):
    torch.manual_seed(seed)
    config = AutoencoderConfig(3, MLP((16,), (16,), "tanh", "tanh"), likelihood="gaussian", variance=0.5)
    return config.build(Brief((6,), posterior=posterior)).double()


def sequence(length, count=8, seed=7):
    generator = torch.Generator().manual_seed(seed)
    x, *others = torch.randn(length, count, 6, generator=generator, dtype=torch.double)
    return Batch(x, population=1000, others=tuple(others))


def without_noise(monkeypatch):
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)


@pytest.mark.spec("001a/SV-01")
@pytest.mark.parametrize(
    ("mean", "std", "rate", "kl"),
    [
        (0, 1, 1, 0.07209321),
        (0, 1, 6, 2.26975654),
        (1, 1, 6, 4.48223483),
        (0.5, 0.1, 6, 2.78503434),
        (2, 0.5, 1, 1.96736297),
        (-1, 0.3, 6, 4.68682546),
    ],
)
def test_the_divergence_from_a_laplace_step_is_that_of_the_spec_and_of_quadrature(mean, std, rate, kl) -> None:
    after, origin = diagonal(mean, std), diagonal(0, 1)
    result = float(step_cross_entropy(after, origin, rate) - entropy(after))
    assert result == pytest.approx(kl, abs=1e-8)
    q, p = stats.norm(mean, std), stats.laplace(0, 1 / rate)
    ends = (mean - 12 * std, mean + 12 * std)
    whole, _ = integrate.quad(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), *ends, points=[0, mean], limit=200)
    assert result == pytest.approx(whole, abs=1e-7)


@pytest.mark.spec("001a/SV-01")
def test_the_smallest_divergence_from_a_laplace_step_is_the_same_for_every_rate() -> None:
    for rate in (1.0, 6.0):
        result = optimize.minimize_scalar(
            lambda std, rate=rate: float(
                step_cross_entropy(diagonal(0, std), diagonal(0, 1), rate) - entropy(diagonal(0, std))
            ),
            bounds=(0.01, 3),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert result.x == pytest.approx(math.sqrt(math.pi / 2) / rate, abs=1e-6)
        assert result.fun == pytest.approx(0.04841729, abs=1e-8)
    assert float(expected_distance(torch.tensor(1.0), torch.tensor(0.0))) == pytest.approx(1.16663094, abs=1e-6)
    assert float(diagonal(1, 0.5).kl()) == pytest.approx(0.81814718, abs=1e-8)


@pytest.mark.spec("003/F3-073")
@pytest.mark.parametrize("rate", [1.0, 6.0])
def test_a_step_that_is_sure_costs_its_length_and_one_to_nowhere_its_width(rate) -> None:
    """Spec 003, O33: −log(λ/2) + λ|μ| as σ → 0, and −log(λ/2) + λσ√(2/π) at μ = 0."""
    means, stds, origin = torch.tensor([-2.0, -0.1, 0.3, 4.0]), torch.tensor([1e-3, 0.1, 1.0, 5.0]), diagonal(0, 1)
    sure = step_cross_entropy(diagonal(means, torch.full((4,), 1e-6)), origin, rate).flatten()
    torch.testing.assert_close(sure, rate * means.double().abs() - math.log(rate / 2), rtol=0, atol=1e-9)
    resting = step_cross_entropy(diagonal(torch.zeros(4), stds), origin, rate).flatten()
    widths = rate * stds.double() * math.sqrt(2 / math.pi) - math.log(rate / 2)
    torch.testing.assert_close(resting, widths, rtol=0, atol=1e-9)


@pytest.mark.spec("001a/SV-01")
def test_gradients_of_the_cross_entropy() -> None:
    """Against differences, and ∂/∂δ = λ(2Φ(δ/σ) − 1), ∂/∂σ = λ√(2/π) exp(−δ²/2σ²)."""
    mean = torch.tensor([[0.0, 0.3, -2.0, 5.0]], dtype=torch.double, requires_grad=True)
    std = torch.tensor([[0.5, 0.2, 1.5, 0.1]], dtype=torch.double, requires_grad=True)
    origin = Diagonal(torch.zeros_like(mean), torch.zeros_like(mean))

    def crossed(mean, std):
        return step_cross_entropy(Diagonal(mean, 2 * std.log()), origin, 6.0)

    assert torch.autograd.gradcheck(crossed, (mean, std))
    by_mean, by_std = torch.autograd.grad(crossed(mean, std).sum(), (mean, std))
    ratio = (mean / std).detach()
    torch.testing.assert_close(by_mean, 6 * torch.erf(ratio / math.sqrt(2)))
    torch.testing.assert_close(by_std, 6 * math.sqrt(2 / math.pi) * (-0.5 * ratio.square()).exp())


@pytest.mark.spec("001a/SV-02")
def test_the_loss_is_that_of_the_spec_in_both_directions(monkeypatch) -> None:
    without_noise(monkeypatch)
    model, batch = small_model(), sequence(2)
    x0, x1 = batch.x, batch.other
    q0, q1 = model.encode(x0), model.encode(x1)
    rec = sum(model.likelihood.nll(model.decode(q.mean), x) for q, x in ((q0, x0), (q1, x1)))
    origin = Diagonal(torch.zeros_like(q0.mean), torch.zeros_like(q0.mean))

    def laplace(after, before):  # KL_L(after | mean before), from the one at the origin that quadrature has confirmed
        moved = Diagonal(after.mean - before.mean, after.logvar)
        return (step_cross_entropy(moved, origin, 6.0) - entropy(moved)).sum(1)

    expected = rec + 0.7 * (q0.kl() + q1.kl()) / 2 + 10 * (laplace(q0, q1) + laplace(q1, q0)) / 2
    result = SlowVAE(beta=0.7)(model, batch, 0)
    torch.testing.assert_close(result.loss, expected.mean())
    torch.testing.assert_close(result.parts["transition"], (laplace(q0, q1) + laplace(q1, q0)).mean() / 2)
    swapped = replace(batch, x=x1, others=(x0,))
    torch.testing.assert_close(SlowVAE(beta=0.7)(model, swapped, 0).loss, result.loss)
    forward = SlowVAE(directions="forward")
    assert abs(forward(model, swapped, 0).loss - forward(model, batch, 0).loss) > 1e-3


@pytest.mark.spec("001a/SV-02", "003/F3-073")
def test_without_a_transition_it_is_the_beta_vae_on_two_images(monkeypatch) -> None:
    """Their sum, with the divergence of one of them: each is the first in one direction only."""
    without_noise(monkeypatch)
    model, batch = small_model(), sequence(2)
    slow = SlowVAE(gamma=0.0, beta=3.0)(model, batch, 0).loss
    images = BetaVAE(beta=1.5)(model, Batch(torch.cat([batch.x, batch.other]), 1000), 0)
    torch.testing.assert_close(slow, 2 * images.loss)


@pytest.mark.spec("001a/SV-03", "001a/SV-04")
def test_plug_in_and_exact_expectation_are_those_of_the_spec() -> None:
    one = diagonal(0, 0.2)
    assert float(step_cross_entropy(one, one, 6, "mean")) == pytest.approx(-0.141151, abs=1e-6)
    assert float(step_cross_entropy(one, one, 6, "exact")) == pytest.approx(0.255443, abs=1e-6)
    rng = np.random.default_rng(0)
    after, before = (diagonal(rng.normal(size=200), rng.uniform(0.05, 2, 200)) for _ in range(2))
    plugged, exact = (step_cross_entropy(after, before, 6, which) for which in ("mean", "exact"))
    assert (exact >= plugged).all(), "Jensen"


@pytest.mark.spec("001a/SV-04")
def test_sampled_expectations_are_the_exact_one_on_average() -> None:
    torch.manual_seed(0)
    after, before = diagonal([0.3, -1.0], [0.4, 0.7]), diagonal([0.1, 0.5], [0.5, 1.2])
    draws = torch.stack([step_cross_entropy(after, before, 6, "sample", before.sample()) for _ in range(4000)])
    exact = step_cross_entropy(after, before, 6, "exact")
    assert ((draws.mean(0) - exact).abs() < 4 * draws.std(0) / math.sqrt(4000)).all()
    assert ((draws.mean(0) - step_cross_entropy(after, before, 6)).abs() > 0.1).all()
    with pytest.raises(ValueError, match="needs the draw"):
        step_cross_entropy(after, before, 6, "sample")


@pytest.mark.spec("001a/SV-04")
def test_the_objective_takes_the_expectation_it_is_told() -> None:
    model, batch = small_model(), sequence(2)
    q = [model.encode(x) for x in (batch.x, batch.other)]

    def transition(which, draws=(None, None)):
        both = [step_cross_entropy(q[1 - i], q[i], 6.0, which, draws[i]) - entropy(q[1 - i]) for i in (0, 1)]
        return torch.stack(both).sum(2).mean()

    def found(which):
        torch.manual_seed(5)
        return SlowVAE(prior_expectation=which)(model, batch, 0).parts["transition"]

    torch.testing.assert_close(found("mean"), transition("mean"))
    torch.testing.assert_close(found("exact"), transition("exact"))
    torch.manual_seed(5)
    draws = [one.sample() for one in q]
    torch.testing.assert_close(found("sample"), transition("sample", draws))


def log_evidence(x0, x1, var, rate):
    """log p(x0, x1) of z0 ~ N(0, 1), a Laplace step to z1 and x ~ N(z, var), on a grid."""
    z = np.linspace(-5, 5, 2001)
    z0 = stats.norm.pdf(z) * stats.norm.pdf(x0, z, math.sqrt(var))
    z1 = stats.norm.pdf(x1, z, math.sqrt(var))
    return math.log(z0 @ stats.laplace.pdf(z[:, None] - z, scale=1 / rate) @ z1 * (z[1] - z[0]) ** 2)


def best_objective(x0, x1, var, rate, which):
    """The largest value that the posteriors of both can reach."""

    def loss(numbers):
        free = torch.tensor(numbers, dtype=torch.double, requires_grad=True)
        mean0, mean1, log0, log1 = free.reshape(4, 1, 1)
        q0, q1 = Diagonal(mean0, 2 * log0), Diagonal(mean1, 2 * log1)
        squares = sum((q.mean - x).square() + q.var for q, x in ((q0, x0), (q1, x1)))
        rec = squares / (2 * var) + math.log(2 * math.pi * var)
        value = (rec + q0.kl() + step_cross_entropy(q1, q0, rate, which) - entropy(q1)).sum()
        value.backward()
        return value.item(), free.grad.numpy()

    return -optimize.minimize(loss, [x0, x1, -1.5, -1.5], jac=True, method="BFGS").fun


@pytest.mark.spec("001a/SV-03")
def test_the_exact_expectation_gives_a_bound_and_the_mean_does_not() -> None:
    evidence = log_evidence(0.5, 0.9, 0.1, 6.0)
    assert evidence == pytest.approx(-1.706493, abs=1e-4)
    assert best_objective(0.5, 0.9, 0.1, 6.0, "exact") == pytest.approx(-2.018189, abs=1e-5)
    assert best_objective(0.5, 0.9, 0.1, 6.0, "mean") == pytest.approx(-1.497387, abs=1e-5)
    for x0, x1, var, rate in [(0.0, 0.0, 0.1, 6.0), (-1.0, 1.0, 0.5, 1.0), (2.0, 1.9, 0.05, 3.0)]:
        assert best_objective(x0, x1, var, rate, "exact") <= log_evidence(x0, x1, var, rate)


@pytest.mark.spec("001a/SV-05")
def test_the_reference_weighting_is_twice_the_rate_but_for_a_constant(monkeypatch) -> None:
    without_noise(monkeypatch)
    constant = 10 * 3 * (math.log(6) - 2 * math.log(6 / 2))  # γ, latents, and the two normalisers
    for seed in (0, 1):
        model, batch = small_model(seed), sequence(2, seed=seed)
        reference = SlowVAE(reference_weighting=True)(model, batch, 0).loss
        torch.testing.assert_close(reference, SlowVAE(rate=12.0)(model, batch, 0).loss + constant)


@pytest.mark.spec("001a/SV-09")
def test_defaults_are_those_published() -> None:
    objective = SlowVAE()
    assert (objective.gamma, objective.rate, objective.beta) == (10, 6, 1)
    assert objective.prior_expectation == "mean"
    assert objective.directions == "both"
    assert not objective.reference_weighting
    assert objective.default_model().latents == 10


@pytest.mark.spec("001a/SV-12")
def test_a_sequence_is_the_sum_of_its_steps(monkeypatch) -> None:
    """Σ rec − KL_N of the first − γ Σ KL_L of the steps; two observations are one direction of a pair."""
    without_noise(monkeypatch)
    model, batch = small_model(), sequence(4)
    forward = SlowVAE(directions="forward", beta=0.5)
    result = forward(model, batch, 0)
    frames = (batch.x, *batch.others)
    q = [model.encode(x) for x in frames]
    rec = sum(model.likelihood.nll(model.decode(p.mean), x).mean() for p, x in zip(q, frames, strict=True))
    steps = [forward(model, Batch(a, 1000, others=(b,)), 0).parts["transition"] for a, b in itertools.pairwise(frames)]
    torch.testing.assert_close(result.loss, rec + 0.5 * q[0].kl().mean() + 10 * sum(steps))
    torch.testing.assert_close(result.parts["entropy"], sum(entropy(p).sum(1).mean() for p in q[1:]))
    pair = Batch(frames[0], 1000, others=frames[1:2])
    backward = replace(pair, x=frames[1], others=(frames[0],))
    both = SlowVAE(beta=0.5)(model, pair, 0).loss
    torch.testing.assert_close(both, (forward(model, pair, 0).loss + forward(model, backward, 0).loss) / 2)


@pytest.mark.parametrize(
    ("rate", "gamma", "std"), [(6.0, 10.0, 0.22868), (1.0, 1.0, 1.07046), (6.0, 1.0, 0.38656), (1.0, 10.0, 1.19859)]
)
def test_a_latent_that_is_not_used_has_the_width_of_the_spec(rate, gamma, std) -> None:
    """Section 3.7: narrower than the prior, since nothing is known of it but that it is to stay where it is."""
    logvar = torch.tensor([[2 * math.log(std)]], dtype=torch.double, requires_grad=True)
    q = Diagonal(torch.zeros_like(logvar), logvar)
    (q.kl() + gamma * (step_cross_entropy(q, q, rate) - entropy(q)).sum(1)).backward()
    # The plug-in mean does not look at the variance before the step, so all of the gradient is that of one posterior.
    assert logvar.grad.item() == pytest.approx(0, abs=2e-4)


def test_what_it_cannot_learn_from_is_said() -> None:
    with pytest.raises(ValueError, match="needs pairs: use a world of pairs"):
        SlowVAE()(small_model(), Batch(torch.zeros(2, 6, dtype=torch.double), 10), 0)
    with pytest.raises(TypeError, match="SlowVAE needs a diagonal posterior"):
        SlowVAE()(small_model(posterior="full"), sequence(2), 0)
    with pytest.raises(ValueError, match="rate is 0"):
        SlowVAE(rate=0)


@pytest.mark.spec("001a/SV-10")
def test_a_model_trained_on_pairs_encodes_single_images(tmp_path) -> None:
    model = AutoencoderConfig(latents=4, architecture=MLP((16,), (16,)))
    training = TrainingConfig(steps=6, batch_size=8, evaluate_every=3, log_every=3)
    run = train(RunConfig(Pairs(MiniSprites()), SlowVAE(), model, training), tmp_path)
    image = torch.from_numpy(MiniSprites().observe([5])).float() / 255
    assert load_model(run).encode(image).mean.shape == (1, 4)
