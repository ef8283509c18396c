"""From arguments to configurations: the settings of registered classes are flags, a TOML file gives them values, and
flags override the file.

Names are read first, because they decide which flags exist: only after ``--world.of sprites`` chose the world of a view
does ``--world.of.size`` exist.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polariscope.cli.parsing import (
    asks_for_help,
    columns,
    options_type,
    parse,
    plain_words,
    read_toml,
    take,
    take_first,
)
from polariscope.lab.store import Run, Store
from polariscope.nets.model import models
from polariscope.objectives.objective import objectives
from polariscope.registry import Registry, held, required
from polariscope.training.config import RunConfig
from polariscope.training.start import warm
from polariscope.worlds.splits import splits, usual_split
from polariscope.worlds.world import World, worlds

RUN_HELP = """{usage}

{about}

WORLD is a name ('polariscope worlds' lists them) or the path of a file of images. The options below belong to the
chosen world, objective, model and split; choose others to see theirs. Parts of a world or a model are chosen in the
same way: --world.of NAME, --model.architecture NAME. --model.from RUN starts from the weights of another run. That run
can also become a part of the chosen model: --model readout --model.from RUN --start.freeze of."""

USAGE = "polariscope {command} WORLD [--objective NAME] [--model NAME] [--split NAME] [--config FILE] [options]"

CHOSEN: dict[str, Registry[Any]] = {"world": worlds, "split": splits, "objective": objectives, "model": models}


def parse_run(
    arguments: list[str],
    command: str,
    extra: list[tuple[str, Any, Any]],
    base: type = object,
    about: str = "",
    usage: str = USAGE,
) -> tuple[RunConfig, Any]:
    """A run's configuration from ``WORLD --config FILE``, the names of its parts, and flags for each of them.

    ``extra`` are further fields (name, type, default) of the command, in addition to those of a ``base`` class; they
    are attributes of the second result. The help begins with ``usage`` and with ``about``, what the command does.
    """
    arguments = list(arguments)
    description = read_toml(take(arguments, "--config"))
    world = take_first(arguments)
    if world is not None:
        arguments += ["--world", world]
    asked = asks_for_help(arguments)
    if "world" not in description and not asked and not any(word.split("=")[0] == "--world" for word in arguments):
        raise ValueError(f"which world? 'polariscope {command} WORLD': {', '.join(worlds.names())}, or a file's path")
    origin = take(arguments, "--model.from")
    if origin is not None:
        folder = take(arguments, "--runs")
        arguments += [] if folder is None else ["--runs", folder]
        _begin(description, take(list(arguments), "--model"), Store(Path(folder or "runs")).open(origin))
    for section, registry in CHOSEN.items():
        usual = {"world": "sprites", "objective": "vae"}.get(section, "")
        if section == "split":
            usual = splits.name_of(usual_split(worlds.build(description["world"])))
        elif section == "model":
            usual = models.name_of(objectives.build(description["objective"]).default_model())
        known = description.get(section, {})
        known = registry.spelled(known) if isinstance(known, str) else {"name": usual, **known}
        description[section] = choose(arguments, f"--{section}", registry, known)
    default = RunConfig.build(description)
    fields = [(f.name, *_as_flags(getattr(default, f.name))) for f in dataclasses.fields(RunConfig)]
    help_text = RUN_HELP.format(usage=usage.format(command=command), about=about)
    options = parse(options_type([*fields, *extra], help_text, base), arguments, command, choices)
    given = {f.name: meant(getattr(options, f.name)) for f in dataclasses.fields(RunConfig)}
    # What no flag has changed was built above, and may have read its files by now.
    same = {name: getattr(default, name) for name, value in given.items() if value == getattr(default, name)}
    return RunConfig(**given | same), options


def choices() -> str:
    """The end of the help: the names of all worlds, and one line for each split, objective and model."""
    width = columns()
    lines = ["worlds ('polariscope worlds' describes each):"]
    lines += textwrap.wrap(
        ", ".join(worlds.names()), width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    for section, registry in CHOSEN.items():
        if section != "world":
            lines += ["", f"{registry.kind}s (--{section} NAME --help lists the settings of one):"]
            lines += _listed(registry, width)
        if section == "objective":
            lines += ["  (R: reconstruction error; K: divergence of the posterior from the prior)"]
    return "\n".join(["", *lines, ""])


def _listed(registry: Registry[Any], width: int) -> list[str]:
    names = registry.names()
    column = max(map(len, names))
    room = max(20, width - column - 4)
    summaries = {name: plain_words(registry.get(name).__doc__) for name in names}
    return [
        f"  {name:<{column}}  {textwrap.shorten(words, room, placeholder=' ...')}" for name, words in summaries.items()
    ]


def _begin(description: dict[str, Any], word: str | None, run: Run) -> None:
    """Start from the weights of a run. Its model becomes the model, or a part of a model of another name: a readout."""
    start = warm(run)
    origin = {"run": start.run, "sha256": start.sha256}
    given = description.get("model", {})
    given = {"name": given} if isinstance(given, str) else given
    name = word or given.get("name", run.config["model"]["name"])
    holding = [field for field, registry in held(models.get(name)).items() if registry is models]
    if holding and name != run.config["model"]["name"]:
        description["model"] = {"name": name, holding[0]: run.config["model"], **given}
        origin["into"] = holding[0]
    else:
        description.setdefault("model", run.config["model"])
    description["start"] = {**description.get("start", {}), **origin}


def parse_world(
    name: str,
    arguments: list[str],
    command: str,
    extra: list[tuple[str, Any, Any]],
    help_text: str = "",
    base: type = object,
) -> tuple[World, Any]:
    """A world from its name and ``--world.*`` flags, with further fields of the command, or of a ``base``."""
    arguments = list(arguments)
    field = _as_flags(chosen_world(arguments, name))
    options = parse(options_type([("world", *field), *extra], help_text, base), arguments, command)
    return meant(options.world), options


def chosen_world(arguments: list[str], name: str) -> World:
    """The world of a name, with its parts chosen by flags, which are removed from the arguments."""
    return worlds.build(choose(arguments, "--world", worlds, worlds.spelled(name)))


def with_world(options: type, default: World) -> Any:
    """A command's options with the settings of a world among them; :func:`meant` returns the world."""
    kind, value = _as_flags(default)
    world = ("world", kind, dataclasses.field(default=value))
    extended = dataclasses.make_dataclass("Options", [world], bases=(options,), frozen=True)
    extended.__doc__ = options.__doc__
    return extended


