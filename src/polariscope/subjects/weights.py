"""Weights from whatever file people have: safetensors, or torch's own formats without running what is in them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

NESTED = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params", "ema")
"""Names under which checkpoints keep their weights beside optimisers and the like."""
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
    """Put the weights of a file into a model, or say in a sentence what is missing, unexpected or of another shape."""
    path = Path(path)
    read = read_weights(path)
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    fitted = max(_renamed(read), key=lambda names: len(wanted.keys() & names.keys()))
    missing = [name for name in wanted if name not in fitted]
    unexpected = [name for name in fitted if name not in wanted]
    if missing or unexpected:
        parts = [
            f"{label} {_list(names)}" for label, names in (("missing", missing), ("unexpected", unexpected)) if names
        ]
        raise ValueError(f"the weights {path} do not fit {type(model).__name__}: {'; '.join(parts)}")
    for name, shape in wanted.items():
        if tuple(fitted[name].shape) != shape:
            raise ValueError(
                f"the weights {path} do not fit {type(model).__name__}: {name} has shape "
                f"{tuple(fitted[name].shape)} in the file and {shape} in the model"
            )
    model.load_state_dict(fitted)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name. The kind of file is told by its first bytes, not by its name."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise ValueError(f"the weights {path} cannot be read: {error.strerror or error}") from error
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return _unnested(_read_torch(path), path)
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"the weights {path} are neither safetensors nor a file of torch.save: {str(error).splitlines()[0]}"
        ) from error


def _read_torch(path: Path) -> Any:
    try:
        with torch.serialization.safe_globals(HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        held = f" ({foreign[1]})" if foreign else ""
        raise ValueError(
            f"{path} holds Python objects{held}, and nothing that a file holds is ever run here: where you trust it, "
            "save the weights alone with torch.save(model.state_dict(), 'weights.pt')"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ValueError(f"the weights {path} are damaged: {str(error).splitlines()[0]}") from error


def _unnested(found: Any, path: Path) -> dict[str, Tensor]:
    """The mapping of names to tensors, wherever in a checkpoint it lies."""
    for _ in range(3):
        if isinstance(found, nn.Module):
            return found.state_dict()
        if not isinstance(found, Mapping):
            break
        tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
        inner = next((found[name] for name in NESTED if isinstance(found.get(name), Mapping)), None)
        if inner is None:
            if tensors:
                return tensors
            break
        found = inner
    held = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
    raise ValueError(f"{path} holds no weights by name, but {held or 'nothing'}: save model.state_dict()")


def _renamed(weights: dict[str, Tensor], depth: int = 3) -> Iterator[dict[str, Tensor]]:
    """The weights as they are, and with the prefixes of wrappers taken off; what lies outside of the prefix goes."""
    yield weights
    if depth:
        for prefix in PREFIXES:
            inside = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            if inside:
                yield from _renamed(inside, depth - 1)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
