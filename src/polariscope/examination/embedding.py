"""Compute once: the representation of a model on data is stored, and read back when it is needed again."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from polariscope import plugins
from polariscope.lab.store import Run
from polariscope.representation import Representation, represent
from polariscope.subjects import Subject
from polariscope.user_code import LIBRARIES, PACKAGE
from polariscope.worlds.world import World, sample_numbers, worlds

LARGEST = 2**26
"""Bytes above which a representation is not stored: many layers of many examples are faster to compute than to
store."""


@dataclass(frozen=True)
class Shelf:
    """A folder of stored representations, identified by weights, data and the code that encodes."""

    folder: Path
    code: str

    @classmethod
    def of_source(cls, reference: str, **flags: Any) -> Shelf | None:
        """The store of a model from the user's own file, in the user's cache folder, if there is one. The file must
        have been loaded, so that the modules it imports from its own folder are known."""
        place = cache_folder()
        if place is None:
            return None
        file = Path(reference.rpartition(":")[0]).expanduser().resolve()
        sources = [_bytes_hash(path.read_bytes()) for path in _sources(file)]
        identity = {"reference": reference, "sources": sources, "flags": flags}
        return cls(place / "representations", _hash(identity))


def run_shelf(run: Run) -> Shelf:
    """The stored representations of a run, in its folder. A hash of the weights identifies the model (trained,
    snapshot)."""
    return Shelf(run.path / "representations", run.id)


def cache_folder() -> Path | None:
    """The cache folder: POLARISCOPE_CACHE, or the usual place on this system; None for a system without a home folder,
    as in many containers."""
    named, usual = os.environ.get("POLARISCOPE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named)
    try:
        return Path(usual or Path.home() / ".cache") / "polariscope"
    except RuntimeError:  # neither HOME nor an entry among the system's users
        return None


def embed(
    subject: Subject, world: World, shelf: Shelf | None = None, *, count: int = 10_000, seed: int = 0, **asked: Any
) -> Representation:
    """:func:`~polariscope.representation.represent`, read from the store if it was computed before with the same
    weights, code, data, number and choice of examples, seeds, layers, and version of this program.

    A damaged file is computed again; if the folder cannot be written to, nothing is stored.
    """
    asked |= {"count": count, "seed": seed}
    if shelf is None or subject.module is None or not worlds.knows(world):
        return represent(subject, world, **asked)
    key = _hash(
        {
            "weights": weights_hash(subject.module),
            "code": shelf.code,
            "plugins": plugins.record(),
            "data": _data(worlds.describe(world)),
            "factors": _bytes_hash(world.factors_of(sample_numbers(world, count, seed)).tobytes()),
            "asked": {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()},
            "version": version("polariscope"),
        }
    )
    file = shelf.folder / f"{key}.safetensors"
    if file.exists():
        try:
            return Representation.load(file)
        except ValueError:
            file.unlink()
    representation = represent(subject, world, **asked)
    if representation.nbytes <= LARGEST:
        with suppress(OSError):  # a cache on a full or read-only disk is no reason to fail
            shelf.folder.mkdir(parents=True, exist_ok=True)
            representation.save(file)
    return representation


def weights_hash(module: torch.nn.Module) -> str:
    """A hash of all parameters and buffers, by name, shape and bits, and of any other state of the module."""
    digest = hashlib.sha256()
    state: dict[str, Any] = {**dict(module.named_buffers()), **module.state_dict()}  # some buffers are not saved
    for name, value in sorted(state.items()):
        if isinstance(value, torch.Tensor) and not value.is_quantized:
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        else:
            torch.save((name, value), written := BytesIO())
            digest.update(written.getvalue())
    return digest.hexdigest()


def _sources(file: Path) -> list[Path]:
    """The user's file and all loaded modules that belong to no library: together they are the model's code."""
    named = {
        Path(file_name) for module in list(sys.modules.values()) if (file_name := getattr(module, "__file__", None))
    }
    others = (PACKAGE, *LIBRARIES)
    own = {path for path in named if path.suffix == ".py" and path.is_file()}
    return sorted({file} | {path for path in own if not any(map(path.is_relative_to, others))})


def _bytes_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hash(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _data(description: Any) -> Any:
    """A world's description with size and time of its files, so that a changed file counts as other data."""
    if isinstance(description, Mapping):
        described = {key: _data(value) for key, value in description.items()}
        path = description.get("path")
        if isinstance(path, str) and Path(path).expanduser().exists():
            described["files"] = _stamp(Path(path).expanduser())
        return described
    return [_data(item) for item in description] if isinstance(description, list) else description


def _stamp(path: Path) -> list[Any]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return [json.dumps([str(file), file.stat().st_size, file.stat().st_mtime_ns]) for file in files]
