"""The runs of a store as tables, read once: to list, to filter, and to ask anything with SQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from polariscope.grammar import data_name
from polariscope.lab.query import Limits, Rows, select, where
from polariscope.lab.results import Basis, current, examined_of, shown
from polariscope.lab.store import METRICS, Run

OWN_COLUMNS = ("id", "name", "tags", "note", "kind", "status", "data", "created", "examined_on")
EXAMINED = ("measures_", "types_")
"""How columns begin that come of an examination."""
DEEPEST = 8
"""Sections within sections that become columns; what lies deeper is shown as JSON."""
RESULTS = pa.schema(
    [
        *(("run", pa.string()), ("measure", pa.string()), ("value", pa.float64()), ("examined_on", pa.string())),
        *(("data", pa.string()), ("part", pa.string()), ("examples", pa.int64()), ("seed", pa.int64())),
        *(("step", pa.int64()), ("protocol", pa.string()), ("version", pa.string())),
    ]
)


@dataclass(frozen=True)
class Listing:
    """Runs, oldest first, and what was wrong with folders that are none."""

    runs: Sequence[Run]
    problems: list[str]

    @cached_property
    def rows(self) -> Rows:
        """One flat row per run."""
        return [summary(run, self.problems) for run in self.runs]

    @cached_property
    def columns(self) -> list[str]:
        # Ours, which are in small letters, first: of names that differ in case alone, SQL renames the later ones.
        return sorted(set(OWN_COLUMNS).union(*self.rows), key=str.swapcase)

    def where(
        self, condition: str = "true", columns: Sequence[str] | None = None, limits: Limits | None = None
    ) -> Rows:
        """The rows of the runs for which an SQL expression holds, oldest first, with these columns or with all."""
        chosen = self.columns if columns is None else columns
        if condition.strip().lower() == "true":
            values = [self._column(column).to_pylist() for column in chosen]
            return [dict(zip(chosen, row, strict=True)) for row in zip(*values, strict=True)] if values else []
        known = [column for column in chosen if column in self.columns]
        rows = where(condition, self._tables(condition), "runs", "created", known, limits)
        return [{column: row.get(column) for column in chosen} for row in rows]

    def query(self, sql: str, limits: Limits | None = None) -> Rows:
        """The answer to one SELECT statement over the tables ``runs``, ``metrics`` and ``results``."""
        return select(sql, self._tables(sql), limits)

    def bases(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        """How many of the runs have their measures from which examples."""
        wanted = None if ids is None else set(ids)
        rows = (row for row in self.rows if wanted is None or row["id"] in wanted)
        return dict(Counter(row["examined_on"] for row in rows if row["examined_on"] is not None))

    def _tables(self, text: str) -> dict[str, pa.Table]:
        """What can be asked about. Metrics take a file per run, and are read only if the text has their name in it."""
        tables = {"runs": pa.table({name: self._column(name) for name in self.columns})}
        if "metrics" in text.lower():
            tables["metrics"] = pa.concat_tables(self._metrics())
        if "results" in text.lower():
            tables["results"] = pa.Table.from_pylist(list(self._results()), RESULTS)
        return tables

    def _column(self, name: str) -> pa.Array:
        values = [row.get(name) for row in self.rows]
        return pa.array(values, pa.list_(pa.string())) if name == "tags" else _column(values)

    def _metrics(self) -> Iterable[pa.Table]:
        yield METRICS.insert(0, pa.field("run", pa.string())).empty_table()
        for run in self.runs:
            try:
                table = run.metrics_table()
            except ValueError as error:
                self.problems.append(str(error))
                continue
            yield table.add_column(0, "run", pa.repeat(run.id, len(table)))

    def _results(self) -> Iterable[dict[str, Any]]:
        for run in self.runs:
            for entry in examined_of(run.record):
                about = _about(entry.on) | {"run": run.id}
                for measure, value in entry.values.items():
                    with suppress(OverflowError):  # a whole number that is none of ours
                        yield {**about, "measure": measure, "value": None if value is None else float(value)}


def summary(run: Run, problems: list[str] | None = None) -> dict[str, Any]:
    """One flat row per run: id, labels, status and time, every setting and result by its last name, and the measures of
    its largest examination with the examples they are of."""
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
        "status": run.state,
        "data": _data(record["config"].get("world")),
        "created": record["created"],
        "examined_on": None if examined is None else examined.on.text(),
    }


def _data(world: Any, depth: int = 0) -> str | None:
    """What a run was trained on, in a few words: a file by its name, a view with what it looks at."""
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
    """Numbers or truth values if all of them are, text otherwise: runs need not agree about a setting's type."""
    kinds = {type(value) for value in values if value is not None}
    kind = pa.bool_() if kinds <= {bool} else pa.int64() if kinds <= {int} else pa.float64()
    if kinds <= {bool} or kinds <= {int, float}:
        with suppress(pa.ArrowInvalid, OverflowError):  # an integer of more than 64 bits is text
            return pa.array(values, kind)
    return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values], pa.string())
