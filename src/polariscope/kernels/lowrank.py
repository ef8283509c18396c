"""Kernels of too many inputs for a square matrix: features whose inner products approximate the kernel.

:func:`nystrom` approximates a kernel by a few landmark inputs; :func:`sketch` approximates a network's tangent kernel
by a few random directions in parameter space, without forming a Jacobian. Both turn kernel regression on n inputs into
ridge regression on m features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap

from polariscope.kernels.machine import Kernel


@dataclass(frozen=True, eq=False)
class Nystrom:
    """Features of a kernel from landmarks Z: φ(x) = κ(x, Z) V λ^{-1/2}, with V λ Vᵀ = κ(Z, Z)."""

    kernel: Kernel
    landmarks: Tensor
    projection: Tensor

    def features(self, x: Tensor) -> Tensor:
        """Features ``(n, rank)``; their inner products are exact for the landmarks."""
        return self.kernel(x, self.landmarks).double() @ self.projection


def nystrom(kernel: Kernel, x: Tensor, landmarks: int, seed: int | np.random.Generator = 0) -> Nystrom:
    """A Nyström approximation from ``landmarks`` of the inputs, drawn without replacement.

    Directions in which the landmarks' kernel vanishes to working precision are dropped.

    >>> from polariscope.kernels.machine import rbf
    >>> x = torch.linspace(0, 1, 50)[:, None]
    >>> phi = nystrom(rbf(0.5), x, landmarks=10).features(x)
    >>> bool((phi @ phi.T - rbf(0.5)(x, None)).abs().max() < 1e-3)
    True
    """
    if not 1 <= landmarks <= len(x):
        raise ValueError(f"landmarks needs to be 1 to {len(x)}, the number of inputs; got {landmarks}")
    drawn = np.sort(np.random.default_rng(seed).choice(len(x), landmarks, replace=False))
    chosen = x[torch.from_numpy(drawn)]
    gram = kernel(chosen, None).double()
    if gram.ndim != 2 or not torch.isfinite(gram).all():
        raise ValueError("the kernel of the landmarks needs to be a finite matrix (use the 'trace' or 'pseudo' kernel)")
    values, vectors = torch.linalg.eigh(gram)
    keep = values > values[-1] * landmarks * torch.finfo(torch.float64).eps
    return Nystrom(kernel, chosen, vectors[:, keep] / values[keep].sqrt())


def sketch(model: nn.Module, x: Tensor, size: int, seed: int = 0, *, directions: int = 16, inputs: int = 256) -> Tensor:
    """Random features ``(n, C, size)`` = ∇f(x) S / √size of the tangent kernel, S standard normal: E[φφᵀ] = Θ.

    Each direction costs one Jacobian-vector product; ``directions`` and ``inputs`` are the block sizes. The error of an
    entry falls as 1/√size. The same seed gives the same S, so features of different inputs can be combined.

    >>> phi = sketch(nn.Linear(3, 1), torch.eye(3), size=2000)[:, 0]
    >>> (phi @ phi.T).round().tolist()
    [[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]]
    """
    if size < 1:
        raise ValueError(f"the sketch needs at least 1 direction; got {size}")
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError("no parameter of the model requires gradients, so it has no tangent kernel")
    fixed = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    fixed |= dict(model.named_buffers())
    generator = torch.Generator().manual_seed(seed)

    def along(tangent: dict[str, Tensor], part: Tensor) -> Tensor:
        return jvp(lambda p: functional_call(model, {**fixed, **p}, (part,)), (parameters,), (tangent,))[1]

    columns = []
    with torch.no_grad():
        for start in range(0, size, directions):
            count = min(directions, size - start)
            tangents = {
                name: torch.randn(count, *p.shape, generator=generator, dtype=p.dtype) for name, p in parameters.items()
            }
            columns.append(torch.cat([vmap(along, (0, None))(tangents, part) for part in x.split(inputs)], 1))
    return torch.cat(columns).movedim(0, -1) / math.sqrt(size)
