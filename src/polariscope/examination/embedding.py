"""Embed once: what a model says about data is kept, and read back when the same is asked again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from polariscope.representation import Representation, represent
from polariscope.subjects import Subject
from polariscope.worlds.world import World, worlds

LARGEST = 2**26
"""Bytes beyond which a representation is not kept: many layers of many examples are quicker made than stored."""


@dataclass(frozen=True)
class Shelf:
    """A folder of representations, and what besides weights and data decides them: the code that encodes."""

    folder: Path
    code: str

    @classmethod
    def of_source(cls, reference: str, **flags: Any) -> Shelf:
        """For a model from a file of the user's, in the user's cache folder."""
        text = Path(reference.rpartition(":")[0]).read_bytes()
        said = {"reference": reference, "source": hashlib.sha256(text).hexdigest(), "flags": flags}
        return cls(cache_folder() / "representations", _hash(said))


def cache_folder() -> Path:
    """Where things are kept that can be made again: POLARISCOPE_CACHE, or the usual place of this system's user."""
    named = os.environ.get("POLARISCOPE_CACHE")
    usual = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(usual) / "polariscope"


def embed(subject: Subject, world: World, shelf: Shelf | None = None, **asked: Any) -> Representation:
    """:func:`~polariscope.representation.represent`, or what it gave when the same was asked before.

    The same is: weights, code, data, number and choice of examples, seeds, layers, and the version of this program. A
    damaged file is made again.
    """
    if shelf is None or subject.module is None or not worlds.knows(world):
        return represent(subject, world, **asked)
    key = _hash(
        {
            "weights": weights_hash(subject.module),
            "code": shelf.code,
            "data": _data(worlds.describe(world)),
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
    found = represent(subject, world, **asked)
    if found.nbytes <= LARGEST:
        shelf.folder.mkdir(parents=True, exist_ok=True)
        found.save(file)
    return found


def weights_hash(module: torch.nn.Module) -> str:
    """A hash of all parameters and buffers, by name, shape and bits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _hash(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _data(description: Any) -> Any:
    """A world's description with size and time of the files it names: another file of that name is other data."""
    if isinstance(description, Mapping):
        told = {key: _data(value) for key, value in description.items()}
        path = description.get("path")
        if isinstance(path, str) and Path(path).exists():
            told["files"] = _stamp(Path(path))
        return told
    return [_data(item) for item in description] if isinstance(description, list) else description


def _stamp(path: Path) -> list[Any]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return [json.dumps([str(file), file.stat().st_size, file.stat().st_mtime_ns]) for file in files]
