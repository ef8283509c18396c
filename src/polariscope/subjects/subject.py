"""One wrapper at the door: what encodes, what decodes, what predicts, and what the decoder's output means.

A subject calls the user's code as the user would: inputs contiguous (unless the weights themselves are channels last),
in the model's own precision and on its own device, in evaluation mode; and it leaves the model exactly as it came.
What is not told by names is told by values, once, from the first batch (:meth:`Subject.understood`), and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from polariscope.lab.store import Run, Store
from polariscope.subjects.outputs import Code, checked_roles, holds_posterior, read_code, read_image, roles_of
from polariscope.user_code import load_source, user_code

Meaning = Literal["auto", "values", "logits", "symmetric"]
"""What a decoder gives: observations in the data's units, logits of them, or values in [-1, 1] for data in [0, 1]."""
MEANINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "values": lambda output: output,
    "logits": lambda output: output.sigmoid(),
    "symmetric": lambda output: (output + 1) / 2,
}
SPOKEN = {"values": "values in the data's units", "logits": "logits", "symmetric": "values in [-1, 1]"}
TIED = 1.05
"""Errors that differ by less do not tell two meanings apart."""


@dataclass(frozen=True, eq=False, repr=False)
class Subject:
    """A trained thing: whatever of encoding, decoding and predicting it can do."""

    name: str
    encodes: Callable[..., Any] | None = None
    """Observations to a code, in whatever form (with the factors as well, if there is a ``prior`` given them)."""
    decodes: Callable[[Tensor], Any] | None = None
    """Codes to observations, in whatever form."""
    predicts: Callable[[Tensor], Any] | None = None
    prior: Callable[[Tensor], Any] | None = None
    """Factors to the prior of the code, for a model whose prior depends on them."""
    module: nn.Module | None = None
    """Where parameters and layers are, if it is a module."""
    roles: tuple[str, ...] | None = None
    """What the places of a tuple from ``encodes`` hold."""
    meaning: Meaning = "auto"
    guessed: bool = False
    """Whether at most the name of a sub-module says what encodes, so that ``forward`` may know better."""
    notes: tuple[str, ...] = ()
    """What was assumed, in sentences."""
    run: Run | None = None
    """The run it was trained in, if it is one of ours: there its configuration and its data are known."""

    def __repr__(self) -> str:
        can = [word for word in ("encodes", "decodes", "predicts") if getattr(self, word) is not None]
        return f"<Subject {self.name}: {', '.join(can)}>"

    @cached_property
    def device(self) -> torch.device:
        return next((p.device for p in self._tensors()), torch.device("cpu"))

    @cached_property
    def dtype(self) -> torch.dtype:
        return next((p.dtype for p in self._tensors() if p.is_floating_point()), torch.float32)

    @cached_property
    def channels_last(self) -> bool:
        """Whether the weights are laid out that way, as those of our own networks are."""
        return any(
            p.dim() == 4 and not p.is_contiguous() and p.is_contiguous(memory_format=torch.channels_last)
            for p in self._tensors()
        )

    def _tensors(self) -> Iterator[Tensor]:
        if self.module is not None:
            yield from self.module.parameters()
            yield from self.module.buffers()

    def prepared(self, x: Tensor) -> Tensor:
        """Observations as this subject takes them."""
        x = x.to(self.device, self.dtype)
        if x.dim() == 4 and self.channels_last:
            return x.contiguous(memory_format=torch.channels_last)
        # A copy, not contiguous(): with one channel that keeps strides by which convolutions answer channels last.
        return x.clone(memory_format=torch.contiguous_format)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Evaluation mode without gradients; afterwards every sub-module, buffer and random state is as it was."""
        modules = list(self.module.modules()) if self.module is not None else []
        modes = [(m, m.training) for m in modules]
        buffers = [(b, b.clone()) for m in modules for b in m.buffers(recurse=False) if b is not None]
        try:
            if self.module is not None:
                self.module.eval()
            with torch.no_grad(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                yield
        finally:
            for m, mode in modes:
                m.training = mode
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)

    def raw_code(self, x: Tensor, u: Tensor | None = None) -> Any:
        """What the user's own code returns for observations."""
        if self.encodes is None:
            raise TypeError(f"{self.name} does not encode: {_how_to_encode(self.module)}")
        given = self.prepared(x)
        with user_code(f"encode of {self.name}", lambda error: misfit(error, tuple(x.shape[1:]))):
            return self.encodes(given) if u is None else self.encodes(given, u.to(self.device))

    def encode(self, x: Tensor, u: Tensor | None = None) -> Code:
        """Mean and, where there is one, variance and sample, ``(n, d)`` each."""
        code = read_code(self.raw_code(x, u), self.roles)
        if len(code["mean"]) != len(x):
            raise ValueError(
                f"encode of {self.name} returned {len(code['mean'])} codes for {len(x)} observations: "
                "it needs to return one for each"
            )
        if u is not None and self.prior is not None:
            prior = read_code(self.prior(u.to(self.device)))
            code |= {f"prior_{part}": value for part, value in prior.items() if part != "sample"}
        return code

    def decode(self, z: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """The decoder's output as ``(n, *shape)``, in whatever units it has."""
        if self.decodes is None:
            raise TypeError(f"{self.name} does not decode, so it cannot reconstruct")
        with user_code(f"decode of {self.name}", lambda error: _misfit_code(error, z.shape[1])):
            output = self.decodes(z.to(self.device, self.dtype).contiguous())
        return read_image(output, shape).float()

    def generate(self, z: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """Expected observations of codes, in the data's units."""
        if self.meaning == "auto" and self.decodes is not None:
            raise ValueError("what the decoder's output means is not settled yet: ask understood(x) first")
        output = self.decode(z, shape)
        return MEANINGS[self.meaning](output)

    def understood(self, x: Tensor, u: Tensor | None = None, *, decoder: bool = True) -> Subject:
        """The same subject with everything settled that is told by values: which place of a tuple is what, and (unless
        the ``decoder`` is not needed) what the decoder gives. What was found is in the notes."""
        subject = self
        with self.at_rest():
            if subject.guessed and subject.roles is None:
                subject = subject._by_forward(x, u)
            if subject.encodes is not None and subject.roles is None:
                output = subject.raw_code(x, u)
                if isinstance(output, tuple | list) and not hasattr(output, "_asdict"):
                    roles = roles_of(output, x.shape)
                    told = f"encode returns ({', '.join(roles)}), as told by the values."
                    subject = replace(subject, roles=roles, notes=(*subject.notes, told))
            if decoder and subject.decodes is not None and subject.meaning == "auto" and subject.encodes is not None:
                subject = subject._with_meaning(x, u)
        return subject

    def _by_forward(self, x: Tensor, u: Tensor | None) -> Subject:
        """With ``forward`` as what encodes, if that gives a posterior beside a reconstruction and the encoder only a
        tensor: mean and variance may lie side by side in it, or be made from it later."""
        if self.predicts is None or (self.encodes is not None and not isinstance(self.raw_code(x, u), Tensor)):
            return self
        try:
            output = self.predicts(self.prepared(x))
        except Exception:  # noqa: BLE001 - a forward that wants more than observations may raise anything
            return self
        if not holds_posterior(output, x.shape):
            return self
        told = "What encodes is forward, since it gives a mean with a variance; --encode says otherwise."
        return replace(self, encodes=self.predicts, guessed=False, notes=(*self.notes, told))

    def _with_meaning(self, x: Tensor, u: Tensor | None) -> Subject:
        """Which reading of the decoder's output comes nearest to the observations themselves."""
        output = self.decode(self.encode(x, u)["mean"], tuple(x.shape[1:]))
        truth = x.to(output.device).float()
        errors = {name: float((read(output) - truth).square().mean()) for name, read in MEANINGS.items()}
        errors = {name: error for name, error in errors.items() if np.isfinite(error)}
        if not errors:
            raise ValueError(f"decode of {self.name} gives NaN or infinity on codes of the data")
        if truth.min() < 0 or truth.max() > 1:
            best = "values"  # only data in [0, 1] has logits
        else:
            best = min(errors, key=lambda name: errors[name])
            if errors["values"] <= TIED * errors[best] and output.min() >= 0 and output.max() <= 1:
                best = "values"
        others = ", ".join(f"{errors[name]:.3g} as {SPOKEN[name]}" for name in errors if name != best)
        told = (
            f"The decoder's output was read as {SPOKEN[best]}: its mean squared error is then {errors[best]:.3g} "
            f"({others}); --output says otherwise."
        )
        return replace(self, meaning=best, notes=(*self.notes, told))  # type: ignore[arg-type]


def as_subject(
    thing: Any,
    *,
    name: str | None = None,
    encode: str | Callable[..., Any] | None = None,
    decode: str | Callable[..., Any] | None = None,
    returns: str | Sequence[str] | None = None,
    output: Meaning = "auto",
) -> Subject:
    """Wrap a module, an object with ``encode``, a plain function from observations to codes, or a run.

    A run may be named by its id, a unique part of it, its folder or ``"latest"`` (in the folder ``runs``); a string
    ``FILE.py:NAME`` names a model in a file of yours.

    ``encode`` and ``decode`` name a method, ``forward``, or a layer by its dotted name, or are functions themselves;
    ``returns`` says what the places of a tuple are (``"sample,mean,logvar"``), ``output`` what the decoder gives.
    """
    if isinstance(thing, Subject):
        return thing if output == "auto" else replace(thing, meaning=output)
    run = None
    if isinstance(thing, str) and ".py:" in thing:
        name = name or thing.rpartition(":")[2]
        thing = load_source(thing)
    elif isinstance(thing, str | Path | Run):
        run, thing = _loaded(thing)
        name = name or run.id
    core = _unwrapped(thing)
    module = core if isinstance(core, nn.Module) else None
    roles = None if returns is None else checked_roles(returns if isinstance(returns, str) else ",".join(returns))
    encodes = _called(core, encode) if encode is not None else _default_encode(core)
    decodes = _called(core, decode) if decode is not None else _default_decode(core)
    if encodes is None and module is None:
        raise TypeError(
            "a model is an nn.Module, an object with an encode method, a function of observations, or a run (its id, "
            f"its folder or 'latest'); got a {type(thing).__name__}"
        )
    return Subject(
        name or getattr(core, "__name__", None) or type(core).__name__,
        encodes,
        decodes,
        core if callable(core) else None,
        getattr(core, "prior", None) if callable(getattr(core, "prior", None)) else None,
        module,
        roles,
        "values" if output == "auto" and decode is None and callable(getattr(core, "generate", None)) else output,
        guessed=encode is None and module is not None and not callable(getattr(core, "encode", None)),
        run=run,
    )


def _loaded(named: Run | Path | str) -> tuple[Run, nn.Module]:
    """A run and its trained network."""
    from polariscope.training.run import load_model  # here, as training takes a second to import

    run = named if isinstance(named, Run) else Store(Path("runs")).open(named)
    return run, load_model(run)


def _unwrapped(thing: Any) -> Any:
    """The module inside of DataParallel and torch.compile."""
    while isinstance(thing, nn.Module):
        inner = getattr(thing, "_orig_mod", None)
        if inner is None and isinstance(thing, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = thing.module
        if not isinstance(inner, nn.Module):
            break
        thing = inner
    return thing


def _default_encode(core: Any) -> Callable[..., Any] | None:
    for name in ("encode", "encoder"):
        if callable(getattr(core, name, None)):
            found: Callable[..., Any] = getattr(core, name)
            return found
    return core if callable(core) and not isinstance(core, nn.Module) else None


def _default_decode(core: Any) -> Callable[..., Any] | None:
    """``generate`` gives observations in the data's units; ``decode`` and a decoder give whatever they give."""
    for name in ("generate", "decode", "decoder"):
        if callable(getattr(core, name, None)):
            found: Callable[..., Any] = getattr(core, name)
            return found
    return None


def _called(core: Any, what: str | Callable[..., Any]) -> Callable[..., Any]:
    """A method, ``forward``, a layer by its dotted name, or a function as it is."""
    if not isinstance(what, str):
        return what
    layers = dict(core.named_modules()) if isinstance(core, nn.Module) else {}
    if what in layers and not ("." not in what and what in ("encoder", "decoder")):
        return _tap(core, what)
    found = getattr(core, what, None)
    if callable(found):
        return found
    raise ValueError(f"{type(core).__name__} has no method and no layer {what!r}: {_how_to_encode(core)}")


def _tap(core: nn.Module, layer: str) -> Callable[[Tensor], Tensor]:
    """The output of one layer while the whole module runs forward."""

    def encode(x: Tensor) -> Tensor:
        caught: list[Tensor] = []

        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            caught.append(first_tensor(output))

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
    while isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor):
        raise TypeError(f"a layer returned a {type(output).__name__}, in which there is no tensor to take")
    return output


def _how_to_encode(core: Any) -> str:
    layers = [name for name, _ in core.named_modules() if name] if isinstance(core, nn.Module) else []
    layers.sort(key=lambda name: name.count("."))  # the larger parts are what most people mean
    shown = ", ".join(layers[:6]) + (", ..." if len(layers) > 6 else "")
    known = f", or a layer: {shown}" if shown else ""
    return f"give it an encode(x) method, or say what to look at with --encode NAME (a method, forward{known})"


MISFITS = ("shape", "size", "expected input", "channels", "dimension", "mat1", "broadcast")


def misfit(error: Exception, shape: tuple[int, ...]) -> str:
    """What to do if the user's network does not take observations of this shape."""
    if not isinstance(error, RuntimeError | ValueError) or not any(word in str(error).lower() for word in MISFITS):
        return ""
    words = f"; the observations have shape {shape}"
    if len(shape) == 3 and "channel" in str(error):
        words += f", and the model is made for another number of channels than {shape[0]}"
    elif len(shape) == 3:
        words += f" ({shape[1]} x {shape[2]} pixels): if the model takes another size, --world.size resizes them"
    return words


def _misfit_code(error: Exception, numbers: int) -> str:
    """What to do if the user's decoder does not take what their encoder gives."""
    if not isinstance(error, RuntimeError | ValueError) or not any(word in str(error).lower() for word in MISFITS):
        return ""
    return f"; what encodes gives {numbers} numbers per example: --encode and --decode say what belongs together"
