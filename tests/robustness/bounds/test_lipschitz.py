"""Lipschitz constants of modules: above what differences of outputs show, and exact for one layer of weights."""

import copy
from fractions import Fraction

import pytest
import torch
from torch import nn

from polariscope.nets.elu_cnn import EluCNN
from polariscope.nets.model import Brief
from polariscope.robustness.bounds import bounds
from polariscope.robustness.bounds.intervals import NoRule
from polariscope.robustness.bounds.lipschitz import Steepness, convolution_norm
from polariscope.robustness.bounds.propagation import lipschitz_distances
from polariscope.theory.halfspaces import Norm


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
    for stride, padding, dilation in ((1, 0, 1), (2, 1, 1), (3, 2, 1), (2, 1, 2), (2, 2, 3)):
        layer = nn.Conv2d(2, 3, 3, stride, padding, dilation, bias=False).double()
        layer.weight.data.abs_()  # all of one sign, which is nearest to the bound
        basis = torch.eye(2 * 7 * 7).double().reshape(-1, 2, 7, 7)
        matrix = layer(basis).flatten(1)
        exact = torch.linalg.matrix_norm(matrix, 2).item()
        assert exact <= convolution_norm(layer.weight.detach(), stride, dilation) < 4 * exact


@pytest.mark.parametrize(
    "layer",
    [
        nn.AvgPool2d(3, 3, padding=1, count_include_pad=False),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.MaxPool2d(2, 2, dilation=2),
    ],
    ids=str,
)
def test_pooling_at_an_edge_is_no_steeper_than_its_constant(layer: nn.Module) -> None:
    for size in (4, 5):
        x, basis = torch.full((1, 1, size, size), 0.5), torch.eye(size * size).reshape(-1, 1, size, size)
        outputs = (layer(x + basis) - layer(x)).flatten(1)
        steepest = (
            outputs.norm(dim=1).max() if isinstance(layer, nn.MaxPool2d) else torch.linalg.matrix_norm(outputs, 2)
        )
        assert steepest <= layer(Steepness(x)).whole + 1e-6


def test_numbers_that_a_broadcast_repeats_count_as_often() -> None:
    column = torch.tensor([[2.0]])
    for repeated in (lambda x: x * torch.ones(9), lambda x: x + torch.zeros(9), lambda x: x - torch.zeros(9)):
        change = repeated(column + 1) - repeated(column)
        assert repeated(Steepness(column)).whole == pytest.approx(float(change.norm()))
    both = Steepness(column) + Steepness(torch.zeros(1, 9))
    assert both.whole == pytest.approx(4)


@pytest.mark.spec("001b/B-45")
def test_the_distance_of_a_linear_classifier_is_exact() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    network[1].weight.data = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 3.0, 0]])
    network[1].bias.data.zero_()
    network, x = network.double(), torch.tensor([[0.9, 0.3, 0.1, 0.0]]).double()
    expected = min(0.6 / 2**0.5, 0.6 / 10**0.5)
    assert lipschitz_distances(network, x, torch.tensor([0]), "l2")[0] == pytest.approx(expected)
    assert lipschitz_distances(network, x, torch.tensor([1]), "l2")[0] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_makes_no_distance_too_large(dtype: torch.dtype) -> None:
    """The exact distance of a linear classifier, in rational arithmetic, from the weights as they are stored."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(40, 2)).to(dtype)
    weight, bias = network[1].weight.data, network[1].bias.data
    bias += 1e3  # large scores lose the digits of their difference
    x = torch.rand(200, 40, dtype=dtype)
    row = [Fraction(a.item()) - Fraction(b.item()) for a, b in zip(weight[0], weight[1], strict=True)]
    square, apart = sum(one * one for one in row), Fraction(bias[0].item()) - Fraction(bias[1].item())
    gaps = [sum(a * Fraction(b.item()) for a, b in zip(row, one, strict=True)) + apart for one in x]
    labels = torch.tensor([int(gap < 0) for gap in gaps])
    bounds = lipschitz_distances(network, x, labels, "l2")
    assert all(Fraction(bound) ** 2 * square <= gap * gap for bound, gap in zip(bounds.tolist(), gaps, strict=True))
    assert (bounds > 0).mean() > 0.9, "and they still say something"


@pytest.mark.parametrize("norm", ["linf", "l2", "l0"])
def test_scores_that_lose_their_digits_certify_nothing(norm: Norm) -> None:
    """Hidden values of 100,000 cancel in the scores, whose order is a matter of rounding on some images."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    network[1].bias.data += 1e5
    network[3].bias.data = -network[3](network[1].bias.data[None]).detach()[0]
    x = torch.rand(2000, 1, 4, 4)
    labels = network(x).argmax(1)
    exact = copy.deepcopy(network).double()(x.double()).argmax(1)
    assert (labels != exact).any()
    certified = torch.from_numpy(bounds(network, x, labels, norm).lower > 0)
    assert not (certified & (labels != exact)).any()


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
    with pytest.raises(NoRule, match="divisor of its own"):
        nn.AvgPool2d(2, divisor_override=1)(Steepness(torch.rand(1, 1, 4, 4)))
    with pytest.raises(NoRule, match="groups"):
        nn.Conv2d(2, 2, 3, groups=2)(Steepness(torch.rand(1, 2, 8, 8)))
