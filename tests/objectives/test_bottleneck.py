"""Bottleneck objectives: at the optima of the theory, with the terms that their sentences say, and resumed."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from polariscope.cli import main
from polariscope.lab import Store
from polariscope.nets.architecture import MLP, Linear
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.nets.model import Brief
from polariscope.nets.posterior import Diagonal
from polariscope.nets.property_autoencoder import BottleneckConfig, PropertyAutoencoderConfig, PropertyDecoder
from polariscope.objectives import Batch
from polariscope.objectives.annealing import Annealing
from polariscope.objectives.bottleneck import DVIB, HybridDVIB, sparse_information
from polariscope.objectives.conditional_invariance import AS_PRINTED, ConditionalInvariance, PropertyBetaVAE
from polariscope.objectives.cycles import latent_cycle, property_cycle, sample, two_domain_cycle, uniform_codes
from polariscope.objectives.stib import JITTER, STIB, Adversary, correlation_information
from polariscope.objectives.vae import VAE
from polariscope.theory import gaussian_bottleneck, sparse_bottleneck
from polariscope.theory.gaussian import entropy
from polariscope.training import RunConfig, TrainingConfig, resume, train
from polariscope.training import checkpoint as checkpoints
from polariscope.training.loop import Listeners, build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds.points.level_sets import LevelSets
from polariscope.worlds.renderers.mini_sprites import MiniSprites

LINEAR = BottleneckConfig(1, Linear(), property_widths=())
SMALL = PropertyAutoencoderConfig(4, 1, MLP((8,), (8,)), property_widths=(8,))
FLAT = Annealing(1.0)


@pytest.fixture
def two_points(monkeypatch):
    """Four examples ±√v with noise ±1, whose mean loss is the expected loss of Gaussians where it is quadratic."""

    def batch(variance: float) -> Batch:
        x, noise = torch.tensor(list(product((-1.0, 1.0), repeat=2)), dtype=torch.double).T
        monkeypatch.setattr(torch, "randn_like", lambda like, **_: noise[: len(like), None].expand_as(like))
        x = np.sqrt(variance) * x[:, None]
        return Batch(x, 4, target=x, classes=(0,))

    return batch


def minimised(objective, model, batch):
    """The model at the optimum of an objective, and its terms."""
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = objective(model, batch, 0).loss
        value.backward()
        return value

    optimiser.step(loss)
    return objective(model, batch, 0)


def built(objective, config, brief, seed=0):
    torch.manual_seed(seed)
    return objective.build(config, replace(brief, posterior=objective.posterior)).double()


@pytest.mark.spec("000/F031", "000/F029")
@pytest.mark.parametrize(("lam", "variance"), [(3.0, 0.5), (10.0, 0.2), (1.0, 0.4)])
def test_a_linear_sparse_bottleneck_has_the_signal_of_water_filling(two_points, lam, variance) -> None:
    """O14: s = max(0, 2λwv − 1), with w = 1 for the squared error of a target."""
    objective = DVIB(Annealing(lam), "sparse")
    batch = two_points(variance)
    model = built(objective, LINEAR, Brief((1,), 1))
    terms = minimised(objective, model, batch)
    signal = model.encode(batch.x).mean.square().mean().item()
    assert signal == pytest.approx(float(sparse_bottleneck.signal_variance(lam, 1.0, variance)), abs=1e-4)
    assert terms.parts["property"].item() == pytest.approx(min(variance, 1 / (2 * lam)), abs=1e-4)
    assert terms.loss.item() == pytest.approx(sparse_bottleneck.minimum_loss(lam, 1.0, variance), abs=1e-6)


@pytest.mark.spec("000/F027")
@pytest.mark.parametrize(("lam", "variance"), [(3.0, 0.5), (10.0, 0.2), (1.0, 0.4)])
def test_the_free_noise_of_a_linear_beta_vae_is_that_of_water_filling(two_points, lam, variance) -> None:
    """O14: σ² = min(1, 1/(2λwv)) and a signal of 1 − σ²; the error of a VAE of variance 1 has w = ½."""
    objective = PropertyBetaVAE(Annealing(2 * lam), property_weight=0.0)
    batch = two_points(variance)
    config = PropertyAutoencoderConfig(2, 1, Linear(), property_widths=())
    model = built(objective, config, Brief((1,), 1))
    model.property_decoder.requires_grad_(False)
    for weight in model.property_decoder.parameters():
        weight.data.zero_()  # all that is known about x goes through Z1
    minimised(objective, model, batch)
    noise = model.head.logvar.exp()[1].item()
    signal = model.encode(batch.x).mean[:, 1].square().mean().item()
    best = float(sparse_bottleneck.free_noise_variance(lam, 1.0, variance))
    assert noise == pytest.approx(best, abs=1e-4)
    assert signal == pytest.approx(1 - best, abs=1e-4)


@pytest.mark.spec("000/F031")
def test_free_noise_only_rescales_the_sparse_bottleneck(two_points) -> None:
    """log(m/σ² + 1) and the error see signal and noise as a ratio alone: the optimum is that of noise 1."""
    objective = DVIB(Annealing(3.0), "sparse")
    model = built(objective, replace(LINEAR, posterior="constant"), Brief((1,), 1))
    model.head.logvar.data.fill_(1.3)
    terms = minimised(objective, model, two_points(0.5))
    assert terms.loss.item() == pytest.approx(sparse_bottleneck.minimum_loss(3.0, 1.0, 0.5), abs=1e-6)


@pytest.mark.spec("000/F029")
def test_the_bounds_of_the_bottleneck_enclose_the_true_information() -> None:
    """On a Gaussian pair of ρ² = ½ with the code of λ = 4: divergence ≥ I(X;Z), and h(Y) − nll ≤ I(Z;Y)."""
    pair = gaussian_bottleneck.solve(1.0, np.sqrt(0.5), 1.0)
    kept, known = pair.information(4.0)
    a = float(pair.projection(4.0)[0, 0])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100_000, 1))
    y = np.sqrt(0.5) * x + np.sqrt(0.5) * rng.standard_normal((100_000, 1))
    batch = Batch(torch.from_numpy(x), len(x), target=torch.from_numpy(y), classes=(0,))
    objective = DVIB(Annealing(1.0), "sparse")
    model = built(objective, LINEAR, Brief((1,), 1))
    with torch.no_grad():
        model.head.weight.fill_(a)
        model.head.bias.zero_()
        torch.manual_seed(0)
        terms = objective(model, batch, 0)
        assert terms.parts["information"].item() == pytest.approx(kept, abs=5e-3), "exact for one Gaussian variable"
        divergence = replace(objective, information="divergence")(model, batch, 0).parts["information"].item()
        assert divergence > kept + 0.1
        best = a * np.sqrt(0.5) / (a**2 + 1)
        for slope, loss in ((best, 0.0), (0.3 * best, 0.02), (0.0, known)):
            model.property_decoder.layers.output.weight.fill_(slope)
            model.property_decoder.layers.output.bias.zero_()
            error = objective(model, batch, 0).parts["property"].item()
            bound = gaussian_bottleneck.prediction_bound(entropy([[1.0]]), entropy([[error]]))
            assert bound <= known + 5e-3
            assert bound == pytest.approx(known - loss, abs=5e-3) if loss in (0.0, known) else bound < known - loss


@pytest.mark.spec("000/F026")
def test_the_elbo_of_a_vae_is_the_evidence_where_its_posterior_is_exact() -> None:
    """Probabilistic PCA: the loss of the VAE is −log p(x) for the true posterior, and more for any other."""
    rng = np.random.default_rng(1)
    w, variance, x = rng.normal(size=(3, 2)), 0.7, rng.normal(size=3)
    cov = w @ w.T + variance * np.eye(3)
    evidence = -0.5 * (x @ np.linalg.solve(cov, x) + np.linalg.slogdet(2 * np.pi * cov)[1])
    inner = np.linalg.inv(np.eye(2) + w.T @ w / variance)
    config = AutoencoderConfig(2, Linear(), "full", "gaussian", variance)
    model = config.build(Brief((3,))).double()
    factor = np.linalg.cholesky(inner)
    with torch.no_grad():
        model.decoder.output[0].weight.copy_(torch.from_numpy(w))
        model.decoder.output[0].bias.zero_()
        model.head.linear.weight.zero_()
        model.head.linear.bias.copy_(
            torch.tensor([*(inner @ w.T @ x / variance), *np.log(np.diag(factor)), factor[1, 0]])
        )
        batch = Batch(torch.from_numpy(x).expand(200_000, 3), 200_000)
        torch.manual_seed(0)
        assert VAE()(model, batch, 0).loss.item() == pytest.approx(-evidence, abs=0.02)
        model.head.linear.bias[2] += 0.5
        assert VAE()(model, batch, 0).loss.item() > -evidence + 0.1


@pytest.mark.spec("000/F030")
def test_the_hybrid_has_both_branches_on_one_code() -> None:
    objective = HybridDVIB(Annealing(7.0), property_weight=3.0)
    model = built(objective, objective.default_model(), Brief((5,), 2))
    assert (model.property_latents, model.decoder.dense1[0].in_features) == (8, 8), "both decoders see the whole code"
    torch.manual_seed(0)
    x, y = torch.randn(6, 5).double(), torch.randn(6, 2).double()
    terms = objective(model, Batch(x, 6, target=y, classes=(0, 0)), 0)
    torch.manual_seed(0)
    torch.randn(6, 5), torch.randn(6, 2)
    posterior = model.encode(x)
    z = posterior.sample()
    kl = 0.5 * (posterior.mean**2 + posterior.var - posterior.var.log() - 1).sum(1).mean()
    reconstruction = 0.5 * (model.decode(z) - x).square().sum(1).mean()
    error = (model.property_decoder(z) - y).square().sum(1).mean()
    assert terms.parts["information"].item() == pytest.approx(kl.item())
    assert terms.parts["reconstruction"].item() == pytest.approx(reconstruction.item())
    assert terms.parts["property"].item() == pytest.approx(error.item())
    assert terms.loss.item() == pytest.approx((kl + 7 * (reconstruction + 3 * error)).item())


@pytest.mark.spec("000/F031", "000/F060")
def test_the_sparse_term_of_a_batch_is_that_of_the_theory() -> None:
    mean = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([3.0, 1.0, 0.1])
    moments = mean.square().mean(0).numpy()
    unit = Diagonal(mean, torch.zeros_like(mean))
    assert sparse_information(unit).item() == pytest.approx(sparse_bottleneck.sparse_information(moments))
    offsets = sparse_bottleneck.sparse_information(moments, [1.0, 1.0, 10.0])
    assert sparse_information(unit, 10.0).item() == pytest.approx(offsets), "10 for the last latent"
    assert ConditionalInvariance().information(unit).item() == pytest.approx(offsets)


@pytest.mark.spec("000/F061")
def test_lambda_grows_in_equal_ratios() -> None:
    """The schedule of the reference: 1.9, times 1.03 every 1000 steps from 3000 on, 1.2e4 after 300,000."""
    schedule = ConditionalInvariance().lam
    assert [schedule.at(step) for step in (0, 3999, 4000, 4999)] == pytest.approx([1.9, 1.9, 1.9 * 1.03, 1.9 * 1.03])
    ratios = np.array([schedule.at(s + 1000) / schedule.at(s) for s in range(3000, 299_000, 1000)])
    np.testing.assert_allclose(ratios, 1.03)
    assert schedule.at(300_000) == pytest.approx(1.2e4, rel=0.03)
    assert schedule.at(10**9) == schedule.at(300_000)
    recipe = Annealing.between(2, 1000, 15_000)
    assert [recipe.at(step) for step in (0, 7500, 15_000)] == pytest.approx([2, np.sqrt(2000), 1000])
    objective, model = PropertyBetaVAE(recipe), SMALL.build(Brief((5,), 3, posterior="constant"))
    batch = Batch(torch.randn(4, 5), 4, target=torch.randn(4, 3), classes=(0, 0, 0))
    assert objective(model, batch, 15_000).parts["lam"].item() == pytest.approx(1000)


def test_a_training_that_ends_long_before_its_schedule_is_noted(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "level-sets", "--world.count", "300", "--world.tested", "50", "--objective", "property-beta-vae"]
    words += ["--model.architecture.encoder-widths", "8", "--training.steps", "20", "--training.evaluate-every", "0"]
    assert main(words) == 0
    note = "note: lambda ends at 1.9 after these 20 steps; its schedule ends at 1.23e+04 after 300,000."
    assert note in " ".join(capsys.readouterr().out.split())
    schedule = ["--objective.lam.every", "1", "--objective.lam.growth", "1.3", "--objective.lam.after", "0"]
    assert main([*words, *schedule, "--objective.lam.until", "20"]) == 0
    assert "lambda ends" not in capsys.readouterr().out


# The split code and its cycles


def identity(noise: float = -80.0):
    """An autoencoder of 3 numbers, the first of which is the property: perfect in both directions, without noise."""
    config = PropertyAutoencoderConfig(3, 1, Linear(), "constant", property_widths=())
    model = config.build(Brief((3,), 1)).double()
    with torch.no_grad():
        for layer in (model.head.mean, model.property_decoder.layers.output, model.decoder.output[0]):
            layer.weight.copy_(torch.eye(*layer.weight.shape))
            layer.bias.zero_()
        model.head.logvar.fill_(noise)
    return model


@pytest.mark.spec("000/F059", "000/F108")
@pytest.mark.parametrize("norm", ["squared", "euclidean"])
def test_every_cycle_of_a_perfect_autoencoder_is_zero(norm) -> None:
    model, x = identity(), torch.randn(20, 3).double()
    sampled, _ = sample(model, model.encode(x), copies=4)
    assert property_cycle(model, sampled, norm).item() == pytest.approx(0, abs=1e-12)
    assert latent_cycle(model, sampled, norm).item() == pytest.approx(0, abs=1e-12)
    with torch.no_grad():
        model.head.mean.weight[0, 1] = 0.5  # the code of the property now also hears of Z1
    assert property_cycle(model, sampled, norm).item() > 0.05
    assert latent_cycle(model, sampled, norm).item() > 0.05


@pytest.mark.spec("000/F108")
def test_the_cycle_of_two_domains_is_zero_for_an_inverse_pair() -> None:
    x = torch.rand(9, 2, 3).double() + 0.5
    matrix = torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double()
    assert two_domain_cycle(lambda a: a @ matrix, lambda b: torch.linalg.solve(matrix.T, b.mT).mT, x).item() < 1e-10
    assert two_domain_cycle(lambda a: a, lambda b: b + 0.25, x).item() == pytest.approx(6 * 0.25), "a sum over numbers"


@pytest.mark.spec("000/F108")
def test_the_latent_cycle_grows_with_the_number_of_latents() -> None:
    """Why it was rejected: unused latents, which decode to nothing, cost their whole second moment."""

    def gap(latents: int) -> float:
        config = PropertyAutoencoderConfig(latents, 1, Linear(), "unit", property_widths=())
        model = config.build(Brief((3,), 1)).double()
        for weight in model.parameters():
            weight.data.zero_()
        torch.manual_seed(0)
        sampled, _ = sample(model, model.encode(torch.randn(500, 3).double()), copies=2)
        return latent_cycle(model, sampled).item()

    assert gap(16) == pytest.approx(4 * gap(4), rel=0.05)


@pytest.mark.spec("000/F059")
def test_codes_are_drawn_uniformly_within_two_standard_deviations() -> None:
    mean = torch.tensor([[3.0, 0.0], [-1.0, 0.0]]).double()
    drawn = uniform_codes(Diagonal(mean, torch.full_like(mean, -80.0)), 20_000, 2.0)
    reach = 2 * torch.sqrt(torch.tensor([5.0, 0.0]).double() + 1e-4)
    assert (drawn.abs() <= reach).all()
    np.testing.assert_allclose(drawn.var(0), reach.square() / 3, rtol=0.05)
    noisy = uniform_codes(Diagonal(mean, torch.zeros_like(mean)), 20_000, 2.0)
    np.testing.assert_allclose(noisy.var(0), reach.square() / 3 + 1, rtol=0.05)


@pytest.mark.spec("000/F059")
def test_a_cycle_has_three_kinds_of_rows() -> None:
    """The batch itself, codes drawn anew, and each Z0 of the batch with K new Z1."""
    model = identity(noise=0.0)
    x = torch.randn(10, 3).double()
    sampled, outputs = sample(model, model.encode(x), copies=4)
    batch, anew, around = sampled.codes.split([10, 10, 40])
    assert torch.equal(around[:, :1], batch[:, :1].repeat(4, 1)), "the noisy Z0 is kept"
    assert len({tuple(row) for row in around[:, 1:].tolist()}) == 40, "and every Z1 is new"
    assert not torch.equal(anew[:, 0], batch[:, 0])
    assert torch.equal(sampled.properties[:10], outputs)
    assert torch.equal(sampled.properties[20:], outputs.repeat(4, 1))
    np.testing.assert_allclose(sampled.observations.detach(), sampled.codes.detach())


def test_the_two_norms_are_those_of_the_reference_and_of_the_text() -> None:
    """A cycle that misses by 3 everywhere: 9, the mean square; 9, three distances of 3."""
    model = identity()
    sampled, _ = sample(model, model.encode(torch.randn(6, 3).double()), copies=2)
    missed = replace(sampled, properties=sampled.properties + 3)
    assert property_cycle(model, missed, "squared").item() == pytest.approx(9)
    assert property_cycle(model, missed, "euclidean").item() == pytest.approx(9)
    further = replace(sampled, properties=sampled.properties + 6)
    assert property_cycle(model, further, "squared").item() == pytest.approx(36)
    assert property_cycle(model, further, "euclidean").item() == pytest.approx(18)
    assert (AS_PRINTED.copies, AS_PRINTED.cycle_norm) == (1, "euclidean")
    assert (ConditionalInvariance().copies, ConditionalInvariance().cycle_norm) == (6, "squared")


@pytest.mark.spec("000/F057")
def test_the_loss_of_conditional_invariance_is_the_printed_sum() -> None:
    """I + λ (½‖x̂ − x‖² + ‖ŷ − y‖² + 5 · cycle), with the reference's weights."""
    objective = ConditionalInvariance()
    model = built(objective, SMALL, Brief((5,), 3))
    batch = Batch(torch.randn(8, 5).double(), 8, target=torch.randn(8, 3).double(), classes=(0, 0, 0))
    torch.manual_seed(3)
    terms = objective(model, batch, 50_000)
    lam = 1.9 * 1.03**47
    torch.manual_seed(3)
    posterior = model.encode(batch.x)
    assert torch.equal(posterior.var, torch.ones(8, 4)), "noise is fixed at 1"
    sampled, outputs = sample(model, posterior, 6)
    reconstruction = 0.5 * (sampled.observations[:8] - batch.x).square().sum(1).mean()
    error = (outputs - batch.target).square().sum(1).mean()
    again = model.encode(sampled.observations).sample()[:, :1]
    cycle = (model.property_decoder(again) - sampled.properties).square().sum(1).mean()
    moments = posterior.mean.square().mean(0).detach().numpy()
    rate = sparse_bottleneck.sparse_information(moments, [1, 1, 1, 10])
    expected = rate + lam * (reconstruction + error + 5 * cycle).item()
    assert terms.loss.item() == pytest.approx(expected)
    assert terms.parts["cycle"].item() == pytest.approx(cycle.item())


