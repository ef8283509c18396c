"""What can be trained from the page: worlds by name, objectives with their numbers."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from polariscope.objectives.objective import objectives
from polariscope.registry import required
from polariscope.training.config import RunConfig
from polariscope.worlds.world import worlds


def forms() -> dict[str, Any]:
    """Worlds whose settings have defaults, and objectives with their numeric settings."""
    plain = [name for name in worlds.names() if not required(worlds.get(name))]
    return {
        "worlds": [{"name": name, "about": _about(worlds.get(name))} for name in plain],
        "objectives": [
            {"name": name, "about": _about(cls), "settings": _numbers(cls)}
            for name in objectives.names()
            for cls in [objectives.get(name)]
            if not required(cls) and "other" not in getattr(cls, "needs", ())
        ],
    }


def config_from(
    world: str, objective: str, settings: Mapping[str, float], steps: int, latents: int | None, seed: int
) -> RunConfig:
    """The configuration that a form describes. It names a registered world, never a path: the page cannot choose a file
    to read."""
    if world not in worlds.names() or objective not in objectives.names():
        raise ValueError("expected a world and an objective that the page lists")
    kinds = {entry["name"]: entry["whole"] for entry in _numbers(objectives.get(objective))}
    unknown = set(settings) - set(kinds)
    if unknown:
        raise ValueError(f"the objective {objective} has no number {sorted(unknown)[0][:40]!r}")
    numbers = {name: int(value) if kinds[name] else float(value) for name, value in settings.items()}
    description: dict[str, Any] = {
        "world": {"name": world},
        "objective": {"name": objective, **numbers},
        "training": {"steps": steps, "seed": seed},
    }
    config = RunConfig.build(description)
    if latents is not None and hasattr(config.model, "latents"):
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, latents=latents))  # type: ignore[type-var]
    return config


def _numbers(cls: Any) -> list[dict[str, Any]]:
    hints = typing.get_type_hints(cls)
    return [
        {"name": field.name, "default": field.default, "whole": hints[field.name] is int}
        for field in dataclasses.fields(cls)
        if field.init and hints[field.name] in (int, float) and isinstance(field.default, int | float)
    ]


def _about(cls: Any) -> str:
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())
