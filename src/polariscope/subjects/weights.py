"""Weights from files: safetensors, or torch's own formats without executing code in them.

Files may come from strangers: only regular files are opened, their sizes are checked before they are unpacked, and a
bad file is refused in one sentence that names it.
"""

from __future__ import annotations

import argparse
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from polariscope.memory import available_memory

NESTED = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params", "ema")
"""Names of the weights in checkpoints that also contain optimisers and other states."""
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "vae.")
"""What wrappers put before the names of weights."""
SHOWN = 4
HARMLESS: list[Any] = [
    argparse.Namespace,
    np.dtype,
    np._core.multiarray.scalar,  # type: ignore[attr-defined]
    *(type(np.dtype(code)) for code in ("f2", "f4", "f8", "i4", "i8", "u1", "?")),
]
"""Settings and losses that lie beside the weights in many checkpoints, and do nothing when they are read."""


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Load the weights of a file into a model; missing and unexpected names and other shapes are reported."""
    path = Path(path)
    read = read_weights(path)
    wanted = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    fitted = max(_renamed(read), key=lambda names: len(wanted.keys() & names.keys()))
    missing = [name for name in wanted if name not in fitted]
    unexpected = [name for name in fitted if name not in wanted]
    if missing or unexpected:
        parts = [
            f"{label} {_list(names)}" for label, names in (("missing", missing), ("unexpected", unexpected)) if names
        ]
        raise ValueError(f"the weights {path} do not fit {type(model).__name__}: {'; '.join(parts)}")
    for name, value in wanted.items():
        given = fitted[name]
        if not is_lazy(value) and given.shape != value.shape:
            raise ValueError(
                f"the weights {path} do not fit {type(model).__name__}: {name} has shape {tuple(given.shape)} in the "
                f"file and {tuple(value.shape)} in the model"
            )
        if given.is_complex() and not value.is_complex():
            raise ValueError(f"the weights {path} do not fit {type(model).__name__}: {name} is complex in the file")
    try:
        model.load_state_dict(fitted, strict=False)  # names are compared above; what is no tensor stays as it is
    except (RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the weights {path} do not fit {type(model).__name__}: {reason}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name. The first bytes of a file determine its format, not its name."""
    try:
        status = path.stat()  # before it is opened: a pipe would wait for somebody to write
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"the weights {path} are not a regular file")
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise ValueError(f"the weights {path} cannot be read: {error.strerror or error}") from error
    kind = _kind(start, status.st_size)
    if kind is None:
        raise ValueError(f"the weights {path} are neither safetensors nor a file of torch.save")
    if status.st_size > available_memory():
        raise ValueError(f"the weights {path} have {status.st_size / 2**30:.1f} GiB, more than the memory that is free")
    try:
        if kind == "safetensors":
            return load_file(path)
        if kind == "zip":
            _check_archive(path)
        with torch.serialization.safe_globals(HARMLESS):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise ValueError(_refused(path, error)) from error
    except Exception as error:  # a damaged file may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"the weights {path} are damaged: {lines[0][:200]}") from error
    return _unnested(content, path)


def _kind(start: bytes, size: int) -> str | None:
    """Which of the formats a file has. The first byte alone does not say: that of safetensors is the lowest of the
    length of its header, and any number.

    >>> _kind((0x280).to_bytes(8, "little") + b"{", 2000), _kind(b"\\x80\\x02}q\\x00.", 6), _kind(b"PK\\x03\\x04", 100)
    ('safetensors', 'pickle', 'zip')
    """
    if start[8:9] == b"{" and 8 + int.from_bytes(start[:8], "little") <= size:
        return "safetensors"
    if start[:4] == b"PK\x03\x04":
        return "zip"
    return "pickle" if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") else None


def _check_archive(path: Path) -> None:
    """Refuse archives that are locked, or larger inside than out: torch.save packs without compressing."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(member.flag_bits & 0x1 for member in members):
        raise ValueError("the archive is encrypted: unpack it, and give the file that is inside")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(available_memory() // 2, path.stat().st_size):
        raise ValueError(f"it unpacks to {unpacked / 2**30:.1f} GiB, more than half of the memory that is free")


def _refused(path: Path, error: Exception) -> str:
    """Why a pickle was not read: it holds objects that would have to be run, or is no whole pickle."""
    foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
    if foreign is None and "Unsupported operand" in str(error):
        return f"the weights {path} are damaged: they are not a pickle of tensors"
    held = f" ({foreign[1]})" if foreign else ""
    return (
        f"{path} holds Python objects{held}, and code from a file is never run here: if you trust it, save the weights "
        "alone with torch.save(model.state_dict(), 'weights.pt')"
    )


def _unnested(content: Any, path: Path) -> dict[str, Tensor]:
    """The mapping of names to tensors, wherever in a checkpoint it lies."""
    for _ in range(3):
        if isinstance(content, nn.Module):
            return content.state_dict()
        if not isinstance(content, Mapping):
            break
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[name] for name in NESTED if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            if tensors:
                return tensors
            break
        content = inner
    held = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
    raise ValueError(f"{path} holds no weights by name, but {held or 'nothing'}: save model.state_dict()")


def _renamed(weights: dict[str, Tensor], depth: int = 3) -> Iterator[dict[str, Tensor]]:
    """The weights unchanged, and without the prefixes of wrappers; entries outside of the prefix are dropped."""
    yield weights
    if depth:
        for prefix in PREFIXES:
            inside = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            if inside:
                yield from _renamed(inside, depth - 1)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
