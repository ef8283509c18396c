"""Test whether runs and models generalise, as ``polariscope generalise`` does: train them on each split first."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from polariscope.examination.generalise import Generalisation, generalise
from polariscope.examination.titles import run_title
from polariscope.lab.holding import hold
from polariscope.lab.store import Run, Store
from polariscope.nets.model import models
from polariscope.objectives.predict import Regress
from polariscope.registry import nearest
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import Tell, as_store, config_of, paced, train_module, train_once
from polariscope.worlds.splits import BENCHMARK_SPLITS, Split, benchmark_split
from polariscope.worlds.targets import Task
from polariscope.worlds.view import inside
from polariscope.worlds.world import World

Bars = Callable[[str], AbstractContextManager[Sequence[Tell]]]
"""Shows the progress of a training under a title."""


def _no_bars(title: str) -> AbstractContextManager[Sequence[Tell]]:
    return nullcontext([lambda point: None])


@dataclass(frozen=True)
class GeneralisationTest:
    """Splits for training and testing, and settings of the training."""

    splits: tuple[str, ...] = BENCHMARK_SPLITS
    """Splits to train and test on."""
    steps: int = 2000
    """Training steps on each split."""
    batch_size: int = 64
    """Examples per step."""
    learning_rate: float = 5e-4
    """Learning rate of Adam."""
    count: int = 5000
    """Number of examples from each part of a split."""
    seed: int = 0
    """Seed of weights, batches and examples."""

    def __post_init__(self) -> None:
        for split in self.splits:
            if split not in BENCHMARK_SPLITS:
                raise ValueError(f"the benchmark has no split {split!r}: {nearest(split, BENCHMARK_SPLITS)}")

    @property
    def training(self) -> TrainingConfig:
        return TrainingConfig(self.steps, self.batch_size, self.learning_rate, seed=self.seed, evaluate_every=0)


def generalise_run(
    run: Run | Path | str, *, count: int = 5000, seed: int = 0, store: Store | Path | str = "runs"
) -> Generalisation:
    """Test a run that was trained to predict values on the held-out part of its own split; the run records the
    score."""
    run = run if isinstance(run, Run) else as_store(store).open(run)
    config = config_of(run)
    if not config.objective.numeric:
        raise ValueError(
            f"run {run.id} was not trained to predict values: train it with --objective regress, on 'task --world.of "
            "DATA --world.factor all --world.form values'"
        )
    return _tested(run, config.world, config.split, count, seed, run_title(run))


def benchmark_configs(name: str, world: World, test: GeneralisationTest) -> dict[str, RunConfig]:
    """The training of a registered model on each split."""
    task, splits = _task_and_splits(world, test)
    return {
        kind: RunConfig(task, Regress(), models.get(name)(), test.training, split) for kind, split in splits.items()
    }


def _task_and_splits(world: World, test: GeneralisationTest) -> tuple[World, dict[str, Split]]:
    """The targets and the splits; a world that cannot be split is refused before anything is trained."""
    task = world if inside(world, Task) is not None else Task(world, "all", "values")
    return task, {kind: benchmark_split(kind, world) for kind in test.splits}


def generalise_model(
    name: str,
    world: World,
    test: GeneralisationTest,
    *,
    make: Callable[[], nn.Module] | None = None,
    trained: bool = False,
    store: Store | Path | str = "runs",
    progress: Bars = _no_bars,
) -> list[Generalisation]:
    """Test a model on every split: a registered model by its name, which is trained as a run, or the model that
    ``make`` makes, which is trained here unless it is already ``trained``."""
    task, splits = _task_and_splits(world, test)
    configs = benchmark_configs(name, world, test) if make is None else {}
    results = []
    for kind, split in splits.items():
        if make is not None and trained:
            results.append(_examined(make(), world, split, test.count, test.seed, name))
            continue
        with progress(f"{name}, {kind}") as (tell,):
            if make is None:
                run = train_once(configs[kind], as_store(store).root, tell)
            else:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(test.seed)
                    module = copy.deepcopy(make()).float()
                listeners = Listeners(step=paced(tell, test.steps))
                module = train_module(module, Regress(), task, test.training, split, listeners)
        if make is None:
            results.append(_tested(run, world, split, test.count, test.seed, name))
        else:
            results.append(_examined(module, world, split, test.count, test.seed, name))
    return results


def _tested(run: Run, world: World, split: Split, count: int, seed: int, name: str) -> Generalisation:
    result = _examined(run, world, split, count, seed, name)
    with hold(run.path):
        run.update(result={"r2": result.score, "r2_seen": float(result.seen_scores.mean())})
    return result


def _examined(model: Any, world: World, split: Split, count: int, seed: int, name: str) -> Generalisation:
    return generalise(model, world, split, count=count, seed=seed, name=name)
