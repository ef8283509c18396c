"""Infinitely wide networks: their Gaussian process at initialisation (NNGP) and the kernel of their training (NTK).

A :class:`Stack` lists layers (:mod:`polariscope.kernels.layers`); :meth:`Stack.kernels` propagates the second moments
of pairs of inputs through them (:mod:`polariscope.kernels.moments`; Spec 000, sections 3.2 to 3.4). Weights have
variance ``weight_var`` / fan-in and biases ``bias_var``, in the NTK parametrisation: gradients are taken with respect
to the underlying standard normal parameters.

If pooling averages positions, images need the covariance of every position with every other; otherwise only that of
equal positions, which is much cheaper. The stack determines which of the two it needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from polariscope.kernels.dual import Erf, Gelu, Relu
from polariscope.kernels.gram import mirror_
from polariscope.kernels.layers import AveragePool, Conv, Dense, Flatten, Layer, Residual, every_layer, layers_of
from polariscope.kernels.moments import Moments, Variances, propagate

BLOCK = 2**18
"""Size of a block of moments: a few such blocks fit in a processor's cache."""


class Kernels(NamedTuple):
    """``nngp`` and ``ntk``, ``(n1, n2)`` each. All outputs have the same kernel and are independent of each other."""

    nngp: Tensor
    ntk: Tensor


@dataclass(frozen=True)
class Stack:
    """An infinitely wide network.

    >>> stack = Stack((Dense(), Relu(), Dense(), Relu(), Dense()))
    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])  # at a right angle, both of variance 2 after the first layer
    >>> nngp, ntk = stack.kernels(x)
    >>> round(nngp[0, 1].item(), 6), round(ntk[0, 1].item(), 6)
    (0.987462, 1.371417)
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("a Stack needs at least one layer")

    @staticmethod
    def of(network: nn.Module, weight_var: float = 2.0, bias_var: float = 0.0) -> Stack:
        """The infinite-width limit of an ``nn.Sequential``, each layer with the given variances.

        Layers with their own ``weight_var`` and ``bias_var``, as in ``polariscope.nets.classifiers``, keep them.

        >>> Stack.of(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), weight_var=1.0)
        Stack(layers=(Dense(weight_var=1.0, bias_var=0.0), Relu(), Dense(weight_var=1.0, bias_var=0.0)))
        """
        return Stack(tuple(layers_of(network, weight_var, bias_var)))

    @torch.no_grad()
    def kernels(self, x1: Tensor, x2: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Kernels:
        """NNGP and NTK of all pairs of ``x1`` and ``x2`` (or of ``x1`` with itself, each pair once).

        Inputs are vectors ``(n, d)`` or images ``(n, channels, height, width)``. ``dtype`` is that of the recursion:
        arccos loses half of the digits near its ends, so float32 is accurate only to about 1e-3.
        """
        first = self._input(x1, dtype)
        var1, own = self._diagonal(first)
        if x2 is None:
            second, var2 = first, var1
        else:
            second = self._input(x2, dtype)
            if second.shape[1:] != first.shape[1:]:
                raise ValueError(f"x1 and x2 need inputs of the same shape; got {x1.shape[1:]} and {x2.shape[1:]}")
            var2, _ = self._diagonal(second)
        nngp, ntk = (torch.empty(len(first), len(second), dtype=dtype) for _ in range(2))
        side = max(1, math.isqrt(BLOCK // self._numbers(first)))
        columns = list(zip(torch.arange(len(second)).split(side), second.split(side), strict=True))
        for i, rows in enumerate(torch.arange(len(first)).split(side)):
            for to, part in columns[i if x2 is None else 0 :]:
                replay = Variances(([v[rows] for v in var1], [v[to] for v in var2]))
                moments = self._run(first[rows], part, replay)
                nngp[rows[0] : rows[-1] + 1, to[0] : to[-1] + 1] = moments.nngp
                ntk[rows[0] : rows[-1] + 1, to[0] : to[-1] + 1] = moments.ntk
        if x2 is None:
            for kernel, exact in ((nngp, own.nngp), (ntk, own.ntk)):
                mirror_(kernel).diagonal().copy_(exact)
        return Kernels(nngp, ntk)

    def nngp(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Only the NNGP kernel: a ``kernel`` for :class:`~polariscope.kernels.machine.KernelMachine`."""
        return self.kernels(x1, x2).nngp

    def ntk(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Only the NTK: a ``kernel`` for :class:`~polariscope.kernels.machine.KernelMachine`."""
        return self.kernels(x1, x2).ntk

    def diagonal(self, x: Tensor, dtype: torch.dtype = torch.float64) -> Kernels:
        """NNGP and NTK of each input with itself, ``(n,)`` each."""
        with torch.no_grad():
            return self._diagonal(self._input(x, dtype))[1]

    def _input(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Features ``(n, *map, f)`` whose inner products are the covariances of the input."""
        if x.ndim not in (2, 4) or 0 in x.shape:
            raise ValueError(
                f"inputs need shape (n, d) or (n, channels, height, width) and at least one row; got {tuple(x.shape)}"
            )
        if not torch.isfinite(x).all():
            raise ValueError("the inputs contain NaN or infinity; clean the data first")
        x = x.to(dtype)
        x = x.movedim(1, -1) if x.ndim == 4 else x
        return (x / math.sqrt(x.shape[-1])).contiguous()

    def _crossed(self, x: Tensor) -> bool:
        return x.ndim == 4 and any(isinstance(layer, AveragePool) for layer in every_layer(self.layers))

    def _numbers(self, x: Tensor) -> int:
        """Moments of one pair of inputs at the widest point, where they are all in memory."""
        if x.ndim == 2:
            return 1
        positions = x.shape[1] * x.shape[2]
        first_activation = next((i for i, layer in enumerate(self.layers) if not isinstance(layer, Conv)), 0)
        after = self.layers[first_activation + 1 : first_activation + 2]
        if after and isinstance(after[0], AveragePool):
            positions //= after[0].size ** 2
        return max(1, positions**2 if self._crossed(x) else positions)

    def _diagonal(self, x: Tensor) -> tuple[list[Tensor], Kernels]:
        """Variances before each activation, and both kernels, of each input with itself."""
        blocks = []
        for part in x.split(max(1, BLOCK // self._numbers(x))):
            tape = Variances()
            moments = self._run(part, None, tape)
            blocks.append((tape.recorded, moments.nngp, moments.ntk))
        variances = [torch.cat(layer) for layer in zip(*(recorded for recorded, _, _ in blocks), strict=True)]
        return variances, Kernels(torch.cat([nngp for _, nngp, _ in blocks]), torch.cat([ntk for _, _, ntk in blocks]))

    def _run(self, first: Tensor, second: Tensor | None, variances: Variances) -> Moments:
        spatial = first.ndim == 4
        moments = Moments(spatial, self._crossed(first), features=(first, second))
        moments = propagate(self.layers, moments, variances).expand()
        if moments.spatial:
            raise ValueError("the stack ends in an image; end it with Flatten() and Dense()")
        return moments


__all__ = [
    "AveragePool",
    "Conv",
    "Dense",
    "Erf",
    "Flatten",
    "Gelu",
    "Kernels",
    "Relu",
    "Residual",
    "Stack",
]
