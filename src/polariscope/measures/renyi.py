"""Matrix-based Rényi entropy and mutual information, and their use in dimension selection.

The entropy of a sample is the entropy of the spectrum of its normalised kernel matrix, so no density is estimated.
FONDUE's information-bottleneck variant compares H(z) with I(x; x̂); the information plane plots I(x; z) against I(x̂; z).
All are in bits (Spec 002, sections 12.3 and 12.6; Bonheme 2023, section 8.4.2 and appendix D).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polariscope.measures.information import FloatArray, as_array, observations


def _flat(x: ArrayLike, name: str) -> FloatArray:
    values = as_array(x)
    return observations(values.reshape(len(values), -1) if values.ndim > 2 else values, name)


def _widths(batches: FloatArray) -> FloatArray:
    """Silverman's widths std(x) h^(−1/(4+m)) for h samples of dimension m; the deviation is over all entries."""
    _, samples, dimension = batches.shape
    widths: FloatArray = batches.std(axis=(1, 2)) * samples ** (-1 / (4 + dimension))
    if not np.all(widths > 0):
        raise ValueError("a kernel width is undefined for samples that are all equal: use larger or other batches")
    return widths


def _kernels(batches: FloatArray, widths: FloatArray) -> FloatArray:
    """Gaussian kernel matrices of a stack of batches (batches, samples, dimension), each of trace 1."""
    centred = batches - batches.mean(axis=1, keepdims=True)  # keeps distances and avoids cancellation
    norms = np.sum(centred**2, axis=2)
    squared = norms[:, :, None] + norms[:, None, :] - 2 * centred @ centred.transpose(0, 2, 1)
    kernels = np.exp(-np.maximum(squared, 0) / (2 * widths[:, None, None] ** 2))
    diagonal = np.arange(batches.shape[1])
    kernels[:, diagonal, diagonal] = 1.0
    return np.asarray(kernels / batches.shape[1])


