"""The deep convolutional net: its layers, its scales, and that it is the function of its table."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polariscope.kernels.empirical import tangent_kernel
from polariscope.nets.classifiers import NTKConv2d
from polariscope.nets.mnas import SWISH_SCALE, Swish, mnas_net


def images(count: int, size: int = 28, channels: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((count, channels, size, size), np.float32))


def convolutions(net: nn.Module) -> list[nn.Conv2d]:
    return [module for module in net.modules() if isinstance(module, nn.Conv2d)]


@pytest.mark.spec("004/F59")
@pytest.mark.parametrize("width", [1, 4, 7])
def test_sixteen_convolutions_and_their_parameters(width: int) -> None:
    net = mnas_net(width)
    convs = convolutions(net)
    assert len(convs) == 16
    assert [conv.out_channels // width for conv in convs] == [4, 4, 2, 6, 6, 3, 9, 9, 3, 9, 9, 5, 15, 15, 5, 20]
    assert [conv.groups // width for conv in convs if conv.groups > 1] == [4, 6, 9, 9, 15]
    assert {conv.kernel_size for conv in convs if conv.groups > 1} == {(5, 5)}
    # Pointwise weights grow as h², depthwise ones, the stem, the readout and its bias as h or not at all.
    pointwise = 4 * 2 + 2 * 6 + 6 * 3 + 3 * 9 + 9 * 3 + 3 * 9 + 9 * 5 + 5 * 15 + 15 * 5 + 5 * 20
    linear = 25 * (4 + 4 + 6 + 9 + 9 + 15) + 20
    assert sum(p.numel() for p in net.parameters()) == pointwise * width**2 + linear * width + 1


@pytest.mark.spec("004/F59")
def test_published_size_and_resolutions() -> None:
    net = mnas_net(4)
    assert sum(p.numel() for p in net.parameters()) == 11_405
    x, sides = images(1), []
    for layer in net[:7]:
        x = layer(x)
        sides.append(x.shape[-1])
    assert sides == [14, 14, 7, 7, 4, 4, 4]
    assert net(images(2)).shape == net(images(2, 14)).shape == (2, 1)
    assert mnas_net(2, channels=3)(images(2, 16, 3)).shape == (2, 1)


@pytest.mark.spec("004/F59")
def test_parameters_are_standard_normal_and_scaled_by_their_fan_in() -> None:
    net = mnas_net(8)
    assert not any(isinstance(module, nn.modules.batchnorm._NormBase) for module in net.modules())
    weights = torch.cat([conv.weight.flatten() for conv in convolutions(net)])
    assert weights.mean().item() == pytest.approx(0, abs=0.02)
    assert weights.std().item() == pytest.approx(1, abs=0.02)
    for conv in convolutions(net):
        assert isinstance(conv, NTKConv2d)
        assert conv.bias is None
        assert conv.weight_scale == pytest.approx(1 / math.sqrt(conv.weight[0].numel()))
    assert net.output.weight_scale == pytest.approx(1 / math.sqrt(160))
    assert net.output.bias.item() == 0


def test_the_activation_keeps_the_second_moment() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    second = weights @ Swish()(torch.from_numpy(nodes)).square().numpy() / weights.sum()
    assert second == pytest.approx(1, abs=1e-12)
    assert pytest.approx(1.67653, abs=1e-5) == SWISH_SCALE


@pytest.mark.spec("004/F59")
def test_it_is_the_function_of_its_table() -> None:
    """Written out once more with plain convolutions, from the weights in their order."""
    net = mnas_net(3, seed=5).double()
    weights = iter([conv.weight for conv in convolutions(net)])

    def conv(x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
        w = next(weights)
        return F.conv2d(x, w / w[0].numel() ** 0.5, None, stride, w.shape[-1] // 2, 1, groups)

    def swish(x: Tensor) -> Tensor:
        return 1.6765324703310907 * x * x.sigmoid()

    def inverted(x: Tensor, stride: int = 1) -> Tensor:
        x = swish(conv(x))
        return conv(swish(conv(x, stride, x.shape[1])))

    start = images(3).double()
    x = swish(conv(start, 2))
    x = swish(conv(swish(conv(x, groups=12))))
    x = inverted(x, 2)
    x = (x + inverted(x)) / 2**0.5
    x = inverted(x, 2)
    x = (x + inverted(x)) / 2**0.5
    features = swish(conv(x)).mean((2, 3))
    expected = features @ net.output.weight.T / 60**0.5 + net.output.bias
    torch.testing.assert_close(net(start), expected, atol=1e-12, rtol=1e-12)


def test_inputs_do_not_mix_and_kernels_agree() -> None:
    net = mnas_net(2)
    x = images(5, 14)
    torch.testing.assert_close(net(x)[2:3], net(x[2:3]), atol=1e-5, rtol=1e-5)
    whole = tangent_kernel(net, x, kind="trace", route="contraction")
    torch.testing.assert_close(tangent_kernel(net, x, kind="trace", route="structured"), whole, atol=1e-4, rtol=1e-4)
    features = net[:-1](x)
    last = features @ features.T / 40 + 1
    torch.testing.assert_close(tangent_kernel(net, x, kind="last_layer"), last, atol=1e-5, rtol=1e-5)


def test_a_seed_means_the_same_weights_and_disturbs_nothing() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second, other = mnas_net(seed=3), mnas_net(seed=3), mnas_net(seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.stem[0].weight, other.stem[0].weight)


@pytest.mark.parametrize("arguments", [{"width": 0}, {"channels": 0}])
def test_bad_sizes_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        mnas_net(**arguments)
