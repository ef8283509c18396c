"""Which part of a user's object encodes and which decodes: methods, sub-modules, layers, estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polariscope.subjects.outputs import names_code

LARGER = 20.0
"""Largest ratio of the numbers on which an estimator was fitted to the numbers that it receives."""
DECODERS = ("generate", "decode", "decoder", "inverse")
"""``generate`` returns observations in the data's units; the units of the others are inferred."""


def unwrapped(thing: Any) -> Any:
    """The module inside of DataParallel and torch.compile."""
    while isinstance(thing, nn.Module):
        inner = getattr(thing, "_orig_mod", None)
        if inner is None and isinstance(thing, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = thing.module
        if not isinstance(inner, nn.Module):
            break
        thing = inner
    return thing


def is_estimator(core: Any) -> bool:
    """Whether an object transforms rows of numbers like scikit-learn's estimators and pipelines."""
    return not isinstance(core, nn.Module | type) and callable(getattr(core, "fit", None)) and not callable(core)


def is_flow(core: Any) -> bool:
    """Whether a module is invertible and encodes with ``forward``."""
    others = ("encode", "encoder", "decode", "decoder", "generate")
    return isinstance(core, nn.Module) and _method(core, "inverse") is not None and not any(
        _method(core, name) is not None for name in others
    )  # fmt: skip


def default_encode(core: Any) -> Callable[..., Any] | None:
    """The default encoder: ``encode``, ``forward`` of a flow, the sub-module ``encoder``, ``transform`` of an
    estimator, or a function itself."""
    if is_estimator(core):
        return _transforms(core)
    if _method(core, "encode") is None and is_flow(core):
        return core
    named = _method(core, "encode") or _method(core, "encoder")
    return named or (core if callable(core) and not isinstance(core, nn.Module) else None)


def default_decode(core: Any) -> Callable[..., Any] | None:
    """The default decoder."""
    if is_estimator(core):
        back = _method(core, "inverse_transform")
        return None if back is None else lambda z: back(_rows(z))
    return next((method for name in DECODERS if (method := _method(core, name)) is not None), None)


def default_predict(core: Any) -> Callable[..., Any] | None:
    """The default classifier: a module or a function itself, or the scores of a fitted estimator with classes."""
    if not is_estimator(core):
        return core if callable(core) else None
    last = core.steps[-1][1] if getattr(core, "steps", None) else core
    pairs = getattr(last, "decision_function_shape", "") == "ovo"  # a column for each pair of classes is no score
    scores = (None if pairs else _method(core, "decision_function")) or _method(core, "predict_proba")
    return _on_rows(core, scores) if scores is not None and hasattr(core, "classes_") else None


def called(core: Any, what: str | Callable[..., Any]) -> Callable[..., Any]:
    """A method, ``forward``, a layer by its dotted name, or a function as it is."""
    if not isinstance(what, str):
        return what
    layers = dict(core.named_modules()) if isinstance(core, nn.Module) else {}
    if what in layers and not ("." not in what and what in ("encoder", "decoder")):
        return _tap(core, what)
    method = _method(core, what)
    if method is not None:
        return method
    raise ValueError(f"{type(core).__name__} has no method and no layer {what!r}: {how_to_encode(core)}")


def base_model(core: Any) -> tuple[str, Callable[..., Any]] | None:
    """The network without its head, and its name, where a Hugging Face model has one."""
    name = getattr(core, "base_model_prefix", "")
    inner = getattr(core, name, None) if isinstance(name, str) and name else None
    return (name, _tap(core, name)) if isinstance(inner, nn.Module) and inner is not core else None


def _method(core: Any, name: str) -> Callable[..., Any] | None:
    method = getattr(core, name, None)
    return method if callable(method) else None


def _tap(core: nn.Module, layer: str) -> Callable[[Tensor], Any]:
    """The output of one layer while the whole module runs forward."""

    def encode(x: Tensor) -> Any:
        caught: list[Any] = []

        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            caught.append(output if names_code(output) else first_tensor(output))

        handle = core.get_submodule(layer).register_forward_hook(keep)
        try:
            core(x)
        finally:
            handle.remove()
        if not caught:
            raise ValueError(f"the layer {layer!r} is not used when the module runs forward")
        return caught[-1]

    return encode


def first_tensor(output: Any) -> Tensor:
    """The tensor of a layer's output: recurrent layers and attention return it first, with their state behind."""
    while isinstance(output, tuple | list | Mapping) and output:
        parts = list(output.values()) if isinstance(output, Mapping) else output
        output = next((part for part in parts if part is not None), None)
    if not isinstance(output, Tensor):
        raise TypeError(f"a layer returned a {type(output).__name__}, which contains no tensor")
    return output


def how_to_encode(core: Any) -> str:
    """The advice for an object without an encoder."""
    layers = [name for name, _ in core.named_modules() if name] if isinstance(core, nn.Module) else []
    layers.sort(key=lambda name: name.count("."))  # the larger parts are what most people mean
    shown = ", ".join(layers[:6]) + (", ..." if len(layers) > 6 else "")
    known = f", or a layer: {shown}" if shown else ""
    return (
        "give it an encode(x) method, or name the encoder with --encode NAME "
        f"(a method, forward{known}), in Python as_subject(model, encode='NAME')"
    )


def _transforms(estimator: Any) -> Callable[[Tensor], NDArray[Any]] | None:
    """``transform`` of an estimator, on flat rows."""
    transform = _method(estimator, "transform")
    return None if transform is None else _on_rows(estimator, transform)


def _on_rows(estimator: Any, method: Callable[..., Any]) -> Callable[[Tensor], NDArray[Any]]:
    """A method of an estimator, on flat rows."""

    def call(x: Tensor) -> NDArray[Any]:
        fitted = getattr(getattr(estimator, "components_", None), "dtype", np.float64)  # some insist on their own
        rows = _rows(x).astype(fitted)
        _check_units(estimator, rows)
        output = method(rows)
        return np.asarray(output.toarray() if hasattr(output, "toarray") else output)

    return call


def _rows(x: Tensor) -> NDArray[Any]:
    return np.asarray(torch.as_tensor(x).flatten(1).cpu().numpy())


def _check_units(estimator: Any, rows: NDArray[Any]) -> None:
    """Refuse numbers that are far smaller than those the estimator was fitted on: images reach it in [0, 1]."""
    steps = getattr(estimator, "steps", None)
    first = steps[0][1] if steps else estimator
    fitted = getattr(first, "data_max_", getattr(first, "mean_", None))
    if fitted is None or np.shape(fitted) != rows.shape[1:]:
        return
    size, given = float(np.abs(fitted).mean()), float(np.abs(rows).mean())
    if size > LARGER * given > 0:
        raise ValueError(
            f"{type(estimator).__name__} was fitted on numbers of about {size:.3g} and receives numbers of about "
            f"{given:.3g} (images of bytes are passed in [0, 1]): fit it on images / 255, or give a function that "
            "scales them first"
        )
