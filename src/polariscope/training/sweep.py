"""Train several runs in parallel, and select the best one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from polariscope.lab.executors import Report, Workers, in_parallel
from polariscope.lab.holding import hold
from polariscope.lab.store import Run, Store
from polariscope.lab.travel import Luggage, is_away, travels
from polariscope.training.config import RunConfig
from polariscope.training.run import create, ready, resume, standing_id, train_once

LETTING_GO = 120.0
"""Seconds that a job on a cluster waits for its run, which a worker on a failed machine may still hold."""


def over_seeds(config: RunConfig, count: int) -> list[RunConfig]:
    """The same configuration with ``count`` consecutive seeds, starting with its own."""
    if count < 1:
        raise ValueError(f"a sweep needs at least one seed; got {count}")
    first = config.training.seed
    return [replace(config, training=replace(config.training, seed=seed)) for seed in range(first, first + count)]


def draws(ranges: Mapping[str, tuple[float, float]], count: int, seed: int = 0) -> list[dict[str, float]]:
    """``count`` uniform random draws from each range; a larger count starts with the same draws.

    >>> draws({"gamma": (1, 16)}, 2) == draws({"gamma": (1, 16)}, 3)[:2]
    True
    """
    if count < 1:
        raise ValueError(f"a random search needs at least one draw; got {count}")
    for name, (low, high) in ranges.items():
        if not low <= high < math.inf or low == -math.inf:
            raise ValueError(f"a range goes from a smaller to a larger number; {name} goes from {low:g} to {high:g}")
    lows, highs = np.array(list(ranges.values()), dtype=float).reshape(-1, 2).T
    points = np.random.default_rng(seed).uniform(lows, highs, (count, len(ranges)))
    return [dict(zip(ranges, point, strict=True)) for point in points.tolist()]


def random_search(
    config: RunConfig, ranges: Mapping[str, tuple[float, float]], count: int, seed: int = 0
) -> list[RunConfig]:
    """The same configuration with ``count`` random choices of some settings, named as in a configuration file.

    >>> from polariscope.objectives.slow_vae import SlowVAE
    >>> from polariscope.worlds.views.pairs import Pairs
    >>> from polariscope.worlds.renderers.squares import Squares
    >>> config = RunConfig(Pairs(Squares()), SlowVAE())
    >>> configs = random_search(config, {"objective.gamma": (1, 16), "objective.rate": (1, 10)}, count=3)
    >>> [1 <= one.objective.gamma <= 16 for one in configs]
    [True, True, True]
    """
    configs = []
    for draw in draws(ranges, count, seed):
        drawn = config
        for path, value in draw.items():
            drawn = _with(drawn, path, value, path)
        configs.append(drawn)
    return configs


def train_all(
    configs: Sequence[RunConfig], store: Store, workers: Workers = None, report: Report | None = None
) -> list[Run]:
    """Train each configuration in its own single-threaded process, and return the runs in order. Each run has the same
    bits as if it were trained alone."""
    return finish(prepare(configs, store), workers, report)


def prepare(configs: Sequence[RunConfig], store: Store, whole_hash: bool = False) -> list[Run]:
    """Create a run folder for each configuration before training starts, so that each run can be resumed by name."""
    for config in configs:
        state = ready(config)  # first, so that what cannot be trained leaves no folder behind
    runs = [create(config, store, status="queued", whole_hash=whole_hash) for config in configs]
    if len(runs) == 1:  # it is trained in this process, and several in others
        runs[0].built["state"] = state
    return runs


def finish(
    runs: Sequence[Run], workers: Workers = None, report: Report | None = None, changed_data_ok: bool = False
) -> list[Run]:
    """Train runs to their end, each from its current step."""
    in_parallel(_finish, [(run, changed_data_ok) for run in runs], workers, report)
    for run in runs:
        run.reload()
        if len(runs) > 1:  # the networks of all runs together may not fit into memory
            run.built.pop("architecture", None)
    return list(runs)


def train_all_once(
    configs: Sequence[RunConfig], store: Store, workers: Workers = None, report: Report | None = None
) -> list[Run]:
    """The trained run of every configuration, under an id derived from it. A finished run is not trained again."""
    jobs = [(config, store) for config in configs]
    in_parallel(_train_once, jobs, workers, report)
    return [store.open(standing_id(config)) for config in configs]


def best_run(runs: Sequence[Run], term: str = "held_out_loss") -> Run:
    """The run with the smallest value of a term of its result; ties go to the first run. Labels are not used."""
    if not runs:
        raise ValueError("no runs to choose from")
    for run in runs:
        if term not in run.result:
            raise ValueError(f"run {run.id} has no {term}: it has {', '.join(sorted(run.result)) or 'no result yet'}")
    return min(runs, key=lambda run: float(run.result[term]))


def by_setting(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Group rows of the table of runs that differ only in their seed, named by the settings in which groups differ.

    If several runs have the same settings and seed, and so the same bits, the last one counts.
    """
    sections = ("world", "split", "objective", "model", "training", "start")
    known = {key for row in rows for key in row if key.split("_")[0] in sections and key != "training_seed"}
    differing = [key for key in sorted(known) if len({str(row.get(key)) for row in rows}) > 1]
    groups: dict[str, dict[Any, Mapping[str, Any]]] = {}
    for row in rows:
        given = [key for key in differing if row.get(key) is not None]
        words = [f"{row[key]}" if key in sections else f"{key} {row[key]}" for key in given]
        groups.setdefault(", ".join(words) or str(row["objective"]), {})[row["training_seed"]] = row
    return {name: list(seeds.values()) for name, seeds in groups.items()}


def _with(thing: Any, path: str, value: float, whole: str) -> Any:
    """A configuration with another number at a path such as ``objective.gamma``."""
    name, _, rest = path.partition(".")
    own = getattr(thing, name, None)
    if is_dataclass(own) and rest:
        return replace(thing, **{name: _with(own, rest, value, whole)})
    # What the field is declared to be decides: a weight may have been given as a whole number.
    if rest or "float" not in {field.name: str(field.type) for field in fields(thing)}.get(name, ""):
        raise ValueError(f"a search needs the name of a numeric setting, such as objective.beta; {whole} is not one")
    return replace(thing, **{name: value})


@travels(lambda job: Luggage(job[1].root, (job[1].path_of(standing_id(job[0])),)))
def _train_once(job: tuple[RunConfig, Store], tell: Callable[[Any], None]) -> None:
    config, store = job
    train_once(config, store, tell)


@travels(lambda job: Luggage(job[0].path.parent, (job[0].path,)))
def _finish(job: tuple[Run, bool], tell: Callable[[Any], None]) -> None:
    run, changed_data_ok = job
    with hold(run.path, wait=LETTING_GO if is_away() else False):
        resume(run, tell, changed_data_ok=changed_data_ok)
