"""Learning with a fixed kernel: the lazy limit, and the quality of a trained network's kernel.

The hinge loss flows in function space, Ḟ = (1/p) K c with c = y 1[yF < 1], from F = 0 until every example has yF ≥ 1;
its dual coefficients give F at any other input. The kernel may be that of a net before or after training, full or of
the last layer, that of infinite width, or a Laplace kernel. A hard-margin machine and a logistic regression are the
minima of their losses with the same kernel. Learning with the kernel of a *trained* net needs examples that did not
train it. (Spec 004, sections 3.1, 4.3 and 4.5.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from torch import Tensor

from polariscope.kernels.dual import Relu
from polariscope.kernels.flow_nets import SQRT2, FloatArray, MeanFieldNet
from polariscope.kernels.gradient_flow import misclassified
from polariscope.kernels.infinite import Dense, Stack
from polariscope.kernels.machine import Kernel

Method = Literal["flow", "svc", "logistic"]
ROWS = 2048
"""Number of inputs whose kernel with all examples is in memory at a time."""
STEPS = 200_000
"""Steps that suffice for full-rank kernels. A kernel of low rank, such as a trained last layer's, may not separate the
labels."""

INFINITE_WIDTH = Stack((Dense(1.0, 1.0), Relu(), Dense(2.0)))
"""The limit of :class:`MeanFieldNet` at its start: ``ntk`` of h Θ, ``nngp`` of the last-layer kernel."""


@dataclass(frozen=True, eq=False)
class NetKernel:
    """The kernel of a network at its current parameters: ``part`` "tangent" (all parameters) or "last_layer" (the
    readout alone).

    A function Σ a K(·, x) of this kernel is a net again, so :meth:`expand` evaluates it at the cost of a forward pass,
    without the kernel between every example and every input.
    """

    net: MeanFieldNet
    part: Literal["tangent", "last_layer"] = "tangent"

    def __post_init__(self) -> None:
        if self.part not in ("tangent", "last_layer"):
            raise ValueError(f"the kernel of a net is 'tangent' or 'last_layer'; got {self.part!r}")

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.net.tangent_kernel(x1, x2) if self.part == "tangent" else self.net.last_layer_kernel(x1, x2)

    def expand(self, x: Tensor, dual: Tensor) -> Callable[[Tensor], Tensor]:
        """The function Σ_μ dual_μ K(·, x_μ)."""
        net, weights = self.net, dual.to(self.net.state.dtype)
        _, gradient = net.pull(net.prepare(x), lambda _, rows: weights[rows])
        gradient = gradient * net.width  # h ∂f/∂W summed over the examples: the step that K stands for
        hidden = net.state[:, :-1].T.contiguous()
        # Per neuron: σ(a) ∂β + β σ'(a) (∂ω·x/√d + ∂b), the derivative of f along the step.
        slope = (gradient[:, :-1] * net.readout[:, None]).T.contiguous()

        def function(points: Tensor) -> Tensor:
            inputs, parts = net.prepare(points), []
            for rows in net.blocks(len(inputs)):
                active = (inputs[rows] @ hidden).relu_()
                part = active @ gradient[:, -1]
                if self.part == "tangent":
                    part += (active.sign_() * (inputs[rows] @ slope)).sum(1)
                parts.append(part)
            return torch.cat(parts) * (SQRT2 / net.width)

        return function


def laplace(scale: float) -> Kernel:
    """exp(−‖x−x'‖ / scale): isotropic, with the cusp (ξ = 1) that tangent kernels of ReLU nets have.

    >>> round(laplace(2.0)(torch.tensor([[0.0], [2.0]]), None)[0, 1].item(), 6)
    0.367879
    """
    if not scale > 0:
        raise ValueError(f"the scale of a Laplace kernel is positive; got {scale}")

    def kernel(x1: Tensor, x2: Tensor | None = None) -> Tensor:
        first = x1.double()
        second = first if x2 is None else x2.double()
        return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist").div_(-scale).exp_()

    return kernel


# --- three ways to fit ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """F = Σ ``dual`` K(·, x) + ``intercept``, its ``outputs`` at the examples, and how many of them have yF < 1.

    ``time`` is the time of the flow Ḟ = (1/p) K c, after ``steps``; both are 0 for the other methods.
    """

    dual: FloatArray
    intercept: float
    outputs: FloatArray
    active: int
    time: float
    steps: int


def hinge_flow(gram: ArrayLike | Tensor, y: ArrayLike, change: float = 0.1, steps: int = STEPS) -> Fit:
    """Gradient flow of the hinge loss with the kernel matrix ``gram``, in Euler steps that change F by ``change``.

    Velocities change only when an example becomes active or inactive, so a step costs the columns of these examples.
    :attr:`Fit.active` is the number of examples that are not fitted if ``steps`` were not enough.

    >>> fit = hinge_flow(np.eye(2), [1, -1], change=0.25)
    >>> fit.dual.tolist(), fit.active
    ([1.0, -1.0], 0)
    """
    kernel, labels = _matrix(gram, y)
    if not change > 0 or steps < 1:
        raise ValueError(f"a flow needs a positive change and at least one step; got {change} and {steps}")
    outputs, velocity = np.zeros(len(labels)), np.zeros(len(labels))
    dual, before = np.zeros(len(labels)), np.zeros(len(labels))
    time, count = 0.0, 0
    while count < steps:
        now = labels * (labels * outputs < 1)
        turned = np.flatnonzero(now != before)
        if not now.any():
            break
        velocity += (now - before)[turned] @ kernel[turned]
        step = change / np.abs(velocity).max()
        outputs += step * velocity
        dual += step * now
        time, count, before = time + step * len(labels), count + 1, now
    return Fit(dual, 0.0, kernel @ dual, int((labels * outputs < 1).sum()), time, count)


def hard_margin(gram: ArrayLike | Tensor, y: ArrayLike, penalty: float = 1e6) -> Fit:
    """The support vector machine with ``penalty`` C, hard-margin for large C.

    The flow has another solution: it stops as soon as all examples are fitted, without maximising the margin.

    >>> hard_margin(np.eye(2), [1, -1]).dual.round(6).tolist()
    [1.0, -1.0]
    """
    kernel, labels = _matrix(gram, y)
    if len(np.unique(labels)) < 2:
        raise ValueError("a support vector machine needs examples of both labels")
    scale = float(np.trace(kernel)) / len(kernel)  # so that C has the same meaning as for a kernel of unit diagonal
    machine = SVC(C=penalty, kernel="precomputed", cache_size=500).fit(kernel / scale, labels)
    dual = np.zeros(len(labels))
    dual[machine.support_] = machine.dual_coef_[0] / scale
    outputs = kernel @ dual + machine.intercept_[0]
    slack = labels * outputs < 1 - 1e-2  # the solver's own tolerance of the margin is 1e-3
    return Fit(dual, float(machine.intercept_[0]), outputs, int(slack.sum()), 0.0, 0)


def logistic_regression(gram: ArrayLike | Tensor, y: ArrayLike, ridge: float = 1.0) -> Fit:
    """The minimiser of Σ log(1 + exp(−yF)) + ½ ``ridge`` ‖F‖², with the norm of the kernel's Hilbert space.

    The kernel is sufficient for any loss: by the representer theorem F = Σ dual K(·, x), for any features of K, and
    here dual = y / (1 + exp(yF)) / ridge at the minimum. (Spec 000, section 2.4.)

    >>> fit = logistic_regression(np.eye(2), [1, -1])
    >>> (fit.dual * (1 + np.exp(np.abs(fit.outputs)))).round(6).tolist()
    [1.0, -1.0]
    """
    kernel, labels = _matrix(gram, y)
    if not ridge > 0:
        raise ValueError(f"the ridge of a logistic regression is positive; got {ridge}")
    if len(np.unique(labels)) < 2:
        raise ValueError("a logistic regression needs examples of both labels")
    values, vectors = np.linalg.eigh(kernel)
    features = vectors * np.sqrt(values.clip(0))  # as many as examples, with the same kernel
    machine = LogisticRegression(C=1 / ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-9)
    outputs = features @ machine.fit(features, labels).coef_[0]
    dual = labels * expit(-labels * outputs) / ridge
    return Fit(dual, 0.0, kernel @ dual, int((labels * outputs < 1).sum()), 0.0, 0)


@dataclass(frozen=True, eq=False)
class FrozenLearner:
    """A kernel machine fitted to the examples ``x``."""

    kernel: Kernel
    x: Tensor
    fit: Fit

    def predict(self, x: ArrayLike | Tensor) -> FloatArray:
        points, dual = torch.as_tensor(x), torch.from_numpy(self.fit.dual)
        if isinstance(self.kernel, NetKernel):
            values = self.kernel.expand(self.x, dual)(points).double()
        else:
            values = torch.cat([self.kernel(rows, self.x).double() @ dual for rows in points.split(ROWS)])
        return np.asarray(values.numpy() + self.fit.intercept)

    def error(self, x: ArrayLike | Tensor, y: ArrayLike) -> float:
        """Share of misclassified examples."""
        return misclassified(self.predict(x), y)


def learn_frozen(
    kernel: Kernel,
    x: ArrayLike | Tensor,
    y: ArrayLike,
    method: Method = "flow",
    *,
    change: float = 0.1,
    steps: int = STEPS,
    ridge: float = 1.0,
) -> FrozenLearner:
    """Learn the labels ``y`` (-1 or +1) of ``x`` with any kernel of rows: by hinge flow (with ``change`` and
    ``steps``), by a hard-margin machine, or by logistic regression (with ``ridge``).

    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> learner = learn_frozen(laplace(1.0), x, np.sign(x[:, 0]))
    >>> learner.error([[0.3], [-0.3]], [1, -1])
    0.0
    """
    points = torch.as_tensor(x)
    ways: dict[str, Callable[[Tensor], Fit]] = {
        "flow": lambda gram: hinge_flow(gram, y, change, steps),
        "svc": lambda gram: hard_margin(gram, y),
        "logistic": lambda gram: logistic_regression(gram, y, ridge),
    }
    if method not in ways:
        raise ValueError(f"a frozen kernel learns by 'flow', 'svc' or 'logistic'; got {method!r}")
    return FrozenLearner(kernel, points, ways[method](kernel(points, None)))


def _matrix(gram: ArrayLike | Tensor, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    kernel: NDArray[np.float64] = np.asarray(
        gram.detach().numpy() if isinstance(gram, Tensor) else gram, dtype=np.float64
    )
    labels = np.asarray(y, dtype=np.float64)
    if kernel.ndim != 2 or kernel.shape != (len(labels), len(labels)) or not len(labels):
        raise ValueError(f"{len(labels)} labels need a square kernel matrix of their size; got {kernel.shape}")
    if not np.isfinite(kernel).all() or (np.diagonal(kernel) <= 0).any():
        raise ValueError("the kernel matrix needs finite entries and a positive diagonal")
    if not (np.abs(labels) == 1).all():
        raise ValueError("the labels are -1 and +1; recode them, e.g. 2 * y - 1")
    return np.ascontiguousarray(kernel), labels
