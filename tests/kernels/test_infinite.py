"""Infinite-width kernels against closed forms, the scalar recursion, wide finite networks and each other."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from polariscope.kernels import (
    AveragePool,
    Conv,
    Dense,
    Erf,
    Flatten,
    Gelu,
    Relu,
    Residual,
    Stack,
    tangent_kernel,
)
from polariscope.kernels import infinite as module
from polariscope.nets.classifiers import Weights, lenet, mlp
from polariscope.theory.dual_activations import dense_kernels, erf_dual, gelu_dual, relu_dual

ACTIVATIONS = {"relu": (Relu(), relu_dual), "erf": (Erf(), erf_dual), "gelu": (Gelu(), gelu_dual)}


def lenet_stack(weight_var: float = 2.0) -> Stack:
    return Stack.of(lenet(pooling="average", weights=Weights("ntk", weight_var)))


def images(count: int, channels: int = 1, side: int = 10, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, channels, side, side, generator=torch.Generator().manual_seed(seed))


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.spec("000/F014", "000/F015")
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias_var", [0.0, 0.3])
def test_dense_stacks_follow_the_scalar_recursion(name, bias_var):
    layer, dual = ACTIVATIONS[name]
    dense = Dense(1.7, bias_var)
    x1, x2 = torch.randn(6, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    result = Stack((dense, layer, dense, layer, dense)).kernels(x1, x2)
    cov, var1, var2 = (
        1.7 * m.numpy() / 5 + bias_var for m in (x1 @ x2.T, x1.square().sum(1)[:, None], x2.square().sum(1)[None])
    )
    expected = dense_kernels(cov, var1, var2, 3, 1.7, bias_var, dual)
    np.testing.assert_allclose(result.nngp, expected.nngp, rtol=1e-12)
    np.testing.assert_allclose(result.ntk, expected.ntk, rtol=1e-12)


@pytest.mark.spec("000/F022")
@pytest.mark.parametrize(
    ("weight_var", "same", "opposite"),
    [
        (2.0, (2.0, 10.0), (1.209651, 2.120776)),
        (1.0, (0.0625, 0.3125), (0.037802, 0.066274)),
    ],
)
@pytest.mark.parametrize("side", [10, 28])
def test_lenet_on_constant_images(weight_var, same, opposite, side):
    value = 1.7
    x = torch.full((1, 1, side, side), value)
    nngp, ntk = lenet_stack(weight_var).kernels(torch.cat([x, -x]))
    for kernel, own, cross in ((nngp, same[0], opposite[0]), (ntk, same[1], opposite[1])):
        expected = value**2 * torch.tensor([[own, cross], [cross, own]])
        np.testing.assert_allclose(kernel, expected, rtol=2e-5)


@pytest.mark.parametrize("activation", [Relu(), Erf(), Gelu()], ids=repr)
def test_pairs_once_blocks_and_fusion_change_nothing(activation, monkeypatch):
    rest = (Conv(3, bias_var=0.1), activation, AveragePool(2), Flatten(), Dense(bias_var=0.2), activation, Dense())
    fused = Stack((Conv(3, padding="same", bias_var=0.1), activation, AveragePool(2), *rest))
    # a pool of one pixel changes nothing but keeps the activation and the real pool apart
    apart_ = Stack((Conv(3, padding="same", bias_var=0.1), activation, AveragePool(1), AveragePool(2), *rest))
    x = images(5, channels=2)
    once, twice, unfused = fused.kernels(x), fused.kernels(x, x.clone()), apart_.kernels(x)
    monkeypatch.setattr(module, "BLOCK", 1)
    single = fused.kernels(x)
    for kernels in (twice, unfused, single):
        for result, expected in zip(kernels, once, strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-8, atol=0)  # arccos near 1 keeps half the digits
    assert all(torch.equal(kernel, kernel.T) for kernel in once)
    assert torch.linalg.eigvalsh(once.nngp)[0] > 0
    assert torch.linalg.eigvalsh(once.ntk)[0] > 0


@pytest.mark.spec("000/F022")
def test_without_pooling_equal_positions_suffice():
    layers = (Conv(3, padding=1), Relu(), Conv(3, stride=2, bias_var=0.2), Erf(), Flatten(), Dense())
    x = images(4, channels=2)
    quick = Stack(layers).kernels(x)
    crossed = Stack((*layers[:4], AveragePool(1), *layers[4:])).kernels(x)
    torch.testing.assert_close(quick.nngp, crossed.nngp)
    torch.testing.assert_close(quick.ntk, crossed.ntk)


def test_convolution_over_the_whole_image_is_a_dense_layer():
    x = images(4, channels=3, side=5)
    dense = Stack((Flatten(), Dense(1.5, 0.1), Relu(), Dense())).kernels(x)
    conv = Stack((Conv(5, weight_var=1.5, bias_var=0.1), Relu(), Flatten(), Dense())).kernels(x)
    vectors = Stack((Dense(1.5, 0.1), Relu(), Dense())).kernels(x.flatten(1))
    for result in (conv, vectors):
        torch.testing.assert_close(result.nngp, dense.nngp)
        torch.testing.assert_close(result.ntk, dense.ntk)


@pytest.mark.spec("000/F022", "000/F083")
def test_finite_lenets_converge_to_the_limit():
    x = images(3)
    limit = lenet_stack().kernels(x)

    def finite(width: int, seeds: range) -> torch.Tensor:
        weights = Weights("ntk")
        nets = [lenet(width, (1, 10, 10), 10, "average", weights, seed) for seed in seeds]
        return torch.stack([tangent_kernel(net, x, kind="trace").double() for net in nets])

    narrow, wide = finite(1, range(12)), finite(8, range(12))
    errors = [np.mean([apart(kernel, limit.ntk) for kernel in kernels]) for kernels in (narrow, wide)]
    assert errors[1] < 0.6 * errors[0]
    assert apart(wide.mean(0), limit.ntk) < 0.12


@pytest.mark.spec("000/F022")
def test_outputs_of_finite_lenets_have_the_nngp_as_covariance():
    x = images(3)
    nngp = lenet_stack().kernels(x).nngp
    nets = (lenet(6, (1, 10, 10), 100, "average", Weights("ntk"), seed) for seed in range(30))
    with torch.no_grad():
        outputs = torch.cat([net(x) for net in nets], dim=1).double()
    assert apart(outputs @ outputs.T / outputs.shape[1], nngp) < 0.12


@pytest.mark.spec("000/F017", "000/F014")
def test_empirical_kernel_of_an_mlp_converges_as_one_over_root_width():
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    limit = Stack((Dense(), Relu(), Dense(), Relu(), Dense())).kernels(x).ntk

    def deviation(width: int) -> float:
        nets = (mlp(10, (width, width), 1, Weights("ntk"), seed=seed) for seed in range(12))
        return float(np.mean([apart(tangent_kernel(net, x, kind="trace").double(), limit) for net in nets]))

    widths = [32, 128, 512]
    deviations = [deviation(width) for width in widths]
    slope = np.polyfit(np.log(widths), np.log(deviations), 1)[0]
    assert -0.65 < slope < -0.35
    assert deviations[-1] == pytest.approx(2.2 / math.sqrt(512), rel=0.6)


@pytest.mark.parametrize(("activation", "layer"), [(nn.GELU, Gelu()), (nn.ReLU, Relu())])
def test_residual_networks_agree_with_wide_finite_ones(activation, layer):
    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            weights = Weights("ntk", 1.5, 0.2)
            self.inner = nn.Sequential(
                activation(), weights.dense(width, width), activation(), weights.dense(width, width)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.inner(x)

    width = 256
    dense = Dense(1.5, 0.2)
    stack = Stack((dense, Residual((layer, dense, layer, dense)), layer, dense))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    limit = stack.kernels(x)
    kernels, outputs = [], []
    for seed in range(8):
        torch.manual_seed(seed)
        weights = Weights("ntk", 1.5, 0.2)
        net = nn.Sequential(weights.dense(8, width), Block(width), activation(), weights.dense(width, 150))
        kernels.append(tangent_kernel(net, x, kind="pseudo").double())
        outputs.append(net(x).detach().double())
    drawn = torch.cat(outputs, 1)
    assert apart(drawn @ drawn.T / drawn.shape[1], limit.nngp) < 0.12
    assert apart(torch.stack(kernels).mean(0), limit.ntk) < 0.12


def test_residual_convolutions_with_a_projected_shortcut():
    shortcut = (Conv(1, stride=2),)
    branch = (Conv(3, stride=2, padding=1), Relu(), Conv(3, padding="same"))
    x = images(3, channels=2)
    pooled = Stack((Residual(branch, shortcut), Relu(), AveragePool(5), Flatten(), Dense())).kernels(x)
    assert torch.linalg.eigvalsh(pooled.ntk)[0] > 0
    # Two independent halves add up: without the branch's weights only the shortcut is left.
    muted = (Conv(3, stride=2, padding=1), Relu(), Conv(3, padding="same", weight_var=0.0))
    alone = Stack((*shortcut, Relu(), AveragePool(5), Flatten(), Dense())).kernels(x)
    both = Stack((Residual(muted, shortcut), Relu(), AveragePool(5), Flatten(), Dense())).kernels(x)
    torch.testing.assert_close(both.nngp, alone.nngp)
    torch.testing.assert_close(both.ntk, alone.ntk)
    # and twice the shortcut's variance with itself as the branch
    double = Stack((Residual(shortcut, shortcut), Flatten(), Dense())).kernels(x)
    torch.testing.assert_close(double.ntk, 2 * Stack((*shortcut, Flatten(), Dense())).kernels(x).ntk)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_and_blank_inputs_give_no_nan(dtype):
    x = torch.cat([images(1, side=12), images(1, side=12), torch.zeros(1, 1, 12, 12)])
    kernels = lenet_stack().kernels(x, dtype=dtype)
    own = lenet_stack().diagonal(x, dtype)
    for kernel, diagonal in zip(kernels, own, strict=True):
        assert torch.isfinite(kernel).all()
        torch.testing.assert_close(kernel[0, 1], kernel[0, 0], rtol=2e-3 if dtype == torch.float32 else 1e-7, atol=0)
        assert torch.equal(kernel.diagonal(), diagonal)
        assert kernel[2].abs().max() == 0


def test_kernels_are_homogeneous_without_biases():
    x = images(2)
    stack = lenet_stack()
    scaled = stack.kernels(3 * x[:1], x[1:])
    plain = stack.kernels(x[:1], x[1:])
    torch.testing.assert_close(scaled.ntk, 3 * plain.ntk)
    torch.testing.assert_close(scaled.nngp, 3 * plain.nngp)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: Stack(()), "at least one layer"),
        (lambda: Stack.of(lenet()), "max pooling has no closed form"),
        (lambda: Stack.of(nn.Sequential(nn.Tanh())), "no known infinite-width limit"),
        (lambda: Stack((Dense(),)).kernels(images(1)), "Flatten"),
        (lambda: Stack((Conv(3), Relu())).kernels(images(1)), "ends in an image"),
        (lambda: Stack((Conv(3),)).kernels(torch.ones(1, 4)), "needs images"),
        (lambda: Stack((AveragePool(2),)).kernels(torch.ones(1, 4)), "needs images"),
        (lambda: Stack((Conv(11), Flatten())).kernels(images(1)), "does not fit"),
        (lambda: Stack((Dense(),)).kernels(torch.ones(2, 3), torch.ones(2, 4)), "the same shape"),
        (lambda: Stack((Dense(),)).kernels(torch.full((1, 3), torch.nan)), "NaN"),
        (lambda: Stack((Dense(),)).kernels(torch.ones(3)), "inputs need shape"),
        (lambda: Residual((Dense(), Relu())), "end in a Dense or Conv"),
        (lambda: Conv(4, padding="same"), "odd size"),
        (lambda: Stack((Residual((Conv(3),)), Flatten())).kernels(images(1)), "maps of the same size"),
    ],
)
def test_what_has_no_limit_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        wrong()


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
        nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(4, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=1),
    ],
)
def test_settings_without_a_closed_form_are_refused(layer: nn.Module) -> None:
    """Their limit was that of the layer without the setting."""
    with pytest.raises(ValueError, match="has no known infinite-width limit"):
        Stack.of(nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 1)))


def test_a_sequence_with_a_forward_of_its_own_is_no_sequence() -> None:
    class Skip(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    with pytest.raises(ValueError, match="has no known infinite-width limit"):
        Stack.of(nn.Sequential(nn.Linear(4, 4), Skip(nn.ReLU(), nn.Linear(4, 4)), nn.Linear(4, 1)))


def test_a_layer_without_a_bias_has_none() -> None:
    layers = Stack.of(nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 1)), bias_var=0.3).layers
    assert [layer.bias_var for layer in layers if hasattr(layer, "bias_var")] == [0.0, 0.3]
