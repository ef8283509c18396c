"""A trained model for other programs: plain weights, one Python file that needs only torch, and ONNX if it is
installed.

``torch.export`` records the computation of a network with a batch of any size, so that Polariscope's networks, and most
others, can be written without their own source. The file has one class with the methods ``encode``, ``decode`` and
``predict``, if the model has them, and names its weights as the model does.
"""

from __future__ import annotations

import importlib.util
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from polariscope.atomic import atomic
from polariscope.subjects.outputs import mean_and_var, prediction_in, read_image
from polariscope.subjects.subject import MEANINGS, Subject

HEAD = '''"""{title}

Written by polariscope {version}. It needs torch alone:

    from safetensors.torch import load_file
    from model import Model

    model = Model()
    model.load_state_dict(load_file("weights.safetensors"))
    model.eval()
"""

import torch
from torch import device, inf, nan, nn  # noqa: F401


class Model(nn.Module):
    """{methods}."""

    def __init__(self):
        super().__init__()
        for name, (shape, dtype, trained) in WEIGHTS.items():
            part = self
            *path, last = name.split(".")
            for word in path:
                if not hasattr(part, word):
                    part.add_module(word, nn.Module())
                part = getattr(part, word)
            values = torch.zeros(shape, dtype=dtype)
            if trained:
                part.register_parameter(last, nn.Parameter(values))
            else:
                part.register_buffer(last, values)

    def _weight(self, name):
        part = self
        for word in name.split("."):
            part = getattr(part, word)
        return part
'''
DOES = {
    "encode": "observations (n, ...) to the mean of their codes, and the variance where there is one",
    "decode": "codes (n, d) to observations, in the units of the data",
    "predict": "observations (n, ...) to predictions",
}


class NotExportable(ValueError):
    """The network does something that torch.export cannot record."""


@dataclass(frozen=True)
class Exported:
    """The written files."""

    folder: Path
    methods: tuple[str, ...]
    onnx: tuple[str, ...]
    """ONNX files, one for each method."""
    notes: tuple[str, ...]
    """Skipped parts, with the reason."""


class _Method(nn.Module):
    """One ability of a subject as a module of its own."""

    def __init__(self, module: nn.Module, call: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model = module
        self._call = call

    def forward(self, x: Tensor) -> Any:
        return self._call(x)


def export_model(
    subject: Subject, observations: Tensor, folder: Path | str, about: Mapping[str, Any] | None = None
) -> Exported:
    """Write a subject into a folder: ``weights.safetensors``, ``model.py``, ``about.json`` and, where onnxscript is
    installed, an ONNX file for each method. ``observations`` are a few examples, from which undeclared roles are
    inferred."""
    if subject.module is None:
        raise TypeError(f"{subject.name} is not a torch module: there are no weights to export")
    folder = Path(folder)
    subject = subject.understood(observations[:64]) if subject.encodes is not None else subject
    module = subject.module
    assert module is not None
    methods = _methods(subject, observations)
    programs, notes = {}, []
    with subject.at_rest():
        for name, (call, example) in methods.items():
            try:
                programs[name] = _recorded(_Method(module, call), example)
            except NotExportable as error:
                notes.append(f"{name} cannot be exported: {error}")
    if not programs:
        raise NotExportable(f"no method of {subject.name} can be exported: {'; '.join(notes)}")
    used = {weight for program in programs.values() for weight in _names(program).values()}
    state = {name: value for name, value in _tensors(module).items() if name in used}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / "weights.safetensors") as draft:
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in state.items()}, draft)
    trained = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    with atomic(folder / "model.py") as draft:
        draft.write_text(_source(subject.name, programs, state, trained), encoding="utf-8")
    facts = {"methods": list(programs), "observation": list(observations.shape[1:]), "notes": [*subject.notes, *notes]}
    with atomic(folder / "about.json") as draft:
        draft.write_text(json.dumps({**(about or {}), **facts}, indent=1, default=str) + "\n", encoding="utf-8")
    written, more = _onnx(programs, folder)
    return Exported(folder, tuple(programs), written, (*notes, *more))


