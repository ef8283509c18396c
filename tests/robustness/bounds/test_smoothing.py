"""Randomised smoothing: votes, their certificate, and how often it may be wrong."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from torch import Tensor, nn

from polariscope.nets.model import Brief, models
from polariscope.nets.smoothed import BLOCK, Smoothed
from polariscope.robustness.bounds import BoundSettings, bounds
from polariscope.robustness.bounds.smoothing import smoothed_predictions
from polariscope.theory.smoothing import clopper_pearson, smoothed_radius


class HalfSpace(nn.Module):
    """Class 1 where the first pixel is above 0.4, at a known distance from every image."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.zeros(len(x)), x.flatten(1)[:, 0] - 0.4], 1)


@pytest.mark.spec("001b/B-45")
def test_the_radius_of_a_linear_model_approaches_its_distance_from_below() -> None:
    """With noise that is not clipped the share of votes is Φ(d / sd), and the radius at p = Φ(d / sd) is d."""
    model = Smoothed(HalfSpace(), 0.25, clip=False).eval()
    x = torch.tensor([[0.6, 0.0], [0.9, 0.0], [0.1, 0.0]])
    y, exact = torch.tensor([1, 1, 0]), np.array([0.2, 0.5, 0.3])
    few, many = (bounds(model, x, y, "l2", BoundSettings(draws=draws, alpha=0.01)) for draws in (200, 20_000))
    assert (many.lower <= exact + 1e-6).all()
    assert (few.lower < many.lower).all()
    assert many.lower == pytest.approx(exact, rel=0.05)
    assert many.confidence == 0.99
    assert many.findings().json()["confidence"] == 0.99
    assert bounds(model, x, 1 - y, "l2").lower.tolist() == [0, 0, 0], "a wrong class has no radius"


@pytest.mark.spec("001b/B-45")
@pytest.mark.parametrize("distance", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("draws", [50, 1000])
def test_the_radius_is_above_the_distance_no_more_often_than_alpha(distance: float, draws: int) -> None:
    """Summed exactly over all counts of votes."""
    alpha, p = 0.05, norm.cdf(distance / 0.25)
    counts = np.arange(draws + 1)
    above = smoothed_radius(clopper_pearson(counts, draws, alpha), 0.25) > distance + 1e-12
    assert binom.pmf(counts, draws, p)[above].sum() <= alpha


def test_an_undecided_image_is_left_undecided() -> None:
    model = Smoothed(HalfSpace(), 0.25, clip=False).eval()
    x, y = torch.tensor([[0.4, 0.0], [0.9, 0.0]]), torch.tensor([1, 1])
    result = bounds(model, x, y, "l2", BoundSettings(draws=500))
    assert result.abstained.tolist() == [True, False]
    assert result.lower[0] == 0
    assert smoothed_predictions(model, x).tolist() == [-1, 1]
    assert {entry.name: entry.value for entry in result.findings().parts[0].entries}["abstained"] == 0.5


def test_the_l2_radius_is_worth_less_in_other_norms() -> None:
    model = Smoothed(HalfSpace(), 0.25, clip=False).eval()
    x, y = torch.full((1, 100), 0.9), torch.tensor([1])
    radius = bounds(model, x, y, "l2").lower[0]
    assert bounds(model, x, y, "linf").lower[0] == pytest.approx(radius / 10)
    assert bounds(model, x, y, "l0").lower[0] == 1, "one pixel has room for a change of 0.9, which is longer"


def test_votes_are_the_same_for_every_batch_and_every_number_of_draws() -> None:
    torch.manual_seed(0)
    model = Smoothed(nn.Sequential(nn.Flatten(), nn.Linear(9, 3)), 0.5, draws=40).eval()
    x = torch.rand(5, 1, 3, 3)
    votes = model.votes(x, 3 * BLOCK + 5)
    assert votes.sum(1).tolist() == [3 * BLOCK + 5] * 5
    torch.testing.assert_close(votes[2:3], model.votes(x[2:3], 3 * BLOCK + 5))
    assert (votes >= model.votes(x, 2 * BLOCK)).all(), "more draws add votes"
    assert not torch.equal(votes, model.votes(x, 3 * BLOCK + 5, seed=1))
    torch.testing.assert_close(model(x).exp(), (model.votes(x, 40) + 1 / 3) / 41)


def test_gradients_are_those_of_mean_probabilities_and_training_sees_one_noisy_copy() -> None:
    torch.manual_seed(0)
    model = models.build({"name": "smoothed", "of": {"name": "mlp"}, "draws": 8}).build(Brief((1, 3, 3), 3))
    x = torch.rand(4, 1, 3, 3, requires_grad=True)
    model.eval()(x)[:, 0].sum().backward()
    assert x.grad.abs().max() > 0
    seen: list[Tensor] = []
    model.network.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].detach()))
    model.train()(x)
    assert len(seen) == 1
    assert seen[0].shape == x.shape
    assert not torch.equal(seen[0], x)
    assert seen[0].min() >= 0
    assert seen[0].max() <= 1
    with pytest.raises(ValueError, match="needs to be positive"):
        models.build({"name": "smoothed", "sd": 0.0})
