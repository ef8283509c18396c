"""Architectures, posteriors and likelihoods: shapes and counts, and agreement with NumPy and torch.distributions."""

import math

import numpy as np
import pytest
import torch
from torch import distributions

from polariscope.nets import Autoencoder, AutoencoderConfig, Bernoulli, Diagonal, Full, Gaussian, Point
from polariscope.nets.architecture import (
    MLP,
    Conv,
    Deconvolution,
    FirstDeconvolution,
    LastDeconvolution,
    Linear,
    WholeMapConvolution,
)
from polariscope.nets.posterior import ConstantVarianceHead, FullHead
from polariscope.objectives import Batch
from polariscope.objectives.vae import VAE
from polariscope.subjects.layers import layer_names


def numbers(module):
    return sum(p.numel() for p in module.parameters())


# Architectures


@pytest.mark.spec("001a/SV-06")
def test_the_conv_pair_has_the_published_parameter_counts():
    model = Autoencoder(AutoencoderConfig(latents=10), (1, 64, 64))
    assert numbers(model.encoder) + numbers(model.head) == 382_932
    assert numbers(model.decoder) == 380_353
    assert numbers(model) == 763_285


@pytest.mark.spec("001a/SV-06")
def test_the_maps_of_the_conv_pair_have_the_published_shapes():
    model = Autoencoder(AutoencoderConfig(latents=10), (1, 64, 64))
    maps = {}
    for name, block in [*model.encoder.named_children(), *model.decoder.named_children()]:
        block.register_forward_hook(lambda _, __, output, name=name: maps.update({name: tuple(output.shape[1:])}))
    model(torch.rand(1, 1, 64, 64))
    assert maps == {
        "conv1": (32, 32, 32),
        "conv2": (32, 16, 16),
        "conv3": (64, 8, 8),
        "conv4": (64, 4, 4),
        "features": (256,),
        "dense1": (256, 1, 1),
        "unfold": (64, 4, 4),
        "deconv1": (64, 8, 8),
        "deconv2": (32, 16, 16),
        "deconv3": (32, 32, 32),
        "deconv4": (1, 64, 64),
    }


@pytest.mark.spec("001a/SV-06")
@pytest.mark.parametrize("architecture", [Conv(), Conv(dense_decoder=True)], ids=["unfold", "dense"])
@pytest.mark.parametrize(
    "shape",
    [(1, 16, 16), (1, 28, 28), (1, 32, 32), (1, 64, 64), (3, 64, 64), (3, 8, 8), (1, 32, 64), (3, 28, 16)],
    ids=str,
)
def test_the_conv_pair_returns_what_it_was_given_the_shape_of(architecture, shape):
    model = Autoencoder(AutoencoderConfig(latents=3, architecture=architecture), shape)
    x = torch.rand(5, *shape)
    posterior = model.encode(x)
    assert model.encoder(x).shape == (5, architecture.features(shape))
    assert posterior.mean.shape == posterior.var.shape == posterior.sample().shape == (5, 3)
    assert model.decode(posterior.sample()).shape == x.shape
    assert model(x).shape == x.shape


@pytest.mark.parametrize(("side", "base", "widths"), [(16, 4, [64, 64]), (28, 7, [64, 64]), (32, 4, [32, 64, 64])])
def test_small_images_take_the_last_stages_until_the_map_is_4_wide_or_odd(side, base, widths):
    encoder = Conv().encoder((1, side, side))
    assert [block[0].out_channels for name, block in encoder.named_children() if name != "features"] == widths
    assert encoder.features[0].kernel_size == (base, base)


def test_logits_are_not_rectified_so_pixels_can_be_dark():
    """A rectified output could not go below a probability of one half (Spec 002, section 20)."""
    torch.manual_seed(0)
    model = Autoencoder(AutoencoderConfig(latents=4), (1, 16, 16))
    assert (model.decode(torch.randn(20, 4)) < 0).any()
    assert (model.generate(torch.randn(20, 4)) < 0.5).any()


