"""``polariscope train``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.cli.configuration import parse_run
from polariscope.cli.named import opened
from polariscope.cli.parsing import JSON, RUNS, flag, options_type, parse, take
from polariscope.cli.progress import bars
from polariscope.lab.store import Run, Store
from polariscope.measures.mcc import lack_of_latents
from polariscope.training.config import RunConfig
from polariscope.training.run import config_of
from polariscope.training.sweep import best_run, finish, over_seeds, prepare

SEEDS = ("seeds", flag(int, "Train with so many seeds, side by side, and name the best by its held-out loss."), 1)


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    resumed = []
    while (name := take(arguments, "--resume")) is not None:
        resumed.append(name)
    if resumed:
        options = parse(options_type([RUNS, JSON]), arguments, "train --resume RUN")
        runs = [opened(Store(options.runs), name) for name in resumed]
    else:
        config, options = parse_run(arguments, "train", [RUNS, JSON, SEEDS])
        runs = prepare(over_seeds(config, options.seeds), Store(options.runs))
    several = len(runs) > 1
    try:
        configs = [config_of(run) for run in runs]
        labels = [f"seed {config.training.seed}" if several else config.label for config in configs]
        if not options.json:
            for note in dict.fromkeys(note for config in configs for note in _notes(config)):
                print(f"note: {note}")
        with bars(labels, max(config.training.steps for config in configs), quiet=options.json) as tells:
            finish(runs, report=lambda number, point: tells[number](point))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; go on with: {_command(runs, options.runs)}") from None
    return _show_all(labels, runs, options.json) if several else _show(runs[0], options.json)


def _notes(config: RunConfig) -> list[str]:
    """Said before it begins: what was assumed about the data, and what will not come out of a training on pairs."""
    factors = sum(factor.size != 1 for factor in config.world.factors)
    latents = getattr(config.model, "latents", factors)
    lack = lack_of_latents(latents, factors) if "other" in config.objective.needs else ""
    return [*getattr(config.world, "assumed", ()), *filter(None, [lack])]


def _command(runs: list[Run], folder: Path) -> str:
    """What goes on with those of the runs that are not done; if all are, it only shows what they came to."""
    words = ["polariscope", "train", *plugins.flags()]
    for run in runs:
        run.reload()
    for run in [run for run in runs if run.status != "done"] or runs:
        words += ["--resume", run.id if run.path.parent == folder else str(run.path)]
    return shlex.join(words if folder == Path("runs") else [*words, "--runs", str(folder)])


def _show_all(labels: list[str], runs: list[Run], as_json: bool) -> int:
    best = best_run(runs, "held_out_loss" if "held_out_loss" in runs[0].result else "train_loss")
    if as_json:
        print(json.dumps({"runs": [_about(run) for run in runs], "best": best.id}))
        return 0
    for label, run in zip(labels, runs, strict=True):
        print(f"{label}{' (best)' if run is best else ''}: {run.id}: {_summary(run)}")
    print(f"next: {_examine(best)}")
    return 0


def _show(run: Run, as_json: bool) -> int:
    if as_json:
        print(json.dumps(_about(run)))
        return 0
    print(f"{run.id}: {_summary(run)}")
    print(f"next: {_examine(run)}")
    return 0


def _examine(run: Run) -> str:
    """The command that works as pasted, wherever the runs lie."""
    words = ["polariscope", "examine", run.id, *plugins.flags()]
    return shlex.join(words if run.path.parent == Path("runs") else [*words, "--runs", str(run.path.parent)])


def _about(run: Run) -> dict[str, Any]:
    return {"id": run.id, "path": str(run.path), "status": run.status, "result": run.result}


def _summary(run: Run) -> str:
    result = run.result
    shown = "held_out" if "held_out_loss" in result else "train"
    terms = [f"{key.removeprefix(shown + '_')} {value:.2f}" for key, value in result.items() if key.startswith(shown)]
    return f"{result['step']} steps, {shown.replace('_', ' ')} {', '.join(terms)}"
