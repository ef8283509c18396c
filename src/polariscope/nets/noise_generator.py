"""A network that turns independent Gaussian noise into noise of any marginal, pixel by pixel or in small patches."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

Kernel = Literal[1, 3]
SMALL = 0.01
"""Standard deviation of the initial weights: the residual dominates, so the noise starts as Gaussian."""


class NoiseGenerator(nn.Module):
    """δ = h(z) + z for standard normal z, with h a few convolutions without padding.

    With ``kernel`` 1, pixels are independent and identically distributed, and only the channels of one pixel may depend
    on each other. With 3, the second layer uses 3 x 3 pixels: z is then a pixel larger on every side, which keeps the
    noise the same up to the border, and the residual is cropped. Points ``(n, m)`` are taken as one channel of m
    pixels. (Rusak et al. 2020, appendices A and K; Spec 001b, section A3.)

    >>> [sum(p.numel() for p in NoiseGenerator(3, kernel).parameters()) for kernel in (1, 3)]
    [983, 4183]
    """

    def __init__(self, channels: int, kernel: Kernel = 1, depth: int = 4, width: int = 20) -> None:
        super().__init__()
        if kernel not in (1, 3) or min(channels, depth, width) < 1:
            raise ValueError(
                f"a noise generator needs a kernel of 1 or 3 and at least one channel, layer and unit; got kernel "
                f"{kernel}, {channels} channels, depth {depth} and width {width}"
            )
        self.channels, self.border = channels, (kernel - 1) // 2
        sizes = [channels, *[width] * (depth - 1), channels]
        wide = min(1, depth - 1)  # the layer that sees neighbours
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, kernel if place == wide else 1) for place, (a, b) in enumerate(itertools.pairwise(sizes))
        )
        self.begin_anew()

    @torch.no_grad()
    def begin_anew(self) -> None:
        """Draw new small weights from torch's global random state; biases are zero."""
        for parameter in self.parameters():
            parameter.normal_(std=SMALL if parameter.ndim > 1 else 0.0)

    def forward(self, z: Tensor) -> Tensor:
        """Noise from z ``(n, channels, height, width)``, which is larger by the border on every side."""
        *hidden, last = self.layers
        features = z
        for layer in hidden:
            features = layer(features).relu()
        return last(features) + functional.pad(z, (-self.border,) * 4)

    def noise_for(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """One draw for each observation, in its shape. ``weights``, one flat tensor, replaces the network's weights."""
        images = x if x.ndim == 4 else x[:, None, :, None]
        if x.ndim not in (2, 4) or images.shape[1] != self.channels:
            raise ValueError(
                f"this generator makes noise of {self.channels} channels, and the observations have shape "
                f"{tuple(x.shape[1:])}: make a generator for their number of channels"
            )
        n, c, h, w = images.shape
        z = torch.randn(n, c, h + 2 * self.border, w + 2 * self.border, device=x.device, dtype=x.dtype)
        noise: Tensor = self(z) if weights is None else functional_call(self, self._by_name(weights), (z,))
        return noise.reshape(x.shape)

    def in_a_row(self) -> Tensor:
        """A copy of all weights in one flat tensor, as :meth:`noise_for` takes them."""
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters()])

    def _by_name(self, weights: Tensor) -> dict[str, Tensor]:
        own = dict(self.named_parameters())
        parts = weights.split([parameter.numel() for parameter in own.values()])
        return {name: part.view_as(own[name]) for name, part in zip(own, parts, strict=True)}