@pytest.mark.spec("000/F058")
def test_z0_reaches_an_observation_only_through_the_decoded_property() -> None:
    brief = Brief((5,), 1, posterior="unit")
    model = replace(SMALL, property_latents=2).build(brief).double()
    z = torch.randn(1, 4, requires_grad=True, dtype=torch.double)
    whole = torch.autograd.functional.jacobian(model.decode, z)[0, :, 0]
    value = model.property_of(z[:, :2]).detach()
    given = torch.autograd.functional.jacobian(lambda v: model.decode_property(v, z[:, 2:].detach()), value)[0, :, 0]
    slope = torch.autograd.functional.jacobian(model.property_of, z[:, :2].detach())[0, :, 0]
    np.testing.assert_allclose(whole[:, :2], given @ slope, atol=1e-12)
    assert np.linalg.matrix_rank(whole[:, :2].numpy(), tol=1e-9) == 1, "two latents, one property"
    fed = replace(SMALL, property_latents=2, decoder_input="code").build(brief).double()
    leaking = torch.autograd.functional.jacobian(fed.decode, z)[0, :, 0]
    assert np.linalg.matrix_rank(leaking[:, :2].numpy(), tol=1e-9) == 2
    with pytest.raises(ValueError, match="no property can be requested"):
        fed.decode_property(value, z[:, 2:])


