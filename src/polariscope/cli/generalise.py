"""``polariscope generalise``: does a model hold on combinations and ranges of factors it never saw?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import is_source, opened, own_module
from polariscope.cli.parsing import check_place, parse, take, take_first
from polariscope.cli.place import PlaceOptions, place_of
from polariscope.cli.progress import bars
from polariscope.command import again
from polariscope.examination.generalise import Generalisation, generalise
from polariscope.examination.titles import run_title
from polariscope.examination.transfer import TransferMatrix
from polariscope.lab.holding import hold
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.nets.model import models
from polariscope.objectives.predict import Regress
from polariscope.registry import nearest
from polariscope.report.terminal import answer
from polariscope.studies.leaderboard import SPLITS, leaderboard, own_rows, published_data
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import config_of, paced, train_module, train_once
from polariscope.training.sweep import train_all_once
from polariscope.worlds.splits import Split, benchmark_split
from polariscope.worlds.targets import Task
from polariscope.worlds.view import inside
from polariscope.worlds.world import World, worlds

KIND = "generalise"
"""What findings of this kind are called in the folder of a run."""


@dataclass(frozen=True)
class Options(PlaceOptions):
    """polariscope generalise MODEL --world WORLD [options], or polariscope generalise --leaderboard [--world WORLD]

    MODEL is a registered model (cnn, coordconv, resnet, ...), FILE.py:NAME of yours, or a run that was trained with
    --objective regress. Models are trained on each split, to tell every factor as a value from 0 to 1, and tested on
    what it keeps; with --weights yours is tested as it is, and a run on its own split.

    With several models the first is the plain one, and the others show what their inductive biases add to it:
    polariscope generalise cnn coordconv --made-for coordconv=composition
    """

    splits: tuple[str, ...] = SPLITS
    """Splits to train and test on."""
    weights: Path | None = None
    """Weights of a module of yours that is trained already; then nothing is trained."""
    steps: int = 2000
    """Training steps on each split."""
    batch_size: int = 64
    """Examples a step."""
    learning_rate: float = 5e-4
    """Of Adam."""
    count: int = 5000
    """Examples of each side of a split to look at."""
    seed: int = 0
    """Draws weights, batches and examples."""
    made_for: tuple[str, ...] = ()
    """MODEL=SPLIT: the split that the bias of a model is meant to help with; it then gets a label."""
    combines: tuple[str, ...] = ()
    """MODEL=MODEL+MODEL: the models whose biases another one has together."""
    tolerance: float = 0.02
    """R² by which a model has to differ from the plain one to be better or worse."""
    leaderboard: bool = False
    """Show the published leaderboard, with the row of the model if there is one."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """A page (.html), the first figure (.png, .svg), or a folder for everything; the run then keeps no document. By
    default the folder findings/generalise of the run, which is a new one if models are trained here; the published
    leaderboard alone is only printed."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("generalise", "test a model on factor values and combinations it never saw", group="examination")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    names = list(iter(lambda: take_first(arguments), None))
    place = take(arguments, "--world") or take(arguments, "--data")
    helping = "-h" in arguments or "--help" in arguments
    if not names and "--leaderboard" not in arguments and not helping:
        raise ValueError(
            "which model? 'polariscope generalise MODEL --world WORLD', or --leaderboard for the published ones"
        )
    options: Any = parse(with_world(Options, chosen_world(arguments, place or "sprites")), arguments, "generalise")
    world = meant(options.world)
    for split in options.splits:
        if split not in SPLITS:
            raise ValueError(f"the benchmark has no split {split!r}: {nearest(split, SPLITS)}")
    biases = _biases(names, options)
    if names and options.out is None:
        check_place(options.runs, "--runs")
    if len(names) == 1 and _is_run(names[0]):
        run = opened(Store(options.runs), names[0])
        return _answer(world, {run_title(run): _of_run(run, options)}, biases, options, run)
    try:
        _train_elsewhere(names, world, options)
        results = {_short(name): _of_model(name, world, options) for name in names}
    except KeyboardInterrupt:
        kept = not all(map(is_source, names))  # a module of yours has no name to be kept by
        raise KeyboardInterrupt(f"interrupted; {'go on' if kept else 'start again'} with: {again()}") from None
    return _answer(world, results, biases, options)


def _short(name: str) -> str:
    """What a model is called: a module of yours goes by its own name."""
    return name.rpartition(":")[2] if is_source(name) else name


@dataclass(frozen=True)
class Biases:
    """What several models are compared for."""

    own: dict[str, str]
    made_of: dict[str, list[str]]


def _biases(names: list[str], options: Any) -> Biases:
    """What was said of the models, checked before any of them is trained."""
    known = [_short(name) for name in names]
    if len(set(known)) < len(known):
        raise ValueError(f"two models have one name: {', '.join(known)}")
    if len(names) > 1:
        runs = [name for name in names if _is_run(name)]
        if runs:
            raise ValueError(
                f"{runs[0]} is no registered model or FILE.py:NAME; a run has one split, and is tested alone"
            )
        if options.weights is not None:
            raise ValueError("--weights are those of one model: give one")
    elif options.made_for or options.combines:
        raise ValueError("a bias shows against a plain model: name that first, 'polariscope generalise cnn coordconv'")
    own = _pairs(options.made_for, "made-for", known[1:])
    for model, split in own.items():
        if split not in options.splits:
            raise ValueError(f"{model} was made for {split!r}, which is not tested: {nearest(split, options.splits)}")
    if own and len(options.splits) < 2:
        raise ValueError("whether a bias transfers shows on splits it was not made for: test on at least two")
    made_of = {model: parts.split("+") for model, parts in _pairs(options.combines, "combines", known[1:]).items()}
    for part in (part for parts in made_of.values() for part in parts):
        if part not in own:
            raise ValueError(f"{part!r} is combined: say which split it was made for, --made-for {part}=SPLIT")
    return Biases(own, made_of)


