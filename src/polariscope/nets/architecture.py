"""Encoder and decoder pairs. An architecture is a small configuration that builds both for a shape of data.

Encoders map an observation to a vector of features, decoders map latents to the likelihood's parameters. Both are
``nn.Sequential``s of named blocks, so that the activations of every layer can be named.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.model import Shape
from polariscope.registry import Registry


class Architecture(Protocol):
    """Builds an encoder to ``features(shape)`` numbers, and a decoder from latents to the data's shape."""

    def features(self, shape: Shape) -> int: ...

    def encoder(self, shape: Shape) -> nn.Sequential: ...

    def decoder(self, latents: int, shape: Shape) -> nn.Sequential: ...


architectures: Registry[Architecture] = Registry("architecture", of=Architecture)

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "leaky_relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
}
Activation = Literal["relu", "tanh", "leaky_relu", "softplus"]


class Reshape(nn.Module):
    """Reshapes each example."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], *self.shape)  # not len(x), which torch.export would take for a constant


class WholeMapConvolution(nn.Conv2d):
    """A convolution whose kernel covers the whole map: one matrix product, four times as fast on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] != self.weight.shape[2:]:
            return super().forward(x)
        return functional.linear(x.flatten(1), self.weight.flatten(1), self.bias)[:, :, None, None]


class FirstDeconvolution(nn.ConvTranspose2d):
    """A transposed convolution from a single pixel to a map: one matrix product, four times as fast on a CPU."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if x.shape[2:] != (1, 1):
            return super().forward(x, output_size)
        assert self.bias is not None
        maps = (x.flatten(1) @ self.weight.flatten(1)).unflatten(1, self.weight.shape[1:])
        return maps + self.bias[:, None, None]


class Deconvolution(nn.ConvTranspose2d):
    """A 4x4, stride-2 transposed convolution that adds its bias afterwards.

    The outputs are the same to the bit. The gradient of the bias is a plain sum, which on a CPU saves up to a third of
    the backward pass of the layer.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4, 2, 1)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if not self.training or x.device.type != "cpu":
            return super().forward(x, output_size)
        assert self.bias is not None
        return functional.conv_transpose2d(x, self.weight, None, 2, 1).add_(self.bias[:, None, None])


