"""From words to configurations: dataclasses are the flags, a TOML file fills them, flags have the last word."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tyro

from polariscope.nets.architecture import architectures
from polariscope.nets.autoencoder import ModelConfig
from polariscope.objectives.objective import objectives
from polariscope.registry import Registry
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.world import World, worlds

T = TypeVar("T")
RUN_HELP = """polariscope {command} WORLD [--objective NAME] [--architecture NAME] [--config FILE.toml] [options]

WORLD is a name ('polariscope worlds' lists them) or the path of a file of images. The options below are those of the
chosen world, objective and architecture; choose others to see theirs."""


def parse(kind: type[T] | Callable[..., T], arguments: list[str], command: str, default: Any = None) -> T:
    """Flags to an instance of ``kind``. What does not fit is a :class:`ValueError` of one sentence."""
    complaint = io.StringIO()
    options = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(complaint):
            result: T = tyro.cli(kind, args=arguments, prog=f"polariscope {command}", **options)
            return result
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(_sentence(complaint.getvalue(), command)) from None


def _sentence(box: str, command: str) -> str:
    """tyro draws its complaints in boxes; we say them in a line."""
    lines = [re.sub(r"[╭╮╰╯│─]+", " ", line).strip() for line in box.splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith("For full helptext")]
    text = " ".join(lines)
    text = re.sub(r"^Error parsing [\w.-]+: (?=\w+ (is|needs|has))", "", text)
    text = re.sub(r"Unrecognized options: (\S+?)(, .*?)?(?= Perhaps|$)", r"there is no option \1.", text)
    text = re.sub(r" Perhaps you meant: (--\S+).*", r" Did you mean \1?", text)
    return f"{text} ('polariscope {command} --help' lists the options)"


def take(arguments: list[str], flag: str) -> str | None:
    """Remove ``--flag VALUE`` (or ``--flag=VALUE``) from the words and give its value."""
    for position, word in enumerate(arguments):
        if word == flag:
            if position + 1 == len(arguments):
                raise ValueError(f"{flag} needs a value")
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if word.startswith(f"{flag}="):
            del arguments[position]
            return word.removeprefix(f"{flag}=")
    return None


def take_first(arguments: list[str]) -> str | None:
    """Remove the first word and give it, if it is not an option."""
    return arguments.pop(0) if arguments and not arguments[0].startswith("-") else None


def read_toml(path: str | None) -> dict[str, Any]:
    """A configuration file, or a sentence."""
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no configuration file {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the configuration file {path} is not valid TOML: {error}") from error


def world_named(name: str) -> dict[str, Any]:
    """A world's description from its name, or from the path of a file or folder."""
    if name in worlds.names():
        return {"name": name}
    if Path(name).exists():
        return {"name": "file", "path": name}
    if "/" in name or "." in name:
        raise ValueError(f"there is no file {name}, and no world of that name")
    worlds.get(name)  # says which world was meant
    return {}


def parse_run(arguments: list[str], command: str, extra: list[tuple[str, Any, Any]]) -> tuple[RunConfig, Any]:
    """A run's configuration from ``WORLD --config FILE --objective NAME --architecture NAME`` and flags for each.

    The names come first, because they decide which flags there are. ``extra`` are further fields (name, type,
    default) of the command's own; they come back as attributes of the second result.
    """
    arguments = list(arguments)
    description = read_toml(take(arguments, "--config"))
    world = take_first(arguments) or take(arguments, "--world")
    if world is not None:
        description["world"] = _named(description.get("world"), world_named(world))
    elif "world" not in description and "-h" not in arguments and "--help" not in arguments:
        raise ValueError(f"which world? 'polariscope {command} WORLD': {', '.join(worlds.names())}, or a file's path")
    description.setdefault("world", {"name": "sprites"})
    for flag, section in (("--objective", description), ("--architecture", description.setdefault("model", {}))):
        name = take(arguments, flag)
        if name is not None:
            registry: Registry[Any] = objectives if flag == "--objective" else architectures
            registry.get(name)
            key = flag.removeprefix("--")
            section[key] = _named(section.get(key), {"name": name})
    default = RunConfig.build(description)
    # The same configuration with the architecture's own type in the annotation, so that its fields become flags.
    architecture = default.model.architecture
    field = ("architecture", type(architecture), dataclasses.field(default=architecture))
    model_type = dataclasses.make_dataclass("ModelConfig", [field], bases=(ModelConfig,), frozen=True)
    fields = [
        ("world", type(default.world), default.world),
        ("objective", type(default.objective), default.objective),
        ("model", model_type, model_type(**_shallow(default.model))),
        ("training", TrainingConfig, default.training),
        *extra,
    ]
    options = parse(options_type(fields, RUN_HELP.format(command=command)), arguments, command)
    return RunConfig(
        options.world, options.objective, ModelConfig(**_shallow(options.model)), options.training
    ), options


def parse_world(name: str, arguments: list[str], command: str, extra: list[tuple[str, Any, Any]]) -> tuple[World, Any]:
    """A world from its name and ``--world.*`` flags, with further fields of the command's own."""
    default = worlds.build(world_named(name))
    options = parse(options_type([("world", type(default), default), *extra]), arguments, command)
    return options.world, options


def options_type(fields: list[tuple[str, Any, Any]], help_text: str = "") -> Any:
    """A dataclass of (name, type, default) fields: what tyro turns into flags."""
    options = dataclasses.make_dataclass(
        "Options", [(name, kind, dataclasses.field(default=value)) for name, kind, value in fields], frozen=True
    )
    options.__doc__ = help_text
    return options


def _named(known: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """A name given on the command line; settings of the file stay if they are for the same thing."""
    return {**known, **new} if known and known.get("name") == new["name"] else new


def _shallow(config: Any) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
