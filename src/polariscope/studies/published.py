"""The numbers of published tables, as printed, with which studies compare their own results.

Each table is a CSV file under ``published/<work>/``: a header that says what rows are and names the columns, then a
line a row, whose cells are ``mean``, ``mean ± spread`` or empty. Comment lines before it say what the table is
(``# title:``), where it was printed (``# source:``) and where the specification has it (``# spec:`` and more). A cell
in brackets is marked; ``# brackets:`` says by what.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from polariscope.registry import nearest

FOLDER = Path(__file__).parent / "published"


class Published(NamedTuple):
    """A cell of a table: mean ± spread.

    >>> str(Published(0.76, 0.08)), str(Published(0.998))
    ('0.76 ± 0.08', '0.998')
    """

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        return " ± ".join(_shown(number) for number in self if number is not None)


@dataclass(frozen=True)
class PublishedTable:
    """A printed table; cells that are empty there are missing here."""

    title: str
    source: str
    rows: dict[str, dict[str, Published]]
    notes: dict[str, str]
    """The other comment lines, by what stands before the colon."""
    bracketed: frozenset[tuple[str, str]] = frozenset()
    """Row and column of each cell in brackets; ``notes["brackets"]`` says what they mean."""

    @property
    def numbered(self) -> dict[str, dict[float, Published]]:
        """The rows of a table whose columns are numbers, such as widths.

        >>> published("informed/snakes").numbered["test standard"][4].mean
        55.16
        """
        return {row: {float(column): cell for column, cell in cells.items()} for row, cells in self.rows.items()}


@cache
def published(name: str) -> PublishedTable:
    """The table of a name such as ``informed/kernels``.

    >>> published("informed/kernels").rows["mnist"]["nngp"]
    Published(mean=99.4, spread=None)
    """
    if name not in names():
        raise ValueError(f"no published table is called {name!r} {nearest(name, names())}")
    return read((FOLDER / f"{name}.csv").read_text(encoding="utf-8"))


def names() -> list[str]:
    """All tables, as ``work/name``."""
    return sorted(file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.glob("*/*.csv"))


def read(text: str) -> PublishedTable:
    """A table from the text of its file.

    >>> read("# title: Scores\\n# source: nobody\\nmodel,mig,sap\\nvae,0.1 ± 0.02,\\n").rows
    {'vae': {'mig': Published(mean=0.1, spread=0.02)}}
    """
    lines = text.splitlines()
    comments = [line.removeprefix("#") for line in lines if line.startswith("#")]
    notes = {key.strip(): value.strip() for key, _, value in (comment.partition(":") for comment in comments)}
    (_, *columns), *body = csv.reader(lines[len(comments) :])
    printed = {row: {column: cell for column, cell in zip(columns, cells, strict=True) if cell} for row, *cells in body}
    rows = {row: {column: _cell(cell) for column, cell in cells.items()} for row, cells in printed.items()}
    bracketed = {(row, column) for row, cells in printed.items() for column, cell in cells.items() if cell[0] == "("}
    return PublishedTable(notes.pop("title"), notes.pop("source"), rows, notes, frozenset(bracketed))


def _cell(text: str) -> Published:
    return Published(*map(float, text.strip("()").split("±")))


def _shown(number: float) -> str:
    """Two decimals, or all that were printed if they are more."""
    return f"{number:.2f}" if round(number, 2) == number else f"{number:g}"
