"""Models on the command line: a run, or the user's ``FILE.py:NAME`` with its weights."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from polariscope import plugins
from polariscope.cli.configuration import chosen_world
from polariscope.cli.parsing import asks_for_help, peek, take_data, take_first
from polariscope.command import word_meant
from polariscope.examination.run_subjects import classifier_run
from polariscope.lab.store import Run, Store
from polariscope.printable import say
from polariscope.subjects import Subject, as_subject
from polariscope.subjects.codes import CODE_FILES, read_codes
from polariscope.subjects.subject import Meaning
from polariscope.subjects.weights import load_weights
from polariscope.training.run import changed_data, config_of
from polariscope.user_code import load_source
from polariscope.worlds.world import World


@dataclass(frozen=True)
class ModelFlags:
    """Settings of your own model."""

    weights: Path | None = None
    """Weights of your own module: safetensors, or a file of torch.save (.pt, .pth, .ckpt, .bin)."""
    encode: str | None = None
    """Encoder: a method, forward, or a layer by its dotted name. By default encode, or the sub-module encoder."""
    decode: str | None = None
    """Decoder: a method or a sub-module. By default generate, decode, or the sub-module decoder."""
    returns: str | None = None
    """Names of the values that encode returns, if there are several: sample,mean,logvar for example (any of mean,
    logvar, var, logstd, std, sample and -)."""
    output: Meaning = "auto"
    """Output of the decoder: values in the data's units, logits, or symmetric values in [-1, 1]; auto infers it."""


def is_source(name: str) -> bool:
    """Whether a name has the form ``FILE.py:NAME``, or is the path of a file of codes."""
    return ".py:" in name or is_codes_file(name)


def is_codes_file(name: str) -> bool:
    """Whether a name is the path of a file of codes, which replace a model."""
    return name.endswith(CODE_FILES)


def own_module(reference: str, weights: Path | None = None) -> nn.Module:
    """The module that ``FILE.py:NAME`` makes, with its weights."""
    module = load_source(reference)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{reference} returned a {type(module).__name__}; an nn.Module is needed")
    if weights is not None:
        load_weights(module, weights)
    return module


def own_subject(reference: str, flags: ModelFlags) -> Subject:
    """The subject that ``FILE.py:NAME`` names, or a file of codes."""
    if is_codes_file(reference):
        return as_subject(read_codes(Path(reference)), name=Path(reference).name, returns=flags.returns)
    thing = load_source(reference)
    if flags.weights is not None:
        if not isinstance(thing, nn.Module):
            raise TypeError(f"--weights is for an nn.Module, and {reference} returned a {type(thing).__name__}")
        inner = thing.module if isinstance(thing, nn.DataParallel) else thing
        load_weights(inner, flags.weights)
    settings = flags_of(flags)
    return as_subject(thing, name=reference.rpartition(":")[2], **settings)


def flags_of(flags: ModelFlags) -> dict[str, Any]:
    """The settings of a model, without the path of its weights."""
    return {f.name: getattr(flags, f.name) for f in dataclasses.fields(ModelFlags) if f.name != "weights"}


def named_model(command: str, arguments: list[str]) -> tuple[str, Run | None, str | None, World]:
    """The words of ``COMMAND RUN [DATA]`` or ``COMMAND FILE.py:NAME DATA``, which are removed from the arguments: the
    model, its run if it is one, the data if it is given, and the world that they mean."""
    name, data = take_first(arguments), take_data(arguments)
    helping = asks_for_help(arguments)
    if name is None and not helping:
        raise ValueError(f"which model? 'polariscope {command} RUN', or 'polariscope {command} FILE.py:NAME DATA'")
    run = None if name is None or is_source(name) else opened(store_named(arguments), name)
    if run is None and data is None and not helping:
        raise ValueError(f"which data? 'polariscope {command} {name} DATA': the name of a world or the path of a file")
    if run is not None and data is None:
        return str(name), run, data, config_of(run).world
    return str(name), run, data, chosen_world(arguments, data or "sprites")


def opened_classifier(store: Store, name: str) -> Run:
    """A run that was trained to predict one class."""
    return classifier_run(opened(store, name))


def store_named(arguments: list[str]) -> Store:
    """The store that ``--runs`` names, before the options are parsed."""
    return Store(Path(peek(arguments, "--runs") or "runs"))


def opened(store: Store, name: str) -> Run:
    """The run of that name; prints which runs ``latest`` skipped, and which plug-ins and data files have changed."""
    try:
        run = store.open(name)
    finally:
        for problem in store.problems:
            say(f"skipped: {problem}", file=sys.stderr)
    if not Path(name).exists():  # a folder is as good tomorrow; "latest" and parts of ids are not
        word_meant(name, run.id)
    for change in [*plugins.changes(run.plugins), *changed_data(run)]:
        say(f"note: run {run.id}: {change}", file=sys.stderr)
    return run
