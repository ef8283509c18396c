"""Inference by search: candidates, steps, early stops and warm starts, on networks that were never trained."""

import copy

import numpy as np
import pytest
import torch

from polariscope.nets.model import Brief
from polariscope.robustness.synthesis.classifier import ABSClassifier
from polariscope.robustness.synthesis.inference import (
    CHUNK_BYTES,
    KEPT_BYTES,
    Candidates,
    Search,
    candidate_codes,
    descend,
    fits,
)
from polariscope.robustness.synthesis.likelihoods import BernoulliLikelihood, GaussianLikelihood, Likelihood
from polariscope.robustness.synthesis.variational import ABSConfig, VariationalABS
from polariscope.subjects import as_subject
from polariscope.worlds.renderers.digits import Digits
from polariscope.worlds.world import to_tensor

QUICK = Search(candidates=60, steps=8, rate=0.1)


def network(classes: int = 2, size: int = 15, search: Search = QUICK, seed: int = 0, **settings) -> VariationalABS:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = ABSConfig(latents=4, search=search, **settings)
        made = config.build(Brief((1, size, size), classes)).to(memory_format=torch.channels_last)
        with torch.no_grad():  # decoders that differ: one that was never trained is grey everywhere
            for decoder in made.decoders:
                for weight in decoder.parameters():
                    weight.mul_(2.0)
    return made.eval()


def digits(count: int = 4, size: int = 15) -> torch.Tensor:
    return to_tensor(Digits(count=count, size=size).observe(np.arange(count)))


@pytest.mark.spec("001b/B-03")
def test_inference_is_deterministic_and_no_row_depends_on_the_others() -> None:
    model, x = network(), digits()
    together, again = model.infer(x), model.infer(x)
    assert torch.equal(together.losses, again.losses)
    assert together.codes.shape == (4, 2, 4)
    assert together.reconstructions.shape == (4, 2, 1, 15, 15)
    assert together.losses.shape == together.steps.shape == (4, 2)
    alone = torch.cat([model.infer(one[None]).losses for one in x])
    torch.testing.assert_close(alone, together.losses, rtol=0, atol=1e-3)


