"""Classifiers on the command line: a run of ours, or ``FILE.py:NAME`` of yours, with labelled data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.cli.configuration import parse_world
from polariscope.cli.named import ModelFlags, is_source, opened_classifier, own_subject, store_named
from polariscope.cli.parsing import asks_for_help, flag, options_type, parse, take_data, take_first
from polariscope.examination.run_subjects import run_subject
from polariscope.lab.store import Run, Store
from polariscope.subjects import Subject
from polariscope.training.run import config_of
from polariscope.worlds.targets import class_task
from polariscope.worlds.world import World, worlds

OF_DATA = [
    ("weights", flag(Path | None, "Weights of your own module: safetensors, or a file of torch.save."), None),
    ("label", flag(str | None, "Factor to predict as the class; by default the first discrete one."), None),
]


@dataclass(frozen=True)
class Classifier:
    """A classifier that was named, with the data to test it on and the options of the command."""

    options: Any
    run: Run | None
    subject: Subject | None
    """Your own classifier; a run has its own model."""
    data: World | None
    """Labelled data that was named; without it a run is tested on its held-out images."""
    settings: dict[str, Any]
    """Model and data, for the document."""

    @property
    def source(self) -> Path | None:
        """The file of your own classifier."""
        file, _, name = str(self.settings.get("model", "")).rpartition(".py:")
        return Path(f"{file}.py") if name and file else None


def parse_classifier(
    command: str, arguments: list[str], extra: list[tuple[str, Any, Any]], help_text: str, base: type = object
) -> Classifier:
    """The classifier and the data that ``COMMAND RUN [DATA]`` or ``COMMAND FILE.py:NAME DATA`` name."""
    arguments = list(arguments)
    name, place = take_first(arguments), take_data(arguments)
    helping = asks_for_help(arguments)
    usage = f"'polariscope {command} FILE.py:NAME DATA'"
    if name is None and not helping:
        raise ValueError(f"which classifier? 'polariscope {command} RUN', or {usage}")
    run = None if name is None or is_source(name) else opened_classifier(store_named(arguments), name)
    if run is not None and place is None:
        options = parse(options_type(extra, help_text, base), arguments, command)
        return Classifier(options, run, None, None, {"run": run.id, "data": worlds.describe(config_of(run).world)})
    if place is None and not helping:
        raise ValueError(f"which data? {usage}: a labelled world or a file's path")
    world, options = parse_world(place or "digits", arguments, command, [*extra, *OF_DATA], help_text, base)
    if run is not None and options.weights is not None:
        raise ValueError("--weights is for your own module, and a run has its own weights: leave it out")
    about = {"data": worlds.describe(world)}
    data = class_task(world, options.label)
    if run is not None:
        return Classifier(options, run, None, data, {"run": run.id} | about)
    subject = own_subject(str(name), ModelFlags(options.weights))
    return Classifier(options, None, subject, data, {"model": name} | about)


def other_classifier(name: str | None, runs: Path, weights: Path | None = None, option: str = "") -> Subject | None:
    """A further classifier that an ``option`` names: a run, or ``FILE.py:NAME`` with its weights."""
    if name is None:
        if weights is not None:
            raise ValueError(f"--{option}-weights needs --{option} FILE.py:NAME")
        return None
    if is_source(name):
        return own_subject(name, ModelFlags(weights))
    if weights is not None:
        raise ValueError(f"--{option}-weights is for your own module, and a run has its own weights: leave it out")
    return run_subject(opened_classifier(Store(runs), name))
