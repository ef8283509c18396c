"""Gradient flow between the lazy and the feature regime: a wide one-hidden-layer net on the hinge loss.

The trained function is F = α (f − f₀), where f is a net of :mod:`polariscope.kernels.flow_nets`. With a small output
scale α, the hidden weights must grow to fit the labels, and they turn towards the informative directions. With a large
α they hardly move, and the net is a kernel machine (:mod:`polariscope.kernels.frozen`). The flow is integrated by
explicit Euler steps of the full gradient; a bound on the change of F limits their length. Any ``nn.Module`` with one
output can replace the net. (Spec 004, section 3; Paccolat, Petrini, Geiger, Tyloo and Wyart, "Compressing invariant
manifolds in neural nets", 2021.)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from polariscope.atomic import atomic
from polariscope.kernels.flow_nets import FloatArray, FlowNet, Informative, MeanFieldNet, ModuleNet

LabelledInputs = tuple[ArrayLike, ArrayLike]
"""Inputs and labels, -1 or +1."""

FORMAT = "polariscope-flow-1"


# --- the flow ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flow:
    """How to integrate Ẇ = (1/p) Σ ∂f(x) y 1[yF < 1], F = α (f − f₀), the gradient flow of the hinge loss over α.

    A step is accepted if no F changes by more than ``change`` (``early_change`` before t*); otherwise it is shortened
    and tried again. The next step is a tenth longer if the change was below half the bound. Before t*, when weights
    grow exponentially, steps are at most ``longest`` (in the net's time unit). After t*, ``momentum`` averages the
    gradient over the last 1/(1 − momentum) steps. Training ends when every yF ≥ 1, at t* if ``until`` is "t_star", or
    after ``steps``.

    t* is the first time at which the share ``fitted`` of examples has yF > 1.
    """

    alpha: float = 1e-6
    change: float = 0.2
    early_change: float = 0.5
    longest: float = 0.1
    momentum: float = 0.0
    steps: int = 3000
    until: Literal["fitted", "t_star"] = "fitted"
    fitted: float = 0.1

    def __post_init__(self) -> None:
        positive = (self.alpha, self.change, self.early_change, self.longest, self.steps, self.fitted)
        if not all(value > 0 for value in positive) or not 0 <= self.momentum < 1 or self.fitted > 1:
            raise ValueError(
                f"a flow needs positive alpha, bounds and steps, 0 <= momentum < 1 and 0 < fitted <= 1; got {self}"
            )
        if self.until not in ("fitted", "t_star"):
            raise ValueError(f"a flow ends 'fitted' or at 't_star'; got {self.until!r}")


@dataclass(frozen=True)
class History:
    """One entry per recorded step; times in the net's unit τ. ``loss`` is the mean of max(0, 1 − yF).

    ``amplification`` is empty if no informative directions were given, ``test_error`` if there was no test set.
    """

    time: FloatArray
    step: FloatArray
    loss: FloatArray
    active: NDArray[np.int64]
    amplification: FloatArray
    test_error: FloatArray

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The columns that are not empty, for a table."""
        return {f.name: value for f in fields(self) if len(value := getattr(self, f.name))}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The parameters and Λ at one time; Λ is NaN if it is not recorded."""

    time: float
    amplification: float
    state: Tensor


@dataclass(frozen=True, eq=False)
class Training:
    """The result of a gradient flow: its history, and the states at the start, at t*, at the largest Λ, and at the end.

    ``t_star`` is None if too few examples were fitted within the allowed steps, and ``largest`` is None if Λ was not
    recorded.
    """

    net: FlowNet
    flow: Flow
    history: History
    start: Snapshot
    t_star: Snapshot | None
    largest: Snapshot | None
    end: Snapshot
    steps: int
    rejected: int
    active: int

    @property
    def snapshots(self) -> dict[str, Snapshot]:
        named = {"start": self.start, "t_star": self.t_star, "largest": self.largest, "end": self.end}
        return {name: snapshot for name, snapshot in named.items() if snapshot is not None}

    def at(self, name: Literal["start", "t_star", "largest", "end"]) -> FlowNet:
        """The net at the named snapshot."""
        if name not in self.snapshots:
            raise ValueError(f"this run has no snapshot {name!r}; it has {', '.join(self.snapshots)}")
        return self.net.with_state(self.snapshots[name].state)

    def predict(self, x: ArrayLike | Tensor, when: Literal["start", "t_star", "largest", "end"] = "end") -> FloatArray:
        """F = α (f − f₀) at ``x``."""
        return _numpy(self.flow.alpha * (self.at(when)(x) - self.at("start")(x)))

    def error(self, x: ArrayLike | Tensor, y: ArrayLike) -> float:
        """Share of misclassified examples at the end."""
        return misclassified(self.predict(x), y)


def train_flow(
    net: FlowNet,
    x: ArrayLike | Tensor,
    y: ArrayLike,
    flow: Flow | None = None,
    *,
    informative: Informative | None = None,
    test: LabelledInputs | None = None,
    every: int = 1,
) -> Training:
    """Train ``net`` by gradient flow on the examples ``x`` with labels ``y`` (-1 or +1).

    Λ is recorded for the ``informative`` directions, if given. Every ``every`` steps (and at t* and the end) a row of
    the history is recorded, with the error on ``test``, which costs a pass over it.

    >>> x = np.array([[-1.0], [1.0]])
    >>> done = train_flow(MeanFieldNet.draw(1, 50, seed=0), x, [-1, 1], Flow(alpha=1.0))
    >>> done.active, bool((done.predict(x) * [-1, 1] >= 1).all())
    (0, True)
    """
    flow = flow or Flow()
    inputs = net.prepare(x)
    labels = _labels(y, len(inputs)).to(inputs.dtype)
    if not torch.isfinite(inputs).all():
        raise ValueError("the inputs contain NaN or infinity; clean the data first")
    if every < 1:
        raise ValueError(f"every, the steps between two rows of the history, needs to be at least 1; got {every}")

    # Where F = 0 every example is active. The same routine gives f₀, so that F starts at exactly zero.
    initial, gradient = net.pull(inputs, lambda _, rows: labels[rows] / len(labels))
    rounding = flow.alpha * torch.finfo(initial.dtype).eps * initial.abs().max().item()
    if rounding > flow.change / 10:
        raise ValueError(
            f"with alpha = {flow.alpha:g}, the rounding error of {initial.dtype} in F is {rounding:.2g}; use float64, "
            f"or freeze the kernel"
        )

    limit = 1 / flow.alpha + labels * initial  # yF < 1 is y f < 1/α + y f₀
    share = labels / len(labels)

    def push(outputs: Tensor, rows: slice) -> Tensor:
        return share[rows] * (labels[rows] * outputs < limit[rows])

    recorder = _Recorder(net, flow, informative, test)
    state, predictions, velocity = net.state.clone(), torch.zeros_like(initial), gradient
    time, step, count, rejected, active = 0.0, flow.longest, 0, 0, len(labels)
    start = recorder.snapshot(time, state)
    t_star: Snapshot | None = None
    largest = start if informative is not None else None
    recorder.record(time, step, 1.0, active, state, start.amplification)
    while active and count < flow.steps:
        late = t_star is not None
        bound = flow.change if late else flow.early_change
        velocity = flow.momentum * velocity + (1 - flow.momentum) * gradient if late and flow.momentum else gradient
        while True:
            trial = torch.add(state, velocity, alpha=step * net.time_unit)
            outputs, ahead = net.with_state(trial).pull(inputs, push)
            moved = flow.alpha * (outputs - initial)
            change = (moved - predictions).abs().max().item()
            if change <= bound:
                break
            if not math.isfinite(change) or step < 1e-100:
                raise FloatingPointError(
                    f"the flow broke down at time {time:.3g}: a change of {change} at step {step:.3g}"
                )
            step *= max(0.1, min(0.5, 0.9 * bound / change))
            rejected += 1
        time, count = time + step, count + 1
        state, predictions, gradient = trial, moved, ahead
        margins = labels * predictions
        active = int((labels * outputs < limit).sum())
        reached = not late and int((margins > 1).sum()) >= flow.fitted * len(labels)
        factor = net.with_state(state).amplification(informative) if informative is not None else math.nan
        if reached:
            t_star, velocity = Snapshot(time, factor, state), gradient
        if largest is not None and factor > largest.amplification:
            largest = Snapshot(time, factor, state)
        over = not active or count == flow.steps or (reached and flow.until == "t_star")
        if over or reached or count % every == 0:
            recorder.record(time, step, (1 - margins).clamp_min(0).mean().item(), active, state, factor)
        if over:
            break
        if change < bound / 2:
            step *= 1.1
        if t_star is None:
            step = min(step, flow.longest)
    end = recorder.snapshot(time, state)
    return Training(net, flow, recorder.history(), start, t_star, largest, end, count, rejected, active)


class _Recorder:
    """Collects the rows of the history."""

    def __init__(self, net: FlowNet, flow: Flow, informative: Informative | None, test: LabelledInputs | None) -> None:
        self.net, self.flow, self.informative = net, flow, informative
        self.rows: list[tuple[float, float, float, int, float, float]] = []
        self.test: tuple[Tensor, FloatArray, Tensor] | None = None
        if test is not None:
            points = torch.as_tensor(test[0])
            self.test = points, _numpy(_labels(test[1], len(points))), net(points)

    def snapshot(self, time: float, state: Tensor) -> Snapshot:
        net = self.net.with_state(state)
        return Snapshot(time, math.nan if self.informative is None else net.amplification(self.informative), state)

    def record(self, time: float, step: float, loss: float, active: int, state: Tensor, factor: float) -> None:
        error = math.nan
        if self.test is not None:
            points, labels, initial = self.test
            error = misclassified(_numpy(self.flow.alpha * (self.net.with_state(state)(points) - initial)), labels)
        self.rows.append((time, step, loss, active, factor, error))

    def history(self) -> History:
        time, step, loss, active, factor, error = (np.array(column) for column in zip(*self.rows, strict=True))
        empty = np.empty(0)
        return History(
            time,
            step,
            loss,
            active,
            empty if self.informative is None else factor,
            empty if self.test is None else error,
        )


def misclassified(predictions: ArrayLike, y: ArrayLike) -> float:
    """Share of predictions whose sign differs from the label's; a prediction of zero is wrong.

    >>> misclassified([0.3, -2.0, 0.0, 1.0], [1, -1, 1, -1])
    0.5
    """
    return float((np.asarray(predictions, dtype=np.float64) * np.asarray(y, dtype=np.float64) <= 0).mean())


def _labels(y: ArrayLike, count: int) -> Tensor:
    labels = torch.as_tensor(np.asarray(y), dtype=torch.float64)
    if labels.shape != (count,) or count == 0:
        raise ValueError(f"{count} examples need as many labels, and at least one; got shape {tuple(labels.shape)}")
    if not bool((labels.abs() == 1).all()):
        raise ValueError("the labels of a hinge loss are -1 and +1; recode them, e.g. 2 * y - 1")
    return labels


def _numpy(tensor: Tensor) -> FloatArray:
    array: FloatArray = tensor.detach().double().numpy()
    return array


# --- checkpoints ---------------------------------------------------------------------------------------------------


def save_training(training: Training, path: Path | str) -> None:
    """Write the states at the start, t*, largest Λ and end, the history and the settings to one safetensors file."""
    tensors = {f"state/{name}": snapshot.state.clone() for name, snapshot in training.snapshots.items()}
    tensors |= {f"history/{f.name}": torch.from_numpy(getattr(training.history, f.name)) for f in fields(History)}
    about = {
        "flow": asdict(training.flow),
        "snapshots": {name: [s.time, s.amplification] for name, s in training.snapshots.items()},
        "counts": [training.steps, training.rejected, training.active],
    }
    with atomic(path) as draft:
        save_file(tensors, draft, {"format": FORMAT, "about": json.dumps(about)})


def load_training(path: Path | str, module: nn.Module | None = None) -> Training:
    """Read what :func:`save_training` wrote; ``module`` is the network if it was not a :class:`MeanFieldNet`."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"{path} does not hold a gradient flow (format {metadata.get('format')})")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (FileNotFoundError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as a gradient flow: {error}") from error
    about = json.loads(metadata["about"])
    kept = {n: Snapshot(time, factor, tensors[f"state/{n}"]) for n, (time, factor) in about["snapshots"].items()}
    state = kept["start"].state
    net: FlowNet = MeanFieldNet(state) if module is None else ModuleNet(module, state)
    history = History(**{f.name: tensors[f"history/{f.name}"].numpy() for f in fields(History)})
    points = (kept["start"], kept.get("t_star"), kept.get("largest"), kept["end"])
    return Training(net, Flow(**about["flow"]), history, *points, *about["counts"])


