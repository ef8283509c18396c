"""Tangent kernels of finite networks: Θ(x, x') = ∇f(x) ∇f(x')ᵀ, for any ``nn.Module`` whose inputs do not interact.

The whole Jacobian of n inputs, C outputs and p parameters is almost never needed. Three routes avoid it:

- "contraction": Jacobians of a block of inputs at a time, multiplied with those of another block;
- "vector": a vector-Jacobian product followed by a Jacobian-vector product, for each column, a pair (input, output);
- "structured": layer by layer. The gradient of a dense layer is the outer product of its input a and the cotangent g of
  its output, so its kernel is (a·a' + 1)(g·g') and the gradient is never formed. A convolution's filters are shared by
  all positions, hence few: their gradients per input are formed. Other parameters use the contraction.

"auto" counts multiplications and takes the cheaper of the last two. (Spec 000, sections 3.5 and 7.8; the routes are
those of Novak, Sohl-Dickstein and Schoenholz, "Fast finite width neural tangent kernel", 2022.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jacrev, jvp, vjp, vmap

from polariscope.kernels.gram import gram, mirror_
from polariscope.nets.classifiers import NTKConv2d, NTKLinear
from polariscope.registry import nearest

Kind = Literal["full", "per_output", "trace", "pseudo", "last_layer"]
Route = Literal["auto", "contraction", "vector", "structured"]
KINDS = ("full", "per_output", "trace", "pseudo", "last_layer")
ROUTES = ("auto", "contraction", "vector", "structured")

MEMORY = 2**28
"""Bytes of factors (or Jacobians) of one block of inputs; two blocks are held at a time."""
TILE = 1024
"""Rows and columns of a matrix product: its sums stay in the cache while the layers are processed."""
BATCH = 256
"""Inputs in one forward and backward pass; its activations are larger than the stored factors."""


AGREES = 1e-3
"""Share by which gradients from factors may differ from those of autograd by rounding."""


class Factor(NamedTuple):
    """A part of the gradients of some inputs: the outer product of ``left`` ``(n, a)`` (1 if None) and ``right``
    ``(n, C, b)``, so that the kernel of two of them is (left·left') (right·right')."""

    left: Tensor | None
    right: Tensor


Factors = list[Factor]


def tangent_kernel(
    model: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    kind: Kind = "full",
    route: Route = "auto",
    *,
    out: Tensor | None = None,
    memory: int = MEMORY,
    tell: Callable[[float], None] = lambda share: None,
) -> Tensor:
    """The empirical tangent kernel of ``model`` between ``x1`` and ``x2`` (or ``x1`` with itself, each pair once).

    ============  ===================  ===========================================================================
    kind          shape                holds
    ============  ===================  ===========================================================================
    full          ``(n1, n2, C, C)``   ∇f_c(x) · ∇f_d(x')
    per_output    ``(n1, n2, C)``      the diagonal of the full kernel, c = d
    trace         ``(n1, n2)``         the mean of that diagonal, whose limit at infinite width is the NTK
    pseudo        ``(n1, n2)``         the kernel of the sum of the outputs over √C (Mohamadi, Bae and Sutherland 2023)
    last_layer    ``(n1, n2)``         the kernel of the last dense layer only, h·h' (+ 1 with a bias), for every output
    ============  ===================  ===========================================================================

    Only parameters that require gradients count. The kernel is written to ``out`` if it is given; a tensor over a
    ``numpy.memmap`` holds kernels larger than memory. ``memory`` bounds the bytes of the factors of one block of
    inputs, and ``tell`` is called after each block with the finished share of the kernel. :func:`as_matrix` turns a
    full kernel into the ``(n1 C, n2 C)`` matrix.

    >>> model = nn.Linear(3, 2)
    >>> x = torch.eye(3)
    >>> tangent_kernel(model, x, kind="trace").tolist()  # x·x' for the weights, 1 for the bias
    [[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]]
    """
    outputs = _check(model, x1, x2, kind, route)
    shape = (len(x1), len(x1 if x2 is None else x2))
    trailing = {"full": (outputs, outputs), "per_output": (outputs,)}.get(kind, ())
    if out is None:
        # A full kernel is stored as the (n1 C, n2 C) matrix it is in algebra, and handed out as a view.
        dtype = next(model.parameters()).dtype
        if kind == "full":
            out = torch.empty(shape[0], outputs, shape[1], outputs, dtype=dtype).transpose(1, 2)
        else:
            out = torch.empty(*shape, *trailing, dtype=dtype)
    elif out.shape != (*shape, *trailing):
        raise ValueError(f"out needs shape {(*shape, *trailing)} for this kernel; got {tuple(out.shape)}")
    done = 0
    for rows, columns, block in tangent_blocks(model, x1, x2, kind, route, memory=memory):
        mirrored = x2 is None and rows != columns
        out[rows, columns] = block
        if mirrored:
            out[columns, rows] = block.transpose(0, 1).transpose(2, 3) if kind == "full" else block.transpose(0, 1)
        done += block.shape[0] * block.shape[1] * (1 + mirrored)
        tell(done / (shape[0] * shape[1]))
    return out


def tangent_blocks(
    model: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    kind: Kind = "full",
    route: Route = "auto",
    *,
    memory: int = MEMORY,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """The kernel in blocks (rows, columns, block), for kernels that do not fit into memory.

    Without ``x2`` only blocks on and above the diagonal are returned; those below are their transposes.
    """
    _check(model, x1, x2, kind, route)
    gradients = _Gradients(model, x1[:1], kind)
    chosen = gradients.cheapest() if route == "auto" else route
    if chosen == "vector":
        blocks = _by_vector_products(gradients, x1, x2, memory)
    else:
        factors_of = gradients.structured if chosen == "structured" else gradients.jacobian
        blocks = _by_factors(factors_of, kind, x1, x2, memory)
    for rows, columns, block in blocks:
        yield rows, columns, _mirrored(block, kind) if x2 is None and rows == columns else block


def as_matrix(kernel: Tensor) -> Tensor:
    """A full kernel ``(n1, n2, C, C)`` as the matrix ``(n1 C, n2 C)``, rows by input, then output.

    >>> as_matrix(torch.zeros(3, 2, 10, 10)).shape
    torch.Size([30, 20])
    """
    if kernel.ndim != 4:
        raise ValueError(f"a full kernel has shape (n1, n2, C, C); got {tuple(kernel.shape)}")
    n1, n2, c1, c2 = kernel.shape
    return kernel.transpose(1, 2).reshape(n1 * c1, n2 * c2)


def layer_kernels(model: nn.Module, x1: Tensor, x2: Tensor | None = None) -> dict[str, Tensor]:
    """The contribution of every parameter tensor to the "trace" kernel, which is their sum.

    >>> {name: k.item() for name, k in layer_kernels(nn.Linear(2, 1), torch.tensor([[1.0, 2.0]])).items()}
    {'weight': 5.0, 'bias': 1.0}
    """
    left = jacobian(model, x1)
    right = {} if x2 is None else jacobian(model, x2)
    return {
        name: gram(g.flatten(1), right[name].flatten(1) if right else None) / g.shape[1] for name, g in left.items()
    }


def jacobian(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The gradients, ``(n, C, *shape)`` for every parameter tensor; meant for small networks and few inputs.

    >>> jacobian(nn.Linear(2, 1, bias=False), torch.tensor([[3.0, 4.0]]))["weight"].tolist()
    [[[[3.0, 4.0]]]]
    """
    _check(model, x, None, "full", "contraction")
    return _Gradients(model, x[:1], "full").jacobians(x)


# --- gradients of a model in factors -------------------------------------------------------------------------------


@dataclass
class _Call:
    """Input and output of a hooked layer in one forward pass."""

    layer: nn.Linear | nn.Conv2d
    input: Tensor
    output: Tensor


class _Gradients:
    """The gradients of a model's outputs (as ``kind`` combines them) for batches of inputs, in factors."""

    def __init__(self, model: nn.Module, probe: Tensor, kind: Kind) -> None:
        self.model, self.kind = model, kind
        self.parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        self.rest = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}
        self.rest |= dict(model.named_buffers())
        with torch.no_grad():
            self.outputs = model(probe).shape[-1]
        self.columns = 1 if kind == "pseudo" else self.outputs
        self.layers, self.multiplications = self._find_layers(probe)
        hooked = {id(p) for layer in self.layers.values() for p in layer.parameters()}
        named = {n for n, p in model.named_parameters() if p.requires_grad and id(p) in hooked}
        self.elsewhere = [name for name in self.parameters if name not in named]
        if kind == "last_layer":
            self.last = self._last_layer(probe)

    def function(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Outputs ``(n, columns)`` as a function of the parameters."""
        return self.combine(functional_call(self.model, {**self.rest, **parameters}, (x,)))

    def combine(self, outputs: Tensor) -> Tensor:
        return outputs.sum(-1, keepdim=True) / math.sqrt(self.outputs) if self.kind == "pseudo" else outputs

    def jacobians(self, x: Tensor, names: list[str] | None = None) -> dict[str, Tensor]:
        """Gradients ``(n, columns, *shape)`` of each input by itself, of the named parameters or of all."""
        names = list(self.parameters) if names is None else names
        fixed = {name: p for name, p in self.parameters.items() if name not in names}

        def single(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
            return self.function({**fixed, **parameters}, one[None])[0]

        with torch.no_grad():
            chosen = {name: self.parameters[name] for name in names}
            result: dict[str, Tensor] = vmap(jacrev(single), (None, 0))(chosen, x)
        return result

    def jacobian(self, x: Tensor) -> Factors:
        """Contraction: the whole gradient of every input."""
        if self.kind == "last_layer":
            return self.structured(x)
        return [Factor(None, g.flatten(2)) for g in self.jacobians(x).values()]

    def structured(self, x: Tensor) -> Factors:
        """Layer by layer, from the input of each layer and the cotangent of its output."""
        if self.kind == "last_layer":
            return [self._last_features(x)]
        if not self.layers:
            return self.jacobian(x)
        layers = {layer: name for name, layer in self.layers.items()}
        with _recorded(layers) as calls, torch.enable_grad():
            combined = self.combine(self.model(x))
            # One backward pass per column for all inputs at once: inputs do not interact, so the sum separates them.
            cotangents = [
                torch.autograd.grad(column.sum(), [call.output for call in calls], retain_graph=True)
                for column in combined.unbind(-1)
            ]
        factors: Factors = []
        with torch.no_grad():
            for call, columns in zip(calls, zip(*cotangents, strict=True), strict=True):
                factors += _layer_factors(call, torch.stack(columns, 1))
        if self.elsewhere:
            factors += [Factor(None, g.flatten(2)) for g in self.jacobians(x, self.elsewhere).values()]
        return factors

    def cheapest(self) -> Route:
        """Structured or vector products, whichever needs fewer multiplications for a pair of inputs."""
        if self.kind == "last_layer":
            return "structured"
        squares = self.columns**2 if self.kind == "full" else self.columns
        structured = squares * sum(self.parameters[name].numel() for name in self.elsewhere)
        for layer in self.layers.values():
            if isinstance(layer, nn.Linear):
                structured += layer.in_features + squares * layer.out_features
            else:
                structured += squares * layer.weight.numel()
        elsewhere = sum(self.parameters[name].numel() for name in self.elsewhere)
        # A Jacobian-vector product costs about three times what the forward pass does.
        return "structured" if structured <= 3 * self.columns * (self.multiplications + elsewhere) else "vector"

    def _find_layers(self, probe: Tensor) -> tuple[dict[str, nn.Linear | nn.Conv2d], int]:
        """Layers whose gradients factorise: plain, trained, called once with one vector or image per input, and with
        parameters of their own. Also the multiplications of one forward pass through all layers of these kinds."""
        kinds = (nn.Linear, NTKLinear, nn.Conv2d, NTKConv2d)
        named = {n: m for n, m in self.model.named_modules() if type(m) in kinds}
        owners: dict[int, int] = {}
        for module in self.model.modules():
            for p in module.parameters(recurse=False):
                owners[id(p)] = owners.get(id(p), 0) + 1
        pair = torch.cat([probe, probe])  # a layer that sees a constant has one input whatever the batch
        with _recorded({m: n for n, m in named.items()}) as calls, torch.no_grad():
            self.model(pair)
        layers: dict[str, nn.Linear | nn.Conv2d] = {}
        multiplications = 0
        for call in calls:
            multiplications += call.layer.weight.numel() * (call.output.numel() // call.layer.weight.shape[0] // 2)
        for name, module in named.items():
            seen = [call for call in calls if call.layer is module]
            # Pruned or normalised weights are computed from parameters of other names.
            own = {name for name, p in module.named_parameters(recurse=False)} <= {"weight", "bias"}
            alone = own and all(owners[id(p)] == 1 and p.requires_grad for p in module.parameters())
            batched = len(seen) == 1 and len(seen[0].input) == len(pair)
            plain = module.padding_mode == "zeros" and module.groups == 1 if isinstance(module, nn.Conv2d) else True
            if alone and batched and plain and seen[0].input.ndim == (4 if isinstance(module, nn.Conv2d) else 2):
                layers[name] = module
        used_once = self._used_once(layers, pair)
        return {name: layer for name, layer in layers.items() if name in used_once}, multiplications

    def _used_once(self, layers: dict[str, nn.Linear | nn.Conv2d], probe: Tensor) -> set[str]:
        """Layers whose factors give the gradients of autograd: their weights are used nowhere else, as those of tied
        autoencoders are."""
        if not layers:
            return set()
        names = {layer: name for name, layer in layers.items()}
        with _recorded(names) as calls, torch.enable_grad():
            total = self.combine(self.model(probe)).sum()
            outputs, weights = [call.output for call in calls], [call.layer.weight for call in calls]
            cotangents = torch.autograd.grad(total, outputs, retain_graph=True, allow_unused=True)
            gradients = torch.autograd.grad(total, weights, allow_unused=True)
        fine = set()
        for call, cotangent, weight in zip(calls, cotangents, gradients, strict=True):
            if cotangent is None or weight is None:
                continue
            (factor,) = _layer_factors(call, cotangent[:, None])
            if factor.left is None:
                gradient = factor.right.sum((0, 1))[: weight.numel()].view_as(weight)
            else:
                gradient = (factor.right[:, 0].T @ factor.left)[:, : weight.shape[1]]
            if torch.allclose(gradient, weight, AGREES, AGREES * float(weight.abs().max())):
                fine.add(names[call.layer])
        return fine

    def _last_layer(self, probe: Tensor) -> nn.Linear:
        dense = {m: n for n, m in self.model.named_modules() if isinstance(m, nn.Linear)}
        with _recorded(dense) as calls, torch.no_grad():
            outputs = self.model(probe)
        last = calls[-1] if calls else None
        if last is None or last.output.shape != outputs.shape or not torch.equal(last.output, outputs):
            raise ValueError("kind 'last_layer' needs a model that ends in an nn.Linear; this one does not")
        assert isinstance(last.layer, nn.Linear)
        return last.layer

    def _last_features(self, x: Tensor) -> Factor:
        with _recorded({self.last: "last"}) as calls, torch.no_grad():
            self.model(x)
        features = calls[-1].input * getattr(self.last, "weight_scale", 1.0)
        if self.last.bias is not None:
            features = F.pad(features, (0, 1), value=getattr(self.last, "bias_scale", 1.0))
        return Factor(None, features[:, None])


@contextmanager
def _recorded(layers: Any) -> Iterator[list[_Call]]:
    """Inputs and outputs of the layers while the model runs, in the order they are called."""
    calls: list[_Call] = []

    def record(layer: Any, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append(_Call(layer, arguments[0].detach(), output))
        return output.clone()  # the model may overwrite its output, as nn.ReLU(inplace=True) does

    hooks = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _batched(factors_of: Callable[[Tensor], Factors], x: Tensor) -> Factors:
    parts = [factors_of(part) for part in x.split(BATCH)]
    if len(parts) == 1:
        return parts[0]
    joined = []
    for layer in zip(*parts, strict=True):
        lefts = [part.left for part in layer if part.left is not None]
        joined.append(Factor(torch.cat(lefts) if lefts else None, torch.cat([part.right for part in layer])))
    return joined


def _layer_factors(call: _Call, cotangent: Tensor) -> Factors:
    """The gradients of one layer, from its input and the cotangents ``(n, columns, *output)`` of its output."""
    layer = call.layer
    weight_scale, bias_scale = getattr(layer, "weight_scale", 1.0), getattr(layer, "bias_scale", 1.0)
    if isinstance(layer, nn.Linear):
        left = call.input * weight_scale
        return [Factor(F.pad(left, (0, 1), value=bias_scale) if layer.bias is not None else left, cotangent)]
    # The padding that torch uses, which for "same" may differ between the sides.
    image = F.pad(call.input, layer._reversed_padding_repeated_twice)
    patches = F.unfold(image, layer.kernel_size, layer.dilation, 0, layer.stride)
    gradient = cotangent.flatten(3).flatten(1, 2) @ patches.mT  # (n, columns · filters, patch)
    gradient = gradient.mul_(weight_scale).view(*cotangent.shape[:2], -1)
    if layer.bias is not None:
        gradient = torch.cat([gradient, cotangent.flatten(3).sum(-1) * bias_scale], -1)
    return [Factor(None, gradient)]


# --- products of factors -------------------------------------------------------------------------------------------


def _mirrored(block: Tensor, kind: Kind) -> Tensor:
    """Make a block of inputs with themselves symmetric to the last bit, by its upper half."""
    if kind == "full":
        inputs, outputs = block.shape[1:3]
        return mirror_(as_matrix(block)).view(inputs, outputs, inputs, outputs).transpose(1, 2)
    mirror_(block.movedim(-1, 0) if kind == "per_output" else block)
    return block


def _by_factors(
    factors_of: Callable[[Tensor], Factors], kind: Kind, x1: Tensor, x2: Tensor | None, memory: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks of the kernel as products of factors, for as many inputs at a time as fit in memory."""
    per_input = sum(t.numel() * t.element_size() for factor in factors_of(x1[:1]) for t in factor if t is not None)
    step = max(1, memory // per_input)
    for rows in _slices(len(x1), step):
        left = _batched(factors_of, x1[rows])
        for columns in _slices(len(x1 if x2 is None else x2), step):
            if x2 is None and columns.start < rows.start:
                continue
            same = x2 is None and columns == rows
            right = left if same else _batched(factors_of, (x1 if x2 is None else x2)[columns])
            yield rows, columns, _contract(left, right, kind, same)


def _contract(first: Factors, second: Factors, kind: Kind, same: bool) -> Tensor:
    """The kernel of two blocks of inputs from their factors. For a block with itself, tiles below the diagonal are not
    computed, but mirrored later."""
    rows, columns, outputs = len(first[0].right), len(second[0].right), first[0].right.shape[1]
    if kind == "per_output":
        total = first[0].right.new_zeros(outputs, rows, columns)
        for a, b in zip(first, second, strict=True):
            gram = a.right.transpose(0, 1) @ b.right.permute(1, 2, 0)
            total += gram if a.left is None or b.left is None else gram.mul_(a.left @ b.left.T)
        return total.permute(1, 2, 0)
    if kind != "full":  # the sum over outputs is one longer inner product
        first, second = ([Factor(f.left, f.right.flatten(1)[:, None]) for f in side] for side in (first, second))
    width = outputs if kind == "full" else 1
    total = first[0].right.new_zeros(rows, width, columns, width)
    step = max(1, TILE // width)
    for to, across in itertools.product(_slices(rows, step), _slices(columns, step)):
        if not same or across.start >= to.start:
            total[to, :, across] = _tile(first, second, to, across)
    if kind == "trace":
        total /= outputs
    return total.transpose(1, 2) if kind == "full" else total[:, 0, :, 0]


def _tile(first: Factors, second: Factors, to: slice, across: slice) -> Tensor:
    """The kernel ``(rows, C, columns, C)`` of some rows and columns, summed over the factors."""
    width = first[0].right.shape[1]
    shape = (to.stop - to.start, width, across.stop - across.start, width)
    total = first[0].right.new_zeros(shape[0] * width, shape[2] * width)
    for a, b in zip(first, second, strict=True):
        right1, right2 = a.right[to].flatten(0, 1), b.right[across].flatten(0, 1)
        if a.left is None or b.left is None:
            total.addmm_(right1, right2.T)
        else:
            left = a.left[to] @ b.left[across].T
            total.view(shape).addcmul_((right1 @ right2.T).view(shape), left[:, None, :, None])
    return total.view(shape)


def _by_vector_products(
    gradients: _Gradients, x1: Tensor, x2: Tensor | None, memory: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Columns of the kernel as J(x1) (J(x')ᵀ e). Memory holds nothing larger than the gradients of a few columns."""
    parameters, columns = gradients.parameters, gradients.columns
    size = sum(p.numel() * p.element_size() for p in parameters.values())
    step = max(1, memory // (size * columns))
    basis = torch.eye(columns, dtype=next(iter(parameters.values())).dtype)

    def pulled(one: Tensor, direction: Tensor) -> dict[str, Tensor]:
        pull = vjp(lambda p: gradients.function(p, one[None])[0], parameters)[1]
        return pull(direction)[0]

    def pushed(tangent: dict[str, Tensor], x: Tensor) -> Tensor:
        return jvp(lambda p: gradients.function(p, x), (parameters,), (tangent,))[1]

    each: Callable[..., Any] = vmap(vmap(pulled, (None, 0)), (0, None))
    with torch.no_grad():
        for to in _slices(len(x1 if x2 is None else x2), step):
            tangents = each((x1 if x2 is None else x2)[to], basis)
            for rows in _slices(len(x1), step):
                if x2 is None and rows.start > to.start:
                    break
                block = vmap(vmap(pushed, (0, None)), (0, None))(tangents, x1[rows])  # (n2, C2, n1, C1)
                block = block.permute(2, 0, 3, 1)
                if gradients.kind == "full":
                    yield rows, to, block
                    continue
                diagonal = block.diagonal(dim1=-2, dim2=-1)
                yield rows, to, diagonal if gradients.kind == "per_output" else diagonal.mean(-1)


def _slices(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def check_separate(model: nn.Module) -> None:
    """Refuse networks whose output for an input depends on the other inputs, or on chance."""
    mixing = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    if any(module.training and isinstance(module, mixing) for module in model.modules()):
        raise ValueError("batch normalisation or dropout is in training mode; call model.eval() first")
    if any(isinstance(m, mixing[0]) and m.running_mean is None for m in model.modules()):
        raise ValueError("batch normalisation without running statistics makes outputs depend on the other inputs")


def _check(model: nn.Module, x1: Tensor, x2: Tensor | None, kind: str, route: str) -> int:
    """Refuse models and inputs without a tangent kernel; returns the number of outputs."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind of tangent kernel {kind!r}: {nearest(kind, KINDS)}")
    if route not in ROUTES:
        raise ValueError(f"there is no route {route!r}: {nearest(route, ROUTES)}")
    if kind == "last_layer" and route == "vector":
        raise ValueError("kind 'last_layer' is computed from the features; use route 'auto'")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("no parameter of the model requires gradients, so it has no tangent kernel")
    if len(x1) == 0 or (x2 is not None and len(x2) == 0):
        raise ValueError("a tangent kernel needs at least one input on each side")
    check_separate(model)
    with torch.no_grad():
        outputs = model(x1[:1])
    if outputs.ndim != 2 or len(outputs) != 1:
        raise ValueError(f"the model needs outputs (n, C) for n inputs; for 1 input it returned {tuple(outputs.shape)}")
    if not torch.isfinite(outputs).all():
        raise ValueError("the model's output is NaN or infinite")
    return int(outputs.shape[1])