def choose(arguments: list[str], flag: str, registry: Registry[Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A description with all its parts chosen by flags, ``--world.of NAME``; the flags are removed."""
    description = dict(known)
    word = take(arguments, flag)
    if word is not None:
        new = registry.spelled(word)
        # Settings of a file stay if they are for the same thing.
        description = {**description, **new} if description.get("name") == new["name"] else new
    for name, inner in held(registry.get(description["name"])).items():
        kept = description.get(name, {})
        kept = inner.spelled(kept) if isinstance(kept, str) else kept
        inner_flag = f"{flag}.{name.replace('_', '-')}"
        if kept or any(given.split("=")[0] == inner_flag for given in arguments):
            description[name] = choose(arguments, inner_flag, inner, kept)
        elif name in required(registry.get(description["name"])):
            raise ValueError(
                f"{registry.kind} {description['name']!r} is a view of another {inner.kind}: name it with {inner_flag}"
            )
    return description


def _as_flags(thing: Any) -> tuple[Any, Any]:
    """Type and default of a configuration for tyro: each part has its own type, so that its fields are flags."""
    inner = {name: _as_flags(getattr(thing, name)) for name in held(thing) if getattr(thing, name) is not None}
    fields = [(name, kind, dataclasses.field(default=value)) for name, (kind, value) in inner.items()]
    kind: Any = dataclasses.make_dataclass(type(thing).__name__, fields, bases=(type(thing),), frozen=True)
    kind._made_of = type(thing)
    kind.__doc__ = plain_words(type(thing).__doc__, [f.name for f in dataclasses.fields(thing) if f.init])
    values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.init}
    return kind, kind(**values | {name: value for name, (_, value) in inner.items()})


def meant(thing: Any) -> Any:
    """The inverse of :func:`_as_flags`: the configuration, with the parsed values."""
    if not dataclasses.is_dataclass(thing):
        return thing
    kind: Any = vars(type(thing)).get("_made_of", type(thing))
    inner = {name: meant(getattr(thing, name)) for name in held(kind)}
    if type(thing) is kind and not inner:
        return thing
    return kind(**{f.name: inner.get(f.name, getattr(thing, f.name)) for f in dataclasses.fields(kind) if f.init})
