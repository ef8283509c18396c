"""Counts in words: ``1 seed``, ``2 seeds``. Whatever prints a number of things asks here."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun; the plural is given where it is not the noun with an s.

    >>> counted(1, "seed"), counted(2, "seed"), counted(1200, "example"), counted(0, "study", "studies")
    ('1 seed', '2 seeds', '1,200 examples', '0 studies')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["x"]), listed(["x", "y"]), listed(["x", "y", "area"])
    ('x', 'x and y', 'x, y and area')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
