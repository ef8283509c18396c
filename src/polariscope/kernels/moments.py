"""Second moments of pairs of inputs, propagated through the layers of an infinitely wide network.

Before the first activation the moments are inner products of patches and stay factored. If a pool follows an
activation, both are computed for one pair of offsets in the pooling windows at a time, so that the large covariance is
never in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from polariscope.kernels.dual import Activation
from polariscope.kernels.layers import AveragePool, Conv, Dense, Flatten, Layer, Residual


@dataclass
class Moments:
    """Second moments of a block of pairs of inputs, as they pass through the layers.

    ``nngp`` and ``ntk`` have shape ``(*lead, *map)``, or ``(*lead, *map, *map)`` if ``crossed``, with lead ``(n,)`` for
    inputs with themselves or ``(rows, columns)``, and a map ``(h, w)`` for images and ``()`` for vectors. Before the
    first activation, ``features`` ``(n, *map, f)`` of both sides represent ``nngp``; ``weighted`` is true after the
    first layer of weights (ntk = nngp), and false before it (ntk = 0).
    """

    spatial: bool
    crossed: bool
    features: tuple[Tensor, Tensor | None] | None = None
    weighted: bool = False
    nngp: Tensor = field(default_factory=lambda: torch.empty(0))
    ntk: Tensor = field(default_factory=lambda: torch.empty(0))

    def expand(self) -> Moments:
        """The same moments, not factored."""
        if self.features is None:
            return self
        nngp = _inner(*self.features, self.spatial and self.crossed)
        ntk = nngp if self.weighted else torch.zeros_like(nngp)
        return Moments(self.spatial, self.crossed, nngp=nngp, ntk=ntk)


class Variances:
    """The variances before each activation: recorded from inputs paired with themselves, replayed for other pairs."""

    def __init__(self, recorded: tuple[list[Tensor], list[Tensor]] | None = None) -> None:
        self.recorded: list[Tensor] = []
        self._replay = None if recorded is None else zip(*recorded, strict=True)

    def pair(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Variances ``(*lead, *map)`` of both sides; where replayed, lead is ``(rows, 1)`` and ``(1, columns)``."""
        if self._replay is not None:
            first, second = next(self._replay)
            return first[:, None], second[None]
        if moments.features is not None:
            var = moments.features[0].square().sum(-1)
        elif moments.spatial and moments.crossed:
            height, width = moments.nngp.shape[-2:]
            flat = moments.nngp.flatten(-4, -3).flatten(-2, -1).diagonal(dim1=-2, dim2=-1)
            var = flat.unflatten(-1, (height, width))
        else:
            var = moments.nngp
        self.recorded.append(var.clone())
        return var, var


def propagate(layers: Sequence[Layer], moments: Moments, variances: Variances) -> Moments:
    """The moments after all of the layers."""
    position = 0
    while position < len(layers):
        layer, following = layers[position], layers[position + 1] if position + 1 < len(layers) else None
        position += 1
        match layer:
            case Dense():
                moments = _dense(layer, moments)
            case Conv():
                moments = _conv(layer, moments)
            case AveragePool():
                moments = _pool(layer, moments)
            case Flatten():
                moments = _flatten(moments)
            case Residual():
                moments = _residual(layer, moments, variances)
            case _ if moments.features is not None and moments.weighted and isinstance(following, AveragePool):
                moments = _pooled_activation(layer, following.size, moments, variances)
                position += 1
            case _:
                moments = _activate(layer, moments, variances)
    return moments


def _dense(layer: Dense, moments: Moments) -> Moments:
    if moments.spatial:
        raise ValueError("Dense needs vectors; put a Flatten() before it")
    moments = moments.expand()
    nngp = moments.nngp * layer.weight_var + layer.bias_var
    return Moments(False, moments.crossed, nngp=nngp, ntk=torch.add(nngp, moments.ntk, alpha=layer.weight_var))


def _conv(layer: Conv, moments: Moments) -> Moments:
    if not moments.spatial:
        raise ValueError("Conv needs images (n, channels, height, width); a Flatten() or vectors came before it")
    if moments.features is not None and not moments.weighted:
        patches = tuple(None if side is None else _patches(layer, side) for side in moments.features)
        return Moments(True, moments.crossed, features=patches, weighted=True)  # type: ignore[arg-type]
    moments = moments.expand()
    nngp, ntk = (_box_sum(layer, moment, moments.crossed) for moment in (moments.nngp, moments.ntk))
    scale = layer.weight_var / layer.size**2
    nngp = nngp.mul_(scale).add_(layer.bias_var)
    return Moments(True, moments.crossed, nngp=nngp, ntk=ntk.mul_(scale).add_(nngp))


def _patches(layer: Conv, features: Tensor) -> Tensor:
    """Features ``(n, h', w', f k²)`` whose inner products are the covariances after the convolution."""
    padded = F.pad(features, (0, 0, *(layer.margin,) * 4))
    _check_fits(layer.size, padded.shape[1:3])
    windows = padded.unfold(1, layer.size, layer.stride).unfold(2, layer.size, layer.stride).flatten(3)
    windows = windows * math.sqrt(layer.weight_var / layer.size**2)
    if not layer.bias_var:
        return windows
    return F.pad(windows, (0, 1), value=math.sqrt(layer.bias_var))


