"""Precomputed codes in place of a model: one row for each example of the data, in its order."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polariscope.memory import available_memory
from polariscope.subjects.evidence import read_places, unnamed
from polariscope.subjects.outputs import Code, read_code

CODE_FILES = (".npy", ".npz")
"""How the names of files of codes end."""
UNREADABLE = (ValueError, TypeError, OSError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError,
              zipfile.BadZipFile)  # fmt: skip


def is_codes(thing: Any) -> bool:
    """Whether an object is an array of codes, or several arrays (by name, or in a tuple)."""
    if isinstance(thing, Mapping):
        return bool(thing) and all(isinstance(part, Tensor | np.ndarray) for part in thing.values())
    if unnamed(thing):
        return bool(thing) and all(isinstance(part, Tensor | np.ndarray) for part in thing)
    return isinstance(thing, Tensor | np.ndarray)


def codes_of(thing: Any, roles: tuple[str, ...] | None) -> tuple[Code, tuple[str, ...]]:
    """Means and, if given, variances and samples; and the assumptions that were made."""
    notes: tuple[str, ...] = ()
    parts = list(thing.values()) if isinstance(thing, Mapping) else list(thing) if unnamed(thing) else [thing]
    for part in parts:
        kind = part.dtype.kind if isinstance(part, np.ndarray) else "f"
        if kind not in "fiub" or not part.ndim or not len(part):
            raise ValueError(
                f"codes must be numbers with one row per example; got an array of shape {tuple(part.shape)} and type "
                f"{part.dtype}"
            )
    if len(parts) == 1:
        thing = parts[0]
    if unnamed(thing) and roles is None:
        reading = read_places(thing, (len(thing[0]), 0))
        roles, notes = reading.roles, (reading.sentence,)
    code = read_code(thing, roles)
    return {name: part.detach().float() for name, part in code.items()}, notes


def read_codes(path: Path) -> Any:
    """The array of a ``.npy`` file, or those of a ``.npz`` file by name. No code in them is ever run."""
    try:
        status = path.stat()
    except OSError as error:
        raise ValueError(f"the codes {path} cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"the codes {path} are not a regular file")
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)  # larger than its file is refused, not made
                return np.array(mapped)
        with zipfile.ZipFile(path) as archive:
            _check_members(archive)
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"the codes {path} cannot be read as .npy or .npz: {reason[:200]}") from error


def _check_members(archive: zipfile.ZipFile) -> None:
    """Refuse arrays that claim to be larger than their member, and members that would not fit into memory."""
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > available_memory() // 2:
        raise ValueError(f"it unpacks to {unpacked / 2**30:.1f} GiB, more than half of the memory that is free")
    for member in archive.infolist():
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        if dtype.itemsize * int(np.prod([int(side) for side in shape], dtype=object)) > member.file_size:
            raise ValueError(f"its {member.filename} declares shape {shape}, and is smaller")


def looked_up(codes: Code, numbers: Tensor, count: int) -> Code:
    """The codes of some examples of data with ``count`` of them."""
    rows = len(codes["mean"])
    if rows != count:
        raise ValueError(
            f"there are {rows:,} codes for {count:,} examples: they need one row for each example of the data, in its "
            "order"
        )
    return {name: torch.as_tensor(part)[numbers] for name, part in codes.items()}
