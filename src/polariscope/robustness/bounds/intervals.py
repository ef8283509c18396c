"""Interval arithmetic for torch modules: the possible outputs of a network for any input between two given ones.

An :class:`Interval` is passed to a module in place of a tensor. Torch calls its rule for each function, so that every
``forward`` works whose functions have a rule here: layers of weights, convolutions, pooling, batch norm in evaluation
mode, activations, sums, products with constants, thresholds, and everything that only moves numbers. A function without
a rule is refused by its name. (Gowal et al. 2018, On the effectiveness of interval bound propagation.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional


class NoRule(ValueError):
    """A function of torch for which no interval rule is known."""


Carrier = TypeVar("Carrier")


def in_place(result: Carrier, args: tuple[Any, ...], options: dict[str, Any] | None) -> Carrier:
    """The result of a rule, which also replaces the first argument if torch would overwrite it (``inplace=True``)."""
    if options and options.get("inplace") and args and type(args[0]) is type(result):
        return become(args[0], result)
    return result


def become(carrier: Carrier, after: Carrier) -> Carrier:
    """Overwrite a carrier, as torch overwrites a tensor: whatever else uses it sees the new numbers."""
    for one in fields(carrier):  # type: ignore[arg-type]
        object.__setattr__(carrier, one.name, getattr(after, one.name))
    return carrier


class Ball(NamedTuple):
    """Inputs also lie within a distance of a centre; the first layer of weights uses this."""

    centre: Tensor
    radius: Tensor
    """One for each example."""
    norm: str
    channels: int = 1


class Affine(NamedTuple):
    """An interval is the image of another under weights, which gives tighter differences of its entries."""

    of: Interval
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class Interval:
    """Numbers between ``lower`` and ``upper``, entry by entry.

    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -2.0]]))
    >>> out = layer(Interval(torch.zeros(1, 2), torch.ones(1, 2)))
    >>> out.lower.item(), out.upper.item()
    (-2.0, 1.0)
    """

    lower: Tensor
    upper: Tensor
    ball: Ball | None = None
    affine: Affine | None = None

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", str(function))
        own = getattr(function, "interval_rule", None)
        rule = own or RULES.get(name)
        if rule is None:
            raise NoRule(f"there is no interval rule for {name}")
        return in_place(rule(*args, **(kwargs or {})), args, kwargs)

    def __iadd__(self, other: Any) -> Interval:
        return become(self, self + other)

    def __isub__(self, other: Any) -> Interval:
        return become(self, self - other)

    def __imul__(self, other: Any) -> Interval:
        return become(self, self * other)

    def __itruediv__(self, other: Any) -> Interval:
        return become(self, self / other)

    @property
    def shape(self) -> torch.Size:
        return self.lower.shape

    @property
    def ndim(self) -> int:
        return self.lower.ndim

    @property
    def dtype(self) -> torch.dtype:
        return self.lower.dtype

    @property
    def device(self) -> torch.device:
        return self.lower.device

    @property
    def centre(self) -> Tensor:
        return (self.lower + self.upper) / 2

    @property
    def radius(self) -> Tensor:
        return (self.upper - self.lower) / 2

    def __len__(self) -> int:
        return len(self.lower)

    def dim(self) -> int:
        return self.lower.dim()

    def size(self, *which: int) -> Any:
        return self.lower.size(*which)

    def is_floating_point(self) -> bool:
        return True

    def moved(self, move: Callable[[Tensor], Tensor]) -> Interval:
        """Both ends under something that only moves numbers, or that keeps their order."""
        return Interval(move(self.lower), move(self.upper))

    def reshaped(self, move: Callable[[Tensor], Tensor]) -> Interval:
        """Both ends in another shape, with their examples and the order of their numbers as they are."""
        after = self.moved(move)
        return replace(after, ball=self.ball, affine=self.affine) if len(after) == len(self) else after

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Interval:
        return self.reshaped(lambda part: part.flatten(start_dim, end_dim))

    def reshape(self, *shape: Any) -> Interval:
        return self.reshaped(lambda part: part.reshape(*shape))

    def view(self, *shape: Any) -> Interval:
        return self.reshaped(lambda part: part.reshape(*shape))

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Interval:
        return self.reshaped(lambda part: part.unflatten(dim, sizes))

    def squeeze(self, *which: int) -> Interval:
        return self.reshaped(lambda part: part.squeeze(*which))

    def unsqueeze(self, dim: int) -> Interval:
        return self.reshaped(lambda part: part.unsqueeze(dim))

    def contiguous(self, **_: Any) -> Interval:
        return self

    def to(self, *where: Any, **options: Any) -> Interval:
        return self.moved(lambda part: part.to(*where, **options))

    def float(self) -> Interval:
        return self.moved(lambda part: part.float())

    def permute(self, *dims: Any) -> Interval:
        return self.moved(lambda part: part.permute(*dims))

    def transpose(self, first: int, second: int) -> Interval:
        return self.moved(lambda part: part.transpose(first, second))

    def mean(self, *which: Any, **options: Any) -> Interval:
        return self.moved(lambda part: part.mean(*which, **options))

    def sum(self, *which: Any, **options: Any) -> Interval:
        return self.moved(lambda part: part.sum(*which, **options))

    def relu(self) -> Interval:
        return self.moved(functional.relu)

    def sigmoid(self) -> Interval:
        return self.moved(torch.sigmoid)

    def tanh(self) -> Interval:
        return self.moved(torch.tanh)

    def softmax(self, dim: int, **_: Any) -> Interval:
        return _softmax(logarithm=False)(self, dim)

    def log_softmax(self, dim: int, **_: Any) -> Interval:
        return _softmax(logarithm=True)(self, dim)

    def clamp(self, *ends: Any, **options: Any) -> Interval:
        return self.moved(lambda part: part.clamp(*ends, **options))

    def round(self, **options: Any) -> Interval:
        return self.moved(lambda part: part.round(**options))

    def floor(self) -> Interval:
        return self.moved(torch.floor)

    def ceil(self) -> Interval:
        return self.moved(torch.ceil)

    def sign(self) -> Interval:
        return self.moved(torch.sign)

    def detach(self) -> Interval:
        return self.moved(torch.detach)

    def __ge__(self, other: Any) -> Interval:
        return self.moved(lambda part: part >= _fixed(other))

    def __gt__(self, other: Any) -> Interval:
        return self.moved(lambda part: part > _fixed(other))

    def __le__(self, other: Any) -> Interval:
        return Interval(self.upper <= _fixed(other), self.lower <= other)

    def __lt__(self, other: Any) -> Interval:
        return Interval(self.upper < _fixed(other), self.lower < other)

    def __bool__(self) -> bool:
        raise NoRule("there is no interval rule for a branch that depends on the input")

    def __getitem__(self, index: Any) -> Interval:
        return self.moved(lambda part: part[index])

    def __neg__(self) -> Interval:
        return Interval(-self.upper, -self.lower)

    def __add__(self, other: Any) -> Interval:
        if isinstance(other, Interval):
            return Interval(self.lower + other.lower, self.upper + other.upper)
        return self.moved(lambda part: part + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Interval:
        return self + (-other)

    def __rsub__(self, other: Any) -> Interval:
        return -self + other

    def __mul__(self, other: Any) -> Interval:
        if isinstance(other, Interval):
            ends = torch.stack([a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)])
            return Interval(ends.amin(0), ends.amax(0))
        ends = torch.stack(torch.broadcast_tensors(self.lower * other, self.upper * other))
        return Interval(ends.amin(0), ends.amax(0))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Interval:
        if isinstance(other, Interval):
            raise NoRule("there is no interval rule for a division by a value that depends on the input")
        return self * (1 / other)

    def columns(self, first: int, end: int) -> Interval:
        """Some entries of rows ``(n, entries)``."""
        rows = None
        if self.affine is not None:
            of, weight, bias = self.affine
            rows = Affine(of, weight[first:end], None if bias is None else bias[first:end])
        return Interval(self.lower[:, first:end], self.upper[:, first:end], affine=rows)

    def differences(self, labels: Tensor) -> Tensor:
        """A lower bound on entry y minus each entry of rows ``(n, classes)``, where y is the label of the row."""
        own = labels[:, None]
        if self.affine is None:
            return self.lower.gather(1, own) - self.upper
        of, weight, bias = self.affine
        apart = weight[labels][:, None] - weight  # (n, classes, inputs)
        centre, radius = of.centre.flatten(1), of.radius.flatten(1)
        least = (apart @ centre[..., None] - apart.abs() @ radius[..., None])[..., 0]
        if bias is not None:
            least = least + bias[labels][:, None] - bias
        if of.ball is not None:
            middle = of.ball.centre.flatten(1)
            change = _dual(apart.flatten(0, 1), of.ball, rows=len(labels)).reshape(least.shape)
            exact = (apart @ middle[..., None])[..., 0] - change
            least = torch.maximum(least, exact if bias is None else exact + bias[labels][:, None] - bias)
        return least


def _fixed(other: Any) -> Any:
    if isinstance(other, Interval):
        raise NoRule("there is no interval rule for a comparison of two values that depend on the input")
    return other


def _dual(weight: Tensor, ball: Ball, rows: int | None = None) -> Tensor:
    """How much a change inside of a ball changes weighted sums: radius times the dual norm, ``(n, sums)``.

    Weights are ``(sums, inputs)``, the same for every example, or with ``rows`` ``(n * sums, inputs)``.
    """
    size = weight.abs()
    if ball.norm == "l0":  # each pixel has room for at most 1 in every channel
        pixels = size.unflatten(1, (ball.channels, -1)).sum(1).sort(dim=1, descending=True).values
        reach = functional.pad(pixels.cumsum(1), (1, 0))
        count = ball.radius.floor().long().clamp(0, reach.shape[1] - 1)
        if rows is None:
            return reach[:, count].T
        return reach.unflatten(0, (rows, -1)).gather(2, count[:, None, None].expand(-1, len(reach) // rows, 1))[..., 0]
    steep = {"l1": size.amax(1), "l2": size.norm(dim=1), "linf": size.sum(1)}[ball.norm]
    return ball.radius[:, None] * (steep if rows is None else steep.unflatten(0, (rows, -1)))


def _linear(x: Interval, weight: Tensor, bias: Tensor | None = None) -> Interval:
    middle, spread = functional.linear(x.centre, weight, bias), functional.linear(x.radius, weight.abs())
    lower, upper = middle - spread, middle + spread
    if x.ball is not None and x.ndim == 2:
        at, reach = functional.linear(x.ball.centre.flatten(1), weight, bias), _dual(weight, x.ball)
        lower, upper = torch.maximum(lower, at - reach), torch.minimum(upper, at + reach)
    return Interval(lower, upper, affine=Affine(x, weight, bias) if x.ndim == 2 else None)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Interval]:
    def rule(
        x: Interval,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        *rest: Any,
        **more: Any,
    ) -> Interval:
        def applied(part: Tensor, by: Tensor, shift: Tensor | None) -> Tensor:
            return function(part, by, shift, stride, padding, *rest, **more)

        if x.shape[1:] == weight.shape[1:] and is_plain(padding, rest, more):
            # The kernel covers the map: a layer of weights, of which differences are known.
            out = _linear(x.flatten(1), weight.flatten(1), bias)
            return out.reshape(len(x), len(weight), *[1] * (weight.ndim - 2))
        middle, spread = applied(x.centre, weight, bias), applied(x.radius, weight.abs(), None)
        lower, upper = middle - spread, middle + spread
        if x.ball is not None:
            at = applied(x.ball.centre.reshape(x.shape), weight, bias)
            reach = _dual(weight.flatten(1), _seen_by(weight, x.ball))
            reach = reach.reshape(*reach.shape, *[1] * (at.ndim - 2))
            lower, upper = torch.maximum(lower, at - reach), torch.minimum(upper, at + reach)
        return Interval(lower, upper)

    return rule


def is_plain(padding: Any, rest: Sequence[Any], more: dict[str, Any]) -> bool:
    """Whether a convolution has neither padding nor dilation nor groups."""
    dilation = rest[0] if rest else more.get("dilation", 1)
    groups = rest[1] if len(rest) > 1 else more.get("groups", 1)
    return padding in (0, (0, 0), "valid") and dilation in (1, (1, 1)) and groups == 1


def _seen_by(weight: Tensor, ball: Ball) -> Ball:
    """A ball whose pixels are those of a kernel. A kernel that does not see all channels counts numbers, not pixels."""
    if ball.norm != "l0" or weight.shape[1] == ball.channels:
        return ball
    return ball._replace(radius=ball.radius * ball.channels, channels=1)


def _batch_norm(
    x: Interval,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Interval:
    if training or running_mean is None or running_var is None:
        raise NoRule("batch norm has an interval rule in evaluation mode only, with statistics of its own")
    scale = (running_var + eps).rsqrt() * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - running_mean * scale
    each = (1, -1, *[1] * (x.ndim - 2))
    return x * scale.reshape(each) + shift.reshape(each)


def _rising(function: Callable[..., Tensor], falls: str = "") -> Callable[..., Interval]:
    """A function that keeps the order of numbers; with a negative value of ``falls`` it does not."""

    def rule(x: Interval, *rest: Any, **more: Any) -> Interval:
        if falls and (rest[0] if rest else more.get(falls, 0)) < 0:
            raise NoRule(f"there is no interval rule for {function.__name__} with a negative {falls}")
        more.pop("inplace", None)  # neither end is to be overwritten
        return x.moved(lambda part: function(part, *rest, **more))

    return rule


def _dropout(x: Interval, p: float = 0.5, training: bool = True, inplace: bool = False) -> Interval:
    if training and p:
        raise NoRule("dropout has an interval rule in evaluation mode only")
    return x


def _softmax(logarithm: bool) -> Callable[..., Interval]:
    def rule(x: Interval, dim: int | None = None, *_: Any, **__: Any) -> Interval:
        """A probability rises with its own score and falls with every other."""
        dim = -1 if dim is None else dim

        def share(own: Tensor, others: Tensor) -> Tensor:
            # log p = −log(1 + Σ exp(other − own)), summed before and after each entry: a sum of all without the entry
            # itself, by subtraction, would lose the others where the entry is large.
            first, last = (torch.full_like(others.narrow(dim, 0, 1), -torch.inf) for _ in range(2))
            ahead = others.narrow(dim, 0, others.shape[dim] - 1).logcumsumexp(dim)
            behind = others.flip(dim).narrow(dim, 0, others.shape[dim] - 1).logcumsumexp(dim).flip(dim)
            rest = torch.logaddexp(torch.cat([first, ahead], dim), torch.cat([behind, last], dim))
            return -functional.softplus(rest - own)

        lower, upper = share(x.lower, x.upper), share(x.upper, x.lower)
        return Interval(lower, upper) if logarithm else Interval(lower.exp(), upper.exp())

    return rule


def _joined(parts: Sequence[Any], dim: int = 0) -> Interval:
    both = [part if isinstance(part, Interval) else Interval(part, part) for part in parts]
    return Interval(torch.cat([part.lower for part in both], dim), torch.cat([part.upper for part in both], dim))


RULES: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    **{name: _convolution(getattr(torch, name)) for name in ("conv1d", "conv2d", "conv3d")},
    "batch_norm": _batch_norm,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _dropout),
    **{name: _rising(getattr(functional, name)) for name in ("relu", "relu6", "selu", "hardtanh", "softplus", "pad")},
    **{name: _rising(getattr(functional, name)) for name in ("logsigmoid", "hardsigmoid", "softsign")},
    "elu": _rising(functional.elu, falls="alpha"),
    "leaky_relu": _rising(functional.leaky_relu, falls="negative_slope"),
    **{name: _rising(getattr(torch, name)) for name in ("sigmoid", "tanh", "clamp", "exp", "arctan")},
    **{name: _rising(getattr(torch, name)) for name in ("round", "floor", "ceil", "sign")},
    **{f"{kind}_pool{n}d": _rising(getattr(functional, f"{kind}_pool{n}d"))
       for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for n in (1, 2, 3)},
    "softmax": _softmax(logarithm=False),
    "log_softmax": _softmax(logarithm=True),
    "flatten": Interval.flatten,
    "reshape": Interval.reshape,
    "squeeze": Interval.squeeze,
    "unsqueeze": Interval.unsqueeze,
    "permute": Interval.permute,
    "transpose": Interval.transpose,
    "mean": Interval.mean,
    "sum": Interval.sum,
    "cat": _joined,
    "add": lambda a, b: b + a if isinstance(b, Interval) else a + b,
    "sub": lambda a, b: b.__rsub__(a) if isinstance(b, Interval) and not isinstance(a, Interval) else a - b,
    "mul": lambda a, b: b * a if isinstance(b, Interval) else a * b,
    "div": lambda a, b: Interval.__truediv__(a, b),
}  # fmt: skip
"""What functions of torch do to intervals, by their names. A function of one's own may have its rule in the attribute
``interval_rule``."""