class LastDeconvolution(nn.ConvTranspose2d):
    """A 4x4, stride-2 transposed convolution to the pixels: one product with the kernel, then overlapping sums.

    It gives the same numbers as its parent up to rounding; the parent's CPU kernel is slow for a single channel.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 4, 2, 1)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.out_channels > 1 or x.device.type != "cpu":
            return super().forward(x, output_size)
        height, width = x.shape[2:]
        # Pixels are the rows of the product, so that maps and their gradients stay channels last.
        taps = (x.permute(0, 2, 3, 1).flatten(1, 2) @ self.weight.flatten(1)).transpose(1, 2)
        assert self.bias is not None
        return functional.fold(taps, (2 * height, 2 * width), 4, padding=1, stride=2) + self.bias[:, None, None]


@architectures.register("conv")
@dataclass(frozen=True)
class Conv:
    """The 64x64 convolutional pair of the field: 4x4 kernels, stride 2, channels 32 32 64 64, then 256 features.

    Smaller images are halved until the map is 4 pixels wide or high, or one of its sides is odd; they need not be
    square. The decoder starts with a transposed convolution to the first map, as in the temporal-sparsity work, or,
    with ``dense_decoder``, with a dense layer, as in the tables of the polarised-regime work; the two differ only in
    biases and initial weights. Activations overwrite their input: small convolutions are limited by memory traffic,
    and this saves much of it.
    """

    dense_decoder: bool = False

    def features(self, shape: Shape) -> int:
        return 256

    def encoder(self, shape: Shape) -> nn.Sequential:
        channels, *sides = _image(shape)
        widths, base = _halvings(*sides)
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for number, width in enumerate(widths, 1):
            blocks[f"conv{number}"] = nn.Sequential(nn.Conv2d(channels, width, 4, 2, 1), nn.ReLU(inplace=True))
            channels = width
        blocks["features"] = nn.Sequential(
            WholeMapConvolution(channels, 256, base), nn.ReLU(inplace=True), nn.Flatten()
        )
        return kaiming(nn.Sequential(blocks))

    def decoder(self, latents: int, shape: Shape) -> nn.Sequential:
        channels, *sides = _image(shape)
        widths, base = _halvings(*sides)
        outputs = [*reversed(widths[:-1]), channels]
        top = widths[-1]
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        if self.dense_decoder:
            blocks["dense1"] = nn.Sequential(nn.Linear(latents, 256), nn.ReLU(inplace=True))
            blocks["dense2"] = nn.Sequential(
                nn.Linear(256, top * math.prod(base)), nn.ReLU(inplace=True), Reshape(top, *base)
            )
        else:
            blocks["dense1"] = nn.Sequential(nn.Linear(latents, 256), nn.ReLU(inplace=True), Reshape(256, 1, 1))
            blocks["unfold"] = nn.Sequential(FirstDeconvolution(256, top, base), nn.ReLU(inplace=True))
        previous = top
        for number, width in enumerate(outputs, 1):
            if number == len(outputs):
                blocks[f"deconv{number}"] = LastDeconvolution(previous, width)
            else:
                blocks[f"deconv{number}"] = nn.Sequential(Deconvolution(previous, width), nn.ReLU(inplace=True))
            previous = width
        return kaiming(nn.Sequential(blocks))


@architectures.register("mlp")
@dataclass(frozen=True)
class MLP:
    """A fully connected pair; the default is the 1200-unit pair of the disentanglement literature."""

    encoder_widths: tuple[int, ...] = (1200, 1200)
    decoder_widths: tuple[int, ...] = (1200, 1200, 1200)
    encoder_activation: Activation = "relu"
    decoder_activation: Activation = "tanh"

    def features(self, shape: Shape) -> int:
        return self.encoder_widths[-1] if self.encoder_widths else math.prod(shape)

    def encoder(self, shape: Shape) -> nn.Sequential:
        blocks = dense(math.prod(shape), self.encoder_widths, self.encoder_activation)
        return kaiming(nn.Sequential(OrderedDict(flatten=nn.Flatten(), **blocks)))

    def decoder(self, latents: int, shape: Shape) -> nn.Sequential:
        blocks = dense(latents, self.decoder_widths, self.decoder_activation)
        last = self.decoder_widths[-1] if self.decoder_widths else latents
        output = nn.Sequential(nn.Linear(last, math.prod(shape)), Reshape(*shape))
        return kaiming(nn.Sequential(OrderedDict(**blocks, output=output)))


@architectures.register("linear")
@dataclass(frozen=True)
class Linear:
    """No hidden layer: the pair whose solutions are known in closed form."""

    def features(self, shape: Shape) -> int:
        return math.prod(shape)

    def encoder(self, shape: Shape) -> nn.Sequential:
        return nn.Sequential(OrderedDict(flatten=nn.Flatten()))

    def decoder(self, latents: int, shape: Shape) -> nn.Sequential:
        output = nn.Sequential(nn.Linear(latents, math.prod(shape)), Reshape(*shape))
        return nn.Sequential(OrderedDict(output=output))


def _image(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < 8 or shape[1] % 4 or shape[2] % 4:
        raise ValueError(
            f"the conv architecture needs images (channels, height, width) with sides of at least 8 that divide by 4; "
            f"this data has shape {shape}: use dense layers with --model.architecture mlp (architecture=MLP() "
            "in Python), or resize images with --world.size"
        )
    return shape[0], shape[1], shape[2]


def _halvings(height: int, width: int) -> tuple[list[int], tuple[int, int]]:
    """Channel widths of the stride-2 stages, and the sides of the last map."""
    count = 0
    while height % 2 == width % 2 == 0 and min(height, width) > 4 and count < 4:
        height, width = height // 2, width // 2
        count += 1
    return [32, 32, 64, 64][-count:], (height, width)


def dense(inputs: int, widths: tuple[int, ...], activation: Activation) -> OrderedDict[str, nn.Module]:
    """Dense layers of the given widths, each with its activation, by name."""
    sizes = (inputs, *widths)
    return OrderedDict(
        (f"dense{number}", nn.Sequential(nn.Linear(a, b), ACTIVATIONS[activation]()))
        for number, (a, b) in enumerate(itertools.pairwise(sizes), 1)
    )


def kaiming(block: nn.Sequential) -> nn.Sequential:
    """Kaiming-normal weights and zero biases; transposed convolutions keep the framework's default."""
    for layer in block.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return block


def glorot(module: nn.Module) -> None:
    """Glorot-uniform weights and zero biases of all dense layers and convolutions."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
