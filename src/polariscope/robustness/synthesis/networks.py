"""The convolutional encoder and decoder of one class. (Schott et al. 2019, appendix A.7; Spec 001b, section B4.)

The published tables are for 28 x 28 pixels. For other sizes the last layer of the encoder and the first of the decoder
span the whole feature map, and the two strided layers of the decoder get the output padding that the size needs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from polariscope.nets.model import Shape

SMALLEST = 15
"""Smallest side of an image for which the decoder has a feature map to start from."""


def class_encoder(shape: Shape, latents: int) -> nn.Sequential:
    """Images to the means and log-variances of their codes, side by side: 24, 11, 5 and 1 pixels wide for 28 x 28.

    >>> layers = class_encoder((1, 28, 28), latents=8)
    >>> sum(weight.numel() for weight in layers.parameters()) - 2 * (32 + 32 + 64)  # without batch norm
    61360
    """
    channels, *sides = shape
    span = tuple((((side - 4) - 4) // 2 + 1 - 3) // 2 + 1 for side in sides)
    blocks: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=_block(nn.Conv2d(channels, 32, 5)),
        conv2=_block(nn.Conv2d(32, 32, 4, 2)),
        conv3=_block(nn.Conv2d(32, 64, 3, 2)),
        code=nn.Sequential(nn.Conv2d(64, 2 * latents, (span[0], span[1])), nn.Flatten()),
    )
    return nn.Sequential(blocks)


class ClassDecoder(nn.Module):
    """Codes to the logits of an image: 4, 11, 26 and 28 pixels wide for 28 x 28.

    >>> layers = ClassDecoder((1, 28, 28), latents=8)
    >>> sum(weight.numel() for weight in layers.parameters()) - 2 * (32 + 16 + 16)  # without batch norm
    23505
    """

    def __init__(self, shape: Shape, latents: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.shape = tuple(shape)
        # A map of b pixels becomes 2b + 3, then 4b + 9, then 4b + 11, and one or two more for each output padding.
        spare = [divmod(side - 11, 4) for side in sides]
        span, second, third = zip(*((b, r // 2, r % 2) for b, r in spare), strict=True)
        self.deconv1 = _block(nn.ConvTranspose2d(latents, 32, span))
        self.deconv2 = _block(nn.ConvTranspose2d(32, 16, 5, 2, output_padding=second))
        self.deconv3 = _block(nn.ConvTranspose2d(16, 16, 5, 2, output_padding=third))
        self.deconv4 = LastLayer(16, channels, 3)

    def forward(self, codes: Tensor) -> Tensor:
        maps = codes[:, :, None, None]
        for layer in (self.deconv1, self.deconv2, self.deconv3, self.deconv4):
            maps = layer(maps)
        return maps

    def folded(self) -> Callable[[Tensor], Tensor]:
        """The same function in evaluation mode, with each batch norm folded into the weights before it."""
        first, *layers = (_folded(block) for block in (self.deconv1, self.deconv2, self.deconv3))
        weight, bias, _ = first
        span = weight.shape[2:]
        dense, shift = weight.flatten(1), bias.repeat_interleave(span.numel())
        # Channels last from the first map on: the CPU kernels of small convolutions are faster so.
        dense = dense.reshape(len(dense), -1, span.numel()).transpose(1, 2).flatten(1)
        shift = shift.reshape(-1, span.numel()).T.flatten()
        last, last_bias = self.deconv4.flipped().detach(), self.deconv4.bias

        def decode(codes: Tensor) -> Tensor:
            maps = functional.elu((codes @ dense).add_(shift)).reshape(len(codes), *span, -1).permute(0, 3, 1, 2)
            for kernel, offset, padding in layers:
                maps = functional.elu(functional.conv_transpose2d(maps, kernel, offset, 2, output_padding=padding))
            return functional.conv2d(maps, last, last_bias, padding=2)

        return decode


class LastLayer(nn.ConvTranspose2d):
    """A transposed convolution of stride 1, computed as the equivalent convolution: with one output channel the CPU
    kernel of the transposed one is slow."""

    def flipped(self) -> Tensor:
        return self.weight.flip(2, 3).transpose(0, 1)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return functional.conv2d(x, self.flipped(), self.bias, padding=self.kernel_size[0] - 1)


def _block(layer: nn.Conv2d | nn.ConvTranspose2d) -> nn.Sequential:
    return nn.Sequential(layer, nn.BatchNorm2d(layer.out_channels), nn.ELU(inplace=True))


def _folded(block: nn.Sequential) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Weight, bias and output padding of a transposed convolution with the running statistics that follow it."""
    layer, norm = cast(nn.ConvTranspose2d, block[0]), cast(nn.BatchNorm2d, block[1])
    mean, var, shift = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var), cast(Tensor, layer.bias)
    scale = (norm.weight / (var + norm.eps).sqrt()).detach()
    weight = layer.weight.detach() * scale[:, None, None]
    return weight, ((shift - mean) * scale + norm.bias).detach(), tuple(layer.output_padding)
