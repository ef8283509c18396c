"""New examples of rare labels, made in a latent space: SMOTE and g-SMOTE.

A new code is drawn uniformly from the simplex that an example spans with its nearest neighbours of the same label, and
decoded; the label stays (Spec 003, section 7.2). SMOTE is the case of one neighbour, drawn from several.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors

Floats = NDArray[np.float64]


def smote(
    codes: ArrayLike, labels: ArrayLike, count: int, pool: int = 5, seed: int | np.random.Generator = 0
) -> tuple[Floats, NDArray[np.generic]]:
    """``count`` new codes for each label, each on the segment from an example to one of its ``pool`` neighbours."""
    return _simplex(codes, labels, {}, count, 2, pool, seed)


def g_smote(
    codes: ArrayLike, labels: ArrayLike, count: int, k: int = 3, seed: int | np.random.Generator = 0
) -> tuple[Floats, NDArray[np.generic]]:
    """``count`` new codes for each label, uniform in the simplex of an example and its k − 1 nearest neighbours.

    >>> rng = np.random.default_rng(0)
    >>> codes, labels = g_smote(rng.normal(size=(20, 2)), np.arange(20) % 2, count=3)
    >>> codes.shape, labels.tolist()
    ((6, 2), [0, 0, 0, 1, 1, 1])
    """
    return _simplex(codes, labels, {}, count, k, k - 1, seed)


def balance(
    codes: ArrayLike, labels: ArrayLike, k: int = 3, seed: int | np.random.Generator = 0
) -> tuple[Floats, NDArray[np.generic]]:
    """New g-SMOTE codes: for each label, as many as it needs to become as frequent as the most frequent label."""
    kinds, present = np.unique(np.asarray(labels), return_counts=True)
    missing = {kind: int(present.max() - here) for kind, here in zip(kinds.tolist(), present, strict=True)}
    return _simplex(codes, labels, missing, 0, k, k - 1, seed)


def simplex_weights(count: int, k: int, seed: int | np.random.Generator = 0) -> Floats:
    """Weights ``(count, k)`` uniform in the simplex, Dirichlet(1, ..., 1): mean 1/k, variance (k − 1)/(k²(k + 1))."""
    return np.random.default_rng(seed).dirichlet(np.ones(k), size=count)


def _simplex(
    codes: ArrayLike,
    labels: ArrayLike,
    wanted: dict[object, int],
    count: int,
    k: int,
    pool: int,
    seed: int | np.random.Generator,
) -> tuple[Floats, NDArray[np.generic]]:
    """``wanted`` (or else ``count``) codes per label, from examples and k − 1 of their ``pool`` nearest neighbours."""
    z, kinds = np.asarray(codes, dtype=np.float64), np.asarray(labels)
    if z.ndim != 2 or kinds.shape != (len(z),):
        raise ValueError(f"codes need shape (n, d) and labels (n,); got {z.shape} and {kinds.shape}")
    if k < 2 or pool < k - 1:
        raise ValueError(f"a simplex needs k of at least 2 and a pool of at least k − 1; got {k} and {pool}")
    generator = np.random.default_rng(seed)
    made, names = [], []
    for kind in np.unique(kinds):
        size = wanted.get(kind.item(), count)
        if size < 1:
            continue
        members = z[kinds == kind]
        if len(members) <= pool:
            raise ValueError(f"label {kind} has {len(members)} examples, but {pool} neighbours need {pool + 1}")
        near = NearestNeighbors(n_neighbors=pool).fit(members).kneighbors(return_distance=False)
        start = generator.integers(len(members), size=size)
        chosen = generator.permuted(near[start], axis=1)[:, : k - 1]
        corners = members[np.column_stack([start, chosen])]
        made.append(np.einsum("nk,nkd->nd", simplex_weights(size, k, generator), corners))
        names.append(np.full(size, kind))
    if not made:
        return np.empty((0, z.shape[1])), kinds[:0]
    return np.concatenate(made), np.concatenate(names)
