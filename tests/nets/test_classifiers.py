"""Classifiers: their sizes, their parametrisations, and that a seed means the same weights."""

import pytest
import torch
from torch import nn

from polariscope.nets.classifiers import Weights, alexnet, freeze_all_but_last, lenet, mlp
from polariscope.nets.model import Brief
from polariscope.nets.predictors import DigitNet


def size(network: nn.Module, trained: bool = False) -> int:
    return sum(p.numel() for p in network.parameters() if p.requires_grad or not trained)


@pytest.mark.spec("000/F080")
@pytest.mark.parametrize(
    ("width", "parameters"),
    [(1, 60_074), (2, 238_026), (5, 1_479_210), (10, 5_905_610), (25, 36_868_010), (60, 212_265_610)],
)
def test_lenet_sizes(width, parameters):
    with torch.device("meta"):
        assert size(lenet(width)) == parameters == 58_944 * width**2 + 1_120 * width + 10
        assert size(lenet(width, (3, 28, 28))) == parameters + 108 * width


@pytest.mark.spec("000/F080")
def test_the_net_for_digits_is_the_published_one():
    """832 + 51,264 weights of two convolutions, 3136 x 1024 and 1024 x 10 of two dense layers, with their biases."""
    net = DigitNet().build(Brief((1, 28, 28), 10))
    assert size(net) == 832 + 51_264 + 3_212_288 + 10_250
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert DigitNet((4, 8), 16).build(Brief((3, 17, 12), 5))(torch.zeros(2, 3, 17, 12)).shape == (2, 5)


def test_lenet_at_other_sizes():
    assert size(lenet(shape=(3, 32, 32))) == 81_302
    assert lenet(shape=(1, 14, 14))(torch.zeros(2, 1, 14, 14)).shape == (2, 10)
    with pytest.raises(ValueError, match="at least 10 x 10"):
        lenet(shape=(1, 9, 28))
    with pytest.raises(ValueError, match="width"):
        lenet(0)


@pytest.mark.spec("000/F081")
@pytest.mark.parametrize(
    ("width", "parameters"), [(1, 57_044_810), (2, 228_032_138), (3, 512_961_994), (4, 911_834_378)]
)
def test_alexnet_sizes(width, parameters):
    with torch.device("meta"):
        network = alexnet(width)
        assert size(network) == parameters
        assert network(torch.empty(1, 3, 224, 224)).shape == (1, 10)


@pytest.mark.spec("000/F082")
@pytest.mark.parametrize("width", [1, 2, 5])
def test_last_layer_sizes(width):
    assert size(freeze_all_but_last(lenet(width)), trained=True) == 840 * width + 10


def test_a_seed_means_the_same_weights_and_disturbs_nothing():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second, other = lenet(seed=3), lenet(seed=3), lenet(seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.conv1.weight, other.conv1.weight)


@pytest.mark.spec("000/F016")
def test_standard_and_ntk_are_one_law_with_different_gradients():
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    hidden = (128,)
    # E f² = 2 E[relu(z)²] + 0.5 with z of variance 2 |x|²/8 + 0.5
    var = 2 * (2 * x.square().mean() + 0.5) / 2 + 0.5
    for kind in ("standard", "ntk"):
        weights = Weights(kind, weight_var=2.0, bias_var=0.5)
        drawn = torch.cat([mlp(8, hidden, 200, weights, seed=s)(x).detach()[0] for s in range(20)])
        assert drawn.square().mean().item() == pytest.approx(var.item(), rel=0.12)
    # the same function, written both ways: the gradient of the ntk weights is smaller by the scale
    scaled = mlp(8, hidden, 1, Weights("ntk", 2.0, 0.0), seed=0)
    plain = mlp(8, hidden, 1, Weights("standard", 2.0, 0.0), seed=0)
    with torch.no_grad():
        for name in ("dense1", "output"):
            getattr(plain, name).weight.copy_(getattr(scaled, name).weight * getattr(scaled, name).weight_scale)
    assert torch.allclose(scaled(x), plain(x), atol=1e-6)
    scaled(x).backward()
    plain(x).backward()
    assert scaled.dense1.weight_scale == pytest.approx((2 / 8) ** 0.5)
    expected = plain.dense1.weight.grad * scaled.dense1.weight_scale
    assert torch.allclose(scaled.dense1.weight.grad, expected, atol=1e-6)


@pytest.mark.spec("000/F016")
def test_torch_parametrisation_is_torchs_own():
    network = lenet(4)
    for layer in (network.conv2, network.dense1):
        bound = layer.weight[0].numel() ** -0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.var().item() == pytest.approx(bound**2 / 3, rel=0.05)
        assert layer.bias.abs().max() <= bound


@pytest.mark.spec("000/F083")
def test_the_kernel_lenet_has_average_pools_and_scaled_layers():
    network = lenet(2, pooling="average", weights=Weights("ntk"))
    assert sum(isinstance(m, nn.AvgPool2d) for m in network.modules()) == 2
    assert not any(isinstance(m, nn.MaxPool2d) for m in network.modules())
    assert network.conv2.weight.var().item() == pytest.approx(1, rel=0.1)
    assert network.conv2.weight_scale == pytest.approx((2 / (12 * 9)) ** 0.5)
    assert all(p.ndim > 1 for p in network.parameters())  # no biases


@pytest.mark.spec("000/F011")
def test_backpropagation_agrees_with_finite_differences():
    network = mlp(4, (6, 5), 2, seed=1).double()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = {name: p.detach().requires_grad_() for name, p in network.named_parameters()}

    def loss(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(network, dict(zip(parameters, values, strict=True)), (x,)).square().sum()

    assert torch.autograd.gradcheck(loss, tuple(parameters.values()))


@pytest.mark.parametrize(
    "wrong", [lambda: Weights("lazy"), lambda: lenet(pooling="mean"), lambda: freeze_all_but_last(nn.Conv2d(1, 1, 1))]
)
def test_wrong_settings_are_sentences(wrong):
    with pytest.raises(ValueError):  # noqa: PT011
        wrong()
