"""The run store: a folder of run folders.

A run folder holds ``run.json`` (schema version, configuration, status, environment, plug-ins, results), ``labels.json``
(name, tags and note), ``metrics.parquet`` (step, split, term, value), ``checkpoint.safetensors`` (the latest complete
state), ``snapshots/`` (weights over time) and its reports. Every file is written atomically. A folder that is damaged
or not a run is reported and skipped, never changed.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from polariscope import plugins
from polariscope.atomic import FullDiskError, atomic, atomic_folder, is_abandoned
from polariscope.lab.holding import is_held, lock_file
from polariscope.lab.labels import Labels, read_labels
from polariscope.lab.provenance import environment
from polariscope.lab.query import Limits, Rows
from polariscope.printable import one_line

if TYPE_CHECKING:
    from polariscope.lab.listing import Listing

SCHEMA = 1
METRICS = pa.schema(
    [("step", pa.int64()), ("split", pa.string()), ("term", pa.string()), ("value", pa.float64())],
    metadata={"polariscope.schema": str(SCHEMA)},
)
Row = tuple[int, str, str, float]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
RECORD = {"kind": str, "created": str, "status": str, "config": dict, "result": dict}
"""Entries of ``run.json`` besides its schema number."""
WHOLE_RECORD = {**RECORD, "updated": str, "environment": dict, "plugins": list, "examinations": list, "data": list}
"""These, and the entries that earlier versions did not write."""
DEEPEST_RECORD = 100
"""Largest nesting depth of a record: worlds within worlds need some levels, but not a thousand."""
LARGEST_RECORD = 2**26
"""Largest size of a record in bytes; larger ones are not read."""


def fingerprint(config: Mapping[str, Any]) -> str:
    """Eight hex digits that name a configuration: the same settings give the same name, in any order.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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

    @cached_property
    def built(self) -> dict[str, Any]:
        """Objects built from the configuration, cached until it changes; :mod:`polariscope.training.run` fills it."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process: only the path, because the other process reads the record itself."""
        return {"path": self.path}

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._record["config"]
        return config

    @property
    def status(self) -> str:
        """The status as last written. A killed process could not update it: see :attr:`state`."""
        return str(self._record["status"])

    @property
    def state(self) -> str:
        """The current status: a run that is recorded as running but held by no living process is interrupted."""
        return "interrupted" if self.status == "running" and not is_held(self.path) else self.status

    @cached_property
    def labels(self) -> Labels:
        """The name, tags and note that the user gave to the run."""
        return read_labels(self.path)

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = self._record["result"]
        return result

    @property
    def record(self) -> dict[str, Any]:
        return dict(self._record)

    @property
    def plugins(self) -> list[dict[str, str]]:
        """The plug-ins that were loaded when the run was made, as printable text."""
        entries = [entry for entry in self._record["plugins"] if isinstance(entry, dict)]
        return [{one_line(key): one_line(value) for key, value in entry.items()} for entry in entries]

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def snapshot(self, step: int) -> Path:
        return self.path / "snapshots" / f"step-{step:08d}.safetensors"

    def snapshots(self) -> dict[int, Path]:
        """Snapshots of the weights, by step."""
        files = sorted((self.path / "snapshots").glob("step-*.safetensors"))
        named = [(re.fullmatch(r"step-(\d{1,18})", file.stem, re.ASCII), file) for file in files]
        return {int(name[1]): file for name, file in named if name}

    def update(self, **changes: Any) -> None:
        """Change entries of ``run.json``. Entries of ``result`` are merged, other entries are replaced."""
        record = read_record(self.path)
        record["result"] = {**record["result"], **changes.pop("result", {})}
        write_record(self.path, {**record, **changes, "updated": _now()})
        self.reload()

    def reload(self) -> None:
        """Read the record again, because another process may have changed it."""
        record = read_record(self.path)
        if self.built and record["config"] != self.config:
            self.built.clear()
        self.__dict__["_record"] = record
        self.__dict__.pop("labels", None)

    def write_metrics(self, rows: Iterable[Row]) -> None:
        table = pa.Table.from_pylist([dict(zip(METRICS.names, row, strict=True)) for row in rows], schema=METRICS)
        with atomic(self.path / "metrics.parquet") as draft:
            pq.write_table(table, draft)

    def metrics(self) -> list[Row]:
        """All metrics, in the order they were written."""
        table = self.metrics_table()
        with self._reading_metrics():
            return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def metrics_table(self) -> pa.Table:
        """All metrics as an Arrow table."""
        file = self.path / "metrics.parquet"
        if not file.exists():
            return METRICS.empty_table()
        with self._reading_metrics():
            if not file.is_file():
                raise OSError("metrics.parquet is not a regular file")
            with pq.ParquetFile(file) as parquet:
                table = parquet.read()
            table.validate(full=True)
            if not table.schema.equals(METRICS):
                columns = ", ".join(f"{field.name} {field.type}" for field in table.schema)
                raise ValueError(f"their columns are {columns}")
        return table

    @contextmanager
    def _reading_metrics(self) -> Iterator[None]:
        """Turn errors of reading into one ValueError. Invalid text in the file raises an error only when it is used."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"the metrics of run {one_line(self.id)} cannot be read: {one_line(error)}") from error

    def curve(self, term: str, split: str = "train") -> tuple[list[int], list[float]]:
        """Steps and values of one term."""
        points = [(step, value) for step, s, t, value in self.metrics() if (s, t) == (split, term)]
        return [step for step, _ in points], [value for _, value in points]


@dataclass(frozen=True)
class Store:
    """A folder of runs. Folders that are not readable runs are listed in ``problems``."""

    root: Path
    problems: list[str] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))

    def new_id(self, label: str) -> str:
        """A unique name for a run: time, readable label, and a random part.

        This creates the lock file of the run's folder, so that no two processes get the same name.
        """
        slug = re.sub(r"[^a-z0-9]+", "-", label.lower())[:80].strip("-")
        for digits in itertools.chain((2, 4, 8), itertools.repeat(16)):
            run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{slug}-{secrets.token_hex(digits)}"
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                lock_file(self.root / run_id).touch(exist_ok=False)
            except FileExistsError as error:
                if not self.root.is_dir():
                    raise self._unwritable(error) from error
                continue
            except OSError as error:
                raise self._unwritable(error) from error
            if not (self.root / run_id).exists():
                return run_id
        raise AssertionError("chance never ends")

    def create(
        self,
        config: Mapping[str, Any],
        label: str,
        kind: str = "train",
        run_id: str | None = None,
        status: str = "running",
        data: Sequence[Mapping[str, Any]] = (),
    ) -> Run:
        """Create a run folder with its record. ``label`` becomes the readable part of the id; ``data`` lists the data
        files with their hashes.

        The folder appears together with its record or not at all, even if the process is killed.
        """
        run_id = self.new_id(label) if run_id is None else run_id
        path = self.path_of(run_id)
        record = {
            "schema": SCHEMA,
            "kind": kind,
            "created": _now(),
            "updated": _now(),
            "status": status,
            "config": dict(config),
            "environment": environment(),
            "plugins": plugins.record(),
            "data": [dict(one) for one in data],
            "result": {},
        }
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            _clear_half_made(path)
            with atomic_folder(path) as draft:
                write_record(draft, record)
        except FileExistsError as error:
            if not self.root.is_dir():
                raise self._unwritable(error) from error
            if path.is_dir() and not (path / "run.json").exists():
                raise ValueError(
                    f"the folder {path} is not a run, but has the name of this run: move it elsewhere"
                ) from error
            raise ValueError(f"there is already a run {run_id} in {self.root}") from error
        except FullDiskError:
            raise
        except OSError as error:
            raise self._unwritable(error) from error
        return Run(path)

    def _unwritable(self, error: OSError) -> OSError:
        return OSError(f"cannot write to the run folder {self.root}: {error.strerror or error}")

    def path_of(self, run_id: str) -> Path:
        """The folder of the run with this id, which need not exist; always a folder of this store."""
        if not NAME.fullmatch(run_id):
            raise ValueError(
                f"{one_line(repr(run_id))} cannot be the name of a run: a name has up to 200 letters, digits, '.', "
                "'_' and '-', and begins with a letter or a digit"
            )
        return self.root / run_id

    def open(self, name: str | Path) -> Run:
        """A run by its id, its name, a unique beginning or ending of its id, ``latest``, or the path of its folder."""
        name = str(name)
        if not name:
            raise ValueError("a run is opened by its id, its name, 'latest' or its folder; got an empty name")
        if os.path.exists(Path(name, "run.json")):
            path = Path(name)
            return checked_run(path if path.name not in ("", "..") else path.resolve())
        if name == "latest":
            runs = self.runs()
            if runs:
                return max(runs, key=lambda run: (run.record["updated"], run.record["created"]))
        folders = self.folders()
        matches = [path for path in folders if path.name == name] or [p for p in folders if _name_of(p) == name]
        if not matches:
            parts = [path for path in folders if path.name.startswith(name) or path.name.endswith(name)]
            matches = [path for path in parts if (path / "run.json").exists()]
        if len(matches) == 1:
            return checked_run(matches[0])
        shown = one_line(repr(name))
        if matches:
            names = ", ".join(one_line(path.name) for path in matches[:5])
            raise ValueError(f"{len(matches)} runs in {self.root} match {shown}: {names}")
        raise ValueError(f"there is no run {shown} in {self.root}; 'polariscope runs' lists all runs")

    def runs(self) -> list[Run]:
        """All readable runs, oldest first."""
        self.problems.clear()
        runs = []
        for path in self.folders():
            try:
                runs.append(checked_run(path))
            except ValueError as error:
                self.problems.append(str(error))
        return sorted(runs, key=lambda run: run._record["created"])

    def named(self, name: str) -> list[Run]:
        """The runs with this id or this name; copied runs may share a name."""
        own = [path for path in self.folders() if path.name == name]
        return [checked_run(path) for path in own or self.folders() if own or _name_of(path) == name]

    def listing(self) -> Listing:
        """The readable runs as they are now, as tables that can be queried several times."""
        from polariscope.lab.index import listing

        return listing(self)

    def query(self, sql: str, limits: Limits | None = None) -> Rows:
        """One SELECT statement over three tables: ``runs`` (one row per run, settings as columns), ``metrics`` (run,
        step, split, term, value) and ``results`` (run, measure, examples, value)."""
        return self.listing().query(sql, limits)

    def where(self, condition: str, limits: Limits | None = None) -> Rows:
        """The rows of ``runs`` for which an SQL expression holds, oldest first."""
        return self.listing().where(condition, limits=limits)

    def folders(self) -> list[Path]:
        """The folders that may be runs: all visible ones."""
        if not self.root.is_dir():
            return []
        with os.scandir(self.root) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
        return [self.root / name for name in names]


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run folder; an error for a damaged one."""
    name, file = one_line(path.name), path / "run.json"
    try:
        _check_regular(file)
        text = file.read_text(encoding="utf-8")
        record = json.loads(text)
        if text.count("{") + text.count("[") >= DEEPEST_RECORD:  # with fewer brackets there is no such depth
            _check_depth(record)
        path.name.encode()
        if "\\ud" in text or "\\uD" in text:
            json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair would fail only later
    except FileNotFoundError as error:
        raise ValueError(f"{name} is not a run folder: it has no run.json") from error
    except OSError as error:
        raise ValueError(f"the run folder {name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"the run folder {name} is damaged: run.json is not readable JSON ({one_line(error)})"
        ) from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if type(schema) is not int or schema < 1:
        raise ValueError(f"{name} is not a run folder of this program: run.json has no schema number")
    if schema > SCHEMA:
        raise ValueError(f"run {name} has schema {schema}; this version reads up to {SCHEMA}: upgrade")
    missing = RECORD.keys() - record.keys()
    if missing:
        raise ValueError(f"the run folder {name} is damaged: run.json lacks {', '.join(sorted(missing))}")
    record = {"updated": record["created"], "environment": {}, "plugins": [], "examinations": [], "data": [], **record}
    for key, kind in WHOLE_RECORD.items():
        if not isinstance(record[key], kind):
            wanted = {dict: "a section", list: "a list", str: "text"}[kind]
            raise ValueError(f"the run folder {name} is damaged: {key} in run.json is not {wanted}")
    return record


