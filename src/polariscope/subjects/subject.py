"""The wrapper of every model: which methods encode, decode and predict, and what the decoder's output means.

A subject calls the user's code as the user would: inputs contiguous (unless the weights themselves are channels last),
in the model's own precision and on its own device, in evaluation mode; and it leaves the model exactly as it was. Roles
that names do not show are inferred once, from the first batch (:meth:`Subject.understood`), and reported.
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
from torch.nn import functional

from polariscope.grammar import counted
from polariscope.lab.store import Run, Store
from polariscope.subjects.abilities import (
    base_model,
    called,
    default_decode,
    default_encode,
    default_predict,
    how_to_encode,
    is_estimator,
    is_flow,
    unwrapped,
)
from polariscope.subjects.codes import CODE_FILES, codes_of, is_codes, looked_up, read_codes
from polariscope.subjects.evidence import decoder_inputs, own_sampler, read_places, returned_names, unnamed
from polariscope.subjects.outputs import (
    Code,
    checked_roles,
    holds_posterior,
    names_code,
    prediction_in,
    read_code,
    read_image,
    shaped_code,
)
from polariscope.user_code import UserCodeError, in_words, load_source, user_code

Meaning = Literal["auto", "values", "logits", "symmetric"]
"""Output of a decoder: observations in the data's units, logits of them, or values in [-1, 1] for data in [0, 1]."""
MEANINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "values": lambda output: output,
    "logits": lambda output: output.sigmoid(),
    "symmetric": lambda output: (output + 1) / 2,
}
SPOKEN = {"values": "values in the data's units", "logits": "logits", "symmetric": "values in [-1, 1]"}
TIED = 1.05
"""Smallest difference of errors that decides between two meanings."""
OTHERWISE = "--encode (encode= in Python) overrides this"


class NanScores(ValueError):
    """A classifier returns NaN instead of scores."""


