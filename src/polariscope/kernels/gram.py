"""Gram matrices that are symmetric to the last bit, on any machine.

A matrix product does not guarantee this: it depends on the processor whether (AAᵀ)ᵢⱼ and (AAᵀ)ⱼᵢ are summed in the
same order. The product of a set with itself is therefore computed only above the diagonal, and mirrored.
"""

from __future__ import annotations

from torch import Tensor

TILE = 1024
"""Rows of a product, or side of a mirrored square, that fit in the cache."""


def gram(first: Tensor, second: Tensor | None = None) -> Tensor:
    """Inner products ``(..., n1, n2)`` of rows ``(..., n, d)``; without ``second``, of ``first`` with itself.

    >>> import torch
    >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[5.0, 11.0], [11.0, 25.0]]
    """
    if second is not None:
        return first @ second.mT
    count = first.shape[-2]
    product = first.new_empty(*first.shape[:-1], count)
    for start in range(0, count, TILE):
        rows = slice(start, start + TILE)
        product[..., rows, start:] = first[..., rows, :] @ first[..., start:, :].mT
    return mirror_(product)


def mirror_(matrix: Tensor) -> Tensor:
    """Overwrite the lower triangle of ``(..., n, n)`` with the upper one, in place; returns the matrix.

    >>> import torch
    >>> mirror_(torch.tensor([[1.0, 2.0], [2.5, 3.0]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    for start in range(0, matrix.shape[-1], TILE):
        rows, beyond = slice(start, start + TILE), slice(start + TILE, None)
        matrix[..., beyond, rows] = matrix[..., rows, beyond].mT
        corner = matrix[..., rows, rows]
        corner.copy_(corner.triu() + corner.triu(1).mT)
    return matrix
