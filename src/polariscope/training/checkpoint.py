"""Checkpoints: the whole state of a run in one safetensors file, weights and optimisers alike, and never a pickle.

Data order and noise are functions of (seed, step), so tensors and a step number are all there is to save.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from polariscope.atomic import atomic

FORMAT = "polariscope-checkpoint-1"
PROGRESS = ("step", "best", "stale", "sums", "summed")


@dataclass
class TrainingState:
    """What changes during a run: the weights, the optimisers, how far it is, and how early stopping stands."""

    model: nn.Module
    optimisers: dict[str, Optimizer] = field(default_factory=dict)
    step: int = 0
    best: float = float("inf")
    stale: int = 0
    """Evaluations since the best one."""
    sums: dict[str, float] = field(default_factory=dict)
    """Terms added up since the learning curve's last point, over ``summed`` steps."""
    summed: int = 0


def save(state: TrainingState, path: Path, *, weights_only: bool = False) -> None:
    """Write the state atomically. The previous file stays if this fails, whatever the reason."""
    tensors = {f"model/{name}": value for name, value in state.model.state_dict().items()}
    if not weights_only:
        tensors |= dict(_optimiser_tensors(state.optimisers))
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise FloatingPointError(f"step {state.step}: {broken[0]} is not finite, so the checkpoint was not written")
    progress = {name: getattr(state, name) for name in PROGRESS}
    metadata = {"format": FORMAT, "progress": json.dumps(progress)}
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic(path) as draft:
            # Contiguous copies: safetensors keeps no strides, and channels-last weights have unusual ones.
            save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, draft, metadata)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        kept = "the previous checkpoint is intact" if path.exists() else "there is no earlier checkpoint"
        raise OSError(f"step {state.step}: the checkpoint could not be written ({reason}); {kept}") from error


def load(state: TrainingState, path: Path) -> None:
    """Read a checkpoint into an existing state: weights always, optimisers where the state has them."""
    tensors, progress = read(path)
    weights = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    try:
        state.model.load_state_dict(weights)
    except RuntimeError as error:
        problem = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ValueError(f"the checkpoint {path} belongs to another model: {problem}") from error
    for name, optimiser in state.optimisers.items():
        _load_optimiser(optimiser, f"optimiser/{name}/", tensors)
    for name in PROGRESS:
        setattr(state, name, progress[name])


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and progress of a checkpoint file, or a sentence about why it is none."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(f"{path} is not a checkpoint of this program (format {metadata.get('format')})")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["progress"])  # noqa: SIM118
    except FileNotFoundError as error:
        raise ValueError(f"there is no checkpoint {path}") from error
    except (SafetensorError, OSError, json.JSONDecodeError, KeyError) as error:
        raise ValueError(f"the checkpoint {path} is damaged and cannot be read ({error})") from error


def _optimiser_tensors(optimisers: dict[str, Optimizer]) -> Iterator[tuple[str, Tensor]]:
    for name, optimiser in optimisers.items():
        for number, values in optimiser.state_dict()["state"].items():
            for key, value in values.items():
                yield f"optimiser/{name}/{number}/{key}", torch.as_tensor(value)


def _load_optimiser(optimiser: Optimizer, prefix: str, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            number, key = name.removeprefix(prefix).split("/")
            state.setdefault(int(number), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    # A fused optimiser walks a weight and its moments in memory order: they need the same strides, and files have none.
    for parameter, values in optimiser.state.items():
        for key, value in values.items():
            if value.shape == parameter.shape:
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