def _pairs(words: tuple[str, ...], flag: str, known: list[str]) -> dict[str, str]:
    """MODEL=WHAT of each word."""
    found = {}
    for word in words:
        model, equals, what = word.partition("=")
        if not equals or not what:
            raise ValueError(f"--{flag} takes MODEL=WHAT; got {word!r}")
        if model not in known:
            raise ValueError(f"--{flag}: there is no model {model!r} after the plain one: {nearest(model, known)}")
        found[model] = what
    return found


def _is_run(name: str) -> bool:
    return not is_source(name) and name not in models.names()


def _of_run(run: Run, options: Any) -> list[Generalisation]:
    """A run is tested on what its own split kept."""
    config = config_of(run)
    if not isinstance(config.objective, Regress):
        raise ValueError(f"run {run.id} was not trained to tell values: train it with --objective regress and a task")
    return [_tested(run, config.world, config.split, options, run_title(run))]


def _train_elsewhere(names: list[str], world: World, options: Any) -> None:
    """Train all models that have a name at once, if --executor or --workers ask for it; else each in its turn."""
    place = place_of(options)
    known = [name for name in names if not is_source(name)]
    if place.executor == "processes" and place.workers in (None, 1):
        return
    configs = [_config(name, world, split, options) for name in known for split in _splits(world, options).values()]
    labels = [f"{name}, {kind}" for name in known for kind in options.splits]
    with bars(labels, options.steps, quiet=options.json) as tells:
        train_all_once(configs, Store(options.runs), place, lambda number, point: tells[number](point))


def _config(name: str, world: World, split: Split, options: Any) -> RunConfig:
    task = world if inside(world, Task) is not None else Task(world, "all", "values")
    return RunConfig(task, Regress(), models.get(name)(), _training(options), split)


def _splits(world: World, options: Any) -> dict[str, Split]:
    return {kind: benchmark_split(kind, world) for kind in options.splits}


def _training(options: Any) -> TrainingConfig:
    return TrainingConfig(options.steps, options.batch_size, options.learning_rate, seed=options.seed, evaluate_every=0)


def _of_model(name: str, world: World, options: Any) -> list[Generalisation]:
    """A model of a name, or of the user's, on every split that was asked for."""
    task = world if inside(world, Task) is not None else Task(world, "all", "values")
    training = _training(options)
    found = []
    for kind, split in _splits(world, options).items():  # what cannot be split is not trained on
        if is_source(name) and options.weights is not None:
            module = own_module(name, options.weights)
            found.append(_looked_at(module, world, split, options, _short(name)))
            continue
        with bars([f"{name}, {kind}"], options.steps, quiet=options.json) as (tell,):
            if is_source(name):
                trained = _trained(name, task, split, training, paced(tell, options.steps))
                found.append(_looked_at(trained, world, split, options, _short(name)))
                continue
            run = train_once(_config(name, world, split, options), options.runs, tell)
        found.append(_tested(run, world, split, options, name))
    return found


def _trained(
    name: str, task: World, split: Split, training: TrainingConfig, step: Callable[[int, torch.Tensor], None]
) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        module = copy.deepcopy(own_module(name)).float()
    return train_module(module, Regress(), task, training, split, Listeners(step=step))


def _tested(run: Run, world: World, split: Split, options: Any, name: str) -> Generalisation:
    found = _looked_at(run, world, split, options, name)
    with hold(run.path):
        run.update(result={"r2": found.score, "r2_seen": float(found.seen_scores.mean())})
    return found


def _looked_at(model: Any, world: World, split: Split, options: Any, name: str) -> Generalisation:
    return generalise(model, world, split, count=options.count, seed=options.seed, name=name)


def _answer(
    world: World, results: dict[str, list[Generalisation]], biases: Biases, options: Any, run: Run | None = None
) -> int:
    """Print the result, and save it: where ``--out`` says, with the run that was tested, or with a new run, so that no
    call overwrites the page of another."""
    names = list(results)
    told = names[0] if len(names) == 1 else names or None
    first = next(iter(results.values()), None)
    world = first[0].world if first else world
    settings = {"model": told, "world": worlds.describe(world), "steps": options.steps, "seed": options.seed}
    if len(names) > 1:
        scores = np.array([[found.score for found in row] for row in results.values()])
        of = TransferMatrix(
            tuple(names), tuple(options.splits), scores, names[0], biases.own, options.tolerance, biases.made_of
        )
        several = [of.findings(settings)]
    else:
        several = [found.findings(settings) for row in results.values() for found in row]
    if options.leaderboard:
        several.insert(0, leaderboard(published_data(world), own_rows(results) if results else None).findings(settings))
    title = f"Does {names[0]} generalise?" if len(names) == 1 else "What biases add" if names else ""
    if options.out is None and run is None and names:
        run = Store(options.runs).create(settings, f"{KIND} {' '.join(names)}", KIND, status="done")
    belongs = options.out is not None or run is not None
    return answer(several, keep_findings(several, KIND, run, options.out, title) if belongs else None, options.json)
