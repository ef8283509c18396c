"""Linearised networks: f_lin(x, u) = f(x, ω₀) + ∇f(x, ω₀) u, trained like their originals or solved exactly.

The features ∇f(x, ω₀) are random and stay fixed, so the gap between a network and its linearisation shows the benefit
of learning features. At u = 0 the two are the same function, and :func:`descend` gives both the same mini-batches for
the same seed. Weight decay acts on u. (Spec 000, sections 3.5 and 7.2; Samarin 2022.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from polariscope.kernels.empirical import as_matrix, check_separate, jacobian, tangent_kernel
from polariscope.kernels.machine import Solution, solve
from polariscope.objectives.predict import Regress
from polariscope.subjects import as_subject
from polariscope.training.config import TrainingConfig
from polariscope.training.loop import Diverged, Listeners, build_state, fit
from polariscope.worlds.splits import RandomSplit
from polariscope.worlds.targets import Examples
from polariscope.worlds.world import Batches


class Linearised(nn.Module):
    """A network made linear in its parameters; its own parameters are the displacements u, which start at zero.

    ``original`` is a frozen copy of the network. It is not a submodule, so ``parameters()`` and ``state_dict()``
    contain only u. A network with dropout or batch normalisation in training mode has no fixed features: it is refused.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        check_separate(model)
        self.__dict__["original"] = copy.deepcopy(model)
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        if not self.names:
            raise ValueError("no parameter of the model requires gradients, so the model cannot be linearised")
        self.displacements = nn.ParameterList(torch.zeros_like(self._start()[name]) for name in self.names)

    def forward(self, x: Tensor) -> Tensor:
        # Only the tangent depends on u, so a backward pass through this is one vector-Jacobian product.
        value, change = self._push(x, dict(zip(self.names, self.displacements, strict=True)))
        return value + change

    def jvp(self, x: Tensor, direction: dict[str, Tensor]) -> Tensor:
        """∇f(x, ω₀) v for a direction v, a tensor for each name of the original's parameters."""
        return self._push(x, direction)[1]

    def vjp(self, x: Tensor, cotangent: Tensor) -> dict[str, Tensor]:
        """∇f(x, ω₀)ᵀ g for a cotangent g of the outputs."""
        pull = vjp(self._function(x), self._start())[1]
        result: dict[str, Tensor] = pull(cotangent)[0]
        return result

    @torch.no_grad()
    def initial(self, x: Tensor) -> Tensor:
        """f(x, ω₀)."""
        return self._function(x)(self._start())

    @torch.no_grad()
    def displace(self, displacement: dict[str, Tensor]) -> None:
        """Set u."""
        for name, parameter in zip(self.names, self.displacements, strict=True):
            parameter.copy_(displacement[name])

    def _start(self) -> dict[str, Tensor]:
        parameters = dict(self.__dict__["original"].named_parameters())
        return {name: parameters[name].detach() for name in self.names}

    def _function(self, x: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
        original: nn.Module = self.__dict__["original"]
        fixed = {name: p.detach() for name, p in original.named_parameters() if name not in self.names}
        fixed |= dict(original.named_buffers())
        return lambda parameters: functional_call(original, {**fixed, **parameters}, (x,))

    def _push(self, x: Tensor, direction: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        pushed = jvp(self._function(x), (self._start(),), (direction,))
        return pushed[0], pushed[1]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Linearised:
        self.__dict__["original"]._apply(fn, recurse)
        super()._apply(fn, recurse)
        return self


def linearise(model: nn.Module) -> Linearised:
    """The linearisation of a network at its current parameters.

    >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    >>> x = torch.ones(3, 2)
    >>> bool(torch.equal(linearise(model)(x), model(x)))
    True
    """
    return Linearised(model)


# --- exact solutions -----------------------------------------------------------------------------------------------


def solve_exactly(
    network: Linearised,
    x: Tensor,
    y: Tensor,
    ridge: float = 0.0,
    space: Literal["auto", "kernel", "parameter"] = "auto",
    *,
    memory: int = 2**30,
) -> Solution:
    """Move u to the minimiser of ‖f_lin(X, u) − Y‖² + ridge ‖u‖² (of smallest norm if there are many).

    Kernel space solves u = ∇fᵀ (Θ + λ)⁻¹ (Y − f₀), an n C x n C system; parameter space uses the singular value
    decomposition of the n C x p Jacobian. "auto" takes the smaller of n C and p. The solution's ``dual`` has shape
    ``(n, C)``.
    """
    if space not in ("auto", "kernel", "parameter"):
        raise ValueError(f"the space is 'auto', 'kernel' or 'parameter'; got {space!r}")
    start = network.initial(x)
    if y.shape != start.shape:
        raise ValueError(f"the targets need the shape of the outputs, {tuple(start.shape)}; got {tuple(y.shape)}")
    parameters = sum(p.numel() for p in network.displacements)
    residual = (y.double() - start.double()).flatten()
    original: nn.Module = network.__dict__["original"]
    if space == "kernel" or (space == "auto" and y.numel() <= parameters):
        kernel = as_matrix(tangent_kernel(original, x))
        solution = solve(kernel, residual, ridge)
        dual = solution.dual.view_as(y)
        total: dict[str, Tensor] = {}
        for part, cotangent in zip(x.split(256), dual.to(start.dtype).split(256), strict=True):
            for name, pulled in network.vjp(part, cotangent).items():
                total[name] = total[name] + pulled if name in total else pulled
        network.displace(total)
        return Solution(dual, solution.ridge, solution.condition, solution.rank)
    if y.numel() * parameters * 8 > memory:
        raise ValueError(
            f"the Jacobian of {y.numel()} outputs and {parameters} parameters exceeds {memory:,} bytes; "
            f"use space='kernel'"
        )
    gradients = jacobian(original, x)
    whole = torch.cat([gradients[name].flatten(2) for name in network.names], -1).flatten(0, 1).double()
    left, values, right = torch.linalg.svd(whole, full_matrices=False)
    keep = values > values[0] * max(whole.shape) * torch.finfo(start.dtype).eps
    left, values, right = left[:, keep], values[keep], right[keep]
    flat = right.T @ (left.T @ residual * values / (values**2 + ridge))
    sizes = [p.numel() for p in network.displacements]
    parts = zip(network.names, flat.split(sizes), network.displacements, strict=True)
    network.displace({name: part.view_as(p) for name, part, p in parts})
    dual = (left @ (left.T @ residual / (values**2 + ridge))).view_as(y)
    condition = float((values[0] ** 2 + ridge) / (values[-1] ** 2 + ridge))
    return Solution(dual, ridge, condition, len(values))


# --- gradient descent ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Stochastic gradient descent on the squared error, summed over outputs and averaged over the batch.

    The seed determines the mini-batches, so a network and its linearisation get the same ones. An epoch skips the
    examples that do not fill a batch. Every ``drop_every`` epochs the rate is multiplied by ``drop``. A ``batch`` of 0
    means all data.
    """

    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch: int = 32
    epochs: int = 10
    drop_every: int = 0
    drop: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.epochs < 1 or self.batch < 0:
            raise ValueError(
                f"a descent needs a positive rate, at least one epoch and a batch of 0 or more; got rate {self.rate}, "
                f"{self.epochs} epochs, batch {self.batch}"
            )

    def batches(self, count: int) -> Batches:
        """The indices in each mini-batch of ``count`` examples."""
        return Batches(count, min(self.batch or count, count), self.seed)

    def training(self, count: int) -> TrainingConfig:
        """These settings for the training loop, with one point of the learning curve per epoch."""
        order = self.batches(count)
        return TrainingConfig(
            steps=self.epochs * order.epoch_steps,
            batch_size=order.size,
            learning_rate=self.rate,
            optimiser="sgd",
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            schedule="drop" if self.drop_every else "constant",
            drop_every=self.drop_every * order.epoch_steps,
            drop=self.drop,
            seed=self.seed,
            evaluate_every=0,
            log_every=order.epoch_steps,
            threads=torch.get_num_threads(),
        )


@dataclass(frozen=True, eq=False)
class History:
    """The mean loss of every epoch, and the outputs ``(records, n, C)`` at the probe inputs, if any were given.

    If ``diverged``, the training stopped because the loss was no longer finite, and the model is not usable.
    """

    losses: list[float]
    diverged: bool
    trajectory: Tensor | None = None


def descend(
    model: nn.Module, x: Tensor, y: Tensor, how: Descent, probe: Tensor | None = None, every: int = 1
) -> History:
    """Train a network, linearised or not. The ``probe`` inputs are evaluated at the start, after each ``every``-th step
    and at the end."""
    world, objective, config = Examples(x, y), Regress(), how.training(len(x))
    losses: list[float] = []
    seen: list[Tensor] = []

    @torch.no_grad()
    def look(step: int, loss: Tensor | None = None) -> None:
        if probe is not None and (step % every == 0 or step == config.steps):
            seen.append(model(probe))

    look(0)
    listeners = Listeners(metrics=lambda event: losses.append(event.terms["loss"]), step=look)
    diverged = False
    try:
        fit(build_state(model, objective, config), objective, world, config, listeners, RandomSplit(0.0))
    except Diverged:
        diverged = True
    return History(losses, diverged, torch.stack(seen) if seen else None)


def accuracy(model: Any, x: Tensor, labels: Tensor, batch: int = 1024) -> float:
    """The share of inputs whose largest output belongs to their label; a single output predicts the label itself, 0 or
    1."""
    subject = as_subject(model)
    with subject.at_rest():
        outputs = torch.cat([subject.predict(part) for part in x.split(batch)])
    predicted = (outputs[:, 0] > 0.5).long() if outputs.shape[-1] == 1 else outputs.argmax(-1)
    return float((predicted == labels).double().mean())
