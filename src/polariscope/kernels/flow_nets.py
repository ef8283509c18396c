"""Networks that gradient flow can train: one output, and all parameters in one tensor.

:class:`MeanFieldNet` is f(x) = (1/h) Σ β σ(ω·x/√d + b) with σ(u) = √2 max(0, u); :class:`ModuleNet` is any
``nn.Module`` with one output. (Spec 004, section 3.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call

from polariscope.kernels.empirical import check_separate
from polariscope.kernels.gram import gram, mirror_

FloatArray = NDArray[np.float64]
Coefficients = Callable[[Tensor, slice], Tensor]
"""The contribution of each example of a slice to the gradient, given its output; zero for fitted examples."""
Informative = int | ArrayLike
"""The directions that the labels depend on: the first k coordinates, or an orthonormal basis ``(d, k)``."""

SQRT2 = math.sqrt(2)
BLOCK = 2**17
"""Activations computed at a time: each is read four times, and this many stay in the cache."""


class FlowNet(Protocol):
    """A function of inputs with one output and all its parameters in one tensor."""

    @property
    def state(self) -> Tensor: ...

    @property
    def time_unit(self) -> float: ...

    def with_state(self, state: Tensor) -> Self: ...

    def prepare(self, x: ArrayLike | Tensor) -> Tensor: ...

    def pull(self, inputs: Tensor, coefficients: Coefficients) -> tuple[Tensor, Tensor]: ...

    def amplification(self, informative: Informative) -> float: ...

    def __call__(self, x: ArrayLike | Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class MeanFieldNet:
    """f(x) = (1/h) Σ_n β_n σ(ω_n·x/√d + b_n), σ(u) = √2 max(0, u); each row (ω, b, β) of ``state`` is a neuron.

    >>> net = MeanFieldNet.draw(dimension=3, width=1000, seed=0)
    >>> net.state.shape, round(net.amplification(1), 1)
    (torch.Size([1000, 5]), 1.0)
    """

    state: Tensor

    def __post_init__(self) -> None:
        if self.state.ndim != 2 or self.state.shape[1] < 3:
            raise ValueError(
                f"the state of a net is (neurons, dimension + 2), weights, bias and readout; got {self.state.shape}"
            )

    @classmethod
    def draw(cls, dimension: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> Self:
        """A net with independent standard normal parameters."""
        if dimension < 1 or width < 1:
            raise ValueError(f"a net needs a positive dimension and width; got {dimension} and {width}")
        draws = np.random.default_rng(seed).standard_normal((width, dimension + 2))
        return cls(torch.from_numpy(draws).to(dtype))

    @property
    def weights(self) -> Tensor:
        return self.state[:, :-2]

    @property
    def bias(self) -> Tensor:
        return self.state[:, -2]

    @property
    def readout(self) -> Tensor:
        return self.state[:, -1]

    @property
    def width(self) -> int:
        return len(self.state)

    @property
    def dimension(self) -> int:
        return self.state.shape[1] - 2

    @property
    def time_unit(self) -> float:
        """τ = h √(d/2): a neuron's rates are of order 1/τ."""
        return self.width * math.sqrt(self.dimension / 2)

    def with_state(self, state: Tensor) -> Self:
        return replace(self, state=state)

    def prepare(self, x: ArrayLike | Tensor) -> Tensor:
        """The inputs as (x/√d, 1), so that the bias is one more weight."""
        points = torch.as_tensor(x).to(self.state.dtype)
        if points.ndim != 2 or points.shape[1] != self.dimension:
            raise ValueError(f"inputs of this net have shape (n, {self.dimension}); got {tuple(points.shape)}")
        return torch.cat([points / math.sqrt(self.dimension), torch.ones_like(points[:, :1])], 1)

    def __call__(self, x: ArrayLike | Tensor) -> Tensor:
        """The outputs f ``(n,)``."""
        inputs, hidden = self.prepare(x), self.state[:, :-1].T.contiguous()
        parts = [(inputs[rows] @ hidden).relu_() @ self.readout for rows in self.blocks(len(inputs))]
        return torch.cat(parts) * (SQRT2 / self.width)

    def pull(self, inputs: Tensor, coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        """f at prepared inputs, and the gradient of Σ c f, in one pass over activations that stay in the cache."""
        hidden = self.state[:, :-1].T.contiguous()
        pulled = torch.zeros_like(hidden)
        outputs = torch.empty(len(inputs), dtype=inputs.dtype)
        for rows in self.blocks(len(inputs)):
            block = inputs[rows]
            active = (block @ hidden).relu_()
            outputs[rows] = (active @ self.readout) * (SQRT2 / self.width)
            c = coefficients(outputs[rows], rows)
            chosen = c.nonzero().squeeze(1)
            if len(chosen) < len(c):
                active, block, c = active[chosen], block[chosen], c[chosen]
            if len(chosen):
                pulled.addmm_((block * c[:, None]).T, active.sign_())
        # Σ c max(0, a) = ω·(Σ c 1[a > 0] x): the gradient of the readout needs no further product.
        gradient = torch.cat([pulled * self.readout, (pulled * hidden).sum(0, keepdim=True)]).T
        return outputs, gradient.contiguous().mul_(SQRT2 / self.width)

    def activations(self, x: ArrayLike | Tensor) -> Tensor:
        """σ(ω·x/√d + b), ``(n, h)``: the last hidden layer."""
        return (self.prepare(x) @ self.state[:, :-1].T).relu_().mul_(SQRT2)

    def last_layer_kernel(self, x1: ArrayLike | Tensor, x2: ArrayLike | Tensor | None = None) -> Tensor:
        """(1/h) Σ σ(a) σ(a'): learning with this kernel trains only the readout."""
        return gram(self.activations(x1), None if x2 is None else self.activations(x2)).div_(self.width)

    def tangent_kernel(self, x1: ArrayLike | Tensor, x2: ArrayLike | Tensor | None = None) -> Tensor:
        """h Θ(x, x') = h ∂f(x)·∂f(x') in closed form; with the factor h it has a limit at infinite width.

        (1/h) Σ σ(a) σ(a') + (1/h) Σ β² σ'(a) σ'(a') (x·x'/d + 1).
        """
        input1, first = self.prepare(x1), self.activations(x1)
        input2, second = (input1, first) if x2 is None else (self.prepare(x2), self.activations(x2))
        kernel = first @ second.T
        slopes = first.sign() * self.readout.square()
        kernel.addcmul_(slopes @ second.sign_().T, input1 @ input2.T, value=2)
        kernel.div_(self.width)
        return mirror_(kernel) if x2 is None else kernel

    def amplification(self, informative: Informative) -> float:
        """Λ = √(d_⊥ Σ‖ω_∥‖² / d_∥ Σ‖ω_⊥‖²): 1 for isotropic weights, large if ω_∥ dominates."""
        parallel, perpendicular = split(self.weights, informative)
        ratio = parallel.square().sum() / perpendicular.square().sum()
        count = informative if isinstance(informative, int) else np.asarray(informative).shape[1]
        return math.sqrt((self.dimension - count) / count * ratio.item())

    def blocks(self, count: int) -> list[slice]:
        """Slices of inputs whose activations fit in the cache."""
        step = max(1, BLOCK // self.width)
        return [slice(start, start + step) for start in range(0, count, step)]


@dataclass(frozen=True, eq=False)
class ModuleNet:
    """An ``nn.Module`` with one output as a :class:`FlowNet`; its time unit is 1 and it has no amplification."""

    module: nn.Module
    state: Tensor

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """The module at its current parameters that require gradients."""
        trained = [p.detach().flatten() for p in module.parameters() if p.requires_grad]
        if not trained:
            raise ValueError("no parameter of the module requires gradients, so it cannot be trained")
        check_separate(module)
        return cls(module, torch.cat(trained))

    @property
    def time_unit(self) -> float:
        return 1.0

    def with_state(self, state: Tensor) -> Self:
        return replace(self, state=state)

    def prepare(self, x: ArrayLike | Tensor) -> Tensor:
        return torch.as_tensor(x).to(self.state.dtype)

    def parameters(self) -> dict[str, Tensor]:
        """The state by the names of the module's parameters, as ``functional_call`` and ``load_state_dict`` take it."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        parts = self.state.split([p.numel() for _, p in named])
        return {name: part.view_as(p) for (name, p), part in zip(named, parts, strict=True)}

    def __call__(self, x: ArrayLike | Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._outputs(rows) for rows in self.prepare(x).split(256)])

    def pull(self, inputs: Tensor, coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        """Outputs without a graph, then the gradient of the active examples only, because most are soon fitted."""
        outputs = self(inputs)
        c = coefficients(outputs, slice(0, len(inputs)))
        chosen = c.nonzero().squeeze(1)
        leaf = self.state.clone().requires_grad_()
        gradient = torch.zeros_like(leaf)
        for rows in chosen.split(256) if len(chosen) else ():
            value = self.with_state(leaf)._outputs(inputs[rows]) @ c[rows]
            gradient += torch.autograd.grad(value, leaf)[0]
        return outputs, gradient

    def amplification(self, informative: Informative) -> float:
        raise ValueError("a module has no amplification factor: leave out the informative directions")

    def _outputs(self, x: Tensor) -> Tensor:
        result: Tensor = functional_call(self.module, self.parameters(), (x,))
        if result.shape not in ((len(x),), (len(x), 1)):
            raise ValueError(f"the flow needs a module with one output; this one returns {tuple(result.shape)}")
        return result.flatten()


def split(weights: Tensor, informative: Informative) -> tuple[Tensor, Tensor]:
    """The components of weights ``(h, d)`` in the informative directions and in the other directions."""
    dimension = weights.shape[1]
    if isinstance(informative, int):
        if not 0 < informative < dimension:
            raise ValueError(f"1 to {dimension - 1} of {dimension} directions can be informative; got {informative}")
        return weights[:, :informative], weights[:, informative:]
    basis = torch.as_tensor(np.asarray(informative)).to(weights.dtype)
    if basis.ndim != 2 or len(basis) != dimension or not 0 < basis.shape[1] < dimension:
        raise ValueError(
            f"a basis of informative directions is ({dimension}, k) with k < {dimension}; got {basis.shape}"
        )
    if not torch.allclose(basis.T @ basis, torch.eye(basis.shape[1], dtype=basis.dtype), atol=1e-5):
        raise ValueError("the basis of informative directions needs orthonormal columns; use the Q of its QR")
    parallel = weights @ basis
    return parallel, weights - parallel @ basis.T
