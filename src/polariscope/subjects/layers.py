"""Activations of the layers of any module, in the order of computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from polariscope.subjects.abilities import first_tensor

IDLE = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Layers that pass on their input unchanged in evaluation mode."""


def layer_names(model: nn.Module) -> list[str]:
    """Names of the layers worth comparing: direct children of ``encoder`` and ``decoder`` where both can be named, else
    every leaf module that does something."""
    parts = [part for part in ("encoder", "decoder") if isinstance(getattr(model, part, None), nn.Module)]
    named = [f"{part}.{name}" for part in parts for name, _ in getattr(model, part).named_children()]
    if named:
        return named
    leaves = [(n, m) for n, m in model.named_modules() if n and not list(m.children())]
    return [name for name, module in leaves if not isinstance(module, IDLE)]


@contextmanager
def recorded(model: nn.Module, layers: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """A dictionary that fills with the outputs ``(n, features)`` of layers as they run; clear it between passes.

    A layer that is used twice is two layers (``act`` and ``act (2)``). Outputs are copied, since the next layer may
    overwrite them; of tuples, as recurrent layers return them, the first tensor is taken. No hook outlives the block.
    """
    modules = dict(model.named_modules())
    missing = [name for name in layers if name not in modules]
    if missing:
        raise ValueError(f"the model has no layer {missing[0]!r}; it has {', '.join(layer_names(model))}")
    caught: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            calls = sum(known == name or known.startswith(f"{name} (") for known in caught)
            tensor = first_tensor(output).detach()
            if isinstance(module, nn.RNNBase) and not module.batch_first and tensor.dim() == 3:
                tensor = tensor.transpose(0, 1)
            caught[f"{name} ({calls + 1})" if calls else name] = tensor.float().cpu().flatten(1).clone()

        return hook

    handles = [modules[name].register_forward_hook(keep(name)) for name in layers]
    try:
        yield caught
    finally:
        for handle in handles:
            handle.remove()
