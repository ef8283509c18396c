"""The assignment layer: matchings, the slope of the interpolated loss, and that one can learn through it."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polariscope.nets.assignment import Assignment, cheapest_matching, hamming_loss


def test_the_matching_is_the_cheapest_of_all() -> None:
    cost = torch.randn(6, 4, 4, generator=torch.Generator().manual_seed(0))
    matching = cheapest_matching(cost)
    assert (matching.sum(1) == 1).all()
    assert (matching.sum(2) == 1).all()
    every = torch.stack([torch.eye(4)[list(p)] for p in permutations(range(4))])
    best = (cost[:, None] * every).sum((2, 3)).min(1).values
    torch.testing.assert_close((cost * matching).sum((1, 2)), best)


@pytest.mark.spec("003/F3-085")
def test_the_gradient_is_zero_exactly_where_the_push_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    cost = torch.randn(200, 4, 4, generator=generator, requires_grad=True)
    slope = torch.randn(200, 4, 4, generator=generator)
    layer = Assignment(strength=0.5)
    matching = layer(cost)
    (matching * slope).sum().backward()
    assert cost.grad is not None
    same = (cheapest_matching(cost + 0.5 * slope) == matching).all(2).all(1)
    zero = (cost.grad == 0).all(2).all(1)
    assert 20 < int(same.sum()) < 180
    assert (same == zero).all()


@pytest.mark.spec("003/F3-085")
def test_the_gradient_is_the_slope_of_the_interpolated_loss() -> None:
    """f(c) = [min_y (c + λg)·y − min_y c·y] / λ is piecewise linear, and the layer returns its gradient."""
    generator = torch.Generator().manual_seed(2)
    cost = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    slope = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    strength = 2.0

    def interpolated(c: Tensor) -> float:
        pushed = c + strength * slope
        return float(((pushed * cheapest_matching(pushed)).sum() - (c * cheapest_matching(c)).sum()) / strength)

    leaf = cost.clone().requires_grad_()
    (Assignment(strength)(leaf) * slope).sum().backward()
    steps = 1e-5 * torch.eye(25, dtype=torch.float64).reshape(25, 5, 5)
    numeric = [(interpolated(cost + h) - interpolated(cost - h)) / 2e-5 for h in steps]
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.flatten(), numeric, atol=1e-8)
    assert leaf.grad.abs().max() > 0


def key_points(count: int, points: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Key points on a fixed shape, turned and jittered, and the same in another order; which is which."""
    generator = np.random.default_rng(seed)
    shape = np.stack([np.cos(np.arange(points)), np.arange(points) / points], axis=1)
    angle = generator.uniform(-0.6, 0.6, (count, 2))
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], axis=-1).reshape(count, 2, 2, 2)
    first, second = ((shape @ turn[:, i]) + generator.normal(scale=0.02, size=(count, points, 2)) for i in (0, 1))
    order = generator.permuted(np.tile(np.arange(points), (count, 1)), axis=1)
    second = np.take_along_axis(second, order[:, :, None], axis=1)
    truth = nn.functional.one_hot(torch.from_numpy(order), points).mT.float()
    return torch.from_numpy(first).float(), torch.from_numpy(second).float(), truth


@pytest.mark.spec("003/F3-085")
def test_learning_through_the_layer_raises_the_accuracy_from_chance() -> None:
    points = 6
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # A network for each side: untrained, their features have nothing to do with each other.
        sides = nn.ModuleList(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 16)) for _ in range(2))
    layer = Assignment(strength=20.0)

    def match(*pair: Tensor) -> Tensor:
        a, b = (
            nn.functional.normalize(side(x - x.mean(1, keepdim=True)), dim=2)
            for side, x in zip(sides, pair, strict=True)
        )
        return layer(-(a @ b.mT))

    def accuracy() -> float:
        first, second, truth = key_points(200, points, seed=99)
        return float((match(first, second).detach() * truth).sum() / truth.sum())

    before = accuracy()
    optimiser = torch.optim.Adam(sides.parameters(), lr=1e-2)
    for step in range(150):
        first, second, truth = key_points(16, points, step)
        optimiser.zero_grad()
        hamming_loss(match(first, second), truth).backward()
        optimiser.step()
    assert before < 2 / points
    assert accuracy() > 0.8


def test_bad_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="square"):
        Assignment()(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="finite"):
        Assignment()(torch.full((2, 2), torch.nan))
    with pytest.raises(ValueError, match="positive"):
        Assignment(strength=0)