def test_the_dense_decoder_differs_from_the_unfolding_one_in_biases_only():
    unfold, dense = (Conv(dense_decoder=d).decoder(10, (1, 64, 64)) for d in (False, True))

    def weights(module):
        return sum(p.numel() for p in module.parameters() if p.ndim > 1)

    assert weights(unfold) == weights(dense)
    assert numbers(dense) - numbers(unfold) == 64 * 4 * 4 - 64


def test_kaiming_weights_and_zero_biases():
    torch.manual_seed(0)
    model = Autoencoder(AutoencoderConfig(architecture=Conv()), (1, 64, 64))
    for layer in (model.encoder.conv3[0], model.encoder.features[0], model.decoder.dense1[0]):
        fan_in = layer.weight[0].numel()
        # The sample deviation of n normal numbers is off by 1/sqrt(2 n); five times that is allowed.
        assert layer.weight.std().item() == pytest.approx(
            math.sqrt(2 / fan_in), rel=5 / math.sqrt(2 * layer.weight.numel())
        )
        assert not layer.bias.any()


@pytest.mark.spec("001a/SV-07")
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 10, 7), (6,)], ids=str)
def test_the_mlp_pair_fits_any_shape(shape):
    architecture = MLP((128, 64), (32,), "tanh", "leaky_relu")
    model = Autoencoder(AutoencoderConfig(latents=6, architecture=architecture), shape)
    size = math.prod(shape)
    assert model.dimensions == size
    assert model(torch.rand(4, *shape)).shape == (4, *shape)
    encoder = (size + 1) * 128 + (128 + 1) * 64
    decoder = (6 + 1) * 32 + (32 + 1) * size
    assert numbers(model.encoder) == encoder
    assert numbers(model.decoder) == decoder
    assert numbers(model) == encoder + (64 + 1) * 12 + decoder


@pytest.mark.spec("001a/SV-07")
def test_activations_of_the_mlp_are_the_ones_asked_for():
    model = MLP((8,), (8,), "tanh", "relu")
    hidden = model.encoder((5,))(10 * torch.randn(50, 5))
    assert hidden.abs().max() <= 1
    assert (hidden < 0).any()
    decoder = model.decoder(3, (5,))
    assert (decoder.dense1(torch.randn(50, 3)) >= 0).all()


def test_an_mlp_without_hidden_layers_is_the_linear_pair():
    for architecture in (Linear(), MLP((), ())):
        model = Autoencoder(AutoencoderConfig(latents=2, architecture=architecture, likelihood="gaussian"), (1, 4, 4))
        assert numbers(model) == (16 + 1) * 4 + (2 + 1) * 16
        z = torch.randn(3, 2)
        assert model.decode(z).shape == (3, 1, 4, 4)
        middle = model.decode((z[:1] + z[1:2]) / 2)
        assert torch.allclose(middle, (model.decode(z[:1]) + model.decode(z[1:2])) / 2, atol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        (Conv(), ["encoder.conv1", "encoder.conv2", "encoder.features", "decoder.dense1", "decoder.unfold"]),
        (Conv(True), ["encoder.conv1", "encoder.conv2", "encoder.features", "decoder.dense1", "decoder.dense2"]),
        (MLP((4, 4), (4,)), ["encoder.flatten", "encoder.dense1", "encoder.dense2", "decoder.dense1"]),
        (Linear(), ["encoder.flatten"]),
    ],
    ids=["conv", "dense", "mlp", "linear"],
)
def test_every_layer_has_a_name(architecture, expected):
    last = ["decoder.deconv1", "decoder.deconv2"] if isinstance(architecture, Conv) else ["decoder.output"]
    model = Autoencoder(AutoencoderConfig(latents=3, architecture=architecture), (1, 16, 16))
    assert layer_names(model) == expected + last


@pytest.mark.parametrize("shape", [(1, 30, 30), (1, 15, 15), (1, 16, 30), (1, 4, 4), (20,)], ids=str)
def test_images_that_do_not_halve_are_refused_with_a_way_out(shape):
    with pytest.raises(
        ValueError, match="at least 8 that divide by 4; this data has shape .*--model.architecture mlp"
    ) as error:
        Autoencoder(AutoencoderConfig(), shape)
    assert str(shape) in str(error.value)


