"""Several runs side by side, and the best of them: one seed says little about a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polariscope.lab.parallel import Report, in_parallel
from polariscope.lab.store import Run, Store
from polariscope.training.config import RunConfig
from polariscope.training.run import train


def over_seeds(config: RunConfig, count: int) -> list[RunConfig]:
    """The same configuration with ``count`` seeds, from its own upwards."""
    if count < 1:
        raise ValueError(f"a sweep needs at least one seed; got {count}")
    first = config.training.seed
    return [replace(config, training=replace(config.training, seed=seed)) for seed in range(first, first + count)]


def train_all(
    configs: Sequence[RunConfig], store: Store, workers: int | None = None, report: Report | None = None
) -> list[Run]:
    """Train every configuration in a process of one thread, to the same bits as alone; runs in the given order."""
    jobs = [(config.describe(), str(store.root)) for config in configs]
    return [store.open(run_id) for run_id in in_parallel(_train, jobs, workers, report)]


def best_run(runs: Sequence[Run], term: str = "held_out_loss") -> Run:
    """The run with the smallest value of a term of its result (the first of equals). No label is looked at."""
    if not runs:
        raise ValueError("there is no run to choose from")
    for run in runs:
        if term not in run.result:
            raise ValueError(f"run {run.id} has no {term}: it has {', '.join(sorted(run.result)) or 'no result yet'}")
    return min(runs, key=lambda run: float(run.result[term]))


def by_setting(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows of the table of runs that differ in their seed alone, named by the settings in which others differ.

    Of several runs of one seed, which are the same to the bit, the last counts.
    """
    sections = ("world", "objective", "model", "training")
    known = {key for row in rows for key in row if key.split("_")[0] in sections and key != "training_seed"}
    differing = [key for key in sorted(known) if len({str(row.get(key)) for row in rows}) > 1]
    found: dict[str, dict[Any, Mapping[str, Any]]] = {}
    for row in rows:
        words = [f"{row[key]}" if key in sections else f"{key} {row[key]}" for key in differing if row[key] is not None]
        found.setdefault(", ".join(words) or str(row["objective"]), {})[row["training_seed"]] = row
    return {name: list(seeds.values()) for name, seeds in found.items()}


def _train(job: tuple[dict[str, Any], str], tell: Callable[[Any], None]) -> str:
    description, root = job
    return train(RunConfig.build(description), Store(Path(root)), tell).id
