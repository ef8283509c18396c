"""From words to configurations: registered things are flags, a TOML file fills them, flags have the last word."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polariscope.cli.parsing import options_type, parse, read_toml, take, take_first
from polariscope.nets.architecture import architectures
from polariscope.nets.autoencoder import ModelConfig
from polariscope.objectives.objective import objectives
from polariscope.registry import Registry
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.worlds.world import World, worlds

RUN_HELP = """polariscope {command} WORLD [--objective NAME] [--architecture NAME] [--config FILE.toml] [options]

WORLD is a name ('polariscope worlds' lists them) or the path of a file of images. The options below are those of the
chosen world, objective and architecture; choose others to see theirs."""


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


def with_world(options: type, default: World) -> Any:
    """A command's options with the settings of a world among them."""
    world = ("world", type(default), dataclasses.field(default=default))
    extended = dataclasses.make_dataclass("Options", [world], bases=(options,), frozen=True)
    extended.__doc__ = options.__doc__
    return extended


def _named(known: Mapping[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """A name given on the command line; settings of the file stay if they are for the same thing."""
    return {**known, **new} if known and known.get("name") == new["name"] else new


def _shallow(config: Any) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