def test_impossible_models_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="latent size is 0: it needs to be at least 1"):
        AutoencoderConfig(latents=0)
    for variance in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="decoder variance is .*: it needs to be positive"):
            AutoencoderConfig(variance=variance)
        with pytest.raises(ValueError, match="decoder variance is .*: it needs to be positive"):
            Gaussian(variance)


def test_an_observation_of_the_wrong_shape_is_refused_in_a_sentence():
    model = Autoencoder(AutoencoderConfig(latents=2), (1, 16, 16))
    with pytest.raises(ValueError, match=r"takes observations of shape \(1, 16, 16\); got \(3, 16, 16\)"):
        model.encode(torch.rand(2, 3, 16, 16))
    with pytest.raises(ValueError, match=r"got \(16, 16\)"):
        model.encode(torch.rand(1, 16, 16))


# Posteriors


def random_diagonal(n=7, d=4):
    return Diagonal(torch.randn(n, d, dtype=torch.double), torch.randn(n, d, dtype=torch.double))


def random_full(n=7, d=4):
    torch.manual_seed(1)
    head = FullHead(5, d).double()
    return head(torch.randn(n, 5, dtype=torch.double))


def test_diagonal_agrees_with_torch_distributions():
    torch.manual_seed(0)
    q = random_diagonal()
    reference = distributions.Normal(q.mean, q.var.sqrt())
    kl = distributions.kl_divergence(reference, distributions.Normal(torch.zeros(4).double(), torch.ones(4).double()))
    assert torch.allclose(q.kl_per_variable(), kl)
    assert torch.allclose(q.kl(), kl.sum(1))
    z = torch.randn(7, 4, dtype=torch.double)
    assert torch.allclose(q.log_density(z), reference.log_prob(z))


def test_full_agrees_with_torch_distributions():
    q = random_full()
    reference = distributions.MultivariateNormal(q.mean, scale_tril=q.scale_tril)
    prior = distributions.MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double())
    assert torch.allclose(q.kl(), distributions.kl_divergence(reference, prior))
    assert torch.allclose(q.var, reference.variance)


def test_the_divergence_of_a_full_posterior_in_closed_form():
    """Spec 003, sections 1.4 and 2.3: a turn costs nothing, cutting a turned covariance to its diagonal does."""

    def matrix(*rows):
        return torch.tensor(rows, dtype=torch.double)

    example = Full(matrix([1, -1]), matrix([1, 0], [2, 3])[None])
    assert example.kl().item() == pytest.approx(5.90139, abs=5e-6)
    axes, mean, turn = matrix([0.1, 0], [0, 1])[None], matrix([1, 0]), matrix([1, -1], [1, 1]) / math.sqrt(2)
    turned = Full(mean @ turn.T, torch.linalg.cholesky(turn @ axes @ axes @ turn.T))
    assert Full(mean, axes).kl().item() == pytest.approx(2.30759, abs=5e-6)
    assert turned.kl().item() == pytest.approx(2.30759, abs=5e-6)
    assert turned.var.tolist()[0] == pytest.approx([0.505, 0.505])
    assert Diagonal(turned.mean, turned.var.log()).kl().item() == pytest.approx(0.68820, abs=5e-6)


def test_full_and_diagonal_agree_where_both_can_say_it():
    torch.manual_seed(0)
    q = random_diagonal()
    same = Full(q.mean, torch.diag_embed(q.var.sqrt()))
    assert torch.allclose(same.kl(), q.kl())
    assert torch.allclose(same.var, q.var)


def test_samples_of_a_full_posterior_have_its_mean_and_covariance():
    q = random_full(n=1, d=3)
    n = 200_000
    torch.manual_seed(0)
    draws = Full(q.mean.expand(n, 3), q.scale_tril.expand(n, 3, 3)).sample()
    covariance = (q.scale_tril @ q.scale_tril.mT)[0]
    spread = covariance.diagonal()
    # Var of an entry of the sample covariance is (s_ii s_jj + s_ij^2) / n; five standard errors are allowed.
    error = ((spread[:, None] * spread + covariance.square()) / n).sqrt()
    assert ((torch.cov(draws.T) - covariance).abs() < 5 * error).all()
    assert ((draws.mean(0) - q.mean[0]).abs() < 5 * (spread / n).sqrt()).all()


