"""Flows: invertible networks, so that a density of codes defines a density of observations.

``encode`` returns a code with as many numbers as an observation has, ``invert`` the observation, and ``log_det`` the
local change of volume. Images are read as vectors of their pixels; if some pixels never change, as in rendered images,
their density is unbounded and the likelihood has no maximum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from polariscope.nets.model import Brief, Shape, models
from polariscope.nets.posterior import Point
from polariscope.registry import Settings

Kind = Literal["additive", "volume-preserving", "affine"]


class Flow(nn.Module, ABC):
    """An invertible network; a subclass defines ``transform`` and its inverse ``invert``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.latents = math.prod(shape)

    @abstractmethod
    def transform(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes ``(n, d)`` of observations, and ln |det| of their derivatives ``(n,)``, in one pass."""

    @abstractmethod
    def invert(self, z: Tensor) -> Tensor:
        """The observations of codes."""

    def encode(self, x: Tensor) -> Point:
        return Point(self.transform(x)[0])

    def log_det(self, x: Tensor) -> Tensor:
        """ln |det ∂z/∂x|, one number per observation."""
        return self.transform(x)[1]

    def generate(self, z: Tensor) -> Tensor:
        """Observations of codes in the data's units: :meth:`invert`, under the name that all models use."""
        return self.invert(z)


@models.register("linear-flow")
@dataclass(frozen=True)
class LinearFlowConfig:
    """One square matrix: z = W x + b."""

    def build(self, brief: Brief) -> LinearFlow:
        return LinearFlow(brief.observation)


class LinearFlow(Flow):
    """z = W x + b. W starts as an orthogonal matrix, so that no direction is small at first."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.layer = nn.Linear(self.latents, self.latents)
        nn.init.orthogonal_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def transform(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x.flatten(1)), torch.linalg.slogdet(self.layer.weight).logabsdet.expand(len(x))

    def invert(self, z: Tensor) -> Tensor:
        return torch.linalg.solve(self.layer.weight, (z - self.layer.bias).T).T.reshape(len(z), *self.shape)


@models.register("coupling-flow")
@dataclass(frozen=True)
class CouplingFlowConfig:
    """Blocks that shift and scale one half of the coordinates by functions of the other half.

    "volume-preserving" blocks scale by factors whose product is 1 (Sorrenson et al. 2020), "additive" blocks only shift
    (Dinh et al. 2014), and "affine" blocks scale by independent factors between 1/e and e (Dinh et al. 2017).
    """

    examples: ClassVar[tuple[Settings, ...]] = tuple(
        {"hidden": [16], "kind": kind} for kind in ("volume-preserving", "additive", "affine")
    )

    blocks: int = 6
    hidden: tuple[int, ...] = (500, 500)
    """Units of the hidden layers of each block, with ReLUs."""
    kind: Kind = "volume-preserving"

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise ValueError(f"a coupling flow needs at least 1 block; got {self.blocks}")

    def build(self, brief: Brief) -> CouplingFlow:
        return CouplingFlow(brief.observation, self.blocks, self.hidden, self.kind)


class CouplingFlow(Flow):
    """Coupling blocks one after the other."""

    def __init__(self, shape: Shape, blocks: int, hidden: tuple[int, ...], kind: Kind) -> None:
        super().__init__(shape)
        if self.latents < 2:
            raise ValueError("a coupling flow needs observations of at least 2 numbers; got 1: use linear-flow")
        self.blocks = nn.ModuleList([Block(order, hidden, kind) for order in _orders(self.latents, blocks)])

    def transform(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = x.flatten(1), x.new_zeros(len(x))
        for block in self.blocks:
            z, grown = block(z)
            log_det = log_det + grown
        return z, log_det

    def invert(self, z: Tensor) -> Tensor:
        for block in reversed(self.blocks):
            z = cast(Block, block).invert(z)
        return z.reshape(len(z), *self.shape)


def _orders(size: int, blocks: int) -> Iterator[Tensor]:
    """How each block permutes its inputs; it then reads the first half and changes the second.

    Blocks come in pairs: the first reads a random half, the second reads the half that the first changed. With random
    halves alone, some coordinates might never be read, and the flow could not leave its starting point.
    """
    half = size // 2
    for number in range(blocks):
        if number % 2:
            yield torch.arange(size).roll(-half)
        else:
            order = torch.randperm(size)
            # With an odd number of coordinates a pair leaves out one, and the next pair reads it.
            yield torch.cat([order[order == half], order[order != half]]) if size % 2 else order


class Block(nn.Module):
    """Reorders the coordinates, keeps the first half, and maps each x of the second half to e^s x + t, where s and t
    are functions of the first half."""

    order: Tensor
    back: Tensor

    def __init__(self, order: Tensor, hidden: tuple[int, ...], kind: Kind) -> None:
        super().__init__()
        self.kept, self.changed, self.kind = len(order) // 2, len(order) - len(order) // 2, kind
        outputs = self.changed if kind == "additive" else 2 * self.changed
        widths = [self.kept, *hidden]
        layers = [layer for pair in zip(widths, hidden, strict=False) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.net = nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
        self.register_buffer("order", order)
        self.register_buffer("back", order.argsort())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, changed = x[:, self.order].split([self.kept, self.changed], dim=1)
        log_scale, shift = self._said(kept)
        grown = log_scale.sum(1) if self.kind == "affine" else x.new_zeros(len(x))  # 0 by construction, not by rounding
        return torch.cat([kept, changed * log_scale.exp() + shift], dim=1), grown

    def invert(self, z: Tensor) -> Tensor:
        kept, changed = z.split([self.kept, self.changed], dim=1)
        log_scale, shift = self._said(kept)
        return torch.cat([kept, (changed - shift) * (-log_scale).exp()], dim=1)[:, self.back]

    def _said(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the scales, which are bounded so that no inverse explodes, and shifts."""
        if self.kind == "additive":
            shift = self.net(kept)
            return torch.zeros_like(shift), shift
        raw, shift = self.net(kept).chunk(2, dim=1)
        log_scale = raw.tanh()
        return (log_scale if self.kind == "affine" else log_scale - log_scale.mean(1, keepdim=True)), shift
