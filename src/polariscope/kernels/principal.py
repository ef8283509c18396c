"""Kernel PCA: the principal directions of a kernel, and the share of the labels in them.

A network that learns features turns its tangent kernel towards the task: the labels move into the leading principal
components (Paccolat et al. 2021, section 5; Spec 004, sections 4.4 and 5.3 to 5.7). Everything here takes a kernel
matrix over p inputs, from :mod:`polariscope.kernels.empirical` or anywhere else, and is solved in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from torch import Tensor

from polariscope.kernels.gram import gram, mirror_
from polariscope.kernels.machine import Kernel, kernel_matrix


@dataclass(frozen=True, eq=False)
class KernelPCA:
    """Principal components of a kernel over p inputs, largest eigenvalue first, in Mercer's normalisation:

    K(x, x') = Σ_r λ_r φ_r(x) φ_r(x') over the inputs, with mean φ_r² = 1 and λ_r the r-th eigenvalue of K over p.
    """

    eigenvalues: Tensor
    """λ ``(modes,)``; values that are negative by rounding are set to zero."""
    functions: Tensor
    """φ at the inputs ``(p, modes)``. Signs are free: the largest entry of each is positive."""
    total: float
    """Sum of all eigenvalues, including those that were dropped."""
    centred: bool

    @property
    def shares(self) -> Tensor:
        """Eigenvalues as shares of their sum."""
        return self.eigenvalues / self.total

    @property
    def rank(self) -> int:
        """Number of modes above the rounding error."""
        return int((self.eigenvalues > self.eigenvalues[0] * len(self.functions) * 1e-15).sum())

    def reconstruct(self) -> Tensor:
        """The (centred) kernel matrix from the stored modes."""
        return gram(self.functions * self.eigenvalues.sqrt())

    def projections(self, labels: Tensor) -> Tensor:
        """ω_r², the share of the labels in each mode: (φ_r·y / p)² for labels ±1, (Σ_c (φ_r·Y_c)²) / p‖Y‖² in general.

        Over all p modes they sum to 1; for labels that are independent of the kernel, each mode has 1/p on average.
        """
        y = targets(labels)
        if len(y) != len(self.functions):
            raise ValueError(f"a kernel over {len(self.functions)} inputs needs as many labels; got {len(y)}")
        return (self.functions.T @ y).square().sum(1) / (len(y) * y.square().sum())

    def rkhs_norm(self, labels: Tensor, ridge: float = 1e-2) -> float:
        """Σ_r ω_r² / (λ_r/Σλ + ridge): the squared norm of the labels as a function, on the scale of a unit trace.

        Without a ridge the smallest eigenvalues dominate: the norm increases even if training helped (Spec 004, 5.4),
        and it is infinite if the labels have a part in the null space of the kernel. All modes are needed.
        """
        if len(self.eigenvalues) < len(self.functions):
            raise ValueError("the norm needs all modes: call kernel_pca without modes")
        if ridge < 0:
            raise ValueError(f"the ridge is {ridge}; it needs to be non-negative")
        shares = self.projections(labels)
        if ridge == 0:  # a centred kernel has no constant mode, and balanced labels have no part in it
            keep = shares > 1e-20
            return float((shares[keep] / self.shares[keep]).sum())
        return float((shares / (self.shares + ridge)).sum())


def kernel_pca(kernel: Tensor, modes: int | None = None, center: bool = True) -> KernelPCA:
    """The leading ``modes`` (all, if None) of a kernel matrix, centred in feature space unless ``center`` is False.

    Without centring the leading mode of a tangent kernel is nearly constant (Spec 004, section 5.3).

    >>> pca = kernel_pca(torch.diag(torch.tensor([4.0, 2.0])), center=False)
    >>> pca.eigenvalues.tolist(), pca.functions.square().mean(0).round(decimals=9).tolist()
    ([2.0, 1.0], [1.0, 1.0])
    """
    matrix = centre(kernel) if center else kernel_matrix(kernel)
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    if not values[0] > 0:
        raise ValueError("the kernel has no positive eigenvalue: it is the same for all inputs")
    if modes is not None and not 1 <= modes <= len(matrix):
        raise ValueError(f"modes is {modes}: a kernel over {len(matrix)} inputs has 1 to {len(matrix)}")
    total = values.sum().item() / len(matrix)
    values, vectors = values[:modes], vectors[:, :modes]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return KernelPCA(values / len(matrix), vectors * largest.sign() * len(matrix) ** 0.5, total, center)


def centre(kernel: Tensor) -> Tensor:
    """HKH with H = I − 11ᵀ/p: the kernel of centred features.

    >>> centre(torch.ones(2, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    matrix = kernel_matrix(kernel)
    means = matrix.mean(0)
    return matrix.sub_(means + means[:, None]).add_(means.mean())  # one sum of both means: symmetric to the last bit


def targets(labels: Tensor) -> Tensor:
    """Labels of C classes as one-hot columns less 1/C, ``(p, C)`` in float64; for two classes that is ±1 up to scale.

    >>> targets(torch.tensor([3, 7])).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"labels have shape (p,), one class per input; got {tuple(labels.shape)}")
    names, classes = torch.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError("all labels are equal: at least 2 classes are needed")
    return torch.nn.functional.one_hot(classes, len(names)).double() - 1 / len(names)


def target_alignment(kernel: Tensor, labels: Tensor, center: bool = True) -> float:
    """⟨K, YYᵀ⟩ / ‖K‖‖YYᵀ‖, which is yᵀKy / p‖K‖ for labels ±1 (Cristianini et al. 2001; Spec 004, section 5.5).

    1 if the kernel is a multiple of YYᵀ, about p^(−1/2) or less if it is independent of the labels.

    >>> target_alignment(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.tensor([0, 1]))
    1.0
    """
    matrix = centre(kernel) if center else kernel_matrix(kernel)
    y = targets(labels)
    if len(y) != len(matrix):
        raise ValueError(f"a kernel over {len(matrix)} inputs needs as many labels; got {len(y)}")
    y = y - y.mean(0) if center else y
    return (_product(matrix, y @ y.T) / (_norm(matrix) * _norm(y @ y.T))).item()


@dataclass(frozen=True)
class KernelChange:
    """The change of a kernel: relative Frobenius distance, and the cosine of the angle between the two kernels.

    ``distance`` depends on the scale, ``alignment`` and ``cka`` do not; ``cka`` is the cosine of the centred kernels
    (Kornblith et al. 2019), which a large constant mode cannot hide.
    """

    distance: float
    alignment: float
    cka: float


def kernel_change(before: Tensor, after: Tensor) -> KernelChange:
    """The change of a kernel over the same inputs from ``before`` to ``after``.

    >>> kernel_change(torch.eye(3), 2 * torch.eye(3)).distance
    1.0
    """
    first, second = kernel_matrix(before), kernel_matrix(after)
    if first.shape != second.shape:
        raise ValueError(f"kernels over the same inputs have the same shape; got {len(first)} and {len(second)} inputs")
    a, b = centre(first), centre(second)
    if not all(_norm(m) > 0 for m in (first, second, a, b)):
        raise ValueError("one of the kernels is zero or constant, so they cannot be compared")
    distance = _norm(second - first) / _norm(first)
    alignment = _product(first, second) / (_norm(first) * _norm(second))
    return KernelChange(distance.item(), alignment.item(), (_product(a, b) / (_norm(a) * _norm(b))).item())


def kernel_distances(kernel: Tensor) -> Tensor:
    """Distances ``(p, p)`` of the inputs in the kernel's feature space, (K_ii + K_jj − 2 K_ij)^½.

    ``measures.intrinsic_dimension.mle_from_distances`` takes their sorted rows.

    >>> round(kernel_distances(torch.eye(2))[0, 1].item(), 6)
    1.414214
    """
    matrix = kernel_matrix(kernel)
    diagonal = matrix.diagonal()
    return (diagonal + diagonal[:, None] - 2 * matrix).clamp_min_(0).sqrt_()


def separability(functions: ArrayLike, labels: ArrayLike, neighbours: int = 10, folds: int = 5, seed: int = 0) -> float:
    """Cross-validated accuracy of predicting the class by nearest neighbours in the principal components (Spec 004,
    section 9.4).

    With the first two components it scores a scatter plot. Chance is the share of the largest class.

    >>> separability([[0.0]] * 20 + [[1.0]] * 20, [0] * 20 + [1] * 20)
    1.0
    """
    points, classes = np.asarray(functions, dtype=np.float64), np.asarray(labels)
    if points.ndim != 2 or len(points) != len(classes):
        raise ValueError(f"components (p, r) need p labels; got {points.shape} and {classes.shape}")
    parts = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # a rare class is in few folds
        predicted = cross_val_predict(KNeighborsClassifier(neighbours), points, classes, cv=parts)
    return float((predicted == classes).mean())


def explained_by(
    functions: ArrayLike, coordinates: ArrayLike, neighbours: int = 10, folds: int = 5, seed: int = 0
) -> Tensor:
    """Cross-validated R² of predicting each principal component from some coordinates, by nearest neighbours.

    1 if a component is a function of these coordinates alone, 0 or slightly below if it is independent of them. After
    compression the components of a last layer are functions of the informative direction (Spec 004, E10 and 9.4).

    >>> x = np.linspace(0, 1, 200)
    >>> [round(r, 2) for r in explained_by(np.stack([x**2, np.resize([1, -1], 200)], 1), x).clamp(0).tolist()]
    [1.0, 0.0]
    """
    values, at = np.asarray(functions, dtype=np.float64), np.asarray(coordinates, dtype=np.float64)
    at = at[:, None] if at.ndim == 1 else at
    if values.ndim != 2 or len(values) != len(at):
        raise ValueError(f"components (p, r) need coordinates of as many inputs; got {values.shape} and {at.shape}")
    parts = KFold(folds, shuffle=True, random_state=seed)
    predicted = cross_val_predict(KNeighborsRegressor(neighbours), at, values, cv=parts)
    return torch.from_numpy(1 - np.square(values - predicted).mean(0) / values.var(0))


@dataclass(frozen=True, eq=False)
class InvariantSplit:
    """A kernel as Θ₁(x∥, z∥) + Θ₂(x∥, z∥) x⊥·z⊥ and the relative Frobenius norm of the residual."""

    informative: Tensor
    mixed: Tensor
    residual: float


def split_invariant(kernel: Kernel, x: Tensor, informative: int) -> InvariantSplit:
    """Split a kernel whose network ignores all but the first ``informative`` coordinates, and measure how well it
    splits. Θ₁ is the kernel with x⊥ = 0, and Θ₂ is the increase for a unit step of both inputs along an uninformative
    direction, averaged over these directions.

    The residual is 0 if no first-layer weight reaches x⊥ (Paccolat et al. 2021, eq. 10; Spec 004, section 4.4), and
    falls only like Λ^(−1/2) with the amplification Λ of a trained network.
    """
    if x.ndim != 2 or not 1 <= informative < x.shape[1]:
        raise ValueError(
            f"inputs (p, d) have 1 to d - 1 informative coordinates; got {tuple(x.shape)} and {informative}"
        )
    within = x.clone()
    within[:, informative:] = 0
    theta1 = kernel(within, None).double()
    directions = torch.eye(x.shape[1], dtype=x.dtype)[informative:]
    theta2 = mirror_(torch.stack([kernel(within + e, None).double() - theta1 for e in directions]).mean(0))
    whole = kernel(x, None).double()
    across = x[:, informative:].double()
    residual = _norm(whole - theta1 - theta2 * (across @ across.T)) / _norm(whole)
    return InvariantSplit(theta1, theta2, residual.item())


def spectral_gaps(eigenvalues: Tensor, ratio: float = 2.0, modes: int = 20) -> list[int]:
    """The numbers of modes after which the eigenvalues drop by at least a factor ``ratio``, the largest drop first.

    An isotropic kernel on d-dimensional Gaussian inputs has d linear modes before its first gap; compression splits
    them into one informative mode and a multiplet of d − 1 (Spec 004, section 4.4).

    >>> spectral_gaps(torch.tensor([9.0, 8.0, 1.0, 0.9, 0.2]))
    [2, 4]
    """
    leading = eigenvalues[: modes + 1].double()
    leading = leading[leading > 0]
    drops = leading[:-1] / leading[1:]
    order = drops.argsort(descending=True, stable=True)
    return [int(r) + 1 for r in order if drops[r] >= ratio]


def _product(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


def _norm(a: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(a)
