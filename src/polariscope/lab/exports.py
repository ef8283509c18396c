"""Runs for other programs: learning curves as TensorBoard event files, and everything as CSV, with no other library.

An event file is a sequence of records (length, checksum, content, checksum), whose contents are protocol buffers; both
formats are public and small.
"""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from polariscope.atomic import atomic
from polariscope.lab.results import current, shown
from polariscope.lab.store import Run, Store

Format = Literal["tensorboard", "csv"]
POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C (Castagnoli), bit-reversed."""
SPLITS = {"held_out": "held-out"}


def export(runs: Sequence[Run], out: Path, to: Format) -> list[Path]:
    """Write runs for another program into a folder; returns the files."""
    return [_event_file(run, out) for run in runs] if to == "tensorboard" else _tables(runs, out)


def _event_file(run: Run, out: Path) -> Path:
    """Write the event file of a run into its own folder, as TensorBoard expects."""
    begun = datetime.fromisoformat(run.record["created"]).timestamp()
    path = out / run.id / f"events.out.tfevents.{int(begun)}.polariscope"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as draft:
        draft.write_bytes(b"".join(map(framed, events(run, begun))))
    return path


def events(run: Run, begun: float) -> Iterator[bytes]:
    """The events of a run as protocol buffers: its curves by split and term, then its measures at the last step."""
    speed = run.result.get("steps_per_second")
    pace = float(speed) if isinstance(speed, int | float) and speed > 0 else None

    def when(step: int) -> float:
        return begun + (step / pace if pace else 0.0)

    yield event(begun, 0, version="brain.Event:2")
    last = 0
    for step, split, term, value in run.metrics():
        last = max(last, step)
        yield event(when(step), step, (f"{SPLITS.get(split, split)}/{term}", value))
    examined = shown(current(run.record))
    for name, number in (examined.values if examined else {}).items():
        if number is not None:
            yield event(when(last), last, (name.replace("_", "/", 1), float(number)))


def event(when: float, step: int, scalar: tuple[str, float] | None = None, version: str = "") -> bytes:
    """One event: a time, a step, and either a named number or the version of the file."""
    message = b"\x09" + struct.pack("<d", when) + b"\x10" + _varint(step)
    if version:
        message += b"\x1a" + _sized(version.encode())
    if scalar is not None:
        name, number = scalar
        value = b"\x0a" + _sized(name.encode()) + b"\x15" + struct.pack("<f", _single(number))
        message += b"\x2a" + _sized(b"\x0a" + _sized(value))
    return message


def framed(message: bytes) -> bytes:
    """A record of an event file."""
    length = struct.pack("<Q", len(message))
    return length + struct.pack("<I", masked(length)) + message + struct.pack("<I", masked(message))


def masked(data: bytes) -> int:
    """The checksum of a record: CRC-32C, rotated by 15 bits, plus a constant.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        entries.append(byte)
    return tuple(entries)


def _varint(number: int) -> bytes:
    out = bytearray()
    number &= 2**64 - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _single(value: float) -> float:
    """The number, or an infinite one if it does not fit into a 32-bit float."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _tables(runs: Sequence[Run], out: Path) -> list[Path]:
    """``runs.csv`` with a row for each run, ``metrics.csv`` with a row for each point of each curve."""
    out.mkdir(parents=True, exist_ok=True)
    ids = {run.id for run in runs}
    points = ((run.id, *row) for run in runs for row in run.metrics())
    files: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "metrics.csv": (("run", "step", "split", "term", "value"), points)
    }
    if runs:
        listing = Store(runs[0].path.parent).listing()
        rows = [row for row in listing.where("true") if row["id"] in ids]
        columns = [column for column in listing.columns if any(row[column] not in (None, []) for row in rows)]
        columns.insert(0, columns.pop(columns.index("id")))
        files["runs.csv"] = (tuple(columns), ([_cell(row[column]) for column in columns] for row in rows))
    for name, (header, lines) in files.items():
        with atomic(out / name) as draft:
            draft.write_text(_csv(header, lines), encoding="utf-8")
    return [out / name for name in files]


def _csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return file.getvalue()


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else "" if value is None else value
