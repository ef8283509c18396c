"""Checkpoints: the whole state of a run (weights and optimisers) in one safetensors file, never in a pickle.

Data order and noise are functions of (seed, step), so only tensors and a step number need to be saved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from polariscope.atomic import FullDiskError, atomic
from polariscope.printable import one_line

FORMAT = "polariscope-checkpoint-2"
MODEL = "model"
"""Name of the player that every run has."""
PROGRESS = ("step", "best", "stale", "sums", "summed")


class NotOursError(ValueError):
    """A file of tensors that is not a checkpoint."""


@dataclass
class TrainingState:
    """The state of a run: weights, optimisers, the step, and the progress of early stopping."""

    model: nn.Module
    optimisers: dict[str, Optimizer] = field(default_factory=dict)
    players: dict[str, nn.Module] = field(default_factory=dict)
    """The other networks that are trained, by name."""
    step: int = 0
    best: float = float("inf")
    stale: int = 0
    """Evaluations since the best one."""
    summed: int = 0
    """Steps since the learning curve's last point. The sums of their terms stay on the training device."""
    names: tuple[str, ...] = ()
    total: Tensor | None = None

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Add a step's terms to the running sums, without waiting for the device."""
        self.names, self.summed = tuple(terms) if self.total is None else self.names, self.summed + 1
        values = torch.stack([terms[name].detach().float().reshape(()) for name in self.names]).double()
        self.total = values if self.total is None else self.total + values

    def take_means(self) -> dict[str, float]:
        """Mean terms since the last call, the loss first; starts new sums."""
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
    """Write the state atomically. If this fails for any reason, the previous file stays."""
    tensors = {f"{MODEL}/{name}": value for name, value in state.model.state_dict().items()}
    if not weights_only:
        for player, module in state.players.items():
            tensors |= {f"player/{player}/{name}": value for name, value in module.state_dict().items()}
        tensors |= dict(_optimiser_tensors(state.optimisers))
    broken = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise FloatingPointError(f"step {state.step}: {broken[0]} is not finite, so the checkpoint was not written")
    progress = {name: getattr(state, name) for name in PROGRESS}
    progress["learned"] = {name: len(optimiser.state_dict()["state"]) for name, optimiser in state.optimisers.items()}
    metadata = {"format": FORMAT, "progress": json.dumps(progress)}
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic(path) as draft:
            # Contiguous copies: safetensors keeps no strides, and channels-last weights have unusual ones.
            save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, draft, metadata)
    except FullDiskError as error:
        raise FullDiskError(f"step {state.step}: {error}") from error
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        kept = "the previous checkpoint is intact" if path.exists() else "there is no earlier checkpoint"
        raise OSError(f"step {state.step}: the checkpoint could not be written ({reason}); {kept}") from error


def load(state: TrainingState, path: Path, steps: int | None = None) -> None:
    """Read a checkpoint into an existing state: weights always, optimisers where the state has them.

    The file may come from a stranger. Every entry is compared with the state, and with the ``steps`` of its run, before
    anything is copied: a fused optimiser trusts the sizes of its moments and would read past the end of a shorter one.
    """
    tensors, progress = read(path)
    modules = {f"{MODEL}/": state.model, **{f"player/{name}/": module for name, module in state.players.items()}}
    try:
        _check_progress(progress, steps)
        for prefix, module in modules.items():
            _check_entries(prefix, within(tensors, prefix), module.state_dict())
        for name, optimiser in state.optimisers.items():
            learned = progress.get("learned", {}).get(name)
            _check_moments(f"optimiser/{name}/", tensors, optimiser, learned)
            if name == MODEL and progress["step"] and _kept(optimiser) and not within(tensors, f"optimiser/{name}/"):
                raise ValueError(f"optimiser/{name}/ is missing")
        if state.optimisers:
            known = (*modules, *(f"optimiser/{name}/" for name in state.optimisers))
            strange = [name for name in tensors if not name.startswith(known)]
            if strange:
                raise ValueError(f"it has no {strange[0]}")
        for name, value in tensors.items():
            if value.is_floating_point() and not value.isfinite().all():
                raise ValueError(f"{name} is not finite")
    except ValueError as error:
        raise ValueError(f"the checkpoint {path} belongs to another model, or is damaged: {one_line(error)}") from error
    for prefix, module in modules.items():
        module.load_state_dict(within(tensors, prefix))
    for name, optimiser in state.optimisers.items():
        _load_optimiser(optimiser, f"optimiser/{name}/", tensors)
    for name in PROGRESS:
        setattr(state, name, progress[name])