def test_samples_of_a_diagonal_posterior_are_reparametrised():
    """z = mean + sqrt(var) noise, so that dz/dmean = 1 and dz/dlogvar = (z - mean) / 2 (Spec 002, section 3.3)."""
    torch.manual_seed(0)
    mean, logvar = torch.randn(50, 3, requires_grad=True), torch.randn(50, 3, requires_grad=True)
    z = Diagonal(mean, logvar).sample()
    by_mean, by_logvar = torch.autograd.grad(z.sum(), (mean, logvar))
    assert torch.equal(by_mean, torch.ones(50, 3))
    assert torch.allclose(by_logvar, (z - mean).detach() / 2, atol=1e-6)


def test_the_full_head_makes_a_cholesky_factor_that_depends_on_the_input():
    q = random_full()
    assert not q.scale_tril.triu(1).any()
    assert (q.scale_tril.diagonal(dim1=1, dim2=2) > 0).all()
    assert (q.scale_tril.tril(-1).std(0)[np.tril_indices(4, -1)] > 0).all()


def test_the_constant_head_has_one_variance_a_latent_for_all_inputs():
    head = ConstantVarianceHead(5, 3)
    with torch.no_grad():
        head.logvar.copy_(torch.tensor([0.0, -1.0, 2.0]))
    q = head(torch.randn(6, 5))
    assert torch.equal(q.logvar, head.logvar.expand(6, 3))
    assert q.mean.std(0).all()


def test_a_point_pays_no_divergence_and_has_no_spread():
    code = Point(torch.randn(4, 3))
    assert code.sample() is code.mean
    assert not code.var.any()
    assert code.kl().tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("kind", "posterior"), [("diagonal", Diagonal), ("constant", Diagonal), ("full", Full), ("point", Point)]
)
def test_the_model_takes_the_posterior_of_its_configuration_or_else_of_its_objective(kind, posterior):
    x = torch.rand(2, 6)
    auto = AutoencoderConfig(latents=3, architecture=MLP((4,), (4,)))
    assert isinstance(Autoencoder(auto, (6,), kind).encode(x), posterior)
    fixed = AutoencoderConfig(latents=3, architecture=MLP((4,), (4,)), posterior=kind)
    assert isinstance(Autoencoder(fixed, (6,), "diagonal").encode(x), posterior)


# Likelihoods


@pytest.mark.spec("001a/SV-08", "002/P05")
def test_bernoulli_is_the_cross_entropy_summed_over_pixels():
    generator = np.random.default_rng(0)
    logits, x = generator.normal(size=(5, 2, 4, 4)), generator.random((5, 2, 4, 4))
    p = 1 / (1 + np.exp(-logits))
    expected = -(x * np.log(p) + (1 - x) * np.log(1 - p)).sum((1, 2, 3))
    result = Bernoulli().nll(torch.from_numpy(logits), torch.from_numpy(x))
    assert result.numpy() == pytest.approx(expected, rel=1e-12)
    assert Bernoulli().expectation(torch.from_numpy(logits)).numpy() == pytest.approx(p)


@pytest.mark.spec("002/P05")
def test_bernoulli_stays_finite_where_the_logarithm_would_not():
    logits = torch.tensor([[200.0, -200.0, 200.0]])
    assert Bernoulli().nll(logits, torch.tensor([[1.0, 0.0, 0.0]])).item() == pytest.approx(200.0)


