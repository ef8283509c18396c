"""Intervals through modules: they hold every output, exactly so where the arithmetic is exact."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.binarised import Binarised, binarise
from polariscope.nets.classifiers import mlp
from polariscope.nets.elu_cnn import EluCNN
from polariscope.nets.model import Brief
from polariscope.nets.normalised import Normalised
from polariscope.robustness.bounds.intervals import Ball, Interval, NoRule
from polariscope.robustness.bounds.propagation import interval_distances, surroundings, verified


class Residual(nn.Module):
    """A forward of its own, with functions in place of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(1 - 2 * x)))
        x = x + functional.leaky_relu(self.second(x), 0.1)
        both = torch.cat([functional.adaptive_avg_pool2d(x, 1), functional.adaptive_max_pool2d(x, 1)], 1)
        return self.last(both.flatten(1)) * 0.5 - torch.ones(3)


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    pooled = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ELU(inplace=True), nn.MaxPool2d(2)]
    pooled += [nn.Conv2d(4, 5, 3, stride=2), nn.LeakyReLU(0.1), nn.Flatten(), nn.Dropout(), nn.Linear(5, 7), nn.Tanh()]
    result = {
        "pooled": nn.Sequential(*pooled, nn.Linear(7, 4)),
        "average": nn.Sequential(nn.Conv2d(2, 4, 2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 3)),
        "whole": nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 6), nn.Flatten()),
        "probabilities": nn.Sequential(
            nn.Flatten(), nn.Linear(128, 9), nn.Softplus(), nn.Linear(9, 3), nn.LogSoftmax(1)
        ),
        "residual": Residual(),
        "normalised": Normalised(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), (0.3, 0.2), (0.5, 0.25)),
        "binarised": Binarised(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3))),
    }
    for network in result.values():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.data.normal_()
    return {name: network.eval() for name, network in result.items()}


NETWORKS = networks()


def changed(x: Tensor, size: float, norm: str) -> Tensor:
    """Random images at a distance, at the corners of the ball where it has any."""
    noise = torch.randn_like(x)
    if norm == "linf":
        noise = size * noise.sign()
    elif norm == "l0":
        chosen = torch.rand(len(x), x[0, 0].numel()).topk(int(size), 1).indices
        mask = torch.zeros(len(x), x[0, 0].numel()).scatter(1, chosen, 1.0).reshape(len(x), 1, *x.shape[2:])
        noise = mask * (torch.rand_like(x).round() - x)
    else:
        length = noise.flatten(1).norm(1 if norm == "l1" else 2, dim=1)
        noise = size * noise / length.reshape(-1, 1, 1, 1)
    return (x + noise).clamp(0, 1)


@pytest.mark.spec("001b/B-46")
@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_output_is_inside_and_every_difference_above_its_bound(name: str, norm: str) -> None:
    torch.manual_seed(1)
    network, x = NETWORKS[name], torch.rand(5, 2, 8, 8)
    size = {"linf": 0.05, "l2": 0.4, "l1": 0.8, "l0": 2.0}[norm]
    with torch.no_grad():
        result = network(surroundings(x, torch.full((5,), size), norm))
        labels = network(x).argmax(1)
        least = result.differences(labels)
        seen = torch.stack([network(changed(x, size, norm)) for _ in range(60)])
        assert (seen >= result.lower - 1e-5).all()
        assert (seen <= result.upper + 1e-5).all()
        differences = seen.gather(2, labels.expand(60, -1)[..., None]) - seen
        assert (differences >= least - 1e-5).all()
        boxed = network(surroundings(x, torch.full((5,), 1.0 if norm == "l0" else size), "linf"))
        assert (result.lower >= boxed.lower - 1e-5).all(), "a ball lies inside of its box"


