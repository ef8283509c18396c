"""Infinitely wide networks: the Gaussian process they are at initialisation (NNGP) and the kernel they train by (NTK).

A :class:`Stack` lists layers; :meth:`Stack.kernels` moves the second moments of pairs of inputs through them (Spec 000,
sections 3.2 to 3.4). Weights have variance ``weight_var`` / fan-in and biases ``bias_var``, in the NTK parametrisation:
gradients are taken with respect to the underlying standard normal parameters.

Images need the covariance of every position with every other as soon as positions are averaged by pooling, and of equal
positions only otherwise, which is so much cheaper that the stack finds out which it needs. Before the first activation
the moments are inner products of patches and stay factored; an activation that is pooled right after is applied to the
pairs of one offset in the pooling windows at a time, so that the large covariance never exists in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polariscope.kernels.dual import Activation, Erf, Gelu, Relu
from polariscope.kernels.gram import mirror_

BLOCK = 2**18
"""Numbers in a tensor of moments that are worked on at a time: a few of them fit in a processor's cache."""


class Kernels(NamedTuple):
    """``nngp`` and ``ntk``, ``(n1, n2)`` each; every output has the same kernel and is independent of the others."""

    nngp: Tensor
    ntk: Tensor


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

    The branch must end in weights of its own: its outputs then have mean zero whatever the shortcut is, and the moments
    of the two simply add up.
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


@dataclass
class _Moments:
    """Second moments of a block of pairs of inputs, as they pass through the layers.

    ``nngp`` and ``ntk`` have shape ``(*lead, *map)``, or ``(*lead, *map, *map)`` if ``crossed``, with lead ``(n,)`` for
    inputs with themselves or ``(rows, columns)``, and a map ``(h, w)`` for images and ``()`` for vectors. Before the
    first activation ``features`` ``(n, *map, f)`` of either side stand for ``nngp``, and ``weighted`` says whether
    weights have been passed, so that ntk = nngp, or not yet, so that ntk = 0.
    """

    spatial: bool
    crossed: bool
    features: tuple[Tensor, Tensor | None] | None = None
    weighted: bool = False
    nngp: Tensor = field(default_factory=lambda: torch.empty(0))
    ntk: Tensor = field(default_factory=lambda: torch.empty(0))

    def expand(self) -> _Moments:
        """The same moments, no longer factored."""
        if self.features is None:
            return self
        nngp = _inner(*self.features, self.spatial and self.crossed)
        ntk = nngp if self.weighted else torch.zeros_like(nngp)
        return _Moments(self.spatial, self.crossed, nngp=nngp, ntk=ntk)