def test_classes_and_numbers_are_decoded_side_by_side() -> None:
    decoder = PropertyDecoder(2, (8,), (0, 3), bounded=True).double()
    outputs = decoder(torch.randn(50, 2).double())
    assert outputs.shape == (50, 4)
    assert ((outputs[:, 0] > 0) & (outputs[:, 0] < 1)).all(), "a bounded number"
    expectation = decoder.expectation(outputs)
    np.testing.assert_allclose(expectation[:, 1:].sum(1).detach(), 1)
    target = torch.tensor([[0.5, 2.0]]).expand(50, 2)
    assert decoder.values(target)[0].tolist() == [0.5, 0, 0, 1]
    expected = (outputs[:, 0] - 0.5).square() - outputs[:, 1:].log_softmax(1)[:, 2]
    np.testing.assert_allclose(decoder.error(outputs, target).detach(), expected.detach())
    with pytest.raises(ValueError, match=r"has 2 columns, but the targets have shape \(50, 1\)"):
        decoder.error(outputs, target[:, :1])


# The adversary


@pytest.mark.spec("000/F067", "000/F025")
def test_the_penalty_of_the_adversary_is_that_of_the_theory() -> None:
    """O24: −log(1 − ρ²) for two numbers, and never negative."""
    torch.manual_seed(0)
    x = torch.randn(400, 3).double()
    y = x @ torch.randn(3, 2).double() + torch.randn(400, 2).double()
    exact = gaussian_bottleneck.correlation_information(x.numpy(), y.numpy())
    assert correlation_information(x, y).item() == pytest.approx(exact, rel=5e-3)
    rho = np.corrcoef(x[:, 0], y[:, 0])[0, 1]
    assert correlation_information(x[:, :1], y[:, :1]).item() == pytest.approx(-np.log(1 - rho**2), abs=1e-3)
    assert correlation_information(x, x).item() <= -3 * np.log(2 * JITTER), "bounded also for a copy"
    for seed in range(5):
        torch.manual_seed(seed)
        assert correlation_information(torch.randn(30, 2), torch.randn(30, 3)).item() >= 0
    assert torch.isfinite(correlation_information(torch.ones(5, 2), torch.randn(5, 1)))


