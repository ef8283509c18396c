"""``polariscope generalise``: does a model generalise to combinations and ranges of factors it never saw?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import is_source, opened, own_module
from polariscope.cli.parsing import asks_for_help, check_place, parse, take_data, take_first
from polariscope.cli.place import PlaceOptions, place_of
from polariscope.cli.progress import bars
from polariscope.command import again
from polariscope.examination.generalise import Generalisation
from polariscope.examination.generalise_models import (
    GeneralisationTest,
    benchmark_configs,
    generalise_model,
    generalise_run,
)
from polariscope.examination.transfer import Biases, TransferMatrix
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.nets.model import models
from polariscope.report.terminal import answer
from polariscope.studies.leaderboard import leaderboard, own_rows, published_data
from polariscope.training.sweep import train_all_once
from polariscope.worlds.world import World, worlds

KIND = "generalise"
"""Name of the findings in the folder of a run."""


@dataclass(frozen=True)
class Options(GeneralisationTest, PlaceOptions):
    """polariscope generalise MODEL ... --data DATA [options], or polariscope generalise --leaderboard [--data DATA]

    MODEL is a registered model (cnn, coordconv, resnet, ...), your own FILE.py:NAME, or a run that was trained with
    --objective regress. The command trains each model on each split to predict every factor as a value from 0 to 1, and
    tests it on the held-out data. With --weights your own model is tested without training; a run is tested on its own
    split.

    With several models, the first is the baseline, and the report shows what the inductive biases of the others add:
    polariscope generalise cnn coordconv --made-for coordconv=composition
    """

    weights: Path | None = None
    """Weights of your own trained module; nothing is trained then."""
    made_for: tuple[str, ...] = ()
    """MODEL=SPLIT: the split that the inductive bias of a model was made for; the bias then gets a label."""
    combines: tuple[str, ...] = ()
    """MODEL=MODEL+MODEL: a model that combines the inductive biases of other models."""
    tolerance: float = 0.02
    """Difference in R² from the baseline above which a model counts as better or worse."""
    leaderboard: bool = False
    """Show the published leaderboard, with a row for the model if one is given."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """A page (.html), the first figure (.png, .svg), or a folder for everything; the run then keeps no document. By
    default the folder findings/generalise of the run (of a new run if the command trains models); the published
    leaderboard alone is only printed."""
    json: bool = False
    """Print JSON for machines."""


@commands.register(
    "generalise", "test a model on factor values and combinations it never saw", group="examination", needs="values"
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    names = list(iter(lambda: take_first(arguments), None))
    data = take_data(arguments)
    if not names and "--leaderboard" not in arguments and not asks_for_help(arguments):
        raise ValueError(
            "which model? 'polariscope generalise MODEL --data DATA', or --leaderboard for the published ones"
        )
    options: Any = parse(with_world(Options, chosen_world(arguments, data or "sprites")), arguments, "generalise")
    world = meant(options.world)
    short = [_short(name) for name in names]
    runs = [name for name in names if not is_source(name) and name not in models.names()]
    if len(names) > 1 and runs:
        raise ValueError(f"{runs[0]} is not a registered model or FILE.py:NAME; a run has one split: test it alone")
    if len(names) > 1 and options.weights is not None:
        raise ValueError("--weights belongs to one model: give one model")
    biases = Biases.declared(short, options.splits, options.made_for, options.combines)
    if names and options.out is None:
        check_place(options.runs, "--runs")
    if runs:
        run = opened(Store(options.runs), runs[0])
        result = generalise_run(run, count=options.count, seed=options.seed)
        return _answer(world, {result.name: [result]}, biases, options, run)
    test = GeneralisationTest(**{name: getattr(options, name) for name in GeneralisationTest.__dataclass_fields__})
    try:
        _train_elsewhere([name for name in names if not is_source(name)], world, test, options)
        results = {_short(name): _tested(name, world, test, options) for name in names}
    except KeyboardInterrupt:
        kept = not all(map(is_source, names))  # a module of yours has no name to be kept by
        raise KeyboardInterrupt(f"interrupted; {'continue' if kept else 'start again'} with: {again()}") from None
    return _answer(world, results, biases, options)


def _short(name: str) -> str:
    """The name of a model; your own module has the name of its class or function."""
    return name.rpartition(":")[2] if is_source(name) else name


def _train_elsewhere(names: list[str], world: World, test: GeneralisationTest, options: Any) -> None:
    """Train all registered models at once if --executor or --workers are given, otherwise one after the other."""
    place = place_of(options)
    if place.executor == "processes" and place.workers in (None, 1):
        return
    configs = {f"{name}, {kind}": c for name in names for kind, c in benchmark_configs(name, world, test).items()}
    with bars(list(configs), test.steps, quiet=options.json) as tells:
        train_all_once(list(configs.values()), Store(options.runs), place, lambda number, point: tells[number](point))


def _tested(name: str, world: World, test: GeneralisationTest, options: Any) -> list[Generalisation]:
    make: Callable[[], nn.Module] | None = partial(own_module, name, options.weights) if is_source(name) else None
    return generalise_model(
        _short(name),
        world,
        test,
        make=make,
        trained=options.weights is not None,
        store=options.runs,
        progress=lambda title: bars([title], test.steps, quiet=options.json),
    )


def _answer(
    world: World, results: dict[str, list[Generalisation]], biases: Biases, options: Any, run: Run | None = None
) -> int:
    """Print the result and save it: to ``--out``, to the tested run, or to a new run, so that no call overwrites the
    page of another."""
    names = list(results)
    named = names[0] if len(names) == 1 else names or None
    first = next(iter(results.values()), None)
    world = first[0].world if first else world
    settings = {"model": named, "world": worlds.describe(world), "steps": options.steps, "seed": options.seed}
    if len(names) > 1:
        several = [TransferMatrix.of(results, options.splits, biases, options.tolerance).findings(settings)]
    else:
        several = [generalisation.findings(settings) for row in results.values() for generalisation in row]
    if options.leaderboard:
        several.insert(0, leaderboard(published_data(world), own_rows(results) if results else None).findings(settings))
    title = f"Does {names[0]} generalise?" if len(names) == 1 else "What biases add" if names else ""
    if options.out is None and run is None and names:
        run = Store(options.runs).create(settings, f"{KIND} {' '.join(names)}", KIND, status="done")
    belongs = options.out is not None or run is not None
    return answer(several, keep_findings(several, KIND, run, options.out, title) if belongs else None, options.json)
