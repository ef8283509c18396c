"""How columns of labels become factors: one rule for memory, files, folders and data sets.

Floats are continuous, words and a single column of whole numbers are categories, several columns of whole numbers are
ordinal; the user can declare other kinds. Discrete factors become positions 0, 1, ..., in the order of their values;
``Factor.values`` has the values if they are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polariscope.printable import one_line
from polariscope.registry import nearest
from polariscope.worlds.factors import Factor

DeclaredKind = Literal["ordinal", "categorical", "periodic", "continuous"]
Kinds = Mapping[str, DeclaredKind]
"""Kinds by the name of the factor."""

ENDS = 5
"""Of a long list of words, how many are shown at either end."""


def as_factors(
    table: ArrayLike,
    names: Sequence[str] = (),
    kinds: Kinds | None = None,
    values: NDArray[Any] | None = None,
    source: str = "array",
) -> tuple[NDArray[Any], tuple[Factor, ...], list[str]]:
    """Positions ``(n, k)`` and factors of a table with a row per observation, and the assumptions that were made.

    ``values``, of the table's shape, are the meanings of its discrete entries; by default an entry is its own value.

    >>> positions, factors, assumed = as_factors([-1, 1, 1, -1])
    >>> positions[:, 0].tolist(), factors[0].kind, factors[0].values
    ([0, 1, 1, 0], 'categorical', (-1.0, 1.0))
    """
    table = _columns(table, source)
    names = _names(names, table.shape[1], source)
    declared = kinds or {}
    _check_declared(declared, names, source)
    positions: list[NDArray[Any]] = []
    factors: list[Factor] = []
    numbered: list[str] = []
    for j, name in enumerate(names):
        kind = declared.get(name) or _usual_kind(table)
        if kind == "continuous":
            positions.append(_numbers(table[:, j], name, source))
            factors.append(Factor(name, 0))
            continue
        known, first, ranks = np.unique(table[:, j], return_index=True, return_inverse=True)
        meaning: tuple[float, ...] = ()
        if values is not None or table.dtype.kind != "U":
            meaning = tuple(float(v) for v in (table if values is None else values)[first, j])
        else:
            numbered.append(f"{name} ({_numbering(known)})")
        positions.append(ranks)
        # A position that means itself needs no table of meanings.
        factors.append(Factor(name, len(first), kind, () if meaning == tuple(range(len(first))) else meaning))
    guessed = [f for f in factors if f.name not in declared]
    taken = [f"{f.name} as {f'{f.kind} ({f.size} values)' if f.size else 'continuous'}" for f in guessed]
    assumed = [f"The kinds of factors are inferred from their values: {', '.join(taken)}."] if taken else []
    if numbered:
        assumed.append(f"Words are numbered in alphabetical order: {'; '.join(numbered)}.")
    return np.stack(positions, axis=1), tuple(factors), assumed


def _numbering(words: NDArray[np.str_]) -> str:
    """Words with their numbers, of many the first and the last."""
    shown = [f"{one_line(word)} {number}" for number, word in enumerate(words)]
    return ", ".join(shown if len(shown) <= 2 * ENDS else [*shown[:ENDS], "...", *shown[-ENDS:]])


def on_their_grid(positions: NDArray[Any], factors: Sequence[Any], source: str) -> NDArray[Any]:
    """Positions ``(n, k)`` of factors that are known already; positions outside of their grid are refused."""
    strange = [factor for factor in factors if not isinstance(factor, Factor)]
    if strange:
        raise TypeError(
            f"{source}: give factors either all as names or all as Factors; got {strange[0]!r} among Factors"
        )
    if len(factors) != positions.shape[1]:
        raise ValueError(f"{source}: {len(factors)} factor names for {positions.shape[1]} columns")
    if positions.dtype.kind not in "biuf" or not np.isfinite(positions).all():
        raise ValueError(f"{source}: positions of known factors must be finite numbers; got {positions.dtype} (or NaN)")
    for column, factor in zip(positions.T, factors, strict=True):
        if factor.size and not 0 <= column.min() <= column.max() < factor.size:
            raise ValueError(
                f"{source}: factor {factor.name!r} has positions 0 to {factor.size - 1}, but the column goes from "
                f"{column.min()} to {column.max()}; give its name alone to have its values numbered"
            )
    return positions


def _columns(table: ArrayLike, source: str) -> NDArray[Any]:
    columns = np.asarray(table)
    if columns.dtype.kind in "OST" and all(isinstance(entry, str | bytes) for entry in columns.flat):
        words = [entry.decode() if isinstance(entry, bytes) else entry for entry in columns.flat]
        columns = np.array(words, dtype=np.str_).reshape(columns.shape)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or 0 in columns.shape or columns.dtype.kind not in "biufU":
        raise ValueError(
            f"{source}: expected factors of shape (n, k), numbers or words, but they are {columns.dtype} of shape "
            f"{columns.shape}"
        )
    if columns.dtype.kind == "f" and not np.isfinite(columns).all():
        raise ValueError(f"{source}: the factors contain NaN or infinity; clean them first")
    return columns


def _names(names: Sequence[str], columns: int, source: str) -> Sequence[str]:
    names = names or (["label"] if columns == 1 else [f"factor_{j}" for j in range(columns)])
    if len(set(names)) != columns:
        raise ValueError(f"{source}: expected {columns} different factor_names, but they are {list(names)}")
    return names


def _check_declared(kinds: Kinds, names: Sequence[str], source: str) -> None:
    for name, kind in kinds.items():
        if name not in names:
            raise ValueError(f"{source}: there is no factor {name!r} to declare a kind for: {nearest(name, names)}")
        if kind not in get_args(DeclaredKind):
            raise ValueError(f"{source}: the kind of {name} is {kind!r}: {nearest(str(kind), get_args(DeclaredKind))}")


def _usual_kind(table: NDArray[Any]) -> DeclaredKind:
    if table.dtype.kind == "f":
        return "continuous"
    if table.dtype.kind == "U":
        return "categorical"
    # Categories come again; a number that hardly ever does is a quantity.
    return "categorical" if table.shape[1] == 1 and 2 * len(np.unique(table)) <= len(table) else "ordinal"


def _numbers(column: NDArray[Any], name: str, source: str) -> NDArray[np.floating]:
    if column.dtype.kind == "U":
        raise ValueError(f"{source}: expected numbers of the continuous factor {name}, but they are words")
    return column.astype(np.float64) if column.dtype.kind != "f" else column
