"""``polariscope train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polariscope.cli.parsing import options_type, parse, parse_run, take
from polariscope.cli.progress import bars
from polariscope.lab.store import Run, Store
from polariscope.training.config import RunConfig
from polariscope.training.run import resume, train
from polariscope.training.sweep import best_run, over_seeds, train_all

EXTRA = [("runs", Path, Path("runs")), ("json", bool, False)]
SEEDS = ("seeds", int, 1)


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take(arguments, "--resume")
    if name is not None:
        return _resume(name, arguments)
    config, options = parse_run(arguments, "train", [*EXTRA, SEEDS])
    if options.seeds != 1:
        return _sweep(over_seeds(config, options.seeds), options)
    with bars([config.label], config.training.steps, quiet=options.json) as (tell,):
        run = train(config, Store(options.runs), tell)
    return _done(run, options.json)


def _resume(name: str, arguments: list[str]) -> int:
    options = parse(options_type(EXTRA), arguments, "train --resume RUN")
    run = Store(options.runs).open(name)
    config = RunConfig.build(run.config)
    with bars([config.label], config.training.steps, quiet=options.json) as (tell,):
        run = resume(run, tell)
    return _done(run, options.json)


def _sweep(configs: list[RunConfig], options: Any) -> int:
    names = [f"seed {config.training.seed}" for config in configs]
    with bars(names, configs[0].training.steps, quiet=options.json) as tells:
        runs = train_all(configs, Store(options.runs), report=lambda number, point: tells[number](point))
    best = best_run(runs, "held_out_loss" if "held_out_loss" in runs[0].result else "train_loss")
    if options.json:
        found = [{"id": run.id, "path": str(run.path), "status": run.status, "result": run.result} for run in runs]
        print(json.dumps({"runs": found, "best": best.id}))
        return 0
    for name, run in zip(names, runs, strict=True):
        print(f"{name}{' (best)' if run is best else ''}: {run.id}: {_summary(run)}")
    print(f"next: polariscope examine {best.id}")
    return 0


def _done(run: Run, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"id": run.id, "path": str(run.path), "status": run.status, "result": run.result}))
        return 0
    print(f"{run.id}: {_summary(run)}")
    print(f"next: polariscope examine {run.id}")
    return 0


def _summary(run: Run) -> str:
    result = run.result
    shown = "held_out" if "held_out_loss" in result else "train"
    terms = [f"{key.removeprefix(shown + '_')} {value:.2f}" for key, value in result.items() if key.startswith(shown)]
    return f"{result['step']} steps, {shown.replace('_', ' ')} {', '.join(terms)}"