@pytest.mark.spec("001a/SV-08", "002/P05")
@pytest.mark.parametrize("var", [0.02, 0.5, 3.0])
def test_gaussian_is_the_squared_error_summed_over_pixels_with_its_constants(var):
    generator = np.random.default_rng(0)
    mean, x = generator.normal(size=(2, 5, 1, 4, 4))
    expected = 0.5 * (np.square(x - mean).sum((1, 2, 3)) / var + 16 * np.log(2 * np.pi * var))
    result = Gaussian(var).double().nll(torch.from_numpy(mean), torch.from_numpy(x))
    assert result.numpy() == pytest.approx(expected, rel=1e-6)
    reference = distributions.Normal(torch.from_numpy(mean), math.sqrt(var)).log_prob(torch.from_numpy(x))
    assert result.numpy() == pytest.approx(-reference.sum((1, 2, 3)).numpy(), rel=1e-6)


@pytest.mark.spec("002/P05")
@pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(0.3)], ids=["bernoulli", "gaussian"])
def test_losses_are_summed_over_pixels_not_averaged(likelihood):
    """An average over m pixels would multiply the weight of the prior by m."""
    torch.manual_seed(0)
    output, x = torch.randn(4, 1, 4, 4), torch.rand(4, 1, 4, 4)
    once = likelihood.nll(output, x)
    assert torch.allclose(likelihood.nll(output.repeat(1, 3, 2, 1), x.repeat(1, 3, 2, 1)), 6 * once)
    assert once.shape == (4,)


@pytest.mark.spec("002/P05")
def test_the_learned_variance_is_a_parameter_whose_best_value_is_the_mean_squared_error():
    torch.manual_seed(0)
    likelihood = Gaussian(2.0, learned=True)
    mean, x = torch.randn(2, 100, 8)
    with torch.no_grad():
        likelihood.logvar.copy_((x - mean).square().mean().log())
    likelihood.nll(mean, x).mean().backward()
    assert likelihood.logvar.grad.item() == pytest.approx(0, abs=1e-5)
    assert numbers(Gaussian(2.0)) == 0
    assert Gaussian(2.0).var.item() == pytest.approx(2.0)


@pytest.mark.spec("002/P05")
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("posterior", ["diagonal", "constant", "full", "point"])
def test_gradients_of_the_whole_loss_agree_with_finite_differences(likelihood, posterior):
    torch.manual_seed(0)
    architecture = MLP((5,), (5,), "tanh", "tanh")
    config = AutoencoderConfig(3, architecture, likelihood=likelihood, learn_variance=True)
    model = Autoencoder(config, (6,), posterior).double()
    batch = Batch(torch.rand(4, 6, dtype=torch.double), population=4)

    def loss():
        torch.manual_seed(1)
        return VAE()(model, batch, 0).loss

    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss(), parameters)
    step = 1e-5
    for parameter, gradient in zip(parameters, gradients, strict=True):
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            parameter += step * direction
            above = loss()
            parameter -= 2 * step * direction
            below = loss()
            parameter += step * direction
        slope = ((above - below) / (2 * step)).item()
        assert (gradient * direction).sum().item() == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (LastDeconvolution(5, 1), (2, 5, 6, 7)),
        (LastDeconvolution(5, 3), (2, 5, 6, 7)),
        (Deconvolution(5, 3), (2, 5, 6, 7)),
        (Deconvolution(5, 3).eval(), (2, 5, 6, 7)),
        (FirstDeconvolution(5, 3, (4, 2)), (2, 5, 1, 1)),
        (FirstDeconvolution(5, 3, (4, 2)), (2, 5, 2, 3)),
        (WholeMapConvolution(5, 3, (4, 2)), (2, 5, 4, 2)),
        (WholeMapConvolution(5, 3, (4, 2)), (2, 5, 6, 7)),
    ],
)
def test_faster_layers_compute_what_their_parents_compute(layer: torch.nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    parent = next(kind for kind in (torch.nn.Conv2d, torch.nn.ConvTranspose2d) if isinstance(layer, kind))
    x = torch.randn(shape, requires_grad=True)
    wanted = parent.forward(layer, x)
    torch.testing.assert_close(layer(x), wanted, atol=1e-4, rtol=1e-4)
    weights = torch.randn_like(wanted)
    inputs = [x, layer.weight, layer.bias]
    gradients = torch.autograd.grad((layer(x) * weights).sum(), inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad((wanted * weights).sum(), inputs), atol=1e-3, rtol=1e-4)
