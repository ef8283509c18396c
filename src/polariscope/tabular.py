"""Results for notebooks: a sentence, a table, a data frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from html import escape
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


class Tabular(ABC):
    """A result that is mainly a table. Its repr is a sentence, and a notebook shows its rows."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """The result in a sentence."""

    @abstractmethod
    def records(self) -> list[Row]:
        """The result as rows of the same columns."""

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return pa.Table.from_pylist(self.records())

    def to_frame(self) -> Any:
        """The rows as a pandas data frame. Pandas is none of our dependencies: without it this is refused."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_frame() needs pandas, which is not installed: 'pip install pandas', or take records() or "
                "to_arrow(), which do without it"
            ) from error
        return pandas.DataFrame(self.records())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        rows = self.records()
        head = "".join(f"<th>{escape(name)}</th>" for name in rows[0]) if rows else ""
        cells = ["".join(f"<td>{escape(_shown(value))}</td>" for value in row.values()) for row in rows]
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p>{escape(self.headline)}</p>{table}</div>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
