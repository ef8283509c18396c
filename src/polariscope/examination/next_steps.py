"""The commands that can be used on a trained run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.examination.catalogue import ABILITIES, commands, examinations
from polariscope.examination.run_subjects import predicts_class
from polariscope.lab.store import Run
from polariscope.registry import Place
from polariscope.subjects import as_subject
from polariscope.training.config import RunConfig
from polariscope.training.run import architecture_of, build_model, config_of


def abilities(config: RunConfig, network: Any) -> set[str]:
    """What a run of this configuration has of :data:`~polariscope.examination.catalogue.ABILITIES`."""
    split = hasattr(network, "property_of") and getattr(network, "property_latents", 0) < getattr(network, "latents", 0)
    has = {
        "codes": as_subject(network).encodes is not None,
        "property": split,
        "class": predicts_class(config),
        "values": config.objective.numeric,
        "images": len(config.world.shape) == 3,
        "run": True,
    }
    return {name for name, there in has.items() if there}


def offers() -> list[Place]:
    """Examinations and commands that take a run alone, ours and those of plug-ins, with what they need of it."""
    known = [place for place in commands.about() if place.needs]
    known += [place._replace(needs=place.needs or "run") for place in examinations.about()]
    order = list(ABILITIES)
    return sorted(known, key=lambda place: (min(map(order.index, place.needs.split())), place.name))


def next_commands(config: RunConfig, network: Any = None) -> list[str]:
    """Commands that accept a run of this configuration. What a model can do is read from its ``network``, which is
    built if it is not given.

    >>> from polariscope.nets.predictors import LeNet
    >>> from polariscope.objectives.predict import Classify
    >>> from polariscope.worlds.renderers.mini_sprites import MiniSprites
    >>> next_commands(RunConfig(MiniSprites())), next_commands(RunConfig(MiniSprites(), Classify(), LeNet()))
    (['examine'], ['corruptions', 'kernel', 'robustness'])
    """
    able = abilities(config, build_model(config) if network is None else network)
    return [place.name for place in offers() if able.issuperset(place.needs.split())]


def said_next(run: Run) -> str:
    """Commands to paste into a shell; if no examination fits the run, the command that shows its learning curves."""
    names = next_commands(config_of(run), architecture_of(run))
    words = [["polariscope", name, run.id] for name in names] or [["polariscope", "runs", "curves", run.id]]
    folder = run.path.parent
    more = [*plugins.flags(), *([] if folder == Path("runs") else ["--runs", str(folder)])]
    return " or ".join(shlex.join([*command, *more]) for command in words)
