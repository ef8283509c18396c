"""The process in which one query runs: it can be stopped at any moment, and its memory is limited.

:mod:`polariscope.lab.query` starts it as a script. It imports nothing from this package, so that it starts quickly.
Standard input is a line of JSON with the query, then the tables as Arrow streams; standard output is one line of JSON,
the result or the error.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

import duckdb
import pyarrow as pa

CLOSED: dict[str, Any] = {
    "enable_external_access": False,  # no file, no network, no extension
    "python_enable_replacements": False,  # no Python variable becomes a table
    "temp_directory": "",  # nothing is spilled to disk
    "lock_configuration": True,  # and no query can undo these settings
}
THREADS = 2
MEGABYTE = 2**20
SPARE_SECONDS = 10
"""Seconds of CPU time beyond the limit after which the process ends by itself, in case its parent is gone."""


def main(given: IO[bytes], out: IO[bytes]) -> None:
    asked = json.loads(given.readline())
    tables = {name: pa.ipc.open_stream(io.BytesIO(given.read(size))).read_all() for name, size in asked["tables"]}
    _limit(asked["megabytes"], asked["seconds"])
    try:
        answer = _answer(asked, tables)
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        answer = {"error": "memory", "message": str(error)}
    except duckdb.Error as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    out.write(json.dumps(answer, default=_plain).encode())
    out.flush()


def _answer(asked: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    config = CLOSED | {"memory_limit": f"{asked['megabytes']}MiB", "threads": THREADS}
    with duckdb.connect(config=config) as database:
        for name, table in tables.items():
            database.register(name, table)
        if asked["of"]:
            relation = database.view(asked["of"]).filter(asked["text"]).order(asked["order"])
            shown = asked["columns"]
            columns = relation if shown is None else relation.select(*map(duckdb.ColumnExpression, shown))
            return {"names": columns.columns, "rows": columns.limit(asked["rows"] + 1).fetchall()}
        statements = duckdb.extract_statements(asked["text"])
        if len(statements) != 1:
            return {"error": "statements", "message": str(len(statements))}
        if statements[0].type != duckdb.StatementType.SELECT:
            return {"error": "kind", "message": statements[0].type.name}
        answer = database.execute(statements[0])
        names = [column[0] for column in answer.description]
        return {"names": names, "rows": answer.fetchmany(asked["rows"] + 1)}


def _limit(megabytes: int, seconds: float) -> None:
    """Limit memory and CPU time by the system, too: DuckDB does not count all of its memory."""
    with suppress(ImportError, OSError, ValueError):  # not every system has these limits, and one may be lower already
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            present = int(file.read().split()[0]) * resource.getpagesize()
        # Threads reserve addresses that they do not use, and the answer is held twice, as rows and as text.
        most = present + 2 * megabytes * MEGABYTE + 512 * MEGABYTE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        ticks = int(THREADS * seconds) + SPARE_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (ticks, ticks))


def _plain(value: Any) -> Any:
    """Values for types that JSON lacks: decimals become numbers, dates and other values become text."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal, too, and ends this process
    main(sys.stdin.buffer, sys.stdout.buffer)
