"""Training with noise: how many images get it, how large it is, and that the network sees it before anything else."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from polariscope.nets.model import Brief
from polariscope.nets.normalised import IMAGENET, NormalisedConfig
from polariscope.nets.predictors import Encoder, LeNet, Perceptron
from polariscope.objectives.objective import Batch
from polariscope.robustness.noise_training import SEVERITIES, USUAL, NoiseTraining, composition, with_noise
from polariscope.theory.clipped_noise import clipped_moment


class Looking(nn.Module):
    """A classifier into three that keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = x.detach()
        return x.flatten(1).mean(1, keepdim=True) * self.weight


def batch(count: int, *shape: int) -> Batch:
    return Batch(torch.rand(count, *shape), count, target=torch.arange(count)[:, None] % 3, classes=(3,))


def changed(network: Looking, given: Batch) -> torch.Tensor:
    return (network.seen != given.x).flatten(1).any(1)


@pytest.mark.spec("001b/A-01")
def test_exactly_half_of_a_batch_is_noisy() -> None:
    torch.manual_seed(0)
    network, given = Looking(), batch(70, 1, 6, 6)
    for step in range(3):
        NoiseTraining()(network, given, step)
        assert changed(network, given).sum() == 35
    for share, noisy in ((0.0, 0), (0.3, 21), (1.0, 70)):
        NoiseTraining(share=share)(network, given, 0)
        assert changed(network, given).sum() == noisy


@pytest.mark.spec("001b/A-01")
def test_the_noise_has_its_clipped_size() -> None:
    torch.manual_seed(0)
    x = torch.tensor([0.0, 0.25, 0.5, 1.0]).expand(40_000, 4)
    result = (with_noise(x, "gaussian", (0.5,)) - x).square().mean(0)
    assert result.numpy() == pytest.approx(clipped_moment([0, 0.25, 0.5, 1], 0.5), rel=0.03)


@pytest.mark.spec("001b/A-02")
def test_every_image_draws_its_own_standard_deviation() -> None:
    torch.manual_seed(0)
    sds = torch.tensor([0.01, 0.02, 0.04])
    result = (with_noise(torch.full((3000, 1, 12, 12), 0.5), "gaussian", sds.tolist()) - 0.5).flatten(1).std(1)
    nearest = (result[:, None] / sds).log().abs().argmin(1)
    assert ((result / sds[nearest]) - 1).abs().max() < 0.3, "each image has one of them throughout"
    # 1000 each, with a standard deviation of 26
    assert torch.bincount(nearest, minlength=3).tolist() == pytest.approx([1000] * 3, abs=130)
    network, given = Looking(), batch(20, 1, 4, 4)
    assert NoiseTraining(sd=SEVERITIES)(network, given, 0).loss.isfinite()
    assert changed(network, given).sum() == 10


@pytest.mark.spec("001b/A-04")
def test_speckle_is_proportional_to_the_pixel() -> None:
    torch.manual_seed(0)
    pixels = torch.tensor([0.0, 0.1, 0.2, 0.4])
    x = pixels.expand(40_000, 4)
    result = (with_noise(x, "speckle", (0.2,)) - x).square().mean(0)
    assert result[0] == 0, "none on black"
    assert result.numpy() == pytest.approx((0.2 * pixels).square().numpy(), rel=0.04)
    network, given = Looking(), batch(20, 1, 4, 4)
    NoiseTraining("speckle")(network, given, 0)
    assert changed(network, given).sum() == 10
    assert USUAL["speckle"] == (0.15, 0.2, 0.35, 0.45, 0.6)


@pytest.mark.spec("001b/A-37")
def test_noise_comes_before_normalisation() -> None:
    """A normalising network sees raw pixels with clipped noise, and what it wraps sees those normalised."""
    torch.manual_seed(0)
    objective = NoiseTraining()
    network = objective.build(NormalisedConfig(Perceptron((4,)), *IMAGENET), Brief((3, 8, 8), 3))
    inside: list[torch.Tensor] = []
    network.network.register_forward_pre_hook(lambda module, given: inside.append(given[0]))
    given = batch(64, 3, 8, 8)
    objective(network, given, 0)
    mean, sd = (torch.tensor(values)[:, None, None] for values in IMAGENET)
    raw = inside[0] * sd + mean
    assert torch.allclose(raw[:32], given.x[:32], atol=1e-6)
    assert raw.min() == pytest.approx(0, abs=1e-6)
    assert raw.max() == pytest.approx(1, abs=1e-6)
    change = (raw[32:] - given.x[32:]).square().mean()
    assert change == pytest.approx(clipped_moment(given.x[32:].numpy(), 0.5).mean(), rel=0.05)


def test_a_normalised_model_can_do_what_its_network_can() -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 1, 16, 16)
    encoder = NormalisedConfig(Encoder(), (0.2,), (0.3,)).build(Brief((1, 16, 16), 3))
    assert torch.equal(encoder.encode(x), encoder.network.encode((x - 0.2) / 0.3))
    lenet = NormalisedConfig(LeNet()).build(Brief((1, 16, 16), 3))
    assert not hasattr(lenet, "encode")
    assert set(lenet.state_dict()) == {f"network.{name}" for name in lenet.network.state_dict()}
    with pytest.raises(ValueError, match="1 channels are normalised"):
        NormalisedConfig(LeNet(), *IMAGENET).build(Brief((1, 16, 16), 3))


@pytest.mark.spec("001b/A-11")
def test_parts_of_a_batch_of_seventy() -> None:
    assert composition(70, (0.5, 0.5)) == (35, 35)
    assert composition(70, (0.5, 0.3, 0.2)) == (35, 21, 14)
    assert composition(70, (0.25, 0.3, 0.45)) == (18, 21, 31), "17.5 and 38.5 are rounded up"
    assert composition(5, (0.3, 0.3, 0.3, 0.1)) == (2, 1, 2, 0), "1.5 and 4.5 as well, whichever neighbour is even"
    assert composition(15, (0.3, 0.3, 0.3, 0.1)) == (5, 4, 5, 1), "13.5 too, which falls short of it by rounding"
    with pytest.raises(ValueError, match="add up to 1"):
        composition(70, (0.5, 0.3))


@given(st.integers(0, 3000), st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_parts_add_up_and_are_off_by_less_than_an_image(count: int, weights: list[int]) -> None:
    shares = [weight / sum(weights) for weight in weights]
    parts = composition(count, shares)
    assert sum(parts) == count
    assert all(abs(part - share * count) < 1 + 1e-6 for part, share in zip(parts, shares, strict=True))
    borders = list(itertools.accumulate(parts))
    assert np.abs(np.array(borders) - count * np.cumsum(shares)).max() <= 0.5 + 1e-6


def test_what_is_no_image_or_no_noise_is_refused() -> None:
    network = Looking()
    points = Batch(torch.randn(8, 5), 8, target=torch.zeros(8, 1), classes=(3,))
    with pytest.raises(ValueError, match="bring it to"):
        NoiseTraining()(network, points, 0)
    with pytest.raises(ValueError, match="from 0 to 1"):
        NoiseTraining(share=1.5)
    with pytest.raises(ValueError, match="below 0"):
        NoiseTraining(sd=(0.1, -0.1))
