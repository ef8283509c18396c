"""Lipschitz constants of modules: above what differences of outputs show, and exact for one layer of weights."""

import pytest
import torch
from torch import nn

from polariscope.nets.elu_cnn import EluCNN
from polariscope.nets.model import Brief
from polariscope.robustness.bounds.intervals import NoRule
from polariscope.robustness.bounds.lipschitz import Steepness, convolution_norm
from polariscope.robustness.bounds.propagation import lipschitz_distances


@pytest.mark.spec("001b/B-45")
def test_differences_of_scores_are_no_steeper_than_their_constants() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.ELU(), nn.MaxPool2d(3, 2), nn.Conv2d(4, 5, 2, padding=1)]
    network = nn.Sequential(
        *layers, nn.Sigmoid(), nn.AvgPool2d(2, 1), nn.Flatten(), nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    network[1].running_var.uniform_(0.2, 2)
    network.eval()
    x = torch.rand(40, 1, 12, 12)
    labels = torch.zeros(40, dtype=torch.int64)
    with torch.no_grad():
        constants = network(Steepness(x)).differences(labels)[0]
        other = x + 0.3 * torch.randn_like(x)
        scores, moved = network(x), network(other)
        change = ((moved[:, :1] - moved) - (scores[:, :1] - scores)).abs()
        steep = change / (other - x).flatten(1).norm(dim=1)[:, None]
    assert (steep <= constants + 1e-6).all()
    assert constants[0] == 0


def test_the_norm_of_a_convolution_is_above_its_largest_singular_value() -> None:
    torch.manual_seed(0)
    for stride, padding in ((1, 0), (2, 1), (3, 2)):
        layer = nn.Conv2d(2, 3, 3, stride, padding, bias=False).double()
        basis = torch.eye(2 * 7 * 7).double().reshape(-1, 2, 7, 7)
        matrix = layer(basis).flatten(1)
        exact = torch.linalg.matrix_norm(matrix, 2).item()
        assert exact <= convolution_norm(layer.weight.detach(), stride) < 4 * exact


@pytest.mark.spec("001b/B-45")
def test_the_distance_of_a_linear_classifier_is_exact() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    network[1].weight.data = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 3.0, 0]])
    network[1].bias.data.zero_()
    x = torch.tensor([[0.9, 0.3, 0.1, 0.0]])
    expected = min(0.6 / 2**0.5, 0.6 / 10**0.5)
    assert lipschitz_distances(network, x, torch.tensor([0]), "l2")[0] == pytest.approx(expected)
    assert lipschitz_distances(network, x, torch.tensor([1]), "l2")[0] == 0


def test_the_comparison_network_has_a_small_but_positive_constant() -> None:
    torch.manual_seed(0)
    network = EluCNN((4, 4, 4)).build(Brief((1, 12, 12), 3)).eval()
    x = torch.rand(3, 1, 12, 12)
    labels = network(x).argmax(1)
    result = lipschitz_distances(network, x, labels, "l2")
    assert (result > 0).all()
    assert (lipschitz_distances(network, x, labels, "linf") <= result).all()
    with pytest.raises(NoRule, match="gelu"):
        nn.GELU()(Steepness(x))
    with pytest.raises(NoRule, match="evaluation mode"):
        nn.BatchNorm2d(1).train()(Steepness(x))
    with pytest.raises(NoRule, match="groups"):
        nn.Conv2d(2, 2, 3, groups=2)(Steepness(torch.rand(1, 2, 8, 8)))
