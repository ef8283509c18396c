"""Titles of runs for people: the objective and the data, not the id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polariscope.examination.examination import called
from polariscope.lab.store import Run

PREDICTING = ("classify", "regress")
"""Objectives that say less of a run than its model does."""


def run_title(run: Run) -> str:
    """``beta-vae (beta 4) on sprites``; a run without such settings is titled with its id."""
    objective, model = run.config.get("objective"), run.config.get("model")
    name = called(objective)
    if isinstance(model, Mapping) and isinstance(objective, Mapping) and objective.get("name") in PREDICTING:
        name = str(model.get("name", "")) or name
    data = data_title(run.config.get("world"))
    return f"{name} on {data}" if name and data else name or run.id


def data_title(world: Any) -> str:
    """A world by its name, a file by its own, a view by what it shows."""
    if not isinstance(world, Mapping):
        return ""
    if world.get("path"):
        return Path(str(world["path"])).name
    inner = world.get("of")
    return data_title(inner) if isinstance(inner, Mapping) else str(world.get("name", ""))


def distinct_titles(runs: Sequence[Run], steps: Sequence[int | None] = ()) -> list[str]:
    """Titles of several runs; where they are alike, with the seed, the step, and at last the id."""
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