# --- the audit of optimisers ---------------------------------------------------------------------------------------


def rotation_gap(
    optimiser: Callable[[list[Tensor]], Optimizer],
    x: ArrayLike,
    y: ArrayLike,
    *,
    width: int = 50,
    steps: int = 150,
    alpha: float = 1.0,
    seed: int = 0,
) -> float:
    """Deviation of an optimiser from rotation invariance: relative difference of weights trained on rotated data.

    A net is trained on ``x``, and a copy with rotated hidden weights on ``x`` rotated alike. Gradient descent commutes
    with rotations, so the difference is rounding (1e-12); methods that scale each parameter separately, such as Adam or
    sign descent, prefer the axes and differ by order 1. (Spec 004, section 6.7.)

    >>> x = np.random.default_rng(0).standard_normal((30, 3))
    >>> rotation_gap(lambda p: torch.optim.SGD(p, lr=5.0), x, np.sign(x[:, 0])) < 1e-12
    True
    """
    points = np.asarray(x, dtype=np.float64)
    labels = _labels(y, len(points))
    net = MeanFieldNet.draw(points.shape[1], width, seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((points.shape[1],) * 2))[0]
    turn = torch.block_diag(torch.from_numpy(rotation), torch.eye(2, dtype=torch.float64))

    def descend(start: Tensor, points: FloatArray) -> Tensor:
        state = start.clone().requires_grad_()
        method, inputs = optimiser([state]), net.prepare(points)
        initial = net.with_state(start).pull(inputs, lambda f, rows: torch.zeros_like(f))[0]

        def push(outputs: Tensor, rows: slice) -> Tensor:
            return labels[rows] * (labels[rows] * alpha * (outputs - initial[rows]) < 1) / len(labels)

        for _ in range(steps):
            with torch.no_grad():
                state.grad = -net.with_state(state).pull(inputs, push)[1]
            method.step()
        return state.detach()

    straight = descend(net.state, points) @ turn
    turned = descend(net.state @ turn, points @ rotation)
    return float((turned - straight).abs().max() / straight.abs().max())
