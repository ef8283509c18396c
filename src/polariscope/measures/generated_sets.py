"""Uniqueness and novelty of generated examples, each identified by a word (a SMILES, a hash).

Brown, Fiscato, Segler and Vaucher, GuacaMol: benchmarking models for de novo molecular design (2019); Polykovskiy,
Zhebrak, Sanchez-Lengeling and others, Molecular sets (MOSES) (2020).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def uniqueness(words: Sequence[str], first: int | None = None) -> float | None:
    """The share of distinct words among the ``first`` ones: 1 if no two are equal. None if there are fewer words.

    The share decreases with the number of words, so compare it only at the same number (uniqueness at 1000, say).

    >>> uniqueness(["a", "b", "a", "c"]), uniqueness(["a", "a"], 2), uniqueness(["a"], 1000)
    (0.75, 0.5, None)
    """
    count = len(words) if first is None else first
    if not count or len(words) < count:
        return None
    return len(set(words[:count])) / count


def novelty(words: Sequence[str], known: Collection[str]) -> float | None:
    """The share of the distinct words that are not ``known``: 1 if all are new. None if there are no words.

    >>> novelty(["a", "b", "b"], {"a"})
    0.5
    """
    different = set(words)
    return len(different - set(known)) / len(different) if different else None