class _Variances:
    """The variances before each activation: recorded from inputs paired with themselves, replayed for other pairs."""

    def __init__(self, recorded: tuple[list[Tensor], list[Tensor]] | None = None) -> None:
        self.recorded: list[Tensor] = []
        self._replay = None if recorded is None else zip(*recorded, strict=True)

    def pair(self, moments: _Moments) -> tuple[Tensor, Tensor]:
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

        Layers that carry ``weight_var`` and ``bias_var`` themselves, as those of ``polariscope.nets.classifiers`` do,
        keep their own.

        >>> Stack.of(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), weight_var=1.0)
        Stack(layers=(Dense(weight_var=1.0, bias_var=0.0), Relu(), Dense(weight_var=1.0, bias_var=0.0)))
        """
        return Stack(tuple(_layers_of(network, weight_var, bias_var)))

    @torch.no_grad()
    def kernels(self, x1: Tensor, x2: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Kernels:
        """NNGP and NTK of all pairs of ``x1`` and ``x2`` (or of ``x1`` with itself, each pair once).

        Inputs are vectors ``(n, d)`` or images ``(n, channels, height, width)``. ``dtype`` is that of the recursion:
        near a right angle's end arccos loses half the digits, so float32 is good to about 1e-3 only.
        """
        first = self._input(x1, dtype)
        var1, own = self._diagonal(first)
        if x2 is None:
            second, var2 = first, var1
        else:
            second = self._input(x2, dtype)
            if second.shape[1:] != first.shape[1:]:
                raise ValueError(f"x1 and x2 need inputs of one shape; got {x1.shape[1:]} and {x2.shape[1:]}")
            var2, _ = self._diagonal(second)
        nngp, ntk = (torch.empty(len(first), len(second), dtype=dtype) for _ in range(2))
        side = max(1, math.isqrt(BLOCK // self._numbers(first)))
        columns = list(zip(torch.arange(len(second)).split(side), second.split(side), strict=True))
        for i, rows in enumerate(torch.arange(len(first)).split(side)):
            for to, part in columns[i if x2 is None else 0 :]:
                replay = _Variances(([v[rows] for v in var1], [v[to] for v in var2]))
                moments = self._run(first[rows], part, replay)
                nngp[rows[0] : rows[-1] + 1, to[0] : to[-1] + 1] = moments.nngp
                ntk[rows[0] : rows[-1] + 1, to[0] : to[-1] + 1] = moments.ntk
        if x2 is None:
            for kernel, exact in ((nngp, own.nngp), (ntk, own.ntk)):
                mirror_(kernel).diagonal().copy_(exact)
        return Kernels(nngp, ntk)

    def nngp(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """The NNGP kernel alone, as :class:`~polariscope.kernels.machine.KernelMachine` takes it."""
        return self.kernels(x1, x2).nngp

    def ntk(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """The NTK alone, as :class:`~polariscope.kernels.machine.KernelMachine` takes it."""
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
        return x.ndim == 4 and any(isinstance(layer, AveragePool) for layer in _walk(self.layers))

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
            tape = _Variances()
            moments = self._run(part, None, tape)
            blocks.append((tape.recorded, moments.nngp, moments.ntk))
        variances = [torch.cat(layer) for layer in zip(*(recorded for recorded, _, _ in blocks), strict=True)]
        return variances, Kernels(torch.cat([nngp for _, nngp, _ in blocks]), torch.cat([ntk for _, _, ntk in blocks]))

    def _run(self, first: Tensor, second: Tensor | None, variances: _Variances) -> _Moments:
        spatial = first.ndim == 4
        moments = _Moments(spatial, self._crossed(first), features=(first, second))
        moments = _through(self.layers, moments, variances).expand()
        if moments.spatial:
            raise ValueError("the stack ends in an image; end it with Flatten() and Dense()")
        return moments


def _through(layers: Sequence[Layer], moments: _Moments, variances: _Variances) -> _Moments:
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


def _dense(layer: Dense, moments: _Moments) -> _Moments:
    if moments.spatial:
        raise ValueError("Dense needs vectors; put a Flatten() before it")
    moments = moments.expand()
    nngp = moments.nngp * layer.weight_var + layer.bias_var
    return _Moments(False, moments.crossed, nngp=nngp, ntk=torch.add(nngp, moments.ntk, alpha=layer.weight_var))


def _conv(layer: Conv, moments: _Moments) -> _Moments:
    if not moments.spatial:
        raise ValueError("Conv needs images (n, channels, height, width); a Flatten() or vectors came before it")
    if moments.features is not None and not moments.weighted:
        patches = tuple(None if side is None else _patches(layer, side) for side in moments.features)
        return _Moments(True, moments.crossed, features=patches, weighted=True)  # type: ignore[arg-type]
    moments = moments.expand()
    nngp, ntk = (_box_sum(layer, moment, moments.crossed) for moment in (moments.nngp, moments.ntk))
    scale = layer.weight_var / layer.size**2
    nngp = nngp.mul_(scale).add_(layer.bias_var)
    return _Moments(True, moments.crossed, nngp=nngp, ntk=ntk.mul_(scale).add_(nngp))


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


def _pool(layer: AveragePool, moments: _Moments) -> _Moments:
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

    return _Moments(True, True, nngp=pooled(moments.nngp), ntk=pooled(moments.ntk))


def _flatten(moments: _Moments) -> _Moments:
    if not moments.spatial:
        return moments
    moments = moments.expand()

    def mean(moment: Tensor) -> Tensor:
        if not moments.crossed:
            return moment.mean((-2, -1))
        return moment.flatten(-4, -3).flatten(-2, -1).diagonal(dim1=-2, dim2=-1).mean(-1)

    return _Moments(False, moments.crossed, nngp=mean(moments.nngp), ntk=mean(moments.ntk))


def _residual(layer: Residual, moments: _Moments, variances: _Variances) -> _Moments:
    moments = moments.expand()
    branch = _through(layer.branch, moments, variances).expand()
    shortcut = _through(layer.shortcut, moments, variances).expand()
    if branch.nngp.shape != shortcut.nngp.shape:
        raise ValueError(
            "the branch and the shortcut of a Residual need maps of one size; pad the convolutions, or give the "
            "shortcut the same strides and pools"
        )
    return _Moments(branch.spatial, branch.crossed, nngp=branch.nngp + shortcut.nngp, ntk=branch.ntk + shortcut.ntk)


def _activate(layer: Activation, moments: _Moments, variances: _Variances) -> _Moments:
    var1, var2 = variances.pair(moments)
    moments = moments.expand()
    if moments.spatial and moments.crossed:
        var1, var2 = var1[..., None, None], var2[..., None, None, :, :]
    nngp, ntk = layer.propagate(moments.nngp, moments.ntk, var1, var2)
    return _Moments(moments.spatial, moments.crossed, nngp=nngp, ntk=ntk)


def _pooled_activation(layer: Activation, size: int, moments: _Moments, variances: _Variances) -> _Moments:
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
    return _Moments(True, True, nngp=nngp.mul_(size**-4).view(shape), ntk=ntk.mul_(size**-4).view(shape))


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


def _walk(layers: Sequence[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from _walk(layer.branch)
            yield from _walk(layer.shortcut)


def _layers_of(network: nn.Module, weight_var: float, bias_var: float) -> Iterator[Layer]:
    weight_var, bias_var = (
        float(getattr(network, name, value)) for name, value in (("weight_var", weight_var), ("bias_var", bias_var))
    )
    match network:
        case nn.Sequential():
            for child in network:
                yield from _layers_of(child, weight_var, bias_var)
        case nn.Linear():
            yield Dense(weight_var, bias_var)
        case nn.Conv2d(kernel_size=(height, width), stride=(down, across), groups=1, dilation=(1, 1)) if (
            height == width and down == across and network.padding in ("same", "valid", (0, 0), (height // 2,) * 2)
        ):
            padding = network.padding if isinstance(network.padding, str) else network.padding[0]
            yield Conv(height, down, 0 if padding == "valid" else padding, weight_var, bias_var)  # type: ignore[arg-type]
        case nn.AvgPool2d() if network.kernel_size == network.stride and isinstance(network.kernel_size, int):
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
                f"{network} has no infinite-width limit here; known are Linear, Conv2d (square, ungrouped), AvgPool2d "
                f"(without overlap), Flatten, ReLU and exact GELU in an nn.Sequential, and Residual and Erf in a Stack"
            )


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
