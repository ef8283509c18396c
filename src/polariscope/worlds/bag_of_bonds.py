"""Bag-of-bonds: molecules as vectors that do not change when atoms are renumbered or the molecule is turned.

Each pair of elements is a bag with an entry Z_i Z_j / |R_i − R_j| for each pair of atoms, sorted in falling order; the
self terms ½ Z^2.4 of the atoms follow (Hansen, Biegler, Ramakrishnan and others, Machine learning predictions of
molecular properties, 2015; Spec 000, section 6.7). Molecules of different formulas share a layout, in which bags are as
long as the longest of them; missing entries are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
PERIODIC_TABLE = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc Ru
Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At
Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
"""
SYMBOLS = tuple(PERIODIC_TABLE.split())
"""Symbols of the elements; the charge of the first is 1."""
CHARGES = {symbol: charge for charge, symbol in enumerate(SYMBOLS, 1)}
TOGETHER = 1 << 20
"""Pairs of atoms that are worked on at a time."""
TOUCHING = 1e-6
"""Atoms closer than this (in the unit of the coordinates) are at the same place."""


@dataclass(frozen=True)
class BagLayout:
    """Which columns of a vector belong to which pair of elements.

    >>> layout = layout_of([[6, 6, 8, 1]])
    >>> layout.bag_sizes, layout.dimension, layout.names[:3]
    ({'CC': 1, 'CO': 2, 'CH': 2, 'OO': 0, 'OH': 1, 'HH': 0}, 10, ('CC 1', 'CO 1', 'CO 2'))
    """

    elements: tuple[int, ...]
    """Charges of the elements in their order: carbon, heavier ones, hydrogen."""
    pair_sizes: tuple[int, ...]
    """Entries of each bag of pairs, in the order of :attr:`pairs`."""
    atom_sizes: tuple[int, ...]
    """Self terms of each element."""

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of elements, as places in :attr:`elements`."""
        count = len(self.elements)
        return tuple((i, j) for i in range(count) for j in range(i, count))

    @property
    def bag_sizes(self) -> dict[str, int]:
        """Entries of each bag of pairs by name."""
        symbols = [SYMBOLS[charge - 1] for charge in self.elements]
        return {symbols[i] + symbols[j]: size for (i, j), size in zip(self.pairs, self.pair_sizes, strict=True)}

    @property
    def dimension(self) -> int:
        return sum(self.pair_sizes) + sum(self.atom_sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """Meaning of the columns."""
        bags = [f"{name} {place + 1}" for name, size in self.bag_sizes.items() for place in range(size)]
        atoms = zip(self.elements, self.atom_sizes, strict=True)
        return (*bags, *(f"{SYMBOLS[charge - 1]} {place + 1}" for charge, size in atoms for place in range(size)))


def layout_of(charges: ArrayLike) -> BagLayout:
    """The smallest layout that holds molecules of these charges ``(n, atoms)``; 0 stands for no atom.

    >>> layout_of([[6] * 7 + [8] * 2 + [1] * 10]).dimension
    190
    """
    table = checked_charges(charges)
    present = np.unique(table[table > 0])
    # Carbon first and hydrogen last, as bags are usually listed; heavier elements between them.
    elements = tuple(sorted(present.tolist(), key=lambda charge: (charge == 1, charge != 6, charge)))
    counts = _counts(table, elements)
    pairs = BagLayout(elements, (), ()).pairs
    sizes = [_pair_counts(counts, i, j).max() for i, j in pairs]
    return BagLayout(elements, tuple(map(int, sizes)), tuple(map(int, counts.max(axis=0))))


def bag_of_bonds(charges: ArrayLike, positions: ArrayLike, layout: BagLayout | None = None) -> Floats:
    """Vectors ``(n, dimension)`` of molecules with charges ``(n, atoms)`` and positions ``(n, atoms, 3)``.

    Rows of fewer atoms are filled up with charge 0. Without a ``layout`` it is the smallest one for these molecules.

    >>> water = bag_of_bonds([[8, 1, 1]], [[[0, 0, 0], [0.5, 0, 0], [0, 2, 0]]])
    >>> water.round(3).tolist()  # OH twice, HH, and the self terms of O, H and H
    [[16.0, 4.0, 0.485, 73.517, 0.5, 0.5]]
    """
    table, places = checked_molecules(charges, positions)
    layout = layout_of(table) if layout is None else layout
    unknown = np.setdiff1d(table[table > 0], layout.elements)
    if len(unknown):
        known = ", ".join(SYMBOLS[charge - 1] for charge in layout.elements)
        raise ValueError(f"the element {SYMBOLS[unknown[0] - 1]} is not in the layout ({known})")
    counts = _counts(table, layout.elements)
    bags = np.stack([_pair_counts(counts, i, j) for i, j in layout.pairs], axis=1)
    if (bags > layout.pair_sizes).any() or (counts > layout.atom_sizes).any():
        row = int(np.flatnonzero((bags > layout.pair_sizes).any(1) | (counts > layout.atom_sizes).any(1))[0])
        raise ValueError(
            f"molecule {row} has more atoms of an element than the layout has room for: make the layout from these "
            "molecules too"
        )
    out = np.zeros((len(table), layout.dimension))
    formulas, group = np.unique(counts, axis=0, return_inverse=True)
    for number, formula in enumerate(formulas):
        rows = np.flatnonzero(group.ravel() == number)
        for part in np.array_split(rows, -(-len(rows) * table.shape[1] ** 2 // TOGETHER)):
            _fill_pairs(out, part, table, places, formula, layout)
    column = sum(layout.pair_sizes)
    for place, (charge, size) in enumerate(zip(layout.elements, layout.atom_sizes, strict=True)):
        there = np.arange(size) < counts[:, place, None]
        out[:, column : column + size] = np.where(there, 0.5 * charge**2.4, 0.0)
        column += size
    return out


def _fill_pairs(
    out: Floats,
    rows: NDArray[np.int64],
    charges: NDArray[np.int64],
    positions: Floats,
    formula: NDArray[np.int64],
    layout: BagLayout,
) -> None:
    """The sorted bags of molecules of one formula, into their columns."""
    rank = np.full(len(SYMBOLS) + 1, len(layout.elements))
    rank[list(layout.elements)] = range(len(layout.elements))
    atoms = int(formula.sum())
    order = np.argsort(rank[charges[rows]], axis=1, kind="stable")[:, :atoms]  # the same elements in every row
    x = np.take_along_axis(positions[rows], order[:, :, None], axis=1)
    ends = np.cumsum(formula)
    column = 0
    for (i, j), size in zip(layout.pairs, layout.pair_sizes, strict=True):
        first, second = (np.arange(ends[k] - formula[k], ends[k]) for k in (i, j))
        one, other = (first[part] for part in np.triu_indices(len(first), 1)) if i == j else _product(first, second)
        squares = np.zeros((len(rows), len(one)))
        for axis in range(3):
            squares += np.square(x[:, one, axis] - x[:, other, axis])
        if len(one) and squares.min() < TOUCHING**2:
            row, pair = np.unravel_index(squares.argmin(), squares.shape)
            touching = sorted(int(order[row, atom]) + 1 for atom in (one[pair], other[pair]))
            raise ValueError(f"atoms {touching[0]} and {touching[1]} of molecule {rows[row]} are at the same place")
        entries = layout.elements[i] * layout.elements[j] / np.sqrt(squares)
        out[rows, column : column + len(one)] = -np.sort(-entries, axis=1)
        column += size


def _product(first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every pair of one of the first and one of the second."""
    return np.repeat(first, len(second)), np.tile(second, len(first))