def _box_sum(layer: Conv, moment: Tensor, crossed: bool) -> Tensor:
    """Σ_δ K[p+δ, q+δ] over the offsets of a filter, one axis of the image after the other."""
    margin, size, stride = layer.margin, layer.size, layer.stride
    padded = F.pad(moment, (margin,) * (8 if crossed else 4)) if margin else moment
    _check_fits(size, padded.shape[-2:])
    for axes in ((-4, -2), (-3, -1)) if crossed else ((-2,), (-1,)):
        count = (padded.shape[axes[0]] - size) // stride + 1

        def window(offset: int, source: Tensor = padded, axes: tuple[int, ...] = axes, count: int = count) -> Tensor:
            index: list[slice] = [slice(None)] * source.ndim
            for axis in axes:
                index[axis] = slice(offset, offset + stride * (count - 1) + 1, stride)
            return source[tuple(index)]

        total = window(0).clone()
        for offset in range(1, size):
            total += window(offset)
        padded = total
    return padded


def _pool(layer: AveragePool, moments: Moments) -> Moments:
    if not moments.spatial:
        raise ValueError("AveragePool needs images; a Flatten() or vectors came before it")
    moments = moments.expand()
    size = layer.size
    height, width = (length // size for length in moments.nngp.shape[-2:])
    _check_fits(size, moments.nngp.shape[-2:])

    def pooled(moment: Tensor) -> Tensor:
        whole = moment[..., : height * size, : width * size, : height * size, : width * size]
        return (
            whole.unflatten(-1, (width, size))
            .unflatten(-3, (height, size))
            .unflatten(-5, (width, size))
            .unflatten(-7, (height, size))
            .mean((-1, -3, -5, -7))
        )

    return Moments(True, True, nngp=pooled(moments.nngp), ntk=pooled(moments.ntk))


def _flatten(moments: Moments) -> Moments:
    if not moments.spatial:
        return moments
    moments = moments.expand()

    def mean(moment: Tensor) -> Tensor:
        if not moments.crossed:
            return moment.mean((-2, -1))
        return moment.flatten(-4, -3).flatten(-2, -1).diagonal(dim1=-2, dim2=-1).mean(-1)

    return Moments(False, moments.crossed, nngp=mean(moments.nngp), ntk=mean(moments.ntk))


def _residual(layer: Residual, moments: Moments, variances: Variances) -> Moments:
    moments = moments.expand()
    branch = propagate(layer.branch, moments, variances).expand()
    shortcut = propagate(layer.shortcut, moments, variances).expand()
    if branch.nngp.shape != shortcut.nngp.shape:
        raise ValueError(
            "the branch and the shortcut of a Residual need maps of the same size; pad the convolutions, or give the "
            "shortcut the same strides and pools"
        )
    return Moments(branch.spatial, branch.crossed, nngp=branch.nngp + shortcut.nngp, ntk=branch.ntk + shortcut.ntk)


def _activate(layer: Activation, moments: Moments, variances: Variances) -> Moments:
    var1, var2 = variances.pair(moments)
    moments = moments.expand()
    if moments.spatial and moments.crossed:
        var1, var2 = var1[..., None, None], var2[..., None, None, :, :]
    nngp, ntk = layer.propagate(moments.nngp, moments.ntk, var1, var2)
    return Moments(moments.spatial, moments.crossed, nngp=nngp, ntk=ntk)


def _pooled_activation(layer: Activation, size: int, moments: Moments, variances: Variances) -> Moments:
    """An activation on factored moments and the average pool after it, one pair of offsets in the windows at a time."""
    assert moments.features is not None
    var1, var2 = variances.pair(moments)
    first, second = moments.features
    height, width = (length // size for length in first.shape[1:3])
    _check_fits(size, first.shape[1:3])

    def offsets(x: Tensor, axis: int) -> list[Tensor]:
        """The positions at each offset in the windows, as one axis."""
        starts = product(range(size), repeat=2)
        strided = (
            x.movedim((axis, axis + 1), (0, 1))[i : height * size : size, j : width * size : size] for i, j in starts
        )
        return [part.flatten(0, 1).movedim(0, axis).contiguous() for part in strided]

    left = offsets(first, 1)
    right = left if second is None else offsets(second, 1)
    axis = var1.ndim - 2
    sides1 = list(zip(left, offsets(var1, axis), strict=True))
    sides2 = list(zip(right, offsets(var2, axis), strict=True))
    nngp = ntk = None
    for (a, var_a), (b, var_b) in product(sides1, sides2):
        cov = a @ b.mT if second is None else a[:, None] @ b.mT
        value, tangent = layer.propagate(cov, cov, var_a[..., :, None], var_b[..., None, :])
        if nngp is None or ntk is None:
            nngp, ntk = value, tangent
        else:
            nngp += value
            ntk += tangent
    assert nngp is not None
    assert ntk is not None
    shape = (*nngp.shape[:-2], height, width, height, width)
    return Moments(True, True, nngp=nngp.mul_(size**-4).view(shape), ntk=ntk.mul_(size**-4).view(shape))


def _inner(first: Tensor, second: Tensor | None, crossed: bool) -> Tensor:
    """Inner products of features ``(n, *map, f)`` of all pairs of inputs, at equal or at all pairs of positions."""
    if not crossed:
        if second is None:
            return first.square().sum(-1)
        shape = first.shape[1:-1]
        flat = torch.einsum("ipf,jpf->ijp", first.flatten(1, -2)[:, :], second.flatten(1, -2)) if shape else None
        return first @ second.T if flat is None else flat.unflatten(-1, shape)
    height, width = first.shape[1:3]
    a = first.flatten(1, 2)
    gram = a @ a.mT if second is None else a[:, None] @ second.flatten(1, 2).mT
    return gram.unflatten(-1, (height, width)).unflatten(-3, (height, width))


def _check_fits(size: int, shape: Sequence[int]) -> None:
    if min(shape) < size:
        raise ValueError(f"a window of {size} x {size} does not fit in a map of {shape[0]} x {shape[1]}")