def normalised_kernel(x: ArrayLike, width: float | None = None) -> FloatArray:
    """A_ij = exp(−‖x_i−x_j‖²/(2s²)) / h: the kernel matrix with trace 1; the width is Silverman's unless given.

    >>> normalised_kernel([[0.0], [1.0]], width=1e-3).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    batch = _flat(x, "x")[None]
    if width is not None and not width > 0:
        raise ValueError(f"width needs to be positive; got {width}")
    return np.asarray(_kernels(batch, _widths(batch) if width is None else np.array([width]))[0])


def renyi_entropy(kernel: ArrayLike, alpha: float = 2.0) -> FloatArray:
    """S_α(A) = log2(Σ λ_i^α)/(1−α) over the eigenvalues of a kernel matrix of trace 1 (or a stack of them), in bits.

    α = 2 is −log2 ‖A‖²_F, without eigenvalues; α = 1 is the limit −Σ λ log2 λ. Bonheme 2023, appendix D (after
    Yu and Príncipe 2019); Spec 002, section 12.3.
    Range [0, log2 h]: 0 if all samples coincide, log2 h if no two samples are similar under the kernel. In high
    dimensions no two samples are, and the estimate is not informative.

    >>> float(renyi_entropy(np.eye(4) / 4)), float(renyi_entropy(np.ones((4, 4)) / 4))
    (2.0, 0.0)
    >>> round(float(renyi_entropy([[0.5, 0.25], [0.25, 0.5]])), 5)
    0.67807
    """
    kernel = np.asarray(kernel, dtype=np.float64)
    if kernel.ndim < 2 or kernel.shape[-1] != kernel.shape[-2]:
        raise ValueError(f"kernel needs square matrices; got shape {kernel.shape}")
    if not np.allclose(np.trace(kernel, axis1=-2, axis2=-1), 1, atol=1e-6):
        raise ValueError("kernel needs trace 1: use normalised_kernel")
    if not alpha > 0:
        raise ValueError(f"alpha needs to be positive; got {alpha}")
    if alpha == 2:
        entropy = -np.log2(np.sum(kernel**2, axis=(-2, -1)))
    else:
        eigenvalues = np.maximum(np.linalg.eigvalsh(kernel), 0)
        if alpha == 1:
            entropy = -np.sum(eigenvalues * np.log2(np.where(eigenvalues > 0, eigenvalues, 1)), axis=-1)
        else:
            entropy = np.log2(np.sum(eigenvalues**alpha, axis=-1)) / (1 - alpha)
    return np.asarray(entropy + 0.0)


def renyi_joint_entropy(first: ArrayLike, second: ArrayLike, alpha: float = 2.0) -> FloatArray:
    """Joint entropy S_α(A∘B / tr(A∘B)) of two kernel matrices over the same samples, in bits."""
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"the two kernels need the same samples; got shapes {first.shape} and {second.shape}")
    product = first * second
    return renyi_entropy(product / np.trace(product, axis1=-2, axis2=-1)[..., None, None], alpha)


def renyi_mutual_information(first: ArrayLike, second: ArrayLike, alpha: float = 2.0) -> FloatArray:
    """I_α = S_α(A) + S_α(B) − S_α(A, B) of two kernel matrices (or stacks of them), in bits.

    Range [0, log2 h] in practice (0 is guaranteed only as α → 1); it saturates at log2 h once both kernels are close to
    I/h, whatever the relation of the two variables. Spec 002, section 12.3.

    >>> kernel = np.eye(4) / 4
    >>> float(renyi_mutual_information(kernel, kernel))
    2.0
    """
    return np.asarray(
        renyi_entropy(first, alpha) + renyi_entropy(second, alpha) - renyi_joint_entropy(first, second, alpha)
    )


def _batched_kernels(batch: int, **arrays: ArrayLike) -> list[FloatArray]:
    """Kernel matrices of consecutive batches of each array; samples that do not fill a last batch are left out."""
    if batch < 2:
        raise ValueError(f"batch needs at least 2 samples; got {batch}")
    flat = [_flat(values, name) for name, values in arrays.items()]
    lengths = [len(values) for values in flat]
    if len(set(lengths)) > 1:
        raise ValueError(f"{', '.join(arrays)} need the same number of samples; got {lengths}")
    size = min(batch, lengths[0])
    stacks = [values[: len(values) // size * size].reshape(-1, size, values.shape[1]) for values in flat]
    return [_kernels(stack, _widths(stack)) for stack in stacks]


def truncate(value: float, decimals: int = 2) -> float:
    """``value`` cut, not rounded, to ``decimals``; a value within 1e-9 of a decimal counts as that decimal.

    >>> truncate(6.649), truncate(0.29), truncate(-0.019)
    (6.64, 0.29, -0.01)
    """
    scale = 10.0**decimals
    return float(round(np.trunc(value * scale + np.copysign(1e-9 * scale, value)) / scale, decimals))


@dataclass(frozen=True)
class BottleneckGap:
    """H(z) − I(x; x̂) in bits, both truncated; ``saturated`` if I(x; x̂) reached log2(batch) and is not informative."""

    gap: float
    entropy: float
    information: float
    saturated: bool
    batches: int
    batch: int
    alpha: float


def bottleneck_gap(
    sample: ArrayLike,
    x: ArrayLike,
    reconstruction: ArrayLike,
    batch: int = 100,
    alpha: float = 2.0,
    decimals: int = 2,
) -> BottleneckGap:
    """The statistic of FONDUE_IB: entropy of the sampled codes minus information of the reconstruction about the input.

    Both are computed by :func:`renyi_entropy` on batches of ``batch`` samples, averaged, then truncated. Range
    [−log2 batch, log2 batch]. Known bias: I(x; x̂) saturates at log2 ``batch`` for any high-dimensional x, and the
    statistic then depends on the codes alone (Spec 002, section 12.3); ``saturated`` reports this.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 50))
    >>> bottleneck_gap(rng.normal(size=(200, 2)), x, x).saturated
    True
    """
    codes, inputs, outputs = _batched_kernels(batch, sample=sample, x=x, reconstruction=reconstruction)
    entropy = truncate(float(renyi_entropy(codes, alpha).mean()), decimals)
    information = truncate(float(renyi_mutual_information(inputs, outputs, alpha).mean()), decimals)
    size = codes.shape[1]
    return BottleneckGap(
        # rounded, because 6.63 − 6.64 in binary is not the −0.01 the threshold is compared with
        gap=round(entropy - information, decimals),
        entropy=entropy,
        information=information,
        saturated=information >= truncate(np.log2(size), decimals),
        batches=len(codes),
        batch=size,
        alpha=alpha,
    )


def gaussian_code_entropy(dimension: int, batch: int = 100) -> float:
    """Approximate entropy (α = 2) of a batch of white Gaussian codes in bits, from the mean of the kernel.

    log2 h − log2(1 + (h−1)(1 + 4/s²)^(−n/2)) with s = h^(−1/(4+n)). With 10 dimensions and a
    batch of 100 it equals log2 h to two decimals, so all white codes of more dimensions have the same entropy.

    >>> round(gaussian_code_entropy(3), 3)
    5.288
    """
    if dimension < 1 or batch < 2:
        raise ValueError(f"an entropy needs a dimension of at least 1 and a batch of 2; got {dimension} and {batch}")
    width = batch ** (-1 / (4 + dimension))
    return float(np.log2(batch) - np.log2(1 + (batch - 1) * (1 + 4 / width**2) ** (-dimension / 2)))


@dataclass(frozen=True)
class InformationPlane:
    """I(x; z) and I(x̂; z) in bits: one point of the information plane."""

    encoded: float
    decoded: float
    batches: int
    batch: int
    alpha: float


def information_plane(
    x: ArrayLike, sample: ArrayLike, reconstruction: ArrayLike, batch: int = 100, alpha: float = 1.01
) -> InformationPlane:
    """Information of the codes about the input and about the reconstruction, averaged over batches (Yu and Príncipe
    2019).

    Range of both [0, log2 batch] in practice; points of better models lie closer to the diagonal. Both saturate in high
    dimensions, like all quantities of this module.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 2))
    >>> point = information_plane(x, x, x)
    >>> point.encoded == point.decoded
    True
    """
    inputs, codes, outputs = _batched_kernels(batch, x=x, sample=sample, reconstruction=reconstruction)
    return InformationPlane(
        encoded=float(renyi_mutual_information(inputs, codes, alpha).mean()),
        decoded=float(renyi_mutual_information(outputs, codes, alpha).mean()),
        batches=len(codes),
        batch=codes.shape[1],
        alpha=alpha,
    )


def spi(x: ArrayLike, reconstruction: ArrayLike) -> float:
    """Similarity preservation: (1/h) Σ_ij |D_ij − D̂_ij|, cosine similarities of inputs and of reconstructions.

    Bonheme 2023, appendix D (eq. D.1); Spec 002, section 12.6. Range [0, 2(h−1)]: 0 if the reconstructions keep every
    cosine, as perfect and rescaled ones do. It grows with the number of samples h: compare it at equal h.

    >>> spi([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]])
    0.0
    >>> spi([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]])
    1.0
    """
    similarities = [
        _cosines(_flat(values, name), name) for values, name in ((x, "x"), (reconstruction, "reconstruction"))
    ]
    if similarities[0].shape != similarities[1].shape:
        raise ValueError("x and reconstruction need the same number of samples")
    return float(np.abs(similarities[0] - similarities[1]).sum() / len(similarities[0]))


def _cosines(x: FloatArray, name: str) -> FloatArray:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    if not np.all(norms > 0):
        zero = np.flatnonzero(norms[:, 0] == 0)
        raise ValueError(f"{name} has all-zero samples (first: {zero[0]}): their cosine similarity is undefined")
    unit = x / norms
    return np.asarray(unit @ unit.T)
