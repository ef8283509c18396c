"""Readable titles of runs: the objective and the data, not the id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polariscope.examination.examination import called
from polariscope.lab.store import Run

PREDICTING = ("classify", "regress")
"""Objectives that describe a run less well than its model does."""


def run_title(run: Run) -> str:
    """``beta-vae (beta 4) on sprites``; a run without such settings is titled with its id."""
    objective, model = run.config.get("objective"), run.config.get("model")
    name = called(objective)
    if isinstance(model, Mapping) and isinstance(objective, Mapping) and objective.get("name") in PREDICTING:
        name = str(model.get("name", "")) or name
    data = data_title(run.config.get("world"))
    return f"{name} on {data}" if name and data else name or run.id


def data_title(world: Any) -> str:
    """The name of a world, of a file, or of the world of a view."""
    if not isinstance(world, Mapping):
        return ""
    if world.get("path"):
        return Path(str(world["path"])).name
    inner = world.get("of")
    return data_title(inner) if isinstance(inner, Mapping) else str(world.get("name", ""))


def distinct_titles(runs: Sequence[Run], steps: Sequence[int | None] = ()) -> list[str]:
    """Titles of several runs; equal titles get the seed, then the step, then the id."""
    titles = [run_title(run) for run in runs]
    at = list(steps) or [None] * len(runs)
    details: list[list[str]] = [
        [f"seed {run.config.get('training', {}).get('seed')}" for run in runs],
        ["at the end" if step is None else f"at step {step}" for step in at],
        [run.id for run in runs],
    ]
    for detail in details:
        if len(set(titles)) == len(titles) or len(set(detail)) == 1:
            continue
        titles = [f"{title}, {more}" for title, more in zip(titles, detail, strict=True)]
    return titles
