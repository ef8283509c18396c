"""Lipschitz constants of differences of scores: how fast a decision can change, from the weights alone.

A :class:`Steepness` is passed to a module in place of a tensor. It carries one image and a bound on the change of the
current output, in L2, for a change of the image of norm 1. If the scores come from a last layer of weights, the
constant of f_y − f_c contains the norm of the difference of two rows. (Hein and Andriushchenko 2017, who bound the
gradient locally; the bound by layers is global, and smaller for deep networks.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from polariscope.robustness.bounds.intervals import NoRule, become, in_place, is_plain


@dataclass(frozen=True, eq=False)
class Steepness:
    """The current output of a network for images, and a Lipschitz constant of it."""

    value: Tensor
    constant: float = 1.0
    rows: Tensor | None = None
    """The last layer of weights, applied after the value that has the constant."""

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", str(function))
        if name not in RULES:
            raise NoRule(f"there is no Lipschitz constant for {name}")
        return in_place(RULES[name](*args, **(kwargs or {})), args, kwargs)

    def __iadd__(self, other: Any) -> Steepness:
        return become(self, self + other)

    def __isub__(self, other: Any) -> Steepness:
        return become(self, self - other)

    def __imul__(self, other: Any) -> Steepness:
        return become(self, self * other)

    def __itruediv__(self, other: Any) -> Steepness:
        return become(self, self / other)

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    def __len__(self) -> int:
        return len(self.value)

    def dim(self) -> int:
        return self.value.dim()

    def size(self, *which: int) -> Any:
        return self.value.size(*which)

    @property
    def whole(self) -> float:
        """The constant with the last layer of weights."""
        return self.constant if self.rows is None else self.constant * _spectral(self.rows)

    def after(self, value: Tensor, factor: float = 1.0) -> Steepness:
        return Steepness(value, self.whole * factor)

    def spread(self, value: Tensor) -> float:
        """The constant where a broadcast repeats the numbers until they have the shape of ``value``."""
        return self.whole * math.sqrt(value[0].numel() / self.value[0].numel())

    def reshaped(self, value: Tensor) -> Steepness:
        return replace(self, value=value)

    def flatten(self, *which: int) -> Steepness:
        return self.reshaped(self.value.flatten(*which))

    def reshape(self, *shape: Any) -> Steepness:
        return self.reshaped(self.value.reshape(*shape))

    view = reshape

    def squeeze(self, *which: int) -> Steepness:
        return self.reshaped(self.value.squeeze(*which))

    def contiguous(self, **_: Any) -> Steepness:
        return self

    def __add__(self, other: Any) -> Steepness:
        if isinstance(other, Steepness):
            value = self.value + other.value
            return Steepness(value, self.spread(value) + other.spread(value))
        value = self.value + other
        return Steepness(value, self.spread(value))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Steepness:
        if isinstance(other, Steepness):
            value = self.value - other.value
            return Steepness(value, self.spread(value) + other.spread(value))
        value = self.value - other
        return Steepness(value, self.spread(value))

    def __mul__(self, other: Any) -> Steepness:
        if isinstance(other, Steepness):
            raise NoRule("there is no Lipschitz constant for a product of two values that depend on the input")
        value = self.value * other
        return Steepness(value, self.spread(value) * float(torch.as_tensor(other).abs().max()))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Steepness:
        if isinstance(other, Steepness):
            raise NoRule("there is no Lipschitz constant for a division by a value that depends on the input")
        return self * (1 / other)

    def differences(self, labels: Tensor) -> Tensor:
        """Constants of the score of the label minus each other score, ``(n, classes)``."""
        if self.rows is None:
            return self.value.new_full(self.shape, math.sqrt(2) * self.constant)
        apart = self.rows[labels][:, None] - self.rows
        return self.constant * apart.norm(dim=2)


def _spectral(weight: Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.double(), 2))


def _linear(x: Steepness, weight: Tensor, bias: Tensor | None = None) -> Steepness:
    value = functional.linear(x.value, weight, bias)
    return Steepness(value, x.whole, weight) if x.ndim == 2 else x.after(value, _spectral(weight))


def _conv2d(
    x: Steepness, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, *rest: Any, **more: Any
) -> Steepness:
    if x.shape[1:] == weight.shape[1:] and is_plain(padding, rest, more):
        return _linear(x.flatten(1), weight.flatten(1), bias).reshape(len(x), len(weight), 1, 1)
    groups = rest[1] if len(rest) > 1 else more.get("groups", 1)
    if groups != 1:
        raise NoRule("there is no Lipschitz constant for a convolution in groups")
    value = functional.conv2d(x.value, weight, bias, stride, padding, *rest, **more)
    dilation = rest[0] if rest else more.get("dilation", 1)
    return x.after(value, convolution_norm(weight, stride, dilation))


def convolution_norm(weight: Tensor, stride: Any = 1, dilation: Any = 1) -> float:
    """An upper bound on the spectral norm of a convolution ``(outputs, inputs, height, width)`` on maps of any size:
    the geometric mean of its largest sums of absolute weights into an output and out of an input.

    >>> round(convolution_norm(torch.ones(1, 1, 2, 2)), 6), round(convolution_norm(torch.ones(1, 1, 2, 2), 2), 6)
    (4.0, 2.0)
    """
    size = weight.abs().double()
    into = size.sum((1, 2, 3)).max()
    # A pixel meets only every stride-th row and column of a kernel.
    down, across = (every(*both) for both in zip(_pair(stride), _pair(dilation), strict=True))
    out = torch.stack([size[:, :, i::down, j::across].sum((0, 2, 3)).max() for i in range(down) for j in range(across)])
    return float((into * out.max()).sqrt())


def every(stride: int, dilation: int) -> int:
    """Of the rows of a kernel, a pixel meets each which lies this many after another.

    >>> every(2, 1), every(2, 2), every(4, 2)
    (2, 1, 2)
    """
    return stride // math.gcd(stride, dilation)


def _pair(size: Any) -> tuple[int, int]:
    down, across = (size, size) if isinstance(size, int) else (size * 2 if len(size) == 1 else size)
    return int(down), int(across)


def _slower(function: Callable[..., Tensor], constant: float = 1.0, by: str = "") -> Callable[..., Steepness]:
    """A function of single numbers whose slope is at most ``constant``, or the value of the setting ``by``."""

    def rule(x: Steepness, *rest: Any, **more: Any) -> Steepness:
        more.pop("inplace", None)
        steep = max(constant, abs(float(rest[0] if rest else more.get(by, 0)))) if by else constant
        return x.after(function(x.value, *rest, **more), steep)

    return rule


def _pooled(function: Callable[..., Tensor], mean: bool) -> Callable[..., Steepness]:
    def rule(x: Steepness, kernel_size: Any, stride: Any = None, *rest: Any, **more: Any) -> Steepness:
        names = ("padding", "ceil_mode", "count_include_pad", "divisor_override") if mean else ("padding", "dilation")
        given = dict(zip(names, rest, strict=False)) | more
        if given.get("divisor_override") is not None:
            raise NoRule(f"there is no Lipschitz constant for {function.__name__} with a divisor of its own")
        kernel, step = _pair(kernel_size), _pair(stride if stride else kernel_size)
        dilation = _pair(given.get("dilation", 1))
        overlaps = math.prod(math.ceil(k / every(s, d)) for k, s, d in zip(kernel, step, dilation, strict=True))
        # At an edge, the mean may be one of fewer numbers, down to a single one.
        partial = given.get("ceil_mode") or (given.get("padding", 0) and not given.get("count_include_pad", True))
        least = math.prod(kernel) if mean and not partial else 1
        value = function(x.value, kernel_size, stride, *rest, **more)
        return x.after(value, math.sqrt(overlaps / least))

    return rule


def _batch_norm(
    x: Steepness,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Steepness:
    if training or running_mean is None or running_var is None:
        raise NoRule("batch norm has a Lipschitz constant in evaluation mode only, with statistics of its own")
    scale = (running_var + eps).rsqrt() * (1 if weight is None else weight)
    value = functional.batch_norm(x.value, running_mean, running_var, weight, bias, False, momentum, eps)
    return x.after(value, float(scale.abs().max()))


def _dropout(x: Steepness, p: float = 0.5, training: bool = True, inplace: bool = False) -> Steepness:
    if training and p:
        raise NoRule("dropout has a Lipschitz constant in evaluation mode only")
    return x


def _joined(parts: Sequence[Steepness], dim: int = 0) -> Steepness:
    if not all(isinstance(part, Steepness) for part in parts):
        raise NoRule(
            "there is no Lipschitz constant for a concatenation with a value that does not depend on the input"
        )
    return Steepness(torch.cat([part.value for part in parts], dim), math.hypot(*(part.whole for part in parts)))


RULES: dict[str, Callable[..., Steepness]] = {
    "linear": _linear,
    "conv2d": _conv2d,
    "batch_norm": _batch_norm,
    **dict.fromkeys(("dropout", "dropout2d"), _dropout),
    **{name: _slower(getattr(functional, name)) for name in ("relu", "relu6", "hardtanh", "softplus", "logsigmoid")},
    "elu": _slower(functional.elu, by="alpha"),
    "leaky_relu": _slower(functional.leaky_relu, by="negative_slope"),
    **{name: _slower(getattr(torch, name)) for name in ("tanh", "clamp")},
    "sigmoid": _slower(torch.sigmoid, 0.25),
    "max_pool2d": _pooled(functional.max_pool2d, mean=False),
    "avg_pool2d": _pooled(functional.avg_pool2d, mean=True),
    "flatten": Steepness.flatten,
    "reshape": Steepness.reshape,
    "squeeze": Steepness.squeeze,
    "cat": _joined,
    "add": lambda a, b: b + a if isinstance(b, Steepness) else a + b,
    "sub": lambda a, b: a - b if isinstance(a, Steepness) else b * -1 + a,
    "mul": lambda a, b: b * a if isinstance(b, Steepness) else a * b,
    "div": Steepness.__truediv__,
}