def _methods(subject: Subject, observations: Tensor) -> dict[str, tuple[Callable[[Tensor], Any], Tensor]]:
    """The methods of a subject, each with an example of its input."""
    x = subject.prepared(observations[:3]).contiguous()
    shape = tuple(observations.shape[1:])
    methods: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {}
    encodes, decodes, predicts = subject.encodes, subject.decodes, subject.predicts
    if encodes is not None and subject.prior is None:

        def encode(given: Tensor) -> Any:
            mean, var = mean_and_var(encodes(given), subject.roles)
            return mean if var is None else (mean, var)

        methods["encode"] = (encode, x)
        if decodes is not None:
            with subject.at_rest():
                mean = subject.encode(observations[:3])["mean"].detach()

            def decode(z: Tensor) -> Tensor:
                given = z.reshape(-1, *subject.code_shape) if subject.code_shape else z
                return MEANINGS[subject.meaning](read_image(decodes(given), shape))

            methods["decode"] = (decode, mean)
    elif predicts is not None:

        def predict(given: Tensor) -> Tensor:
            prediction: Tensor | None = prediction_in(predicts(given))
            if prediction is None:
                raise ValueError("it returns neither a tensor nor an entry called logits")
            return prediction

        methods["predict"] = (predict, x)
    return methods


def _recorded(method: nn.Module, example: Tensor) -> Any:
    """The program of a method, for a batch of any size."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes = {"x": {0: torch.export.Dim.DYNAMIC}}
            return torch.export.export(method, (example,), dynamic_shapes=sizes, strict=False).run_decompositions({})
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise NotExportable(first[:300]) from error


def _names(program: Any) -> dict[str, str]:
    """Inputs of a program to the names of the weights that they are."""
    signature = program.graph_signature
    lifted = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return {given: name.removeprefix("model.") for given, name in lifted.items()}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers by all their names: tied ones have several."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))
    }  # fmt: skip


def _source(title: str, programs: Mapping[str, Any], state: Mapping[str, Tensor], trained: set[str]) -> str:
    from importlib.metadata import version

    words = "; ".join(f"{name}: {DOES[name]}" for name in programs)
    lines = [HEAD.format(title=re.sub(r"[^\w .,()+-]", "", title), version=version("polariscope"), methods=words)]
    for name, program in programs.items():
        lifted, constants = _names(program), getattr(program, "constants", {})
        others = [spec for spec in program.graph_signature.input_specs if spec.kind.name == "CONSTANT_TENSOR"]
        if others:
            size = sum(constants[spec.target].numel() for spec in others)
            if size > 10_000:
                raise NotExportable(f"{name} holds {size} numbers that are not weights")
        code = program.graph_module.graph.python_code("self").src
        body = code[code.index("\n", code.index("def forward")) + 1 :]
        lines += ["", f"    def {name}(self, x):"]
        lines += [f"        {given} = self._weight({weight!r})" for given, weight in lifted.items()]
        for spec in others:
            value = constants[spec.target]
            lines.append(f"        {spec.arg.name} = torch.tensor({value.tolist()!r}, dtype={value.dtype})")
        lines += [f"    {line}" for line in body.rstrip().splitlines()]
        last = lines[-1].strip()
        if last.startswith("return (") and last.endswith(",)"):
            lines[-1] = f"        return {last.removeprefix('return (').removesuffix(',)')}"
    weights = [f"    {k!r}: ({tuple(v.shape)}, {v.dtype}, {k in trained})," for k, v in state.items()]
    return "\n".join([*lines, "", "", "WEIGHTS = {", *weights, "}", '"""Shape, type and whether it is trained."""', ""])


def _onnx(programs: Mapping[str, Any], folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """An ONNX file for each program that torch can translate."""
    if importlib.util.find_spec("onnxscript") is None:
        return (), ("No ONNX file was written: that needs the extra [onnx] (pip install 'polariscope[onnx]').",)
    written, notes = [], []
    for name, program in programs.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                translated = torch.onnx.export(program, dynamo=True, verbose=False)
            assert translated is not None
            with atomic(folder / f"{name}.onnx") as draft:
                translated.save(str(draft), external_data=False)
            written.append(f"{name}.onnx")
        except Exception as error:  # noqa: BLE001 - torch and onnxscript raise many kinds
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            notes.append(f"{name} has no ONNX file: {first[:300]}")
    return tuple(written), tuple(notes)
