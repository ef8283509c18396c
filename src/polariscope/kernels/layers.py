"""Layers of infinitely wide networks, and their conversion from an ``nn.Sequential``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from polariscope.kernels.dual import Activation, Gelu, Relu


@dataclass(frozen=True)
class Dense:
    """A fully connected layer on vectors."""

    weight_var: float = 2.0
    bias_var: float = 0.0


@dataclass(frozen=True)
class Conv:
    """A convolution with ``size`` x ``size`` filters; ``padding`` counts zeros on each side, "same" keeps the size."""

    size: int
    stride: int = 1
    padding: int | Literal["same"] = 0
    weight_var: float = 2.0
    bias_var: float = 0.0

    def __post_init__(self) -> None:
        if self.padding == "same" and (self.size % 2 == 0 or self.stride != 1):
            raise ValueError(
                f"padding 'same' needs an odd size and stride 1; got size {self.size}, stride {self.stride}"
            )

    @property
    def margin(self) -> int:
        return self.size // 2 if self.padding == "same" else self.padding


@dataclass(frozen=True)
class AveragePool:
    """The mean over ``size`` x ``size`` windows that do not overlap; an incomplete window at the border is dropped."""

    size: int


@dataclass(frozen=True)
class Flatten:
    """From images to vectors."""


@dataclass(frozen=True)
class Residual:
    """The sum of a branch and a shortcut (by default the input itself).

    The branch must end in a layer with weights. Its outputs then have mean zero for any shortcut, and the moments of
    the two add up.
    """

    branch: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()

    def __post_init__(self) -> None:
        weights = [layer for layer in self.branch if not isinstance(layer, AveragePool | Flatten)]
        if not weights or not isinstance(weights[-1], Dense | Conv):
            raise ValueError(
                "the branch of a Residual needs to end in a Dense or Conv layer, after its last activation"
            )


Layer = Dense | Conv | AveragePool | Flatten | Residual | Activation


def every_layer(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Layers in order, including those inside residual blocks."""
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from every_layer(layer.branch)
            yield from every_layer(layer.shortcut)


def layers_of(network: nn.Module, weight_var: float, bias_var: float) -> Iterator[Layer]:
    """The layers of a module, each with the given variances unless it has its own."""
    weight_var, bias_var = (
        float(getattr(network, name, value)) for name, value in (("weight_var", weight_var), ("bias_var", bias_var))
    )
    if getattr(network, "bias", True) is None:
        bias_var = 0.0
    match network:
        case nn.Sequential() if type(network).forward is nn.Sequential.forward:
            for child in network:
                yield from layers_of(child, weight_var, bias_var)
        case nn.Linear():
            yield Dense(weight_var, bias_var)
        case nn.Conv2d(
            kernel_size=(height, width), stride=(down, across), groups=1, dilation=(1, 1), padding_mode="zeros"
        ) if height == width and down == across and network.padding in ("same", "valid", (0, 0), (height // 2,) * 2):
            padding = network.padding if isinstance(network.padding, str) else network.padding[0]
            yield Conv(height, down, 0 if padding == "valid" else padding, weight_var, bias_var)  # type: ignore[arg-type]
        case nn.AvgPool2d(padding=0 | (0, 0), ceil_mode=False, divisor_override=None) if (
            network.kernel_size == network.stride and isinstance(network.kernel_size, int)
        ):
            yield AveragePool(network.kernel_size)
        case nn.MaxPool2d():
            raise ValueError("max pooling has no closed form in the infinite-width limit; use nn.AvgPool2d")
        case nn.Flatten():
            yield Flatten()
        case nn.ReLU():
            yield Relu()
        case nn.GELU(approximate="none"):
            yield Gelu()
        case _:
            raise ValueError(
                f"{network} has no known infinite-width limit; use Linear, Conv2d (square, ungrouped, padded by "
                "zeros), AvgPool2d (without overlap and padding), Flatten, ReLU and exact GELU in an nn.Sequential "
                "without a forward of its own, and Residual and Erf in a Stack"
            )
