"""Kernel machines: ridge regression, the equivalent Gaussian process, training as a linear ODE, and kernel spectra.

A network whose tangent kernel does not change trains like a kernel machine, so these classes describe a linearised or
an infinitely wide network: at the end of training (:class:`KernelMachine`) and during it (:class:`GradientFlow`).
Everything is solved in float64. A matrix that is singular to working precision is solved in the span of its leading
directions, and an :class:`IllConditioned` warning gives their number. (Spec 000, sections 2.4, 2.5 and 3.5.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from scipy.linalg.lapack import dpocon
from torch import Tensor

from polariscope.kernels.gram import gram, mirror_

Kernel = Callable[[Tensor, Tensor | None], Tensor]
"""A function from rows x1 and x2 (x1 if None) to a kernel ``(n1, n2)``, or ``(n1, n2, C, C)`` for coupled outputs."""

RIDGES = tuple(10.0**power for power in range(-5, 3))
"""Ridges to choose from; smaller ones would fit the rounding of kernels in single precision."""


class IllConditioned(UserWarning):
    """A kernel matrix is singular to working precision."""


class Posterior(NamedTuple):
    """Mean ``(m, C)`` and covariance ``(m, m)`` (the same for every output) at m inputs."""

    mean: Tensor
    cov: Tensor


def rbf(bandwidth: float) -> Kernel:
    """exp(−‖x−x'‖² / 2 bandwidth²).

    >>> rbf(1.0)(torch.tensor([[0.0], [1.0]]), None)[0, 1].item()
    0.6065306...
    """
    if not bandwidth > 0:
        raise ValueError(f"the bandwidth is {bandwidth}; it needs to be positive")

    def kernel(x1: Tensor, x2: Tensor | None = None) -> Tensor:
        a = x1.double().flatten(1)
        b = a if x2 is None else x2.double().flatten(1)
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_().mul_(-0.5 / bandwidth**2).exp_()

    return kernel


def linear(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """⟨x, x'⟩: the kernel of ridge regression on the inputs."""
    return gram(x1.double().flatten(1), None if x2 is None else x2.double().flatten(1))


def leave_one_out_ridge(gram: Tensor, y: Tensor) -> float:
    """The ridge of :data:`RIDGES`, relative to the mean diagonal, that best predicts each example from all others.

    Leaving one out has a closed form: the residual of example i grows by 1 / (1 − H_ii), H = K (K + λ)⁻¹.
    """
    values, vectors = torch.linalg.eigh(gram.double())
    y = y.reshape(len(y), -1).to(vectors)
    values, rotated = values.clamp_min(0), vectors.T @ y
    scale = gram.double().diagonal().mean()

    def squares(ridge: float) -> float:
        shrink = values / (values + ridge * scale)
        residual = y - vectors @ (shrink[:, None] * rotated)
        own = vectors.square() @ shrink
        return (residual / (1 - own)[:, None]).square().sum().item()

    return min(RIDGES, key=squares)


# --- spectra -------------------------------------------------------------------------------------------------------


def rank_of_spectrum(values: Tensor) -> float:
    """exp of the entropy of the normalised values (Roy and Vetterli 2007): 1 if one dominates, their number if equal.

    >>> round(rank_of_spectrum(torch.tensor([2.0, 1.0, 1.0])), 6)
    2.828427
    """
    values = values.double()
    if values.ndim != 1 or not bool((values >= 0).all()) or not bool(values.sum() > 0):
        raise ValueError("an effective rank needs non-negative values of which at least one is positive")
    share = values / values.sum()
    return math.exp(-torch.xlogy(share, share).sum().item())


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a kernel matrix, largest first; values that are negative by rounding are set to zero.

    Their square roots are the singular values of the Jacobian. The effective rank and the condition are those of the
    Jacobian, as in the linearisation study (Spec 000, section 7.5).
    """

    eigenvalues: Tensor

    @property
    def singular_values(self) -> Tensor:
        return self.eigenvalues.sqrt()

    @property
    def rank(self) -> int:
        """The number of eigenvalues above the rounding error of float64."""
        floor = self.eigenvalues[0] * len(self.eigenvalues) * torch.finfo(torch.float64).eps
        return int((self.eigenvalues > floor).sum())

    @property
    def effective_rank(self) -> float:
        """Effective rank of the Jacobian (from its singular values); for the kernel use :func:`rank_of_spectrum`."""
        return rank_of_spectrum(self.singular_values)

    @property
    def condition(self) -> float:
        """Largest over smallest non-zero singular value of the Jacobian."""
        return float(self.singular_values[0] / self.singular_values[self.rank - 1])


def spectrum(kernel: Tensor) -> Spectrum:
    """The spectrum of a symmetric kernel matrix.

    >>> spectrum(torch.diag(torch.tensor([9.0, 1.0, 0.0]))).condition
    3.0
    """
    values = torch.linalg.eigvalsh(kernel_matrix(kernel)).flip(0)
    if not values[0] > 0:
        raise ValueError("the kernel matrix has no positive eigenvalue, so its spectrum is not meaningful")
    return Spectrum(values.clamp_min(0))


def is_positive_semidefinite(kernel: Tensor, tolerance: float = 1e-9) -> bool:
    """Whether αᵀKα ≥ 0 for every α, up to ``tolerance`` times the largest eigenvalue."""
    values = torch.linalg.eigvalsh(kernel_matrix(kernel))
    return bool(values[0] >= -tolerance * values[-1].abs())


# --- regression ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """Dual coefficients α = (K + λ)⁻¹ Y, the λ that was added, and how well the matrix was conditioned.

    ``rank`` is below the matrix's size if the matrix was singular to working precision and α was computed in its range.
    """

    dual: Tensor
    ridge: float
    condition: float
    rank: int


def solve(kernel: Tensor, targets: Tensor, ridge: float = 0.0, relative: bool = False) -> Solution:
    """Solve (K + λ) α = Y by Cholesky, or in the range of K if K + λ is singular to working precision.

    λ is ``ridge``, or ``ridge`` times the mean of K's diagonal if ``relative``.

    >>> solve(torch.eye(2), torch.tensor([1.0, 2.0]), ridge=3.0).dual.tolist()
    [0.25, 0.5]
    """
    matrix = kernel_matrix(kernel)
    y = targets.double()
    if len(y) != len(matrix):
        raise ValueError(f"a kernel of {len(matrix)} inputs needs as many rows of targets; got {len(y)}")
    if not torch.isfinite(y).all():
        raise ValueError("the targets contain NaN or infinity")
    if ridge < 0:
        raise ValueError(f"the ridge is {ridge}; it needs to be non-negative")
    added = ridge * matrix.diagonal().mean().item() if relative else ridge
    matrix.diagonal().add_(added)
    epsilon = torch.finfo(torch.float64).eps * len(matrix)
    columns = y[:, None] if y.ndim == 1 else y
    factor, failure = torch.linalg.cholesky_ex(matrix)
    if not failure:
        inverse_condition, _ = dpocon(factor.numpy(), torch.linalg.matrix_norm(matrix, 1).item(), uplo="L")
        if inverse_condition > epsilon:
            dual = torch.cholesky_solve(columns, factor).view_as(y)
            return Solution(dual, added, 1 / inverse_condition, len(matrix))
    values, vectors = torch.linalg.eigh(matrix)
    if not values[-1] > 0:
        raise ValueError("the kernel matrix has no positive eigenvalue, so it cannot be used for regression")
    keep = values > epsilon * values[-1]
    values, vectors = values[keep], vectors[:, keep]
    warnings.warn(
        f"the kernel matrix is singular to working precision: solved in {len(values)} of {len(matrix)} directions "
        f"(effective rank {rank_of_spectrum(values.sqrt()):.1f}); a larger ridge makes it well posed",
        IllConditioned,
        stacklevel=2,
    )
    dual = (vectors @ ((vectors.T @ columns) / values[:, None])).view_as(y)
    return Solution(dual, added, (values[-1] / values[0]).item(), len(values))


@dataclass(frozen=True)
class KernelMachine:
    """Kernel ridge regression f(x) = g(x) + κ(x, X) (K + λ)⁻¹ (Y − g(X)), g the ``prior`` mean (zero by default).

    As Bayesian regression, λ is the variance of the noise. The infinite-width studies use the default ridge, 1e-6 times
    the mean of the kernel's diagonal (Spec 000, section 7.6); with ``relative=False``, λ is ``ridge`` itself.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> fitted = KernelMachine(rbf(1.0)).fit(x, torch.tensor([1.0, 2.0, 5.0]))
    >>> fitted.predict(x).round(decimals=3).tolist()
    [1.0, 2.0, 5.0]
    """

    kernel: Kernel
    ridge: float = 1e-6
    relative: bool = True
    prior: Callable[[Tensor], Tensor] | None = None

    def fit(self, x: Tensor, y: Tensor) -> FittedMachine:
        gram = self.kernel(x, None)
        target = y.double() if self.prior is None else y.double() - self.prior(x).double()
        if gram.ndim == 4:
            n1, n2, c1, c2 = gram.shape
            gram, target = gram.transpose(1, 2).reshape(n1 * c1, n2 * c2), target.reshape(-1)
        return FittedMachine(self, x, gram, target, solve(gram, target, self.ridge, self.relative))


@dataclass(frozen=True, eq=False)
class FittedMachine:
    """A kernel machine with its training data; ``targets`` are the targets of the regression, without the prior
    mean."""

    machine: KernelMachine
    x: Tensor
    gram: Tensor
    targets: Tensor
    solution: Solution

    def predict(self, x: Tensor) -> Tensor:
        cross = self.machine.kernel(x, self.x).double()
        if cross.ndim == 4:
            m, n, c1, c2 = cross.shape
            mean = (cross.transpose(1, 2).reshape(m * c1, n * c2) @ self.solution.dual).view(m, c1)
        else:
            mean = cross @ self.solution.dual
        return mean if self.machine.prior is None else mean + self.machine.prior(x).double()

    def classify(self, x: Tensor) -> Tensor:
        """The output with the largest mean, for a machine with one-hot targets."""
        return self.predict(x).argmax(-1)

    def posterior(self, x: Tensor) -> Posterior:
        """Mean and covariance of the function (without noise) as a Gaussian process."""
        cross = self.machine.kernel(x, self.x).double()
        if cross.ndim == 4:
            raise ValueError("the posterior needs a kernel (n1, n2); use the 'trace' or 'pseudo' kernel")
        reduction = solve(self.gram, cross.T, self.solution.ridge).dual
        return Posterior(self.predict(x), mirror_(self.machine.kernel(x, None).double() - cross @ reduction))

    @property
    def norm(self) -> Tensor:
        """Squared norm of each output's function in the kernel's Hilbert space, αᵀKα."""
        dual = self.solution.dual
        return (dual * (self.gram.double() @ dual)).sum(0)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Targets ``(n, classes)`` for regression on labels."""
    return torch.nn.functional.one_hot(labels.long(), classes).double()


# --- training in time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GradientFlow:
    """Training of a linear(ised) model on ½‖f − Y‖² by ḟ = −rate Θ (f − Y), from ``initial`` outputs (zero if None).

    For a mean over N inputs divide ``rate`` by N, and for a loss without the ½ double it. Outputs do not change in the
    null space of Θ. (Spec 000, section 3.5.)

    >>> flow = GradientFlow(torch.tensor([[2.0]]), torch.tensor([[1.0]]))
    >>> round(flow.train(0.5).item(), 6)  # 1 − e^{−1}
    0.632121
    """

    kernel: Tensor
    targets: Tensor
    initial: Tensor | None = None
    rate: float = 1.0

    def __post_init__(self) -> None:
        if len(self.targets) != len(self.kernel):
            raise ValueError(f"a kernel of {len(self.kernel)} inputs needs as many targets; got {len(self.targets)}")

    @cached_property
    def _eigen(self) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(kernel_matrix(self.kernel))
        return values.clamp_min(0), vectors

    @cached_property
    def _error(self) -> Tensor:
        """f_0 − Y in the eigenbasis."""
        gap = -self.targets.double() if self.initial is None else self.initial.double() - self.targets.double()
        return self._eigen[1].T @ gap

    def train(self, time: float) -> Tensor:
        """Outputs at the training inputs after ``time``."""
        vectors = self._eigen[1]
        return self.targets.double() + vectors @ (_like(self._decay(time), self._error) * self._error)

    def dual(self, time: float) -> Tensor:
        """α_t with f_t(x) = f_0(x) + Θ(x, X) α_t, and u_t = ∇f(X)ᵀ α_t for the parameters."""
        vectors = self._eigen[1]
        return -vectors @ (_like(self._growth(time), self._error) * self._error)

    def predict(self, cross: Tensor, time: float, initial: Tensor | None = None) -> Tensor:
        """Outputs at other inputs after ``time``, from Θ(x, X) and their ``initial`` outputs (zero if None)."""
        change = cross.double() @ self.dual(time)
        return change if initial is None else initial.double() + change

    def law(
        self, cross: Tensor, nngp: Tensor, nngp_cross: Tensor, nngp_other: Tensor, time: float = math.inf
    ) -> Posterior:
        """Mean and covariance over random initialisations of infinitely wide networks, at other inputs after ``time``.

        ``cross`` is Θ(x, X); ``nngp``, ``nngp_cross`` and ``nngp_other`` are K(X, X), K(x, X) and K(x, x). The outputs
        at the start are drawn from the NNGP, so ``initial`` is ignored.
        """
        vectors = self._eigen[1]
        push = cross.double() @ (vectors * self._growth(time)) @ vectors.T  # Θ_* Θ⁻¹ (I − e^{−ηΘt})
        mixed = push @ nngp_cross.double().T
        cov = nngp_other.double() + push @ nngp.double() @ push.T - mixed - mixed.T
        return Posterior(push @ self.targets.double(), mirror_(cov))

    def _decay(self, time: float) -> Tensor:
        """e^{−ηλt}; directions in the null space do not decay."""
        values = self._eigen[0]
        return torch.where(self._reached, torch.exp(-self.rate * values * _checked_time(time)), 1.0)

    def _growth(self, time: float) -> Tensor:
        """(1 − e^{−ηλt}) / λ."""
        values = self._eigen[0]
        safe = torch.where(self._reached, values, 1.0)
        return torch.where(self._reached, -torch.expm1(-self.rate * safe * _checked_time(time)) / safe, 0.0)

    @cached_property
    def _reached(self) -> Tensor:
        values = self._eigen[0]
        return values > values[-1] * len(values) * torch.finfo(torch.float64).eps


def critical_rate(kernel: Tensor) -> float:
    """2 / (λ_min + λ_max): the rate at which gradient descent on ½‖f − Y‖² contracts fastest.

    Above :func:`largest_rate` it diverges.

    >>> critical_rate(torch.diag(torch.tensor([3.0, 1.0])))
    0.5
    """
    values = torch.linalg.eigvalsh(kernel_matrix(kernel))
    return float(2 / (values[0].clamp_min(0) + values[-1]))


def largest_rate(kernel: Tensor) -> float:
    """2 / λ_max: gradient descent on ½‖f − Y‖² with a linear model converges below this rate and diverges above it."""
    return float(2 / torch.linalg.eigvalsh(kernel_matrix(kernel))[-1])


def kernel_matrix(kernel: Tensor) -> Tensor:
    """A symmetrised float64 copy of a kernel matrix, which must be square and finite."""
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or len(kernel) == 0:
        raise ValueError(
            f"a kernel matrix is square; got shape {tuple(kernel.shape)} (as_matrix() flattens full kernels)"
        )
    if not torch.isfinite(kernel).all():
        raise ValueError("the kernel matrix contains NaN or infinity")
    matrix = kernel.detach().double()
    return (matrix + matrix.T) / 2


def _like(factors: Tensor, columns: Tensor) -> Tensor:
    return factors[:, None] if columns.ndim == 2 else factors


def _checked_time(time: float) -> float:
    if not time >= 0:
        raise ValueError(f"time runs from 0; got {time}")
    return time
