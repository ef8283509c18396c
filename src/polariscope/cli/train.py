"""``polariscope train``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.cli import commands
from polariscope.cli.configuration import parse_run
from polariscope.cli.named import opened
from polariscope.cli.parsing import JSON, RUNS, flag, options_type, parse, take
from polariscope.cli.place import PlaceOptions, place_of
from polariscope.cli.progress import bars
from polariscope.examination.next_steps import said_next
from polariscope.lab.labels import Labels, check_name, label
from polariscope.lab.store import Run, Store
from polariscope.measures.mcc import lack_of_latents
from polariscope.objectives.annealing import Annealing
from polariscope.printable import say
from polariscope.strict_json import json_text
from polariscope.training.collapse import COLLAPSED
from polariscope.training.config import SECTIONS, RunConfig
from polariscope.training.run import config_of, extend
from polariscope.training.sweep import best_run, finish, over_seeds, prepare
from polariscope.training.trackers import ASKED, check

ABOUT = """Trains a model on a world or on your own data, and keeps it as a run in a folder of its own. If it is
interrupted, 'polariscope train --resume RUN' continues; with more --training.steps the same command extends a
finished run."""
SEEDS = ("seeds", flag(int, "Train this many seeds in parallel, and name the best run by its held-out loss."), 1)

LABELS = [
    (
        "name",
        flag(
            str, "Name of the run, which commands accept as its id. With several seeds, each name ends with its seed."
        ),
        "",
    ),
    ("tag", flag(tuple[str, ...], "Tags of the run, for 'polariscope runs --tag'."), ()),
    ("note", flag(str, "A note about the run."), ""),
]


TRACK = ("track", flag(str, "Send learning curves to wandb or mlflow, if installed; by default nothing is sent."), "")
WHOLE_HASH = ("whole_hash", flag(bool, "Hash large data files in full, not in samples."), False)
CHANGED = ("changed_data_ok", flag(bool, "Resume a run even if its data files have changed."), False)


@commands.register("train", "train a model on a world or on your own data", group="training")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    resumed = []
    while (name := take(arguments, "--resume")) is not None:
        resumed.append(name)
    if resumed:
        steps = take(arguments, "--training.steps")
        _check_resumed(arguments)
        kind = options_type([RUNS, JSON, CHANGED, TRACK], base=PlaceOptions)
        options = parse(kind, arguments, "train --resume RUN")
        runs = [opened(Store(options.runs), name) for name in resumed]
        for run in runs if steps is not None else ():
            extend(run, _whole(steps))
    else:
        extra = [RUNS, JSON, SEEDS, WHOLE_HASH, TRACK, *LABELS]
        config, options = parse_run(arguments, "train", extra, PlaceOptions, ABOUT)
        place_of(options)  # before a folder is made
        check(options.track)
        runs = _prepared(over_seeds(config, options.seeds), Store(options.runs), options)
    if options.track:
        os.environ[ASKED] = options.track
    several = len(runs) > 1
    try:
        configs = [config_of(run) for run in runs]
        labels = [f"seed {config.training.seed}" if several else config.label for config in configs]
        if not options.json:
            for note in dict.fromkeys(note for config in configs for note in _notes(config)):
                say(f"note: {note}")
        with bars(labels, max(config.training.steps for config in configs), quiet=options.json) as tells:
            mixed = getattr(options, "changed_data_ok", False)
            finish(runs, place_of(options), lambda number, point: tells[number](point), mixed)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {_command(runs, options.runs)}") from None
    except OSError as error:  # a full disk, most often: what was trained until then is there
        raise OSError(f"{error}; continue with: {_command(runs, options.runs)}") from error
    return _show_all(labels, runs, options.json) if several else _show(runs[0], options.json)


def _check_resumed(arguments: list[str]) -> None:
    """A run resumes with its own settings."""
    for word in arguments:
        section = word.removeprefix("--").partition(".")[0]
        if word.startswith("--") and "." in word and section in SECTIONS:
            raise ValueError(
                f"a run goes on with its own settings, of which only --training.steps can be changed; got {word}: "
                "train a new run, and let it begin with the weights of this one (--model.from RUN)"
            )


def _whole(steps: str | None) -> int:
    try:
        return int(str(steps).replace("_", ""))
    except ValueError:
        raise ValueError(f"--training.steps needs a whole number; got {steps!r}") from None


def _prepared(configs: list[RunConfig], store: Store, options: Any) -> list[Run]:
    """New runs with their labels; with several seeds, each name ends with its seed."""
    several = len(configs) > 1
    names = [f"{options.name}-{c.training.seed}" if several and options.name else options.name for c in configs]
    Labels(tags=options.tag, note=options.note)
    for name in filter(None, names):
        check_name(store, name)
    runs = prepare(configs, store, options.whole_hash)
    for run, name in zip(runs, names, strict=True):
        if name or options.tag or options.note:
            label(store, run, name, options.tag, options.note)
    return runs


def _notes(config: RunConfig) -> list[str]:
    """Notes before training: assumptions about the data, results that a training on pairs does not have, and a
    compression that is not relaxed."""
    factors = sum(factor.size != 1 for factor in config.world.factors)
    latents = getattr(config.model, "latents", factors)
    lack = lack_of_latents(latents, factors) if "other" in config.objective.needs else ""
    schedule = getattr(config.objective, "lam", None)
    cut = schedule.cut_short(config.training.steps) if isinstance(schedule, Annealing) else ""
    return [*getattr(config.world, "assumed", ()), *filter(None, [lack, cut])]


def _command(runs: list[Run], folder: Path) -> str:
    """The command that resumes the unfinished runs; if all are finished, it only shows their results."""
    words = ["polariscope", "train", *plugins.flags()]
    for run in runs:
        run.reload()
    for run in [run for run in runs if run.status != "done"] or runs:
        words += ["--resume", run.id if run.path.parent == folder else str(run.path)]
    return shlex.join(words if folder == Path("runs") else [*words, "--runs", str(folder)])


def _show_all(labels: list[str], runs: list[Run], as_json: bool) -> int:
    best = best_run(runs, "held_out_loss" if "held_out_loss" in runs[0].result else "train_loss")
    if as_json:
        print(json_text({"runs": [_about(run) for run in runs], "best": best.id}))
        return 0
    for words, run in zip(labels, runs, strict=True):
        say(f"{words}{' (best)' if run is best else ''}: {run.id}: {_summary(run)}")
        _warn(run)
    say(f"next: {said_next(best)}")
    return 0


def _show(run: Run, as_json: bool) -> int:
    if as_json:
        print(json_text(_about(run)))
        return 0
    say(f"{run.id}: {_summary(run)}")
    _warn(run)
    say(f"next: {said_next(run)}")
    return 0


def _warn(run: Run) -> None:
    if "collapsed_since" in run.result:
        say(f"warning: {COLLAPSED.format(step=run.result['collapsed_since'])}")


def _about(run: Run) -> dict[str, Any]:
    return {"id": run.id, "path": str(run.path), "status": run.status, "result": run.result}


def _summary(run: Run) -> str:
    result = run.result
    shown = "held_out" if "held_out_loss" in result else "train"
    terms = [f"{key.removeprefix(shown + '_')} {value:.2f}" for key, value in result.items() if key.startswith(shown)]
    return f"{result['step']} steps, {shown.replace('_', ' ')} {', '.join(terms)}"
