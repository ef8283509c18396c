"""``polariscope train``."""

from __future__ import annotations

import json
from pathlib import Path

from polariscope.cli.parsing import options_type, parse, parse_run, take
from polariscope.cli.progress import bars
from polariscope.lab.store import Run, Store
from polariscope.training.config import RunConfig
from polariscope.training.run import resume, train

EXTRA = [("runs", Path, Path("runs")), ("json", bool, False)]


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take(arguments, "--resume")
    if name is not None:
        return _resume(name, arguments)
    config, options = parse_run(arguments, "train", EXTRA)
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


def _done(run: Run, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"id": run.id, "path": str(run.path), "status": run.status, "result": run.result}))
        return 0
    result = run.result
    shown = "held_out" if "held_out_loss" in result else "train"
    terms = [f"{key.removeprefix(shown + '_')} {value:.2f}" for key, value in result.items() if key.startswith(shown)]
    print(f"{run.id}: {result['step']} steps, {shown.replace('_', ' ')} {', '.join(terms)}")
    print(f"next: polariscope examine {run.id}")
    return 0
