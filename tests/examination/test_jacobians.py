"""Decoder Jacobians against autograd, and the variance they predict on a trained model."""

import numpy as np
import pytest
import torch

from polariscope.examination.jacobians import decoder_jacobians, predicted_var
from polariscope.nets.architecture import MLP, Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.representation import Representation, represent
from polariscope.theory.linear_vae import local_var
from polariscope.training import RunConfig, TrainingConfig
from polariscope.training.loop import build_state, fit
from polariscope.training.run import build_model
from polariscope.worlds import ArrayWorld


@pytest.mark.parametrize("size", [12, 16])
def test_jacobians_agree_with_reverse_mode(size: int) -> None:
    torch.manual_seed(0)
    architecture = {} if size == 16 else {"architecture": MLP((16,), (16,))}
    model = Autoencoder(AutoencoderConfig(latents=3, **architecture), (1, size, size))
    z = torch.randn(5, 3)
    result = decoder_jacobians(model.decode, z, chunk=2)
    for i in range(5):
        expected = torch.autograd.functional.jacobian(lambda one: model.decode(one[None]).flatten(), z[i])
        torch.testing.assert_close(result[i], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.spec("003/F3-011")
def test_jacobians_agree_with_finite_differences() -> None:
    torch.manual_seed(0)
    model = Autoencoder(AutoencoderConfig(latents=3, architecture=MLP((8,), (16, 16))), (7,)).double()
    z, step = torch.randn(6, 3, dtype=torch.double), 1e-6
    result = decoder_jacobians(model.generate, z, chunk=4)
    for j, move in enumerate(step * torch.eye(3, dtype=torch.double)):
        expected = (model.generate(z + move) - model.generate(z - move)) / (2 * step)
        torch.testing.assert_close(result[:, :, j], expected, atol=1e-8, rtol=1e-6)


BETA = 0.04


@pytest.fixture(scope="module")
def trained() -> tuple[Autoencoder, Representation]:
    """A beta-VAE with a Gaussian decoder (summed squared error) on a bent sheet of two factors, and its codes.

    Both rows below hold on each of six seeds, the correlation at .977 or more, the ratios within 8 %.
    """
    u, v = np.random.default_rng(0).uniform(-1, 1, (2, 2048))
    sheet = ArrayWorld(np.stack([3 * u, v, 0.7 * u**2, 0.7 * u * v], axis=1).astype(np.float32))
    model = AutoencoderConfig(2, MLP((16, 16), (16, 16), "tanh", "tanh"), likelihood="gaussian", variance=0.5)
    training = TrainingConfig(800, 256, 2e-2, schedule="linear", seed=1, evaluate_every=0)
    config = RunConfig(sheet, BetaVAE(BETA), model, training)
    state = build_state(build_model(config), config.objective, training)
    fit(state, config.objective, sheet, training)
    return state.model, represent(state.model, sheet, count=300)


@pytest.mark.spec("003/F3-037")
def test_the_noise_of_a_gaussian_decoder_is_stationary(trained) -> None:
    """O22: σ² = β / (2|c|² + β) at every code; pooled correlation of logs above .9, median ratio within 10 %."""
    model, rep = trained
    columns = decoder_jacobians(model.generate, torch.from_numpy(rep.mean)).detach().square().sum(1).numpy()
    predicted = BETA / (2 * columns + BETA)
    assert np.corrcoef(np.log(predicted).ravel(), np.log(rep.var).ravel())[0, 1] > 0.9
    np.testing.assert_allclose(np.median(rep.var / predicted, axis=0), 1, atol=0.1)


def test_a_linear_decoder_predicts_the_closed_form() -> None:
    config = AutoencoderConfig(latents=2, architecture=Linear(), likelihood="gaussian", variance=0.1)
    model = Autoencoder(config, (3,), "diagonal")
    with torch.no_grad():
        weight = model.decoder.output[0].weight
        weight.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    result = predicted_var(model, torch.randn(4, 2), beta=1.0)
    np.testing.assert_allclose(result[0].detach(), [1 / 41, 1 / 11], rtol=1e-5)
    np.testing.assert_allclose(result[0].detach(), local_var(weight.detach().numpy(), 0.1), rtol=1e-5)


@pytest.mark.spec("002/L08")
def test_the_decoders_slope_predicts_the_encoders_variance(trained) -> None:
    model, rep = trained
    predicted = predicted_var(model, torch.from_numpy(rep.mean), beta=BETA).detach().numpy()
    assert np.corrcoef(np.log(predicted).ravel(), np.log(rep.var).ravel())[0, 1] > 0.9
    np.testing.assert_allclose(np.median(rep.var / predicted, axis=0), 1, atol=0.1)
    assert rep.var.max() / rep.var.min() > 10, "variances of one size could not tell a good prediction from a poor one"