@pytest.mark.spec("000/F067")
def test_the_adversary_finds_the_property_in_a_code_that_has_it() -> None:
    """Its own loss, minimised on Z1 = a bent copy of y: MI_G rises, and the inverse of the bijection is learned."""
    torch.manual_seed(0)
    objective = STIB(bijection_weight=20.0)
    y = torch.rand(256, 1) * 4 - 2
    z1 = torch.cat([y**3 / 4 + 0.02 * torch.randn(256, 1), torch.randn(256, 1)], 1)

    class Copy(torch.nn.Module):
        latents, invariant_latents = 2, 2
        property_decoder = PropertyDecoder(1, (), (0,))

        def encode(self, x):
            return Diagonal(x, torch.full_like(x, -80.0))

        def split(self, z):
            return z[:, :0], z

    adversary = Adversary(2, 1, (32,))
    batch = Batch(z1, 256, target=y, classes=(0,))
    optimiser = torch.optim.Adam(adversary.parameters(), lr=1e-2)

    def seen() -> tuple[float, float]:
        terms = objective.adversary_turn(Copy(), batch, 0, adversary)
        return correlation_information(*adversary.views(z1, y)).item(), terms.parts["bijection"].item()

    before = seen()
    for _ in range(200):
        optimiser.zero_grad()
        objective.adversary_turn(Copy(), batch, 0, adversary).players["adversary"].backward()
        optimiser.step()
    after = seen()
    assert after[0] > before[0] + 1
    assert after[1] < 0.1 < before[1]