def checked_charges(charges: ArrayLike) -> NDArray[np.int64]:
    """Charges as whole numbers ``(n, atoms)``; what no element has is refused."""
    table = np.asarray(charges)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"charges need a row of atoms for each molecule; got shape {table.shape}")
    if table.dtype.kind not in "iu":
        raise ValueError(f"charges of atoms must be whole numbers; got {table.dtype}")
    table = table.astype(np.int64)
    outside = (table < 0) | (table > len(SYMBOLS))
    if outside.any():
        row, atom = np.argwhere(outside)[0]
        raise ValueError(
            f"atom {atom + 1} of molecule {row} has the charge {table[row, atom]}: elements have charges 1 to "
            f"{len(SYMBOLS)}, "
            "and 0 stands for no atom"
        )
    empty = ~(table > 0).any(axis=1)
    if empty.any():
        raise ValueError(f"molecule {int(np.flatnonzero(empty)[0])} has no atoms")
    return table


def checked_molecules(charges: ArrayLike, positions: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
    """Charges ``(n, atoms)`` and positions ``(n, atoms, 3)``, with finite coordinates for every atom."""
    table = checked_charges(charges)
    places = np.asarray(positions, dtype=np.float64)
    if places.shape != (*table.shape, 3):
        raise ValueError(f"positions need shape {(*table.shape, 3)} for these charges; got {places.shape}")
    missing = (table > 0) & ~np.isfinite(places).all(axis=-1)
    if missing.any():
        row, atom = np.argwhere(missing)[0]
        raise ValueError(f"atom {atom + 1} of molecule {row} has no coordinates: every atom needs three finite ones")
    return table, np.where((table > 0)[..., None], places, 0.0)


def _counts(charges: NDArray[np.int64], elements: tuple[int, ...]) -> NDArray[np.int64]:
    """Atoms of each element in each molecule."""
    return np.stack([(charges == charge).sum(axis=1) for charge in elements], axis=1)


def _pair_counts(counts: NDArray[np.int64], i: int, j: int) -> NDArray[np.int64]:
    """Pairs of two elements in each molecule."""
    return counts[:, i] * (counts[:, i] - 1) // 2 if i == j else counts[:, i] * counts[:, j]
