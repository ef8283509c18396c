"""SQL over tables in memory only, with limited time and memory.

The text of a query may come from a stranger. DuckDB can read and write files, load extensions and read Python's
variables; here all of this is disabled. Some of its functions cannot be interrupted and ignore its memory limit, so a
query runs in a process of its own.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from polariscope.registry import nearest

Rows = list[dict[str, Any]]

PROCESS = Path(__file__).with_name("query_process.py")
UNKNOWN = {
    "column": re.compile(r'(?:Referenced column|column named) "([^"]+)"|have a column named "([^"]+)"'),
    "table": re.compile(r"Table with name (\S+) does not exist|Referenced table \"([^\"]+)\" not found"),
    "function": re.compile(r"(?:Scalar |Table |Aggregate )?Function with name (\S+) does not exist", re.IGNORECASE),
}
NEAREST = re.compile(r'Did you mean "([^"]+)"')


@dataclass(frozen=True)
class Limits:
    """Limits of a query: time, memory, and rows of the answer."""

    seconds: float = 60.0
    megabytes: int = 1024
    rows: int = 100_000

    def __post_init__(self) -> None:
        for name in ("seconds", "megabytes", "rows"):
            if not getattr(self, name) > 0:
                raise ValueError(f"the limit of {name} of a query is {getattr(self, name)}: it needs to be positive")


def select(sql: str, tables: Mapping[str, pa.Table], limits: Limits | None = None) -> Rows:
    """The answer to one SELECT statement about ``tables``: numbers, truth values, text and lists of them.

    >>> select("select sum(x) as total from numbers", {"numbers": pa.table({"x": [1, 2]})})
    [{'total': 3}]
    """
    return _ask({"text": sql, "of": ""}, tables, limits or Limits())


def where(
    condition: str,
    tables: Mapping[str, pa.Table],
    of: str,
    order: str,
    columns: Sequence[str] | None = None,
    limits: Limits | None = None,
) -> Rows:
    """The rows of the table ``of`` for which a condition holds: a single SQL expression.

    >>> where("x > 1", {"numbers": pa.table({"x": [3, 1, 2]})}, of="numbers", order="x")
    [{'x': 2}, {'x': 3}]
    """
    shown = None if columns is None else list(columns)
    return _ask({"text": condition, "of": of, "order": order, "columns": shown}, tables, limits or Limits())


def _ask(question: Mapping[str, Any], tables: Mapping[str, pa.Table], limits: Limits) -> Rows:
    streams = {name: _stream(table) for name, table in tables.items()}
    sizes = [(name, len(stream)) for name, stream in streams.items()]
    asked = {**question, "tables": sizes, "seconds": limits.seconds, "megabytes": limits.megabytes, "rows": limits.rows}
    answer = _run(b"".join([json.dumps(asked).encode(), b"\n", *streams.values()]), limits)
    if "error" in answer:
        raise ValueError(_sentence(answer["error"], answer["message"], tables, limits))
    if len(answer["rows"]) > limits.rows:
        raise ValueError(
            f"the query has more than {limits.rows:,} rows: reduce them (limit, group by), or allow more with "
            "--max-rows (limits.rows in Python)"
        )
    names = _distinct(answer["names"])
    return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


def _run(request: bytes, limits: Limits) -> dict[str, Any]:
    """The answer of the process of a query. The process has ended when this returns or raises."""
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.Popen(
        [sys.executable, "-P", str(PROCESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        answer, complaint = process.communicate(request, timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"the query was stopped after {limits.seconds:g} seconds: simplify it, or allow more time with "
            "--max-seconds (limits.seconds in Python)"
        ) from None
    finally:
        process.kill()
        process.communicate()
    lacked = b"MemoryError" in complaint or b"cannot allocate memory" in complaint.lower()
    if process.returncode < 0 or (process.returncode and lacked):  # the system killed it or refused memory
        return {"error": "memory", "message": ""}
    if process.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"the process of the query failed: {last}")
    reply: dict[str, Any] = json.loads(answer)
    return reply


def _stream(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def _sentence(kind: str, message: str, tables: Mapping[str, pa.Table], limits: Limits) -> str:
    """The error message of a query; if a name is unknown, with the nearest known one."""
    line = message.partition("\n")[0]
    if kind == "statements":
        return f"a query is one SELECT statement; this text has {message} statements: run one at a time"
    if kind == "kind":
        return f"a query is a SELECT statement; this one is {message}: queries cannot change tables"
    if kind == "memory":
        return (
            f"the query needs more memory than {limits.megabytes:,} MB: simplify it, or allow more with "
            "--max-megabytes (limits.megabytes in Python)"
        )
    if kind == "PermissionException":
        return f"a query can read only the tables {' and '.join(tables)}, no files and no network: query these tables"
    if kind == "ParserException":
        return f"the query is not valid SQL: {line.removeprefix('Parser Error: ')}"
    for what, pattern in UNKNOWN.items():
        if match := pattern.search(message):
            name = next(filter(None, match.groups())).strip('"!')
            return f"the query failed: there is no {what} {name!r}{_meant(what, name, message, tables)}"
    return f"the query failed: {line}"


def _meant(what: str, name: str, message: str, tables: Mapping[str, pa.Table]) -> str:
    if what == "function":
        match = NEAREST.search(message)
        return f": did you mean {match[1]!r}?" if match else ""
    known: Iterable[str] = tables if what == "table" else {c for table in tables.values() for c in table.column_names}
    return f": {nearest(name, known, most=8)}"


def _distinct(names: Sequence[str]) -> list[str]:
    """Make the names of columns unique: repeated names get a number.

    >>> _distinct(["a", "b", "a", "a_2", "a"])
    ['a', 'b', 'a_3', 'a_2', 'a_4']
    """
    given: set[str] = set()
    distinct: list[str] = []
    for name in names:
        number, new = 1, name
        while new in given or (number > 1 and new in names):
            number += 1
            new = f"{name}_{number}"
        given.add(new)
        distinct.append(new)
    return distinct
