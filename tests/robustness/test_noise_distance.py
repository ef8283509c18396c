"""Noise that misleads a classifier: a linear one by its closed form, and what has no distance."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm as normal
from torch import nn

from polariscope.robustness.noise_distance import noise_distances

N = 784


@pytest.mark.spec("001b/A-18")
def test_a_linear_classifier_follows_its_closed_form() -> None:
    """P(norm ≤ t) = 1 − Φ(d √N / t): a quarter of all directions mislead below d √N / 0.674."""
    torch.manual_seed(0)
    w = nn.functional.normalize(torch.randn(N), dim=0)
    distance, x = 0.02, torch.full((4000, N), 0.5)  # near enough that nothing is clipped where it is looked at
    result = noise_distances(lambda at: (at - 0.5) @ w + distance, x, torch.ones(len(x), dtype=torch.int64))
    for share in (0.1, 0.25, 0.4):
        t = distance * math.sqrt(N) / -normal.ppf(share)
        assert (result.distances <= t).mean() == pytest.approx(share, abs=0.03)
    assert result.distances.min() > distance, "nothing is nearer than the boundary"


@pytest.mark.spec("001b/A-18")
def test_a_single_pixel_decides() -> None:
    """Half of the directions move it the wrong way, and mislead at no length."""
    x = np.full((200, N), 0.5, np.float32)
    x[150:, 0] = 0.9  # told wrongly without noise
    result = noise_distances(lambda at: at[:, 0] - 0.6, x, np.zeros(200, int), seed=3)
    assert (result.distances[150:] == 0).all()
    reached = np.isfinite(result.distances[:150])
    assert reached.mean() == pytest.approx(0.5, abs=0.15)
    assert (result.distances[:150][reached] >= 0.1 - 1e-6).all()
    assert result.wrong == 0.25
    again = noise_distances(lambda at: at[:, 0] - 0.6, x, np.zeros(200, int), seed=3, batch_size=7)
    assert again.distances == pytest.approx(result.distances, rel=1e-6)
    other = noise_distances(lambda at: at[:, 0] - 0.6, x, np.zeros(200, int), seed=4)
    assert not np.array_equal(result.distances, other.distances)


@pytest.mark.spec("001b/A-18")
def test_a_median_may_be_infinite_and_says_so() -> None:
    """Gaussian noise drives a mean to one half at most: a threshold of .55 is out of reach."""
    x, y = np.full((20, 1, 28, 28), 0.4, np.float32), np.zeros(20, int)
    never = noise_distances(lambda at: at.mean((1, 2, 3)) - 0.55, x, y)
    assert never.median == math.inf
    assert never.unreachable == 1
    document = never.findings()
    assert document.json()["noise_distance"]["epsilon_star"] is None
    assert "correctly at any length" in document.json()["undefined"]["epsilon_star"]
    reached = noise_distances(lambda at: at.mean((1, 2, 3)) - 0.45, x, y)
    assert math.isfinite(reached.median)
    assert reached.findings().json()["noise_distance"]["epsilon_star"] == reached.median


def test_the_search_goes_far_enough_for_large_images() -> None:
    """Noise of 0.5 on 3 x 224 x 224 pixels has a norm of 135 and a length of 194 before it is clipped."""
    torch.manual_seed(0)
    x = torch.rand(4, 3, 224, 224)

    def far(at: torch.Tensor) -> torch.Tensor:
        """Told by how far an image is from where it was."""
        return (at - x[: len(at)]).flatten(1).norm(dim=1) - 135.0

    result = noise_distances(far, x, torch.zeros(4, dtype=torch.int64))
    assert result.distances == pytest.approx([135] * 4, rel=1e-4)


@pytest.mark.spec("001b/A-05")
def test_uniform_noise_is_as_good_as_gaussian() -> None:
    torch.manual_seed(0)
    look, x = torch.randn(N, 40) / math.sqrt(N), torch.full((600, N), 0.5)

    def energy(at: torch.Tensor) -> torch.Tensor:
        return ((at - 0.5) @ look).square().sum(1) - 0.4

    gaussian, uniform = (noise_distances(energy, x, torch.zeros(600, dtype=torch.int64), kind).median
                         for kind in ("gaussian", "uniform"))  # fmt: skip
    assert 1 < gaussian < 10
    assert uniform == pytest.approx(gaussian, rel=0.05)
    assert uniform != gaussian


def test_the_network_is_left_as_it_was() -> None:
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)).train()
    network[2].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    x, state = torch.rand(8, 1, 4, 4), torch.get_rng_state()
    noise_distances(network, x, torch.zeros(8, dtype=torch.int64))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [part.training for part in network] == [True, True, False, True]
    assert torch.equal(torch.get_rng_state(), state)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="pixels from 0 to 1, and these go from"):
        noise_distances(lambda at: at, torch.randn(4, 3), [0, 1, 2, 0])
    with pytest.raises(ValueError, match="a class each"):
        noise_distances(lambda at: at, torch.rand(4, 3), [0, 1])
    with pytest.raises(ValueError, match="labels go from 0 to 3"):
        noise_distances(lambda at: at, torch.rand(4, 3), [0, 1, 2, 3])
    with pytest.raises(TypeError, match="these are uint8"):
        noise_distances(lambda at: at, torch.zeros(4, 3, dtype=torch.uint8), [0] * 4)
    with pytest.raises(ValueError, match="'gaussian', 'uniform'"):
        noise_distances(lambda at: at, torch.rand(4, 3), [0] * 4, "pink")
