"""``polariscope corruptions``: how robust is a classifier to noise, blur, weather and other corruptions?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import parse_world
from polariscope.cli.named import ModelFlags, is_source, opened_classifier, own_subject, run_subject
from polariscope.cli.parsing import JSON, OUT, RUNS, asks_for_help, flag, options_type, parse, take_data, take_first
from polariscope.cli.progress import shares
from polariscope.examination.corruptions import Withstood, withstand
from polariscope.examination.titles import run_title
from polariscope.lab.holding import hold
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.report.terminal import answer
from polariscope.subjects import Subject
from polariscope.training.run import config_of
from polariscope.worlds.splits import SplitPart
from polariscope.worlds.targets import Targeted, Task
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, worlds

HELP = """polariscope corruptions RUN [options], or polariscope corruptions FILE.py:NAME DATA [options]

Measures the accuracy of a classifier under every corruption of a suite, and names the worst one.

RUN was trained with --objective classify, and is tested on its held-out images. FILE.py:NAME is your own classifier: an
nn.Module, a class or function without arguments that makes one, or a function from images to scores. DATA is a labelled
world, or a file of images with labels. If --against names another classifier, the result also has the corruption errors
relative to that classifier, and their mean, the mCE."""
EXTRA = [
    ("suite", flag(str, "imagenet-c: corruptions of photographs; mnist-c: corruptions of digits."), "imagenet-c"),
    ("kinds", flag(tuple[str, ...], "Corruptions of the suite to measure; by default those of its benchmark."), ()),
    ("severities", flag(tuple[int, ...], "Severities, from 1 upwards; by default all."), ()),
    ("count", flag(int, "Number of examples."), 1000),
    ("against", flag(str | None, "A classifier to compare with: a run, or FILE.py:NAME."), None),
    ("against_weights", flag(Path | None, "Weights of --against, if it is your own module."), None),
    ("seed", flag(int, "Draws examples and corruptions."), 0),
    RUNS,
    OUT,
    JSON,
]
OF_DATA = [
    ("weights", flag(Path | None, "Weights of your own module: safetensors, or a file of torch.save."), None),
    ("label", flag(str | None, "Factor to predict as the class; by default the first discrete one."), None),
]


@commands.register(
    "corruptions",
    "measure how robust a classifier is to noise, blur, weather and other corruptions",
    group="examination",
    needs="class images",
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, place = take_first(arguments), take_data(arguments)
    asked = asks_for_help(arguments)
    if name is None and not asked:
        raise ValueError(
            "which classifier? 'polariscope corruptions RUN', or 'polariscope corruptions FILE.py:NAME DATA'"
        )
    if name is not None and not is_source(name):
        if place is not None:
            raise ValueError(f"a run is tested on its held-out images: leave {place} out, or name FILE.py:NAME")
        return _of_run(name, parse(options_type(EXTRA, HELP), arguments, "corruptions"))
    if place is None and not asked:
        raise ValueError("which data? 'polariscope corruptions FILE.py:NAME DATA': a labelled world or a file's path")
    world, options = parse_world(place or "digits", arguments, "corruptions", [*EXTRA, *OF_DATA], HELP)
    assert name is not None
    task = world if options.label is None and inside(world, Targeted) else Task(world, options.label or "")
    found = _found(own_subject(name, ModelFlags(options.weights)), task, options)
    return _answer(found, {"model": name, "data": worlds.describe(world)}, options)


def _of_run(name: str, options: Any) -> int:
    run = opened_classifier(Store(options.runs), name)
    config = config_of(run)
    subject = dataclasses.replace(run_subject(run), name=run_title(run))
    found = _found(subject, SplitPart(config.world, config.split), options)
    with hold(run.path):
        run.update(result={"accuracy": found.clean, "accuracy_corrupted": found.mean})
    return _answer(found, {"run": run.id, "data": worlds.describe(config.world)}, options, run)


def _reference(options: Any) -> Subject | None:
    if options.against is None:
        if options.against_weights is not None:
            raise ValueError("--against-weights needs --against FILE.py:NAME")
        return None
    if is_source(options.against):
        return own_subject(options.against, ModelFlags(options.against_weights))
    if options.against_weights is not None:
        raise ValueError("--against-weights is for your own module, and a run has its own weights: leave it out")
    run = opened_classifier(Store(options.runs), options.against)
    return dataclasses.replace(run_subject(run), name=run_title(run))


def _found(subject: Subject, world: World, options: Any) -> Withstood:
    with shares(quiet=options.json) as tell:
        return withstand(
            subject,
            world,
            options.suite,
            options.kinds,
            options.severities,
            options.count,
            options.seed,
            _reference(options),
            tell,
        )


def _answer(found: Withstood, settings: dict[str, Any], options: Any, run: Run | None = None) -> int:
    chosen = {key: getattr(options, key) for key in ("suite", "kinds", "severities", "count", "against", "seed")}
    findings = found.findings(settings=settings | chosen)
    return answer(findings, keep_findings(findings, "corruptions", run, options.out), options.json)
