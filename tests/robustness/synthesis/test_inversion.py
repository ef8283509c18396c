"""Encoding by inverting a decoder."""

import pytest
import torch

from polariscope.nets.architecture import MLP, Linear
from polariscope.nets.autoencoder import Autoencoder, AutoencoderConfig
from polariscope.robustness.synthesis.inference import Search
from polariscope.robustness.synthesis.inversion import invert, invert_model
from polariscope.robustness.synthesis.likelihoods import BernoulliLikelihood
from polariscope.theory.linear_vae import optimal_posterior

LONG = Search(candidates=500, steps=250, rate=0.05)


def autoencoder(likelihood: str = "gaussian", architecture: object = None) -> Autoencoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoencoderConfig(3, architecture or MLP((16,), (16,)), likelihood=likelihood, variance=0.3)
        return Autoencoder(config, (1, 3, 3))


def images(count: int = 6) -> torch.Tensor:
    return torch.rand(count, 1, 3, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.spec("001b/C-04")
def test_the_inverse_of_a_linear_decoder_is_its_optimal_posterior_mean() -> None:
    model, x = autoencoder(architecture=Linear()).double(), images().double()
    output = model.decoder.output[0]
    optimum = optimal_posterior(
        output.weight.detach().numpy(), x.flatten(1).numpy(), gamma=0.3, bias=output.bias.detach().numpy()
    )
    inversion = invert_model(model, x, search=LONG)
    torch.testing.assert_close(inversion.codes, torch.from_numpy(optimum.mean), rtol=0, atol=1e-4)
    torch.testing.assert_close(inversion.reconstructions, model.decode(inversion.codes))


@pytest.mark.spec("001b/C-04")
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_any_autoencoder_of_the_house_is_inverted_under_its_own_likelihood(likelihood: str) -> None:
    model, x = autoencoder(likelihood), images()
    with torch.no_grad():
        mean = model.encode(x).mean
        encoder = model.likelihood.nll(model.decode(mean), x) + 0.5 * mean.square().sum(1)
    searched = invert_model(model, x, search=LONG)
    begun = invert_model(model, x, search=Search(steps=60), from_encoder=True)
    with torch.no_grad():
        losses = model.likelihood.nll(model.decode(searched.codes), x) + 0.5 * searched.codes.square().sum(1)
        better = model.likelihood.nll(model.decode(begun.codes), x) + 0.5 * begun.codes.square().sum(1)
    # The energies lack the constant of the likelihood, which is the same for all codes.
    torch.testing.assert_close(losses - losses[0], searched.losses - searched.losses[0], rtol=1e-4, atol=1e-3)
    assert (losses < encoder).all()
    assert (better <= encoder + 1e-5).all()
    assert searched.reconstructions.shape == x.shape
    assert model.training  # left as it came


def test_a_decoder_is_any_function_of_codes() -> None:
    truth = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def decode(z: torch.Tensor) -> torch.Tensor:
        return torch.cat([z, z.sin(), z.prod(1, keepdim=True)], 1)[:, None]

    search = Search(candidates=400, steps=400, rate=0.02, divergence=0.0)
    inversion = invert(decode, decode(truth), 2, search=search)
    torch.testing.assert_close(inversion.codes, truth, rtol=0, atol=1e-3)
    logits = invert(decode, decode(truth).sigmoid(), 2, likelihood=BernoulliLikelihood(), search=search)
    torch.testing.assert_close(logits.codes, truth, rtol=0, atol=1e-2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: invert(lambda z: z, torch.zeros(2, 3), 2), "makes observations of shape"),
        (lambda: invert(lambda z: z, torch.zeros(2, 3, dtype=torch.int64), 3), "need to be floats"),
        (lambda: invert(lambda z: z, torch.full((2, 3), torch.inf), 3), "NaN or infinity"),
        (lambda: invert(lambda z: z, torch.zeros(2, 3), 3, start=torch.zeros(1, 3)), "codes to start from"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        call()


def test_what_does_not_decode_is_refused() -> None:
    with pytest.raises(TypeError, match="has no decode"):
        invert_model(torch.nn.Linear(2, 2), torch.zeros(1, 2))
