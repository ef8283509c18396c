"""Checkpoints: the whole state of a run in one safetensors file, weights and optimisers alike, and never a pickle.

Data order and noise are functions of (seed, step), so tensors and a step number are all there is to save.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from polariscope.atomic import atomic

FORMAT = "polariscope-checkpoint-2"
MODEL = "model"
"""The player that every run has."""
PROGRESS = ("step", "best", "stale", "sums", "summed")


@dataclass
class TrainingState:
    """What changes during a run: the weights, the optimisers, how far it is, and how early stopping stands."""

    model: nn.Module
    optimisers: dict[str, Optimizer] = field(default_factory=dict)
    players: dict[str, nn.Module] = field(default_factory=dict)
    """What learns beside the model."""
    step: int = 0
    best: float = float("inf")
    stale: int = 0
    """Evaluations since the best one."""
    summed: int = 0
    """Steps since the learning curve's last point; their terms are added up where they were computed."""
    names: tuple[str, ...] = ()
    total: Tensor | None = None

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Add a step's terms to the running sums, without waiting for them."""
        self.names, self.summed = tuple(terms) if self.total is None else self.names, self.summed + 1
        values = torch.stack([terms[name].detach().float().reshape(()) for name in self.names]).double()
        self.total = values if self.total is None else self.total + values

    def take_means(self) -> dict[str, float]:
        """Mean terms since they were last taken, the loss first."""
        means = {name: total / self.summed for name, total in self.sums.items()}
        self.total, self.summed = None, 0
        return {"loss": means.pop("loss"), **means} if "loss" in means else means

    @property
    def sums(self) -> dict[str, float]:
        return {} if self.total is None else dict(zip(self.names, self.total.tolist(), strict=True))

    @sums.setter
    def sums(self, sums: Mapping[str, float]) -> None:
        device = next(self.model.parameters()).device
        self.names = tuple(sums)
        self.total = torch.tensor(list(sums.values()), dtype=torch.float64, device=device) if sums else None


def save(state: TrainingState, path: Path, *, weights_only: bool = False) -> None:
    """Write the state atomically. The previous file stays if this fails, whatever the reason."""
    tensors = {f"{MODEL}/{name}": value for name, value in state.model.state_dict().items()}
    if not weights_only:
        for player, module in state.players.items():
            tensors |= {f"player/{player}/{name}": value for name, value in module.state_dict().items()}
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
    for prefix, module in {f"{MODEL}/": state.model, **{f"player/{n}/": m for n, m in state.players.items()}}.items():
        try:
            module.load_state_dict(within(tensors, prefix))
        except RuntimeError as error:
            problem = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
            raise ValueError(f"the checkpoint {path} belongs to another model: {problem}") from error
    for name, optimiser in state.optimisers.items():
        _load_optimiser(optimiser, f"optimiser/{name}/", tensors)
    for name in PROGRESS:
        setattr(state, name, progress[name])


def within(tensors: Mapping[str, Tensor], prefix: str = f"{MODEL}/") -> dict[str, Tensor]:
    """The tensors of one module: of the model, if nothing else is said."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


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