def _check_regular(file: Path) -> None:
    """Refuse anything but regular files of limited size: reading from a pipe could wait for ever."""
    about = os.stat(file)
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(f"{file.name} is not a regular file")
    if about.st_size > LARGEST_RECORD:
        raise OSError(f"{file.name} has {about.st_size:,} bytes, but a record has at most {LARGEST_RECORD:,}")


def _check_depth(record: Any) -> None:
    level = [record]
    for _ in range(DEEPEST_RECORD):
        level = [inner for item in level for inner in _within(item)]
        if not level:
            return
    raise ValueError(f"its sections are nested more than {DEEPEST_RECORD} deep")


def _within(item: Any) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    with atomic(path / "run.json") as draft:
        draft.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _clear_half_made(path: Path) -> None:
    """Remove an empty folder without a record: earlier versions left one if they were killed after creating it."""
    if path.is_dir() and not path.is_symlink():
        inside = list(path.iterdir())
        if all(is_abandoned(file) for file in inside):
            for draft in inside:
                draft.unlink()
            path.rmdir()


def checked_run(path: Path) -> Run:
    """The run of a folder, with its record read."""
    run = Run(path)
    run.reload()
    return run


def _name_of(path: Path) -> str:
    """The name that the user gave to a run; empty if the labels are damaged, which the list of runs reports."""
    with suppress(ValueError):
        return read_labels(path).name
    return ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
