"""A study's table on disk: the very rows it was judged on, with what made them.

Parquet has typed columns, rows of a study do not: a column that is not of one plain type is kept as JSON, and its name
in the file's metadata, so that what is read is what was written and a verdict can be made again years later.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from polariscope.atomic import atomic
from polariscope.foreign_files import check_regular, reading
from polariscope.studies.study import Origin, Row, Table

METADATA = b"polariscope.study"
PLAIN = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def write_table(path: Path, table: Table, origin: Origin) -> None:
    columns = list(dict.fromkeys(key for row in table.rows for key in row))
    plain = {name: kind for name in columns if (kind := _plain(table.rows, name)) is not None}
    arrays = [
        pa.array([row.get(name) for row in table.rows], plain[name])
        if name in plain
        else pa.array([json.dumps(row[name]) if name in row else None for row in table.rows], pa.string())
        for name in columns
    ]
    about = asdict(origin) | {"json": [name for name in columns if name not in plain]}
    whole = pa.table(arrays, names=columns).replace_schema_metadata({METADATA: json.dumps(about)})
    with atomic(path) as draft:
        pq.write_table(whole, draft, compression="zstd")


def read_table(path: Path) -> tuple[Table, Origin]:
    """The rows of a table and where they come from."""
    check_regular(path)
    with reading(path, "the table of a study"):
        whole = pq.read_table(path)
        whole.validate(full=True)
        if METADATA not in (whole.schema.metadata or {}):
            raise ValueError("it does not say which study it is of")
        about = json.loads(whole.schema.metadata[METADATA])
        encoded = set(about.pop("json"))
        rows: list[Row] = [
            {name: json.loads(value) if name in encoded else value for name, value in row.items() if value is not None}
            for row in whole.to_pylist()
        ]
        return Table(rows), Origin(**about)


def _plain(rows: list[Row], name: str) -> pa.DataType | None:
    """The column type that keeps the values exactly, or None where only JSON does."""
    kinds = {type(row[name]) for row in rows if name in row}
    return PLAIN.get(kinds.pop()) if len(kinds) == 1 else None