def test_the_two_turns_of_stib_train_one_player_each() -> None:
    objective = STIB(adversary_widths=(8,))
    model = built(objective, SMALL, Brief((5,), 3)).float()
    adversary = objective.players(model, Brief(()))["adversary"].module
    batch = Batch(torch.randn(16, 5), 16, target=torch.randn(16, 3), classes=(0, 0, 0))
    first, second = (turn(model, batch, 0, adversary=adversary) for turn in objective.turns())
    assert first.loss is not None
    assert not first.players
    assert second.loss is None
    second.players["adversary"].backward()
    assert all(weight.grad is None for weight in model.parameters()), "the code is given to the adversary"
    expected = first.parts["kl"] + 0.7 * (
        first.parts["reconstruction"] + first.parts["property"] + 400 * first.parts["mi_g"]
    )
    assert first.loss.item() == pytest.approx(expected.item(), rel=1e-5)


# Runs


POINTS = LevelSets(count=400, tested=40)
RUNS = {
    "dvib": RunConfig(POINTS, DVIB(), BottleneckConfig(2, MLP((8,), (8,)), property_widths=(8,))),
    "sparse dvib with free noise": RunConfig(
        POINTS, DVIB(information="sparse"), BottleneckConfig(2, MLP((8,), (8,)), "constant", property_widths=())
    ),
    "vae-dvib": RunConfig(POINTS, HybridDVIB(), SMALL),
    "conditional-invariance": RunConfig(
        POINTS, ConditionalInvariance(Annealing(2.0, 2.0, 4, until=12), copies=2), SMALL
    ),
    "latent cycle of classes": RunConfig(
        MiniSprites(), ConditionalInvariance(cycle="latent", copies=1), replace(SMALL, likelihood="bernoulli")
    ),
    "property-beta-vae": RunConfig(POINTS, PropertyBetaVAE(), SMALL),
    "stib": RunConfig(POINTS, STIB(adversary_widths=(8,)), SMALL),
}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("config", RUNS.values(), ids=RUNS.keys())
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(tmp_path, config) -> None:
    training = TrainingConfig(12, 16, checkpoint_every=5, evaluate_every=6, log_every=4, seed=3)
    config = replace(config, training=training)
    whole = train(config, Store(tmp_path / "whole"), quiet=True)
    run = Store(tmp_path / "stopped").create(config.describe(), config.label)
    state = build_state(build_model(config), config.objective, training)
    rows = []

    def save(state) -> None:
        run.write_metrics(rows)
        checkpoints.save(state, run.checkpoint)
        raise Killed

    def record(event) -> None:
        rows.extend((event.step, event.split, term, value) for term, value in event.terms.items())

    with pytest.raises(Killed):
        fit(state, config.objective, config.world, training, Listeners(metrics=record, checkpoint=save), config.split)
    resume(run, quiet=True)
    expected, result = (checkpoints.read(one.checkpoint)[0] for one in (whole, run))
    assert expected.keys() == result.keys()
    assert all(torch.equal(value, result[name]) for name, value in expected.items())
    assert run.metrics() == whole.metrics()


