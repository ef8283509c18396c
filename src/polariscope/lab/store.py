"""The run store: a folder of run folders.

A run folder holds ``run.json`` (schema version, configuration, status, environment, results), ``metrics.parquet``
(step, split, term, value), ``checkpoint.safetensors`` (the latest complete state), ``snapshots/`` (weights over time)
and whatever reports were made of it. Every file is written atomically. A folder that is damaged or not ours is
reported and skipped, never touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from polariscope.atomic import atomic

SCHEMA = 1
METRICS = pa.schema(
    [("step", pa.int64()), ("split", pa.string()), ("term", pa.string()), ("value", pa.float64())],
    metadata={"polariscope.schema": str(SCHEMA)},
)
Row = tuple[int, str, str, float]


def fingerprint(config: Mapping[str, Any]) -> str:
    """Eight hex digits that name a configuration: the same settings give the same name, in any order.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def environment() -> dict[str, str]:
    """What a run was made with: enough to explain a difference between two machines, nothing personal."""
    packages = ("polariscope", "torch", "numpy", "scipy", "scikit-learn")
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        **found,
    }


@dataclass(frozen=True)
class Run:
    """One run folder."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @cached_property
    def _record(self) -> dict[str, Any]:
        return read_record(self.path)

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._record["config"]
        return config

    @property
    def status(self) -> str:
        return str(self._record["status"])

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self._record["result"]
        return result

    @property
    def record(self) -> dict[str, Any]:
        return dict(self._record)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def snapshot(self, step: int) -> Path:
        return self.path / "snapshots" / f"step-{step:08d}.safetensors"

    def snapshots(self) -> dict[int, Path]:
        """Weights kept over training, by step."""
        found = sorted((self.path / "snapshots").glob("step-*.safetensors"))
        return {int(file.stem.removeprefix("step-")): file for file in found}

    def update(self, **changes: Any) -> None:
        """Change entries of ``run.json``; ``result`` is merged, everything else replaced."""
        record = read_record(self.path)
        record["result"] = {**record["result"], **changes.pop("result", {})}
        write_record(self.path, {**record, **changes, "updated": _now()})
        self.__dict__.pop("_record", None)

    def write_metrics(self, rows: Iterable[Row]) -> None:
        table = pa.Table.from_pylist([dict(zip(METRICS.names, row, strict=True)) for row in rows], schema=METRICS)
        with atomic(self.path / "metrics.parquet") as draft:
            pq.write_table(table, draft)

    def metrics(self) -> list[Row]:
        """All metrics, in the order they were written."""
        file = self.path / "metrics.parquet"
        if not file.exists():
            return []
        try:
            table = pq.read_table(file, schema=METRICS)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"the metrics of run {self.id} cannot be read: {_first_line(error)}") from error
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def curve(self, term: str, split: str = "train") -> tuple[list[int], list[float]]:
        """Steps and values of one term."""
        points = [(step, value) for step, s, t, value in self.metrics() if (s, t) == (split, term)]
        return [step for step, _ in points], [value for _, value in points]


@dataclass(frozen=True)
class Store:
    """A folder of runs. Folders that are no readable run are listed in ``problems``."""

    root: Path
    problems: list[str] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))

    def create(self, config: Mapping[str, Any], label: str, kind: str = "train", run_id: str | None = None) -> Run:
        """A new run folder with its record. ``label`` becomes part of the name, for people."""
        if run_id is None:
            slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
            run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{slug}-{secrets.token_hex(2)}"
        path = self.root / run_id
        try:
            path.mkdir(parents=True, exist_ok=False)
            record = {
                "schema": SCHEMA,
                "kind": kind,
                "created": _now(),
                "updated": _now(),
                "status": "running",
                "config": dict(config),
                "environment": environment(),
                "result": {},
            }
            write_record(path, record)
        except FileExistsError as error:
            raise ValueError(f"there is a run {run_id} already in {self.root}") from error
        except OSError as error:
            raise OSError(f"cannot write to the run folder {self.root}: {error.strerror or error}") from error
        return Run(path)

    def open(self, name: str | Path) -> Run:
        """A run by its id, a unique beginning or ending of it, ``latest``, or the path of its folder."""
        path = Path(name)
        if (path / "run.json").exists():
            return _checked(path)
        candidates = sorted(p.parent.name for p in self.root.glob("*/run.json"))
        if str(name) == "latest" and candidates:
            return _checked(self.root / max(candidates, key=lambda c: (self.root / c / "run.json").stat().st_mtime))
        matches = [c for c in candidates if c == str(name)] or [
            c for c in candidates if c.startswith(str(name)) or c.endswith(str(name))
        ]
        if len(matches) == 1:
            return _checked(self.root / matches[0])
        if matches:
            raise ValueError(f"{len(matches)} runs in {self.root} match {str(name)!r}: {', '.join(matches[:5])}")
        raise ValueError(f"there is no run {str(name)!r} in {self.root}; 'polariscope runs' lists those there are")

    def runs(self) -> list[Run]:
        """All readable runs, oldest first."""
        self.problems.clear()
        found = []
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            if not path.is_dir() or path.name.startswith("."):
                continue
            try:
                found.append(_checked(path))
            except ValueError as error:
                self.problems.append(str(error))
        return sorted(found, key=lambda run: run.record["created"])

    def query(self, sql: str) -> list[dict[str, Any]]:
        """SQL over two tables: ``runs`` (a row a run, settings as columns) and ``metrics`` (run, step, split, term,
        value)."""
        runs = self.runs()
        rows = [summary(run) for run in runs]
        columns = sorted({"id", "kind", "status", "created"}.union(*rows))
        with duckdb.connect() as database:
            table = pa.table({c: pa.array([row.get(c) for row in rows], _arrow_type(rows, c)) for c in columns})
            database.register("runs", table)
            files = [str(run.path / "metrics.parquet") for run in runs if (run.path / "metrics.parquet").exists()]
            if files:
                metrics = database.read_parquet(files, filename=True).project(
                    "parse_filename(parse_path(filename)[-2]) AS run, step, split, term, value"
                )
                metrics.create_view("metrics")
            try:
                answer = database.sql(sql)
                return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
            except duckdb.Error as error:
                raise ValueError(
                    f"the query failed: {_first_line(error)} (columns of runs: {', '.join(columns)})"
                ) from error


def summary(run: Run) -> dict[str, Any]:
    """One flat row a run: id, status and time, then every setting and every scalar result by its last name."""
    record = run.record
    row: dict[str, Any] = {
        "id": run.id,
        "kind": record["kind"],
        "status": record["status"],
        "created": record["created"],
    }

    def flatten(prefix: str, item: Any) -> None:
        if isinstance(item, dict):
            for key, value in item.items():
                flatten(prefix if key == "name" else f"{prefix}_{key}" if prefix else key, value)
        elif isinstance(item, list):
            row[prefix] = json.dumps(item)
        else:
            row[prefix] = item

    flatten("", record["config"])
    flatten("", record["result"])
    return row


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run folder, or a sentence about what is wrong with it."""
    file = path / "run.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path.name} is not a run folder: it has no run.json") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the run folder {path.name} is damaged: run.json is not readable JSON ({error})") from error
    if not isinstance(record, dict) or not isinstance(record.get("schema"), int):
        raise ValueError(f"{path.name} is not a run folder of this program: run.json has no schema number")
    if record["schema"] > SCHEMA:
        raise ValueError(f"run {path.name} has schema {record['schema']}; this version reads up to {SCHEMA}: upgrade")
    missing = {"kind", "created", "status", "config", "result"} - record.keys()
    if missing:
        raise ValueError(f"the run folder {path.name} is damaged: run.json lacks {', '.join(sorted(missing))}")
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    with atomic(path / "run.json") as draft:
        draft.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _checked(path: Path) -> Run:
    read_record(path)
    return Run(path)


def _arrow_type(rows: list[dict[str, Any]], column: str) -> pa.DataType:
    kinds = {type(row[column]) for row in rows if row.get(column) is not None}
    if kinds <= {bool}:
        return pa.bool_()
    if kinds <= {int}:
        return pa.int64()
    if kinds <= {int, float}:
        return pa.float64()
    return pa.string()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
