"""Reconstruct a geometry from a bag of bonds: positions of atoms whose sorted distances are those of the bag.

A bag keeps the distances between the atoms of each pair of elements, but not which atoms they belong to. From a
starting geometry, the distances of each bag are matched in their sorted order, and all positions are improved by damped
Gauss-Newton steps (Levenberg and Marquardt) on the relative errors of the distances; the matching is repeated before
each step. The result is a local optimum that depends on the start: whether the reconstruction works must be measured on
real molecules (see :mod:`polariscope.examination.way_back`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.worlds.bag_of_bonds import BagLayout

Floats = NDArray[np.float64]
NEAREST, FURTHEST = 0.5, 30.0
"""Distances (in ångström) that atoms of a molecule can have; other entries of a bag are clipped to this range."""
STEPS = 60
DAMPING = 1e-2
AT_ONCE = 64
"""Geometries that are worked on at a time."""


@dataclass(frozen=True, eq=False)
class Geometries:
    """Positions ``(n, atoms, 3)`` of atoms with ``charges`` ``(atoms,)``, and how well their bags fit."""

    charges: NDArray[np.int64]
    positions: Floats
    misfit: Floats
    """Root mean square relative error of the distances, for each geometry."""


def formula_charges(layout: BagLayout) -> NDArray[np.int64]:
    """Charges of the atoms of a layout that holds one formula, in the order of its elements.

    >>> from polariscope.worlds.bag_of_bonds import layout_of
    >>> formula_charges(layout_of([[8, 1, 1]])).tolist()
    [8, 1, 1]
    """
    pairs = BagLayout(layout.elements, (), ()).pairs
    sizes = layout.atom_sizes
    expected = tuple(sizes[i] * (sizes[i] - 1) // 2 if i == j else sizes[i] * sizes[j] for i, j in pairs)
    if expected != layout.pair_sizes:
        raise ValueError(
            "reconstruction from bags needs molecules of one formula: these have several, and a generated bag does "
            "not name its own"
        )
    return np.repeat(np.array(layout.elements, dtype=np.int64), sizes)


def bag_distances(bags: ArrayLike, layout: BagLayout) -> tuple[Floats, NDArray[np.bool_]]:
    """Sorted distances ``(n, pairs)`` of bags, ascending in each pair of elements, and whether each bag is valid: its
    entries are positive and its distances possible.

    >>> from polariscope.worlds.bag_of_bonds import bag_of_bonds, layout_of
    >>> water = bag_of_bonds([[8, 1, 1]], [[[0, 0, 0], [1.0, 0, 0], [0, 2.0, 0]]])
    >>> distances, possible = bag_distances(water, layout_of([[8, 1, 1]]))
    >>> distances.round(3).tolist(), possible.tolist()
    ([[1.0, 2.0, 2.236]], [True])
    """
    rows = np.asarray(bags, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != layout.dimension:
        raise ValueError(f"bags of this layout have {layout.dimension} numbers; got shape {rows.shape}")
    products = np.repeat([float(layout.elements[i] * layout.elements[j]) for i, j in layout.pairs], layout.pair_sizes)
    entries = rows[:, : len(products)]
    possible = np.asarray(((entries >= products / FURTHEST) & (entries <= products / NEAREST)).all(axis=1))
    distances = products / np.clip(entries, products / FURTHEST, products / NEAREST)
    for part in _blocks(layout):
        distances[:, part] = np.sort(distances[:, part], axis=1)
    return distances, possible


def fit_geometries(bags: ArrayLike, layout: BagLayout, starts: ArrayLike, steps: int = STEPS) -> Geometries:
    """A geometry for each bag ``(n, dimension)``: the best of those reached from its starts ``(n, k, atoms, 3)``.

    Atoms of the starts are in the order of the layout's elements, see :func:`formula_charges`.
    """
    charges = formula_charges(layout)
    wanted, _ = bag_distances(bags, layout)
    begin = np.asarray(starts, dtype=np.float64)
    if begin.ndim != 4 or begin.shape[0] != len(wanted) or begin.shape[2:] != (len(charges), 3):
        raise ValueError(
            f"starts need shape ({len(wanted)}, k, {len(charges)}, 3), k geometries for each bag; got {begin.shape}"
        )
    first, second = _pair_atoms(layout)
    tries = begin.shape[1]
    flat, aims = begin.reshape(-1, len(charges), 3).copy(), np.repeat(wanted, tries, axis=0)
    misfit = np.empty(len(flat))
    for at in range(0, len(flat), AT_ONCE):
        part = slice(at, at + AT_ONCE)
        flat[part], misfit[part] = _improved(flat[part], aims[part], first, second, _blocks(layout), steps)
    table = misfit.reshape(-1, tries)
    best = table.argmin(axis=1)
    rows = np.arange(len(table))
    return Geometries(charges, flat.reshape(begin.shape)[rows, best], table[rows, best])


def _improved(
    positions: Floats,
    aims: Floats,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    blocks: list[slice],
    steps: int,
) -> tuple[Floats, Floats]:
    count, atoms = positions.shape[:2]
    pairs = np.arange(len(first))
    damping = np.full(count, DAMPING)
    residual, matched, apart = _residual(positions, aims, first, second, blocks)
    loss = np.square(residual).sum(axis=1)
    for _ in range(steps):
        unit = (positions[:, first] - positions[:, second]) / apart[:, :, None] / matched[:, :, None]
        jacobian = np.zeros((count, len(first), atoms, 3))
        jacobian[:, pairs, first] = unit
        jacobian[:, pairs, second] = -unit
        flat = jacobian.reshape(count, len(first), -1)
        normal = np.einsum("npi,npj->nij", flat, flat, optimize=True)
        gradient = np.einsum("npi,np->ni", flat, residual)
        normal[:, np.arange(3 * atoms), np.arange(3 * atoms)] += damping[:, None]
        moved = positions - np.linalg.solve(normal, gradient[:, :, None])[:, :, 0].reshape(count, atoms, 3)
        new = _residual(moved, aims, first, second, blocks)
        better = np.square(new[0]).sum(axis=1) < loss
        for old, fresh in zip((positions, residual, matched, apart), (moved, *new), strict=True):
            old[better] = fresh[better]
        loss = np.square(residual).sum(axis=1)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e6)
        if (damping >= 1e6).all():
            break
    return positions, np.sqrt(loss / len(first))


def _residual(
    positions: Floats, aims: Floats, first: NDArray[np.int64], second: NDArray[np.int64], blocks: list[slice]
) -> tuple[Floats, Floats, Floats]:
    """Relative errors of the distances, the distance that each pair is matched with, and the distances."""
    apart = np.maximum(np.linalg.norm(positions[:, first] - positions[:, second], axis=2), 1e-3)
    matched = np.empty_like(apart)
    for part in blocks:
        order = np.argsort(apart[:, part], axis=1)
        np.put_along_axis(matched[:, part], order, aims[:, part], axis=1)
    return (apart - matched) / matched, matched, apart


def _blocks(layout: BagLayout) -> list[slice]:
    """The columns of each bag."""
    ends = np.cumsum(layout.pair_sizes)
    return [slice(int(end) - size, int(end)) for end, size in zip(ends, layout.pair_sizes, strict=True) if size]


def _pair_atoms(layout: BagLayout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two atoms of each column of pairs."""
    ends = np.cumsum(layout.atom_sizes)
    groups = [np.arange(end - size, end) for end, size in zip(ends, layout.atom_sizes, strict=True)]
    firsts, seconds = [], []
    for i, j in layout.pairs:
        if i == j:
            one, other = (groups[i][part] for part in np.triu_indices(len(groups[i]), 1))
        else:
            one, other = np.repeat(groups[i], len(groups[j])), np.tile(groups[j], len(groups[i]))
        firsts.append(one)
        seconds.append(other)
    return np.concatenate(firsts).astype(np.int64), np.concatenate(seconds).astype(np.int64)