@pytest.mark.spec("001b/B-03")
def test_a_loss_is_what_its_code_costs_and_steps_only_lower_it() -> None:
    model, x = network(), digits()
    searched = model.infer(x, search=Search(60, steps=0))
    refined = model.infer(x)
    squares = (refined.reconstructions - x[:, None]).flatten(2).square().sum(2)
    torch.testing.assert_close(refined.losses, squares + 0.5 * refined.codes.square().sum(2), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(model.decode(refined.codes), refined.reconstructions)
    assert (refined.losses <= searched.losses).all()
    assert (refined.losses < searched.losses - 0.01).any()
    assert searched.steps.max() == 0


def test_the_best_candidate_is_where_the_search_begins() -> None:
    model, x = network(), digits()
    codes = candidate_codes(60, 4)
    images = model.decode(codes[:, None].expand(-1, 2, -1)).flatten(2)  # (60, 2, pixels)
    losses = (images[None] - x.flatten(1)[:, None, None]).square().sum(3) + 0.5 * codes.square().sum(1)[None, :, None]
    best = model.infer(x, search=Search(60, steps=0))
    torch.testing.assert_close(best.losses, losses.amin(1), rtol=1e-5, atol=1e-3)
    two = model.infer(x, search=Search(60, steps=5, starts=3))
    assert (two.losses <= model.infer(x, search=Search(60, steps=5)).losses + 1e-4).all()


@pytest.mark.spec("001b/B-03")
def test_the_expanded_squares_of_candidates_are_exact_enough() -> None:
    """|G|² - 2 G·x + |x|² cancels. Its error against double precision stays below a few roundings of its terms, for
    images of any size; so the candidate taken costs at most that much more than the best."""
    generator = torch.Generator().manual_seed(0)
    for pixels in (784, 3 * 64 * 64):
        images, x = torch.rand(300, pixels, generator=generator), torch.rand(20, pixels, generator=generator)
        images[:20] = x + 1e-3 * torch.randn(20, pixels, generator=generator)  # near ones cancel most
        codes = torch.zeros(300, 1)
        bank = Candidates(lambda codes, images=images: images[: len(codes)], codes, GaussianLikelihood(), keep=True)
        features, constants = next(iter(bank.chunks(pixels)))
        expanded = (constants - x @ features.T).double() + x.double().square().sum(1)[:, None]
        exact = torch.cdist(x.double(), images.double()).square()
        size = images.double().square().sum(1) + x.double().square().sum(1)[:, None]
        bound = 8 * torch.finfo(torch.float32).eps * size
        assert ((expanded - exact).abs() <= bound).all()
        taken = expanded.argmin(1)
        assert (exact.gather(1, taken[:, None])[:, 0] <= exact.amin(1) + 2 * bound.amax(1)).all()


@pytest.mark.spec("001b/B-03")
def test_candidates_of_large_images_are_not_kept() -> None:
    """A bank of 8,000 candidates of 10 classes is kept at 28 x 28; beyond the limit chunks are decoded for each search,
    and what is there at one time stays below 500 MB at any image size."""
    assert fits(8000, 784, 10)
    assert not fits(8000, 3 * 64 * 64, 10)
    assert KEPT_BYTES + CHUNK_BYTES <= 500 * 2**20
    sizes: list[int] = []

    def decode(codes: torch.Tensor) -> torch.Tensor:
        sizes.append(codes.shape[0])
        return codes.new_zeros(1, 1).expand(len(codes), 2**18)

    codes = torch.zeros(200, 2)
    bank = Candidates(decode, codes, GaussianLikelihood(), keep=False)
    bank.nearest(torch.zeros(1, 2**18), 1.0)
    bank.nearest(torch.zeros(1, 2**18), 1.0)
    assert max(sizes) * 2**18 * 4 <= CHUNK_BYTES
    assert sum(sizes) == 400


def test_kept_and_streamed_candidates_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = digits()
    kept = network().infer(x)
    monkeypatch.setattr("polariscope.robustness.synthesis.inference.KEPT_BYTES", 0)
    monkeypatch.setattr("polariscope.robustness.synthesis.inference.CHUNK_BYTES", 7 * 4 * 225)
    streamed = network().infer(x)
    torch.testing.assert_close(streamed.losses, kept.losses, rtol=0, atol=1e-3)


def test_candidates_are_made_again_when_weights_change_and_only_then() -> None:
    model, x = network(), digits()
    first = model.infer(x).losses
    bank = model._decoded.candidates(model, QUICK)
    with as_subject(model).at_rest():  # which writes every buffer back
        model.infer(x)
    assert model._decoded.candidates(model, QUICK) is bank
    with torch.no_grad():
        model.decoders[0].deconv4.weight.mul_(0.5)
    changed = model.infer(x).losses
    assert not torch.equal(changed[:, 0], first[:, 0])
    torch.testing.assert_close(changed[:, 1:], first[:, 1:], rtol=0, atol=1e-3)
    assert copy.deepcopy(model)._decoded is not model._decoded


def test_a_warm_start_takes_the_place_of_candidates() -> None:
    model, x = network(), digits()
    codes = model.infer(x).codes
    warm = model.infer(x, codes, search=Search(60, steps=0))
    torch.testing.assert_close(warm.codes, codes)
    further = model.infer(x, codes)
    assert (further.losses <= model.infer(x).losses + 1e-4).all()


def test_rows_stop_early_one_by_one() -> None:
    """Of two quadratic bowls, the row that starts at the bottom stops at once, the other goes on; alone or together."""
    centres = torch.tensor([[0.0, 0.0], [1.0, -1.0]], dtype=torch.float64)

    def energy(codes: torch.Tensor, rows: object) -> torch.Tensor:
        return (codes - centres[rows]).square().sum(1)

    start = torch.zeros(2, 2, dtype=torch.float64)
    both = descend(energy, start, steps=200, rate=0.05, tolerance=1e-4)
    assert both.steps[0] == 5  # as long as it waits for an improvement
    assert 5 < both.steps[1] < 200
    assert float(both.values[1]) < 1e-2
    centres = centres[1:]
    alone = descend(energy, start[1:], steps=200, rate=0.05, tolerance=1e-4)
    assert torch.equal(alone.codes[0], both.codes[1])
    assert alone.steps[0] == both.steps[1]


def test_early_stops_cost_little() -> None:
    model, x = network(), digits()
    full = model.infer(x, search=Search(60, steps=40, rate=0.1))
    early = model.infer(x, search=Search(60, steps=40, rate=0.1, tolerance=0.05))
    assert early.steps.double().mean() < full.steps.double().mean()
    assert (early.losses >= full.losses - 1e-3).all()
    assert float((early.losses - full.losses).max()) < 1.0


@pytest.mark.spec("001b/B-05")
def test_the_envelope_gradient_of_autoencoders_is_that_of_finite_differences() -> None:
    """At a converged code the gradient needs no derivative of the search. Codes are searched for in double precision
    until they are converged, from the same start for all points."""
    model = network(classes=2, size=15, search=Search(candidates=50, steps=100, rate=0.05)).double()
    x = digits(1, 15).double()
    codes = model.infer(x).codes
    direction = torch.randn(4, *x.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    direction /= direction.flatten(1).norm(dim=1)[:, None, None, None]
    step = 1e-3
    moved = torch.cat([x + step * direction, x - step * direction])
    losses = model.infer(moved, codes.expand(8, -1, -1)).losses
    measured = -(losses[:4] - losses[4:]) / (2 * step)  # (4, K)
    gradient = model.input_gradient(x)[0].flatten(1)
    cosine = torch.cosine_similarity(measured, direction.flatten(1) @ gradient.T, dim=0)
    assert cosine.min() > 0.99
    (through,) = torch.autograd.grad(model(x.requires_grad_())[0, 1], x)
    torch.testing.assert_close(through.flatten(), gradient[1])


@pytest.mark.parametrize("likelihood", [GaussianLikelihood(0.3), BernoulliLikelihood()])
def test_energies_are_linear_in_the_image_up_to_a_constant(likelihood: Likelihood) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(4, 9, generator=generator, dtype=torch.float64)
    x = torch.rand(3, 9, generator=generator, dtype=torch.float64)
    parts = likelihood.constants(outputs) + likelihood.image_constants(x)[:, None] - x @ likelihood.features(outputs).T
    torch.testing.assert_close(likelihood.energy(outputs, x[:, None]), parts)


@pytest.mark.spec("001b/B-38")
def test_the_bernoulli_ablation_infers_and_gives_gradients() -> None:
    model, x = network(likelihood="bernoulli"), digits()
    inference = model.infer(x)
    means = inference.reconstructions.flatten(2)
    images = x.flatten(1)[:, None].expand_as(means)
    expected = torch.nn.functional.binary_cross_entropy(means, images, reduction="none").sum(2)
    torch.testing.assert_close(inference.losses, expected + 0.5 * inference.codes.square().sum(2), rtol=1e-4, atol=1e-2)
    gradient = model.input_gradient(x)
    torch.testing.assert_close(gradient, inference.reconstructions.logit(), rtol=1e-2, atol=1e-2)


def test_inference_works_in_any_mode_of_the_caller() -> None:
    model, x = network(), digits(2)
    plain = model(x)
    with torch.inference_mode():
        inside = model(digits(2))
    with torch.no_grad():
        without = model(x)
    assert torch.equal(plain, inside)
    assert torch.equal(plain, without)
    assert not plain.requires_grad


def test_a_decoder_that_gives_nan_is_refused_in_a_sentence() -> None:
    model = network()
    with torch.no_grad():
        model.decoders[1].deconv2[0].bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="the decoder returns NaN"):
        model(digits(2))


@pytest.mark.parametrize("settings", [{"steps": -1}, {"rate": 0.0}, {"starts": 0}, {"candidates": 2, "starts": 3}])
def test_searches_that_cannot_be_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match=r"search|starts"):
        Search(**settings)


def test_classifiers_share_weights_but_not_the_search() -> None:
    model, x = network(), digits(2)
    other: ABSClassifier = model.searching(Search(60, steps=0))
    assert (other(x) <= model(x) + 1e-4).all()
    assert other.decoders is model.decoders
    assert model.search is QUICK
