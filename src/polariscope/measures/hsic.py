"""HSIC, the inner products of centred Gram matrices from which CKA is computed.

The inner product of two centred Gram matrices K = XXᵀ also follows from the features, ⟨K, L⟩ = |XᵀY|², which is cheaper
with fewer features than samples. The cheaper way is chosen for all layers together: each wide layer gets a Gram matrix,
computed in strips and used for all its pairs; narrow layers are multiplied by features. Neither a whole Gram matrix nor
a centred copy is ever in memory. Spec 002, section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polariscope.measures.neighbours import Array, as_samples, blocks

_BLOCK_NUMBERS = 1 << 22  # numbers in one block of centred features
_STRIP_NUMBERS = 1 << 25  # numbers in one strip of all Gram matrices together (128 MB in single precision)


@dataclass(frozen=True, eq=False)
class Layer:
    """One representation with the quantities that all ways to compute HSIC need."""

    name: str
    x: Tensor
    mean: Tensor
    size: float  # sum of the samples' squared distances from the mean
    shares: Tensor  # each sample's share of it
    constant: int
    normal: Tensor  # numbers of the columns with mean 0 and variance 1, as standard-normal noise has

    def centred(self, rows: slice = slice(None), columns: slice | Tensor = slice(None)) -> Tensor:
        return self.x[rows, columns] - self.mean[columns]

    def gram(self, start: int, stop: int) -> Tensor:
        """Rows ``start:stop`` of the centred Gram matrix from column ``start`` on, divided by its trace."""
        out = torch.zeros(stop - start, len(self.x) - start, dtype=self.x.dtype, device=self.x.device)
        for columns in blocks(self.x.shape[1], len(self.x) - start, _BLOCK_NUMBERS):
            part = self.centred(slice(start, None), columns)
            out.addmm_(part[: stop - start], part.T)
        return out.div_(self.size or 1.0)

    def notes(self, debiased: bool = False) -> list[str]:
        notes = few_samples(self.name, len(self.x), self.x.shape[1], debiased)
        if self.constant:
            notes.append(f"{self.name}: {self.constant} of {self.x.shape[1]} columns are constant and have no effect")
        return notes


def look(x: Array, name: str) -> Layer:
    samples = as_samples(x, name)
    if samples.dtype == torch.uint8:
        samples = samples.to(torch.float32)
    mean = samples.mean(0)
    by_sample, by_column = _squares(samples, mean)
    constant = by_column == 0
    suspect = ~constant & (by_column <= len(samples) * (1e-3 * mean).square())
    if suspect.any():  # the mean of equal numbers may differ from them by a rounding, which is then all that is left
        columns = samples[:, suspect]
        constant[suspect] = (columns == columns[0]).all(0)
        mean = torch.where(constant, samples[0], mean)
        by_sample, by_column = _squares(samples, mean)
    size = float(by_sample.sum())
    if not np.isfinite(size) or (size == 0 and not bool((samples == samples[0]).all())):
        raise ValueError(f"the squares of {name} do not fit into {samples.dtype}: rescale it, or pass float64")
    normal = torch.nonzero((mean.abs() < 0.1) & ((by_column / len(samples) - 1).abs() < 0.1)).squeeze(1)
    return Layer(name, samples, mean, size, by_sample / (size or 1.0), int(constant.sum()), normal)


def _squares(samples: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of squares about the mean: of every sample, in double precision, and of every column."""
    by_sample = torch.empty(len(samples), dtype=torch.float64, device=samples.device)
    by_column = torch.zeros_like(mean)
    for rows in blocks(len(samples), samples.shape[1], _BLOCK_NUMBERS // 4):
        centred = samples[rows] - mean
        by_sample[rows] = torch.linalg.vector_norm(centred, dim=1).to(torch.float64).square()
        by_column += centred.square_().sum(0)
    return by_sample, by_column


def check_counts(batch: Sequence[tuple[str, Tensor]]) -> None:
    name, x = batch[0]
    for other, y in batch:
        if len(y) != len(x):
            raise ValueError(
                f"{name} has {len(x)} samples and {other} has {len(y)}: pass representations of the same samples"
            )


def constant_sentence(name: str, samples: int) -> str:
    return f"{name} is constant over its {samples} samples, so its similarity to anything is undefined: leave it out"


def few_samples(name: str, samples: int, features: int, debiased: bool) -> list[str]:
    if debiased or samples >= features:
        return []
    return [
        f"{name}: {samples} samples for {features} features; similarities are too high, use more samples or "
        "debiased CKA"
    ]


def alignment(table: NDArray[np.float64], names: Sequence[str], floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """HSIC to CKA. If a self-similarity is at or below the rounding error ``floor``, there is no CKA."""
    selves = table.diagonal()
    for name, value, least in zip(names, selves, floor, strict=True):
        if not value > least:
            raise ValueError(
                f"CKA of {name} is undefined: its samples are all equally far from each other, so only the noise of "
                "the estimate is left"
            )
    values: NDArray[np.float64] = np.minimum(table / np.sqrt(np.outer(selves, selves)), 1.0)
    return values


def estimate(
    off_diagonal: NDArray[np.float64], diagonal: NDArray[np.float64], samples: int, debiased: bool
) -> NDArray[np.float64]:
    """HSIC from ⟨K, L⟩ split into what lies off and on the diagonal, for centred K and L of trace one.

    Centring makes the rows of K sum to zero; without its diagonal they sum to minus the diagonal, which turns the
    three terms of the unbiased estimate (Song et al., 2012) into these.
    """
    if not debiased:
        return off_diagonal + diagonal
    unbiased = off_diagonal - 2 / (samples - 2) * diagonal + 1 / ((samples - 1) * (samples - 2))
    return unbiased / (samples * (samples - 3))


def hsic(layers: Sequence[Layer], debiased: bool, wanted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """HSIC of the ``wanted`` pairs of layers, each layer divided by its norm; other entries may be NaN."""
    shares = torch.stack([layer.shares for layer in layers])
    diagonal = (shares @ shares.T).cpu().numpy()
    products = np.full(wanted.shape, np.nan)
    wide = worth_a_gram([layer.x.shape[1] for layer in layers], len(layers[0].x), wanted)
    numbers = np.flatnonzero(wide).tolist()
    if numbers:
        products[np.ix_(numbers, numbers)] = _gram_products([layers[i] for i in numbers])
    for i, j in np.argwhere(np.triu(wanted) & ~np.outer(wide, wide)).tolist():
        products[i, j] = products[j, i] = _feature_product(layers[i], layers[j]) - diagonal[i, j]
    return estimate(products, diagonal, len(layers[0].x), debiased)


def worth_a_gram(widths: Sequence[int], samples: int, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which layers to compare by Gram matrices: those wider than the limit with the fewest multiplications."""
    features = np.array(widths, dtype=np.float64)
    by_features = np.triu(wanted) * np.outer(features, features) * samples

    def multiplications(wide: NDArray[np.bool_]) -> float:
        grams = samples**2 * (features[wide].sum() + wide.sum() ** 2)
        return float(grams + by_features[~np.outer(wide, wide)].sum())

    return min((features > limit for limit in [0, *sorted(set(widths))]), key=multiplications)


def _gram_products(layers: Sequence[Layer]) -> NDArray[np.float64]:
    """Inner products of the layers' Gram matrices without diagonals, from strips of their upper triangles."""
    samples = len(layers[0].x)
    dtype = max((layer.x.dtype for layer in layers), key=lambda kind: kind.itemsize)
    height = max(256, min(_STRIP_NUMBERS // (len(layers) * samples), samples // 8))
    total = torch.zeros(len(layers), len(layers), dtype=torch.float64, device=layers[0].x.device)
    for start in range(0, samples, height):
        stop = min(start + height, samples)
        strip = torch.empty(len(layers), stop - start, samples - start, dtype=dtype, device=total.device)
        for number, layer in enumerate(layers):
            strip[number] = layer.gram(start, stop)
        strip[:, :, : stop - start].diagonal(dim1=1, dim2=2).zero_()
        strip[:, :, stop - start :] *= 2**0.5  # this part stands for its mirror image too
        total += inner_products(strip)
    return total.cpu().numpy()


def inner_products(matrices: Tensor) -> Tensor:
    """Inner products of ``(count, rows, columns)`` matrices, row by row: a single long sum would round too much."""
    return torch.matmul(matrices.permute(1, 0, 2), matrices.permute(1, 2, 0)).sum(0, dtype=torch.float64)


def _feature_product(first: Layer, second: Layer) -> float:
    """⟨K, L⟩ = |XᵀY|² of two layers divided by their sizes."""
    samples = len(first.x)
    dtype = torch.promote_types(first.x.dtype, second.x.dtype)
    scale = (first.size or 1.0) ** 0.5 * (second.size or 1.0) ** 0.5
    total = 0.0
    for left in blocks(first.x.shape[1], samples, _BLOCK_NUMBERS):
        x = first.centred(columns=left).to(dtype)
        for right in blocks(second.x.shape[1], max(samples, x.shape[1]), _BLOCK_NUMBERS):
            y = second.centred(columns=right).to(dtype)
            total += float((x.T @ y).div_(scale).square_().sum(dtype=torch.float64))
    return total


def rbf_products(layers: Sequence[Layer], bandwidth: float, debiased: bool) -> NDArray[np.float64]:
    """Inner products of the layers' centred Gaussian kernels."""
    if not bandwidth > 0:
        raise ValueError(f"bandwidth is a positive fraction of the median distance; got {bandwidth}")
    samples = len(layers[0].x)
    dtype = max((layer.x.dtype for layer in layers), key=lambda kind: kind.itemsize)
    kernels = torch.empty(len(layers), samples, samples, dtype=dtype, device=layers[0].x.device)
    pairs = torch.ones(samples, samples, dtype=torch.bool, device=kernels.device).triu_(1)
    for kernel, layer in zip(kernels, layers, strict=True):
        shares = layer.shares.to(layer.x.dtype)
        squares = (shares[:, None] + shares - 2 * layer.gram(0, samples)).clamp_(min=0)
        middle = squares[pairs].median()
        if middle == 0:
            raise ValueError(f"the median distance between samples of {layer.name} is zero: remove repeated samples")
        kernel.copy_(squares.div_(-2 * bandwidth**2 * middle).exp_())
        if debiased:  # the centring whose inner products are the unbiased estimate
            kernel.fill_diagonal_(0)
            means = kernel.sum(1) / (samples - 2)
            kernel += means.sum() / (samples - 1) - means[:, None] - means
            kernel.fill_diagonal_(0)
        else:
            means = kernel.mean(1)
            kernel += means.mean() - means[:, None] - means
    return inner_products(kernels).cpu().numpy()
