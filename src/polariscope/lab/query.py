"""SQL over tables in memory, and over nothing else.

The text of a query comes from a user, or from whoever gave it to the user. DuckDB can read and write files, load
extensions and look at Python's variables; here it can do none of that, whatever the text says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

Rows = list[dict[str, Any]]

CLOSED: dict[str, Any] = {
    "enable_external_access": False,  # no file, no network, no extension
    "python_enable_replacements": False,  # no Python variable passes for a table
    "temp_directory": "",  # no spilling to disk either
    "lock_configuration": True,  # and no way back
}


def select(sql: str, tables: Mapping[str, pa.Table]) -> Rows:
    """The answer to one SELECT statement about ``tables``.

    >>> select("select sum(x) as total from numbers", {"numbers": pa.table({"x": [1, 2]})})
    [{'total': 3}]
    """
    with _closed_database(tables) as database:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1:
            raise ValueError(f"a query is one SELECT statement; this text has {len(statements)}: ask one at a time")
        if statements[0].type != duckdb.StatementType.SELECT:
            kind = statements[0].type.name
            raise ValueError(f"a query is a SELECT statement; this one is {kind}: tables are read here, never changed")
        return _rows(database.execute(statements[0]))


def where(condition: str, tables: Mapping[str, pa.Table], of: str, order: str) -> Rows:
    """The rows of the table ``of`` for which a condition holds: one SQL expression, with no room for anything else.

    >>> where("x > 1", {"numbers": pa.table({"x": [3, 1, 2]})}, of="numbers", order="x")
    [{'x': 2}, {'x': 3}]
    """
    with _closed_database(tables) as database:
        try:
            return _rows(database.view(of).filter(condition).order(order))
        except duckdb.ParserException as error:
            raise ValueError(f"a query's condition is one SQL expression: {_first_line(error)}") from error


@contextmanager
def _closed_database(tables: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database of these tables; what DuckDB complains about comes out as a sentence."""
    with duckdb.connect(config=CLOSED) as database:
        for name, table in tables.items():
            database.register(name, table)
        try:
            yield database
        except duckdb.PermissionException as error:
            known = " and ".join(tables)
            raise ValueError(
                f"a query sees {known} and nothing else, no file and no network: ask about these"
            ) from error
        except duckdb.Error as error:
            columns = "; ".join(f"columns of {name}: {', '.join(table.column_names)}" for name, table in tables.items())
            raise ValueError(f"the query failed: {_first_line(error)} ({columns})") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _rows(answer: duckdb.DuckDBPyConnection | duckdb.DuckDBPyRelation) -> Rows:
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
