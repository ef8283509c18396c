"""An index of a run store: one file with the columns of a listing for every run, so that thousands of runs are listed
immediately.

The index is only a copy of what is in the run folders. A row is valid as long as the two files it was made from,
``run.json`` and ``labels.json``, have the same inode numbers, sizes and times of change. All other runs are read again:
new and changed runs, runs that changed too recently for the clock to show it, runs with damaged files, and all runs if
the index is missing, damaged, or made by other code. If it cannot be written, listings are only slower.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather

from polariscope.atomic import atomic
from polariscope.lab.listing import Listing, joined, packed, results_of, summary
from polariscope.lab.store import checked_run

if TYPE_CHECKING:
    from polariscope.lab.store import Store

FILE = ".index.arrow"
WORTH = 50
"""The index is written again if at least this many runs had to be read; reading fewer is faster than writing."""
RACY = 2 * 10**9
"""Two changes of a file within this many nanoseconds may get the same time: some file systems count in seconds."""
MADE_BY = b"polariscope.index"
MODULES = ("index", "listing", "results", "labels", "store")
"""The modules whose code determines the contents of a row."""
NO_FILE = (0, 0, 0, 0)
Stamp = tuple[int, ...]


def listing(store: Store) -> Listing:
    """The readable runs of a store as they are now: from the index where it is valid, otherwise from the folders."""
    store.problems.clear()
    now = time.time_ns()
    folders = store.folders()
    stamps = {path.name: stamp_of(path) for path in folders}
    known = _read(store.root)
    names, kept = _kept(known, stamps)
    rows: list[dict[str, Any]] = []
    results: list[list[dict[str, Any]]] = []
    fresh: list[str] = []
    for path in folders:
        if path.name in names:
            continue
        try:
            run = checked_run(path)
        except ValueError as error:
            store.problems.append(str(error))
            continue
        complaints = len(store.problems)
        rows.append(summary(run, store.problems))
        results.append(list(results_of(run)))
        stamp = stamps[path.name]
        settled = stamp is not None and all(0 < now - when > RACY for when in (*stamp[:2], *stamp[4:6]))
        fresh.append(path.name if settled and len(store.problems) == complaints else "")
    table = joined(kept, packed(rows, results))
    order = pc.sort_indices(table, [("=created", "ascending"), ("=id", "ascending")])
    if len(rows) >= WORTH or (known is not None and len(known) - len(kept) >= WORTH):
        _write(store.root, table, [*names, *fresh], stamps, order)
    return Listing(store.root, table.take(order), store.problems)


def stamp_of(folder: Path) -> Stamp | None:
    """Times, sizes and inode numbers of the two files of a run; None for a folder without a record."""
    record = _stamp(f"{folder}/run.json")
    return None if record is None else record + (_stamp(f"{folder}/labels.json") or NO_FILE)


def _stamp(file: str) -> Stamp | None:
    try:
        about = os.stat(file)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino


def _kept(known: pa.Table | None, stamps: dict[str, Stamp | None]) -> tuple[dict[str, None], pa.Table]:
    """The rows of an index that are still valid, with the names of their folders."""
    if known is None:
        return {}, packed([], [])
    names = known["folder"].to_pylist()
    written = zip(
        *(known["stamp"].combine_chunks().flatten().to_numpy()[part::8].tolist() for part in range(8)), strict=True
    )
    true = [stamps.get(name) == stamp for name, stamp in zip(names, written, strict=True)]
    kept = known if all(true) else known.filter(pa.array(true, pa.bool_()))
    return {name: None for name, same in zip(names, true, strict=True) if same}, kept.drop_columns(["folder", "stamp"])


def _read(root: Path) -> pa.Table | None:
    """The index as it was written; None if there is none, or other code made it."""
    try:
        with pa.memory_map(f"{root}/{FILE}") as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
        true = (table.schema.metadata or {}).get(MADE_BY) == _code() and table["stamp"].type == pa.list_(pa.int64(), 8)
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None
    return table if true else None


def _write(root: Path, table: pa.Table, names: Sequence[str], stamps: dict[str, Stamp | None], order: pa.Array) -> None:
    sure = [place for place in order.to_pylist() if names[place]]
    folders = [names[place] for place in sure]
    flat = [number for name in folders for number in stamps[name] or ()]
    whole = table.take(pa.array(sure, pa.int64()))
    whole = whole.append_column("folder", pa.array(folders, pa.string()))
    whole = whole.append_column("stamp", pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.int64()), 8))
    whole = whole.combine_chunks().replace_schema_metadata({MADE_BY: _code()})
    with suppress(OSError), atomic(root / FILE) as draft:  # a full disk, or no right to write
        feather.write_feather(whole, str(draft), compression="uncompressed")


@cache
def _code() -> bytes:
    """A hash of the code that makes rows: rows of another version may have other contents."""
    texts = [Path(__file__).with_name(f"{name}.py").read_bytes() for name in MODULES]
    return (
        hashlib.sha256(json.dumps([hashlib.sha256(text).hexdigest() for text in texts]).encode()).hexdigest().encode()
    )