@pytest.mark.spec("000/F065")
def test_held_out_errors_are_sums_over_numbers_and_means_over_examples(tmp_path) -> None:
    config = replace(RUNS["conditional-invariance"], training=TrainingConfig(3, 16, evaluate_every=3))
    run = train(config, Store(tmp_path), quiet=True)
    model = build_model(config)
    checkpoints.load(checkpoints.TrainingState(model), run.checkpoint, 3)
    numbers = POINTS.held_out
    with torch.no_grad():
        x, y = (torch.from_numpy(part(numbers)) for part in (POINTS.observe, POINTS.target_of))
        error_x = (model.reconstruct(x) - x).abs().sum(1).mean().item()
        error_y = (model.predict_property(x) - y).abs().sum(1).mean().item()
    assert run.result["held_out_x_error"] == pytest.approx(error_x, rel=1e-5)
    assert run.result["held_out_y_error"] == pytest.approx(error_y, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Annealing(0.0), "lambda starts at 0.0: it needs to be positive"),
        (lambda: Annealing(1.0, 2.0, 1), "lambda grows to inf by step 300,000, too large"),
        (lambda: Annealing(every=0), "every of lambda is 0"),
        (lambda: ConditionalInvariance(beta=-1.0), "beta is -1.0: it needs to be at least 0"),
        (lambda: ConditionalInvariance(last_offset=0.5), "last_offset is 0.5"),
        (lambda: STIB(invariance_weight=-1.0), "invariance_weight is -1.0"),
        (lambda: PropertyAutoencoderConfig(4, 5), "property_latents is 5: it needs to be 0 .all. to 4"),
        (
            lambda: ConditionalInvariance().build(replace(SMALL, posterior="diagonal"), Brief((5,), 3)),
            "noise that does not depend on the observation, and the posterior is diagonal",
        ),
        (lambda: ConditionalInvariance().build(AutoencoderConfig(), Brief((1, 16, 16), 3)), "decodes a property"),
        (lambda: STIB().build(PropertyAutoencoderConfig(4, 0), Brief((5,), 3)), "property_latents below latents"),
        (lambda: SMALL.build(Brief((5,))), "has nothing to predict"),
        (
            lambda: build_model(RunConfig(POINTS, DVIB(), AutoencoderConfig(architecture=Linear()))),
            "decodes a property from its code",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
