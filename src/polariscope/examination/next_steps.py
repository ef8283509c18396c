"""The commands that can be used on a trained run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.lab.store import Run
from polariscope.objectives.predict import Regress
from polariscope.subjects import as_subject
from polariscope.training.config import RunConfig
from polariscope.training.run import architecture_of, build_model, config_of
from polariscope.worlds.targets import targets_of


def next_commands(config: RunConfig, network: Any = None) -> list[str]:
    """Commands that accept a run of this configuration, the most informative first. What a model can do is read from
    its ``network``, which is built if it is not given.

    >>> from polariscope.nets.predictors import LeNet
    >>> from polariscope.objectives.predict import Classify
    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> next_commands(RunConfig(MiniSprites())), next_commands(RunConfig(MiniSprites(), Classify(), LeNet()))
    (['examine'], ['robustness', 'kernel'])
    """
    network = build_model(config) if network is None else network
    targets = targets_of(config.world) if "target" in config.objective.needs else ()
    commands = ["examine"] if as_subject(network).encodes is not None else []
    if len(targets) == 1 and targets[0].kind == "class":
        commands += ["robustness"] if len(config.world.shape) == 3 else []
        commands += ["kernel"]
    if isinstance(config.objective, Regress):
        commands += ["generalise"]
    return commands


def said_next(run: Run) -> str:
    """Commands to paste into a shell; if no examination fits the run, the command that shows its learning curves."""
    commands = next_commands(config_of(run), architecture_of(run))
    words = [["polariscope", command, run.id] for command in commands] or [["polariscope", "runs", "curves", run.id]]
    folder = run.path.parent
    more = [*plugins.flags(), *([] if folder == Path("runs") else ["--runs", str(folder)])]
    return " or ".join(shlex.join([*command, *more]) for command in words)
