"""The runs of a store as tables, read once: to list, to filter, and to query with SQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from polariscope.grammar import data_name
from polariscope.lab.query import Limits, Rows, select, where
from polariscope.lab.results import Basis, current, examined_of, shown
from polariscope.lab.store import METRICS, Run

OWN_COLUMNS = ("id", "name", "tags", "note", "kind", "status", "data", "created", "examined_on")
EXAMINED = ("measures_", "types_")
"""Prefixes of columns that come from an examination."""
DEEPEST = 8
"""Depth to which nested sections become columns; deeper sections are shown as JSON."""
RESULTS = pa.schema(
    [
        *(("run", pa.string()), ("measure", pa.string()), ("value", pa.float64()), ("examined_on", pa.string())),
        *(("data", pa.string()), ("part", pa.string()), ("examples", pa.int64()), ("seed", pa.int64())),
        *(("step", pa.int64()), ("protocol", pa.string()), ("version", pa.string())),
    ]
)
MEASURED = pa.list_(pa.struct([field for field in RESULTS if field.name != "run"]))
EXACT = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
CODED = b"polariscope.json"
"""Marks a column whose values are stored as JSON."""


@dataclass(frozen=True)
class Listing:
    """Runs, oldest first, and the problems of folders that are not runs."""

    root: Path
    table: pa.Table
    """A row per run, as :func:`packed` makes them."""
    problems: list[str]

    @cached_property
    def ids(self) -> list[str]:
        ids: list[str] = self.table["=id"].to_pylist()
        return ids

    @cached_property
    def runs(self) -> list[Run]:
        """The runs themselves, which read their records on first use."""
        return [Run(self.root / name) for name in self.ids]

    @cached_property
    def columns(self) -> list[str]:
        # Our own columns, in small letters, first: SQL renames the later of two names that differ only in case.
        own = {name.removeprefix("=") for name in self.table.column_names if name.startswith("=")}
        return sorted(own.union(OWN_COLUMNS), key=str.swapcase)

    def where(
        self, condition: str = "true", columns: Sequence[str] | None = None, limits: Limits | None = None
    ) -> Rows:
        """The rows of the runs for which an SQL expression holds, oldest first, with the given columns or with all."""
        chosen = self.columns if columns is None else columns
        if condition.strip().lower() == "true":
            values = [self.column(column).to_pylist() for column in chosen]
            return [dict(zip(chosen, row, strict=True)) for row in zip(*values, strict=True)] if values else []
        known = [column for column in chosen if column in self.columns]
        rows = where(condition, self._tables(condition), "runs", "created", known, limits)
        return [{column: row.get(column) for column in chosen} for row in rows]

    def query(self, sql: str, limits: Limits | None = None) -> Rows:
        """The answer to one SELECT statement over the tables ``runs``, ``metrics`` and ``results``."""
        return select(sql, self._tables(sql), limits)

    def bases(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        """The number of runs for each basis of their measures (which examples they were computed on)."""
        wanted = None if ids is None else set(ids)
        rows = zip(self.ids, self.column("examined_on").to_pylist(), strict=True)
        return dict(Counter(basis for run, basis in rows if basis is not None and (wanted is None or run in wanted)))

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """A column by its name, with values of one type; all nulls if no run has it."""
        if name == "status":
            return self._states
        if f"={name}" not in self.table.column_names:
            return pa.nulls(len(self.table), pa.list_(pa.string()) if name == "tags" else pa.bool_())
        values = self.table[f"={name}"]
        if (self.table.schema.field(f"={name}").metadata or {}).get(CODED):
            return _column([None if value is None else json.loads(value) for value in values.to_pylist()])
        return pa.nulls(len(values), pa.bool_()) if values.type == pa.null() else values

    @cached_property
    def _states(self) -> pa.Array:
        """The current status of each run. It is not stored, because it depends on whether a process holds the run."""
        written = self.table["=status"].to_pylist()
        return pa.array(
            [run.state if status == "running" else status for run, status in zip(self.runs, written, strict=True)],
            pa.string(),
        )

    def _tables(self, text: str) -> dict[str, pa.Table]:
        """The tables of a query. Metrics are one file per run, so they are read only if the query names them."""
        tables = {"runs": pa.table({name: self.column(name) for name in self.columns})}
        if "metrics" in text.lower():
            tables["metrics"] = pa.concat_tables(self._metrics())
        if "results" in text.lower():
            tables["results"] = self._results()
        return tables

    def _metrics(self) -> Iterable[pa.Table]:
        yield METRICS.insert(0, pa.field("run", pa.string())).empty_table()
        for run in self.runs:
            try:
                table = run.metrics_table()
            except ValueError as error:
                self.problems.append(str(error))
                continue
            yield table.add_column(0, "run", pa.repeat(run.id, len(table)))

    def _results(self) -> pa.Table:
        lists = self.table["results"].combine_chunks()
        runs = self.table["=id"].combine_chunks().take(lists.value_parent_indices())
        return pa.table([runs, *lists.flatten().flatten()], schema=RESULTS)


def packed(rows: Sequence[Mapping[str, Any]], results: Sequence[Sequence[Mapping[str, Any]]]) -> pa.Table:
    """Rows of :func:`summary` as a table that keeps each value exactly: a column of several types is stored as JSON.

    Column names are those of the rows after a ``=``; ``results`` has the results of :func:`results_of` for each run.
    """
    names = list(dict.fromkeys([*OWN_COLUMNS, *(name for row in rows for name in row)]))
    fields, columns = [], []
    for name in names:
        field, column = _packed(f"={name}", [row.get(name) for row in rows])
        fields.append(field)
        columns.append(column)
    fields.append(pa.field("results", MEASURED))
    return pa.table([*columns, pa.array([list(several) for several in results], MEASURED)], schema=pa.schema(fields))


def joined(first: pa.Table, second: pa.Table) -> pa.Table:
    """Join the rows of two such tables. Columns whose types differ are converted value by value."""
    if not len(first) or not len(second):
        return second if not len(first) else first
    fields, columns = [], []
    for name in dict.fromkeys([*first.column_names, *second.column_names]):
        sides = [(table, table.schema.field(name)) for table in (first, second) if name in table.column_names]
        if len(sides) == 2 and sides[0][1].equals(sides[1][1], check_metadata=True):
            field, column = sides[0][1], pa.chunked_array([*first[name].chunks, *second[name].chunks], sides[0][1].type)
        else:
            field, column = _packed(name, [value for table in (first, second) for value in _exact(table, name)])
        fields.append(field)
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields))


def _packed(name: str, values: Sequence[Any]) -> tuple[pa.Field, pa.Array]:
    if name == "=tags":
        return pa.field(name, pa.list_(pa.string())), pa.array(values, pa.list_(pa.string()))
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        kind = EXACT[kinds.pop()] if kinds else pa.null()
        with suppress(OverflowError):  # an integer of more than 64 bits
            return pa.field(name, kind), pa.array(values, kind)
    coded = pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
    return pa.field(name, pa.string(), metadata={CODED: b"1"}), coded


def _exact(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return [None] * len(table)
    values: list[Any] = table[name].to_pylist()
    coded = (table.schema.field(name).metadata or {}).get(CODED)
    return [None if value is None else json.loads(value) for value in values] if coded else values


def results_of(run: Run) -> Iterable[dict[str, Any]]:
    """Every measured number of a run, with the examples it was computed on."""
    for entry in examined_of(run.record):
        about = _about(entry.on)
        for measure, value in entry.values.items():
            with suppress(OverflowError):  # a whole number too large for this program to have written it
                yield {**about, "measure": measure, "value": None if value is None else float(value)}


def summary(run: Run, problems: list[str] | None = None) -> dict[str, Any]:
    """One flat row per run: id, labels, status as written, time, every setting and result by its last name, and the
    measures of its largest examination with their examples."""
    record = run.record
    row: dict[str, Any] = {}

    def flatten(prefix: str, section: dict[str, Any], depth: int) -> None:
        for key, value in section.items():
            name = prefix if key == "name" else f"{prefix}_{key}" if prefix else key
            if type(value) is dict and depth < DEEPEST:
                flatten(name, value, depth + 1)
            else:
                row[name or "name"] = json.dumps(value) if isinstance(value, dict | list) else value

    flatten("", record["config"], 1)
    flatten("", {key: value for key, value in record["result"].items() if key not in ("types", "measures")}, 1)
    examined = shown(current(record))
    if examined is not None:
        row |= examined.values
    try:
        labels: Mapping[str, Any] = vars(run.labels)
    except ValueError as error:
        labels = {}
        if problems is not None:
            problems.append(str(error))
    return row | {
        "id": run.id,
        "name": labels.get("name") or None,
        "tags": list(labels.get("tags", ())),
        "note": labels.get("note") or None,
        "kind": record["kind"],
        "status": record["status"],
        "data": _data(record["config"].get("world")),
        "created": record["created"],
        "examined_on": None if examined is None else examined.on.text(),
    }


def _data(world: Any, depth: int = 0) -> str | None:
    """The data of a run in a few words: a file by its name, a view with the world that it shows."""
    if not isinstance(world, dict) or depth > DEEPEST:
        return world if isinstance(world, str) else None
    path, name = world.get("path"), world.get("name")
    own = data_name(path) if isinstance(path, str) and path else name if isinstance(name, str) else None
    inner = _data(world.get("of"), depth + 1)
    return " of ".join(filter(None, (own, inner))) or None


def _about(on: Basis) -> dict[str, Any]:
    about = {name: getattr(on, name) for name in ("data", "part", "seed", "step", "protocol", "version")}
    return about | {"examples": on.count, "examined_on": on.text()}


def _column(values: Sequence[Any]) -> pa.Array:
    """A column of numbers or truth values if all values are, otherwise of text: a setting's type may differ by run."""
    kinds = {type(value) for value in values if value is not None}
    kind = pa.bool_() if kinds <= {bool} else pa.int64() if kinds <= {int} else pa.float64()
    if kinds <= {bool} or kinds <= {int, float}:
        with suppress(pa.ArrowInvalid, OverflowError):  # an integer of more than 64 bits is text
            return pa.array(values, kind)
    return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values], pa.string())
