"""A run under examination: its model with the title that people know it by, and the data to show it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from polariscope.examination.titles import run_title
from polariscope.lab.store import Run, Store
from polariscope.objectives.bottleneck import OfProperty
from polariscope.subjects import Subject, as_subject
from polariscope.training.config import RunConfig
from polariscope.training.run import as_store, config_of, load_model
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.targets import targets_of
from polariscope.worlds.world import World


def run_subject(run: Run, step: int | None = None, title: str = "") -> Subject:
    """The trained model of a run, or its snapshot at a step."""
    subject = as_subject(run) if step is None else replace(as_subject(load_model(run, step)), run=run)
    return replace(subject, name=title or run_title(run))


def shown_data(run: Run, data: Data | None = None) -> World:
    """Other data if it is given, else what the run was not trained on; all of its data if nothing was held out."""
    config = config_of(run)
    world = config.world if data is None else as_world(data)
    if world != config.world:
        return world
    part = SplitPart(world, config.split)
    return part if len(part) else world


def untrained_model(run: Run) -> Any:
    """The model of a run before training; None if the run started from the weights of another."""
    return None if config_of(run).start.run else load_model(run, 0)


def predicts_class(config: RunConfig) -> bool:
    """Whether a model of this configuration was trained to predict one class.

    >>> from polariscope.objectives.conditional_invariance import PropertyBetaVAE
    >>> from polariscope.objectives.predict import Classify, Regress
    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> [predicts_class(RunConfig(MiniSprites(), one)) for one in (Classify(), Regress(), PropertyBetaVAE())]
    [True, False, False]
    """
    if "target" not in config.objective.needs or config.objective.numeric or isinstance(config.objective, OfProperty):
        return False
    targets = targets_of(config.world)
    return len(targets) == 1 and targets[0].kind == "class"


def classifier_run(run: Run | Path | str, store: Store | Path | str = "runs") -> Run:
    """A run that was trained to predict one class; any other is refused."""
    run = run if isinstance(run, Run) else as_store(store).open(run)
    if not predicts_class(config_of(run)):
        raise ValueError(f"run {run.id} was not trained to predict one class: train it with --objective classify")
    return run