def _check_progress(progress: Mapping[str, Any], steps: int | None) -> None:
    """Refuse progress with missing or impossible numbers."""
    for name in PROGRESS:
        if name not in progress:
            raise ValueError(f"its progress lacks {name}")
    for name in ("step", "stale", "summed"):
        if type(progress[name]) is not int or progress[name] < 0:
            raise ValueError(f"{name} is {progress[name]!r}; a whole number from 0 is expected")
    if steps is not None and progress["step"] > steps:
        raise ValueError(f"step is {progress['step']}, and the run has {steps}")
    if type(progress["best"]) not in (int, float) or math.isnan(progress["best"]):
        raise ValueError(f"best is {progress['best']!r}; a number is expected")
    sums, learned = progress["sums"], progress.get("learned", {})
    if not isinstance(sums, dict) or not all(type(value) in (int, float) for value in sums.values()):
        raise ValueError("sums are not numbers by name")
    if bool(sums) != bool(progress["summed"]):
        raise ValueError(f"summed is {progress['summed']}, and there are sums of {len(sums)} terms")
    if not isinstance(learned, dict) or not all(type(value) is int for value in learned.values()):
        raise ValueError("learned are not whole numbers by name")


def _check_entries(prefix: str, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse entries whose names, shapes or kinds of numbers differ from the wanted ones."""
    for name in wanted.keys() - given.keys():
        raise ValueError(f"{prefix}{name} is missing")
    for name, value in given.items():
        if name not in wanted:
            raise ValueError(f"it has no {prefix}{name}")
        own = wanted[name]
        if value.shape != own.shape:
            raise ValueError(f"{prefix}{name} has shape {tuple(value.shape)}; {tuple(own.shape)} is expected")
        if value.dtype != own.dtype:
            raise ValueError(f"{prefix}{name} holds {_kind(value)}; {_kind(own)} is expected")


def _check_moments(prefix: str, tensors: Mapping[str, Tensor], optimiser: Optimizer, learned: int | None) -> None:
    """Refuse an optimiser's state unless it is complete for each weight that has learned, in that weight's shape."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    keys = _kept(optimiser)
    moments: dict[str, dict[str, Tensor]] = {}
    for name, value in within(tensors, prefix).items():
        number, _, key = name.partition("/")
        moments.setdefault(number, {})[key] = value
    known = {str(number): weight for number, weight in enumerate(weights)}
    for number, values in moments.items():
        if number not in known:
            raise ValueError(f"it has no {prefix}{number}: it learns {len(weights)} tensors")
        count = torch.tensor(0.0)
        _check_entries(f"{prefix}{number}/", values, {key: count if key == "step" else known[number] for key in keys})
        if "step" in values and not values["step"] >= 0:
            raise ValueError(f"{prefix}{number}/step is {float(values['step'])}; a count is expected")
    if learned is not None and len(moments) != learned:
        raise ValueError(f"{prefix} has the state of {len(moments)} tensors; {learned} is expected")


def _kept(optimiser: Optimizer) -> tuple[str, ...]:
    """The names of what an optimiser keeps for each weight."""
    settings = optimiser.param_groups[0]
    match optimiser:
        case Adam():
            return ("step", "exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if settings["amsgrad"] else []))
        case Adagrad():
            return ("step", "sum")
        case SGD():
            return ("momentum_buffer",) if settings["momentum"] else ()
    raise TypeError(f"checkpoints do not support the optimiser {type(optimiser).__name__}")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def within(tensors: Mapping[str, Tensor], prefix: str = f"{MODEL}/") -> dict[str, Tensor]:
    """The tensors of one module, by default of the model."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and progress of a checkpoint file; an error for a file that is not a checkpoint."""
    if not path.exists():
        raise ValueError(f"there is no checkpoint {path}")
    try:
        if not path.is_file():
            raise OSError("it is not a regular file")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                other = one_line(metadata.get("format"))
                raise NotOursError(f"{path} is not a checkpoint of this program (format {other})")
            progress = json.loads(metadata["progress"])
            if not isinstance(progress, dict):
                raise ValueError("its progress has no names")
            return {name: file.get_tensor(name) for name in file.keys()}, progress  # noqa: SIM118
    except NotOursError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"the checkpoint {path} is damaged and cannot be read ({one_line(error)})") from error


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