@dataclass(frozen=True, eq=False, repr=False)
class Subject:
    """A trained model that encodes, decodes or predicts, whichever of these it can do."""

    name: str
    encodes: Callable[..., Any] | None = None
    """Observations to a code, in any form (also given the factors, if there is a ``prior`` that depends on them)."""
    decodes: Callable[[Tensor], Any] | None = None
    """Codes to observations, in any form."""
    predicts: Callable[[Tensor], Any] | None = None
    prior: Callable[[Tensor], Any] | None = None
    """Factors to the prior of the code, for a model whose prior depends on them."""
    module: nn.Module | None = None
    """Where parameters and layers are, if it is a module."""
    roles: tuple[str, ...] | None = None
    """Roles of the places of a tuple from ``encodes``."""
    meaning: Meaning = "auto"
    guessed: bool = False
    """Whether the encoder was chosen only by the name of a sub-module, so that ``forward`` may be a better choice."""
    codes: Code | None = None
    """Codes by the number of the example, in place of something that encodes."""
    code_shape: tuple[int, ...] = ()
    """The shape of one code, if it is more than a row: a decoder gets it back."""
    whole_numbers: bool = False
    """Whether codes are indices, as those of a codebook."""
    undecodable: str = ""
    """Why the decoder was put aside, if it was."""
    notes: tuple[str, ...] = ()
    """The assumptions, in sentences."""
    run: Run | None = None
    """The run it was trained in, if it has one; the run has its configuration and its data."""

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
        """Whether the weights are in channels-last format, as those of Polariscope's networks are."""
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
    def at_rest(self, gradients: bool = False) -> Iterator[None]:
        """Evaluation mode, without gradients by default; afterwards every sub-module, buffer and random state is as
        before."""
        modules = list(self.module.modules()) if self.module is not None else []
        modes = [(m, m.training) for m in modules]
        buffers = [(b, _writes(b), b.clone()) for m in modules for b in m.buffers(recurse=False) if b is not None]
        try:
            if self.module is not None:
                self.module.eval()
            devices = range(torch.cuda.device_count())
            with torch.set_grad_enabled(gradients), torch.random.fork_rng(devices=devices):
                yield
        finally:
            for m, mode in modes:
                m.training = mode
            with torch.no_grad():
                for buffer, writes, before in buffers:
                    if (
                        _writes(buffer) != writes or writes is None
                    ):  # a write breaks a graph that still needs the buffer
                        buffer.copy_(before)

    def raw_code(self, x: Tensor, u: Tensor | None = None) -> Any:
        """The output of the user's encoder for observations."""
        if self.encodes is None:
            raise TypeError(f"{self.name} does not encode: {how_to_encode(self.module)}")
        given = self.prepared(x)
        with user_code(f"encode of {self.name}", lambda error: misfit(error, tuple(x.shape[1:]))):
            return self.encodes(given) if u is None else self.encodes(given, u.to(self.device))

    def encode(self, x: Tensor, u: Tensor | None = None, numbers: Tensor | None = None, count: int = 0) -> Code:
        """Mean and, where there is one, variance and sample, ``(n, d)`` each. ``numbers`` are the numbers of the
        examples in their world of ``count``, by which stored codes are looked up."""
        if self.codes is not None:
            if numbers is None:
                raise ValueError(f"{self.name} are codes, which are looked up by the number of the example")
            return looked_up(self.codes, numbers, count)
        output = self.raw_code(x, u)
        if self.roles is None and unnamed(output) and len(output) > 1:
            raise ValueError("the roles of the encoder's tuple are not inferred yet: call understood(x) first")
        code = read_code(output, self.roles)
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
        """The decoder's output as ``(n, *shape)``, in its own units."""
        if self.undecodable:
            raise ValueError(self.undecodable)
        if self.decodes is None:
            raise TypeError(f"{self.name} does not decode, so it cannot reconstruct")
        given = z.round().to(self.device, torch.int64) if self.whole_numbers else z.to(self.device, self.dtype)
        with user_code(f"decode of {self.name}", lambda error: _misfit_code(error, z.shape[1])):
            output = self.decodes(given.reshape(len(z), *(self.code_shape or z.shape[1:])).contiguous())
        return read_image(output, shape).float()

    def generate(self, z: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """Expected observations of codes, in the data's units."""
        if self.meaning == "auto" and self.decodes is not None:
            raise ValueError("the meaning of the decoder's output is not inferred yet: call understood(x) first")
        output = self.decode(z, shape)
        return MEANINGS[self.meaning](output)

    def predict(self, x: Tensor) -> Tensor:
        """The model's predictions for observations, ``(n, ...)``: of several outputs the one called logits, or the
        first (further ones belong to auxiliary classifiers). Gradients reach ``x`` where they are enabled."""
        if self.predicts is None:
            raise TypeError(f"{self.name} does not predict: give a module or a function of observations")
        with user_code(f"predict of {self.name}", lambda error: misfit(error, tuple(x.shape[1:]))):
            output = self.predicts(self.prepared(x))
        output = prediction_in(output)
        if output is None or not output.ndim or len(output) != len(x):
            returned = "no entry called logits" if output is None else f"shape {tuple(output.shape)}"
            raise ValueError(
                f"{self.name} returned {returned} for {counted(len(x), 'observation')}: it needs to return a tensor "
                "with a row for each"
            )
        return torch.as_tensor(output)

    def scores(self, x: Tensor) -> Tensor:
        """Class scores ``(n, classes)``, with at least two columns: a model with one output scores the second of two
        classes, and the first scores 0. All examinations of a classifier use this method. Whole numbers, such as
        votes, become floats; scores that are NaN are refused."""
        output = self.predict(x)
        scores = output[:, None] if output.ndim == 1 else output.flatten(1)
        if not scores.is_floating_point():
            scores = scores.float()
        if scores.isnan().any():
            wrong = int(scores.isnan().any(1).sum())
            raise NanScores(
                f"{self.name} returns NaN instead of a score for {wrong} of {counted(len(x), 'observation')}: has its "
                "training diverged?"
            )
        return functional.pad(scores, (1, 0)) if scores.shape[1] == 1 else scores

    def understood(self, x: Tensor, u: Tensor | None = None, *, decoder: bool = True) -> Subject:
        """The same subject with all roles inferred: the encoder, the places of a tuple, the shape of a code, and
        (unless the ``decoder`` is not needed) the meaning of the decoder's output. The notes name them."""
        if self.codes is not None:
            return self
        with self.at_rest():
            torch.manual_seed(0)  # the same evidence whenever it is taken
            subject, failed = self._what_encodes(x, u) if self.guessed and self.roles is None else (self, "")
            if subject.encodes is None and failed:
                raise UserCodeError(f"{self.name} does not encode: {failed}; {how_to_encode(self.module)}")
            if subject.encodes is None:
                return subject
            try:
                output = subject.raw_code(x, u)
            except UserCodeError as error:
                if not failed:
                    raise
                raise UserCodeError(f"{error}; and {failed}") from error
            if subject.roles is None and unnamed(output) and len(output) > 1:
                subject = subject._with_roles(output, x, u)
            mean = shaped_code(output, subject.roles)["mean"]
            subject = replace(subject, code_shape=tuple(mean.shape[1:]) if mean.ndim > 2 else ())
            if not mean.is_floating_point():
                subject = replace(subject, whole_numbers=True, notes=(*subject.notes, INDICES))
            if decoder and subject.decodes is not None and subject.meaning == "auto":
                subject = subject._with_decoder(x, u)
        return subject

    def without_decoder(self, reason: Exception | str) -> Subject:
        """The same subject after its decoder has failed: examinations skip it, and a note gives the reason."""
        sentence = f"Nothing is decoded: {reason}."
        return replace(self, decodes=None, undecodable=str(reason), notes=(*self.notes, sentence))

    def _with_roles(self, output: Sequence[Any], x: Tensor, u: Tensor | None) -> Subject:
        """The subject with the roles of the places of a tuple."""
        assert self.encodes is not None
        draws = []
        if self.module is not None:
            forward = self.predicts
            given = self.prepared(x)
            draws = [decoder_inputs(self.module, lambda: forward and forward(given)), own_sampler(self.module)]
        names = returned_names(self.encodes, len(output))
        reading = read_places(output, x.shape, again=lambda: self.raw_code(x, u), draws=draws, names=names)
        return replace(self, roles=reading.roles, notes=(*self.notes, reading.sentence))

    def _what_encodes(self, x: Tensor, u: Tensor | None) -> tuple[Subject, str]:
        """The subject with ``forward`` as its encoder, if the output names a code, or holds a posterior and a
        reconstruction where the encoder returns only a tensor (which may hold mean and variance side by side, or
        precede them); with the base model, if nothing else encodes. The words say why forward failed, if it did."""
        if self.predicts is None:
            return self, ""
        try:
            output = self.predicts(self.prepared(x))
        except Exception as error:  # noqa: BLE001 - a forward that wants more than observations may raise anything
            return self, f"forward fails ({in_words(error)}{misfit(error, tuple(x.shape[1:]))})"
        why = ""
        if names_code(output):
            why = "its output names a code"
        elif holds_posterior(output, x.shape) and (self.encodes is None or isinstance(self.raw_code(x, u), Tensor)):
            why = "it returns a mean with a variance"
        if why:
            note = f"The encoder is forward, because {why}; {OTHERWISE}."
            return replace(self, encodes=self.predicts, guessed=False, notes=(*self.notes, note)), ""
        inner = base_model(self.module) if self.encodes is None else None
        if inner is not None:
            name, tap = inner
            note = f"The encoder is {name}, the model without its head; {OTHERWISE}."
            return replace(self, encodes=tap, guessed=False, notes=(*self.notes, note)), ""
        return self, ""

    def _with_decoder(self, x: Tensor, u: Tensor | None) -> Subject:
        """The subject with the meaning of its decoder's output, or without a decoder that fails. Codes that are not
        rows keep their shape, unless the decoder takes only rows."""
        reasons = []
        for shape in dict.fromkeys((self.code_shape, ())):
            try:
                return replace(self, code_shape=shape)._with_meaning(x, u)
            except (ValueError, TypeError) as error:
                reasons.append(error)
        return self.without_decoder(reasons[0])

    def _with_meaning(self, x: Tensor, u: Tensor | None) -> Subject:
        """The subject with the reading of the decoder's output that is nearest to the observations."""
        output = self.decode(self.encode(x, u)["mean"], tuple(x.shape[1:]))
        truth = x.to(output.device).float()
        errors = {name: float((read(output) - truth).square().mean()) for name, read in MEANINGS.items()}
        errors = {name: error for name, error in errors.items() if np.isfinite(error)}
        if not errors:
            raise ValueError(f"decode of {self.name} returns NaN or infinity on codes of the data")
        if truth.min() < 0 or truth.max() > 1:
            best = "values"  # only data in [0, 1] has logits
        else:
            best = min(errors, key=lambda name: errors[name])
            if errors["values"] <= TIED * errors[best] and output.min() >= 0 and output.max() <= 1:
                best = "values"
        others = ", ".join(f"{errors[name]:.3g} as {SPOKEN[name]}" for name in errors if name != best)
        advice = (
            f"The decoder's output was read as {SPOKEN[best]}: its mean squared error is then {errors[best]:.3g} "
            f"({others}); --output (output= in Python) overrides this."
        )
        return replace(self, meaning=best, notes=(*self.notes, advice))  # type: ignore[arg-type]


def _writes(tensor: Tensor) -> int | None:
    """How often a tensor has been written to; None where torch does not count."""
    return None if tensor.is_inference() else tensor._version


def as_subject(
    thing: Any,
    *,
    name: str | None = None,
    encode: str | Callable[..., Any] | None = None,
    decode: str | Callable[..., Any] | None = None,
    returns: str | Sequence[str] | None = None,
    output: Meaning = "auto",
) -> Subject:
    """Wrap a module, an object with ``encode``, an estimator with ``transform`` or a fitted one with classes, a plain
    function from observations to codes, existing codes (a row for each example), or a run.

    A run may be named by its id, its name, its folder or ``"latest"`` (in the folder ``runs``); a string
    ``FILE.py:NAME`` names a model in your own file, and one that ends in ``.npy`` or ``.npz`` a file of codes.

    ``encode`` and ``decode`` name a method, ``forward``, or a layer by its dotted name, or are functions themselves;
    ``returns`` declares the places of a tuple (``"sample,mean,logvar"``), ``output`` the meaning of the decoder's
    output.
    """
    if isinstance(thing, Subject):
        return thing if output == "auto" else replace(thing, meaning=output)
    run = None
    if isinstance(thing, str) and ".py:" in thing:
        name = name or thing.rpartition(":")[2]
        thing = load_source(thing)
    elif isinstance(thing, str | Path) and str(thing).endswith(CODE_FILES):
        name = name or Path(thing).name
        thing = read_codes(Path(thing))
    elif isinstance(thing, str | Path | Run):
        run, thing = _loaded(thing)
        name = name or run.id
    core = unwrapped(thing)
    roles = None if returns is None else checked_roles(returns if isinstance(returns, str) else ",".join(returns))
    if is_codes(core):
        codes, assumed = codes_of(core, roles)
        return Subject(name or "codes", codes=codes, notes=assumed)
    module = core if isinstance(core, nn.Module) else None
    encodes = called(core, encode) if encode is not None else default_encode(core)
    decodes = called(core, decode) if decode is not None else default_decode(core)
    predicts = default_predict(core)
    if encodes is None and module is None and predicts is None:
        raise TypeError(_no_subject(thing))
    flow = encode is None and is_flow(core)
    return Subject(
        name or getattr(core, "__name__", None) or type(core).__name__,
        encodes,
        decodes,
        predicts,
        getattr(core, "prior", None) if callable(getattr(core, "prior", None)) else None,
        module,
        roles,
        "values" if output == "auto" and decode is None and callable(getattr(core, "generate", None)) else output,
        guessed=encode is None and module is not None and not callable(getattr(core, "encode", None)),
        notes=(FLOW,) if flow else (),
        run=run,
    )


def _loaded(named: Run | Path | str) -> tuple[Run, nn.Module]:
    """A run and its trained network."""
    from polariscope.training.run import network_of  # here, as training takes a second to import

    run = named if isinstance(named, Run) else Store(Path("runs")).open(named)
    return run, network_of(run)


FLOW = (
    "Taken as a flow: forward encodes and inverse decodes. If it is the other way round, declare it with --encode "
    "inverse --decode forward (encode=, decode= in Python)."
)
INDICES = "The codes are whole numbers, such as indices of a codebook: their order and distances mean little."


def _no_subject(thing: Any) -> str:
    """Why something cannot be examined, and what can."""
    kind = type(thing).__name__
    if is_estimator(thing) and hasattr(thing, "decision_function"):
        return f"{kind} has no score for each class: fit it first, an SVC with decision_function_shape='ovr'"
    if is_estimator(thing):
        return f"{kind} has no transform for new observations: give its codes as an array, one row per example"
    return (
        "a model is an nn.Module, an object with an encode or transform method, a function of observations, an array "
        f"of codes, or a run (its id, its folder or 'latest'); got an object of type {kind}"
    )


MISFITS = ("shape", "size", "expected input", "channels", "dimension", "mat1", "broadcast", "features")


def misfit(error: Exception, shape: tuple[int, ...]) -> str:
    """The advice for a network that does not accept observations of this shape."""
    if not isinstance(error, RuntimeError | ValueError) or not any(word in str(error).lower() for word in MISFITS):
        return ""
    words = f"; the observations have shape {shape}"
    if "when training" in str(error):
        return "; its batch normalisation is in training mode even after eval(): let eval() switch it"
    if len(shape) == 3 and "channel" in str(error):
        words += f", and the model is made for another number of channels than {shape[0]}"
    elif len(shape) == 3:
        words += f" ({shape[1]} x {shape[2]} pixels): if the model takes another size, --world.size resizes them "
        words += "(in Python, resize the images before)"
    return words


def _misfit_code(error: Exception, numbers: int) -> str:
    """What to do if the user's decoder does not take what their encoder gives."""
    if not isinstance(error, RuntimeError | ValueError) or not any(word in str(error).lower() for word in MISFITS):
        return ""
    return (
        f"; the encoder returns {numbers} numbers per example: choose a matching pair with --encode and --decode "
        "(encode= and decode= in Python)"
    )
