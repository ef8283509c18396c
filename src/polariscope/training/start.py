"""Starting from the weights of another run, and freezing parts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from polariscope.lab.store import Run
from polariscope.registry import nearest
from polariscope.training import checkpoint
from polariscope.training.config import Start

Network = TypeVar("Network", bound=nn.Module)


def warm(run: Run, parts: tuple[str, ...] = (), freeze: tuple[str, ...] = (), into: str = "") -> Start:
    """A start from the current weights of a run, identified by their hash."""
    if not run.checkpoint.exists():
        raise ValueError(f"run {run.id} has no checkpoint yet, so there are no weights to start from")
    return Start(str(run.path), _hash(run.checkpoint), parts, freeze, into)


def begin(network: Network, start: Start, *, weights: bool = True) -> Network:
    """Load the weights of another run (unless ``weights`` is False), and freeze the parts that are not trained."""
    if start.run and weights:
        _take(_part(network, start.into) if start.into else network, start)
    for name in start.freeze:
        _part(network, name).requires_grad_(False)
    return network


def _take(network: nn.Module, start: Start) -> None:
    path = Run(Path(start.run)).checkpoint
    if not path.exists():
        raise ValueError(f"this run starts from the run {start.run}, which has no checkpoint (any more)")
    if start.sha256 and _hash(path) != start.sha256:
        raise ValueError(f"the weights of {start.run} have changed since this run was configured to start from them")
    given = checkpoint.within(checkpoint.read(path)[0])
    own = network.state_dict()
    for part in start.parts:
        _part(network, part)
    wanted = [name for name in own if not start.parts or any(f"{name}.".startswith(f"{p}.") for p in start.parts)]
    if start.widen:
        given = {name: _widened(weight, own[name].shape) if name in own else weight for name, weight in given.items()}
    for name in wanted:
        if name not in given or given[name].shape != own[name].shape:
            known = sorted(
                {key.partition(".")[0] for key in own if key in given and given[key].shape == own[key].shape}
            )
            which = "is missing from" if name not in given else "has another shape in"
            raise ValueError(
                f"{name} {which} the run {Path(start.run).name}: name the parts to take with start.parts "
                f"({', '.join(known) or 'none'} would match)"
            )
    for name in wanted:
        if given[name].dtype != own[name].dtype or not given[name].isfinite().all():
            raise ValueError(f"{name} in {path} does not hold finite numbers of {own[name].dtype}: it is damaged")
    with torch.no_grad():
        for name in wanted:
            own[name].copy_(given[name])


def _widened(weight: Tensor, shape: torch.Size) -> Tensor:
    """Pad the weights of a layer that has too few input channels with zeros; return other weights unchanged."""
    fewer = weight.dim() == len(shape) > 1 and weight.shape[1] < shape[1]
    if not fewer or weight.shape[:1] + weight.shape[2:] != shape[:1] + shape[2:]:
        return weight
    wider = weight.new_zeros(shape)
    wider[:, : weight.shape[1]] = weight
    return wider


def _part(network: nn.Module, name: str) -> nn.Module:
    parts = dict(network.named_modules())
    if name not in parts or not name:
        raise ValueError(f"the model has no part {name!r}: {nearest(name, [part for part in parts if part])}")
    return parts[name]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
