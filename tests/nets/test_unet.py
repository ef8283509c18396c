"""The U-Net of the work: its sizes, its parameters, what a pixel sees, and its gradients."""

import pytest
import torch

from polariscope.nets.model import Brief
from polariscope.nets.unet import UNet, UNetConfig


def parameters(*settings: int) -> int:
    return sum(weight.numel() for weight in UNet(*settings).parameters())


@pytest.mark.spec("000/F032")
def test_parameters_are_the_published_ones() -> None:
    assert parameters(6, 5, 3, 32) == 467_525
    assert [parameters(6, 5, 3, 8), parameters(6, 5, 3, 4), parameters(3, 5, 3, 32)] == [29_717, 7_597, 466_661]
    assert [parameters(6, 5, 2, 32), parameters(6, 5, 4, 32)] == [102_533, 1_926_597]


@pytest.mark.spec("000/F033")
@pytest.mark.spec("000/F034")
def test_valid_padding_loses_twenty_pixels_at_each_side() -> None:
    net = UNet(6, 5, padding="valid", root=2)
    assert net.output_size(388, 352) == (348, 312)
    assert net(torch.zeros(1, 6, 388, 352)).shape == (1, 5, 348, 312)
    assert net.receptive_field == 32
    for length in range(44, 70):
        if net._fits(length):
            assert net(torch.zeros(1, 6, length, length)).shape[2] == length - 40
        else:
            with pytest.raises(ValueError, match=f"does not take a side of {length} pixels: use"):
                net.output_size(length, 388)


@pytest.mark.spec("000/F033")
@pytest.mark.parametrize(("depth", "field"), [(1, 5), (2, 14), (3, 32)])
def test_a_place_at_the_lowest_resolution_sees_its_receptive_field(depth: int, field: int) -> None:
    """Perturb every input pixel, by the gradient: those that matter form a square of the computed side."""
    net = UNet(1, 2, depth, 2).double()
    for weight in net.parameters():
        weight.data.abs_()  # so that no activation is zero
    x = torch.rand(1, 1, 64, 64, dtype=torch.float64, requires_grad=True)
    inner = x
    for level, block in enumerate(net.down):
        inner = block(inner if level == 0 else torch.nn.functional.avg_pool2d(inner, 2))  # a maximum hides pixels
    middle = inner.shape[2] // 2
    (gradient,) = torch.autograd.grad(inner[0, :, middle, middle].sum(), x)
    rows = gradient[0, 0].abs().sum(1).nonzero().flatten()
    assert int(rows.max() - rows.min()) + 1 == field == net.receptive_field


@pytest.mark.spec("000/F035")
def test_same_padding_keeps_the_size() -> None:
    assert UNet(3, 4, root=2)(torch.zeros(2, 3, 40, 64)).shape == (2, 4, 40, 64)
    with pytest.raises(ValueError, match="does not take a side of 41 pixels: use 40 or 44"):
        UNet(3, 4).output_size(41, 64)


@pytest.mark.spec("000/F036")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("attention", [False, True])
def test_gradients_are_those_of_finite_differences(padding: str, attention: bool) -> None:
    torch.manual_seed(1)
    net = UNet(2, 3, 2, 2, padding, 0.3, attention=attention).double()
    x = torch.rand(1, 2, 20, 20, dtype=torch.float64)
    target = torch.randint(3, (1, *net.output_size(20, 20)))

    def loss() -> torch.Tensor:
        torch.manual_seed(2)  # the same dropout
        return torch.nn.functional.cross_entropy(net(x), target)

    for weight in [net.down[0][0].weight, net.up[0][0].weight, net.merge[0][0].weight, net.head.weight]:
        (gradient,) = torch.autograd.grad(loss(), weight)
        place = tuple(int(i) for i in (gradient.abs() == gradient.abs().max()).nonzero()[0])
        with torch.no_grad():
            sides = []
            for step in (1e-6, -2e-6):
                weight[place] += step
                sides.append(float(loss()))
            weight[place] += 1e-6
        assert float(gradient[place]) == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-4)


def test_what_is_no_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="the target of this world is not a mask"):
        UNetConfig().build(Brief((3, 32, 32), 5))
    with pytest.raises(ValueError, match="does not take a side of 30 pixels"):
        UNetConfig().build(Brief((3, 30, 32), 5, dense=True))