@given(st.integers(0, 1000))
@settings(max_examples=settings.default.max_examples // 20)
def test_one_layer_of_weights_is_exact(seed: int) -> None:
    """Differences of scores are reached at a corner, which bounds on the scores alone do not give."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(4, 3).double()
    layer.weight.data = torch.randn(3, 4, generator=generator).double()
    x, labels = torch.rand(1, 4, generator=generator).double(), torch.tensor([1])
    low, high = (x - 0.1).clamp(min=0), (x + 0.1).clamp(max=1)
    result = layer(Interval(low, high))
    bits = torch.arange(16)[:, None] >> torch.arange(4) & 1
    corners = torch.where(bits > 0, high, low)
    scores = layer(corners)
    torch.testing.assert_close(result.lower[0], scores.amin(0))
    torch.testing.assert_close(result.upper[0], scores.amax(0))
    torch.testing.assert_close(result.differences(labels)[0], (scores[:, 1:2] - scores).amin(0))


@pytest.mark.spec("001b/B-46")
def test_a_linear_classifier_has_its_exact_distances() -> None:
    """|f| over the dual norm of the weights, in every norm, where no pixel meets its bound."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).double()
    difference = torch.tensor([1.0, -2.0, 0.5, 0.0]).double()
    network[1].weight.data = torch.stack([difference, torch.zeros(4).double()])
    network[1].bias.data = torch.tensor([0.3, 0.0]).double()
    x = torch.full((1, 4), 0.5).double()
    gap = (x @ difference + 0.3).item()
    labels = network(x).argmax(1)
    expected = {"linf": 3.5, "l2": 5.25**0.5, "l1": 2.0}
    for norm, steep in expected.items():
        result = interval_distances(network, x, labels, norm)
        assert result[0] == pytest.approx(gap / steep, rel=1e-4)
    assert interval_distances(network, x, 1 - labels, "linf").tolist() == [0], "what is wrong has no distance"


def test_counted_pixels_are_one_more_than_what_is_verified() -> None:
    """A mean over 10 pixels that is 0.35 above its threshold holds against 3 pixels that go dark, not against 4."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(10, 1))
    network[1].weight.data.fill_(0.1)
    network[1].bias.data.fill_(-0.65)
    x = torch.ones(1, 1, 2, 5)
    assert interval_distances(network, x, torch.tensor([1]), "l0").tolist() == [4]
    colour = nn.Sequential(nn.Flatten(), nn.Linear(10, 1))
    colour.load_state_dict(network.state_dict())
    assert interval_distances(colour, torch.ones(1, 2, 1, 5), torch.tensor([1]), "l0").tolist() == [2], (
        "two channels each"
    )


def test_one_score_stands_for_two_classes() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(2, 1))
    network[1].weight.data, network[1].bias.data = torch.tensor([[1.0, 1.0]]), torch.tensor([-0.5])
    x = torch.tensor([[0.4, 0.3], [0.1, 0.1]])
    result = interval_distances(network, x, torch.tensor([1, 0]), "linf")
    assert result == pytest.approx([0.1, 0.15], abs=1e-5)


@pytest.mark.spec("001b/B-09")
def test_a_binarised_classifier_of_binary_images_has_a_distance_of_one_half() -> None:
    """However weak its network is: below 0.5 no pixel of a binary image flips."""
    torch.manual_seed(0)
    network = Binarised(EluCNN((4, 4, 4)).build(Brief((1, 14, 14), 3))).eval()
    x = torch.rand(6, 1, 14, 14).round()
    with torch.no_grad():
        labels = network(x).argmax(1)
    assert interval_distances(network, x, labels, "linf") == pytest.approx([0.5] * 6, abs=1e-6)
    grey = x * 0.3 + 0.2  # 0.2 and 0.5
    with torch.no_grad():
        labels = network(grey).argmax(1)
    assert interval_distances(network, grey, labels, "linf").max() < 0.01, "a pixel at the threshold flips at once"


@pytest.mark.spec("001b/B-09")
def test_gradients_go_straight_through_the_threshold() -> None:
    x = torch.tensor([0.2, 0.49999, 0.5, 0.8, 1.3, -2.0], requires_grad=True)
    bits = binarise(x)
    assert bits.tolist() == [0, 0, 1, 1, 1, 0]
    (bits * torch.arange(6)).sum().backward()
    assert x.grad.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_has_no_rule_is_refused_by_its_name() -> None:
    interval = Interval(torch.zeros(2, 4), torch.ones(2, 4))
    with pytest.raises(NoRule, match="gelu"):
        nn.GELU()(interval)
    with pytest.raises(NoRule, match="batch norm .* evaluation mode"):
        nn.BatchNorm1d(4).train()(interval)
    with pytest.raises(NoRule, match="dropout .* evaluation mode"):
        nn.Dropout(0.5).train()(interval)
    with pytest.raises(NoRule, match="negative negative_slope"):
        nn.LeakyReLU(-0.1)(interval)
    with pytest.raises(NoRule, match="division"):
        _ = interval / interval
    with pytest.raises(NoRule, match="branch"):
        _ = 1 if interval.mean() > 0 else 0
    with pytest.raises(NoRule, match="comparison of two"):
        _ = interval >= interval


def test_thresholds_and_products_of_intervals() -> None:
    interval = Interval(torch.tensor([[-1.0, 0.2]]), torch.tensor([[2.0, 0.4]]))
    product = interval * interval[:, [1, 0]]
    assert product.lower.tolist()[0] == pytest.approx([-0.4, -0.4])
    assert product.upper.tolist()[0] == pytest.approx([0.8, 0.8])
    above = (interval > 0.3).to(torch.float32)
    assert (above.lower.tolist(), above.upper.tolist()) == ([[0, 0]], [[1, 1]])
    below = (interval < 0.0).to(torch.float32)
    assert (below.lower.tolist(), below.upper.tolist()) == ([[0, 0]], [[1, 0]])
    assert (-interval).lower.tolist() == [[-2, pytest.approx(-0.4)]]
    assert (torch.ones(2) - interval).upper.tolist()[0] == pytest.approx([2, 0.8])


def test_bounds_of_a_deep_network_are_those_of_a_hand_propagation() -> None:
    """The propagation of centres and radii, layer by layer, written out."""
    network = mlp(3, [4], 2, seed=0)
    x = torch.rand(2, 3)
    result = network(Interval(x - 0.1, x + 0.1))
    centre, radius = x, torch.full_like(x, 0.1)
    for layer in network:
        if isinstance(layer, nn.Linear):
            centre, radius = layer(centre), radius @ layer.weight.abs().T
        elif not isinstance(layer, nn.Flatten):
            ends = layer(centre - radius), layer(centre + radius)
            centre, radius = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    torch.testing.assert_close(result.lower, centre - radius)
    torch.testing.assert_close(result.upper, centre + radius)
    assert verified(network, x, network(x).argmax(1), torch.zeros(2)).all()
    assert Ball(x, torch.ones(2), "l2").channels == 1


@pytest.mark.parametrize("how", ["function", "method"])
def test_a_probability_lies_between_those_of_the_extreme_scores(how: str) -> None:
    """Also where one score may be much larger than the others, whose sum rounding would lose beside it."""
    lower, upper = torch.tensor([[-1.0, -5, -5]]), torch.tensor([[20.0, 0, 0]])
    scores = Interval(lower, upper)
    found = torch.softmax(scores, 1) if how == "function" else scores.softmax(1)
    logs = torch.log_softmax(scores, 1) if how == "function" else scores.log_softmax(1)
    for column in range(3):
        alone = torch.arange(3) == column
        least, most = torch.where(alone, lower, upper).double(), torch.where(alone, upper, lower).double()
        torch.testing.assert_close(found.lower[:, column].double(), least.softmax(1)[:, column], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(found.upper[:, column].double(), most.softmax(1)[:, column], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(logs.lower[:, column].double(), least.log_softmax(1)[:, column], rtol=1e-5, atol=0)
    assert found.differences(torch.tensor([0]))[0, 1] < 0, "the second score may be larger than the first"
