"""Several runs side by side, and the best of them: one seed says little about a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _train(job: tuple[dict[str, Any], str], tell: Callable[[Any], None]) -> str:
    description, root = job
    return train(RunConfig.build(description), Store(Path(root)), tell).id
