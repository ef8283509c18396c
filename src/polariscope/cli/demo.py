"""``polariscope demo``: a trained model taken apart in half a minute, then from world to report in a few minutes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.parsing import parse
from polariscope.cli.progress import bars
from polariscope.console import Terminal
from polariscope.examination.examine import examine_run
from polariscope.lab.holding import InUseError, hold
from polariscope.lab.run_documents import keep_findings, kept_findings
from polariscope.lab.store import Run, Store
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.printable import say
from polariscope.report.terminal import answer, side_by_side
from polariscope.subjects import as_subject
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.reference import reference_names, take_reference_runs
from polariscope.training.run import config_of
from polariscope.training.sweep import finish, prepare
from polariscope.worlds.renderers.sprites import Sprites

REFERENCE_EXAMPLES = 2000
"""Examples on which a reference model is examined: half a minute for all of it."""


@dataclass(frozen=True)
class Options:
    """Examine the reference models that come with Polariscope. Then render the sprite world, train a beta-VAE and a
    beta-TC-VAE on it in parallel, examine both, and write a report."""

    train: bool = True
    """Also train two models; --no-train ends after the reference models."""
    steps: int = 1800
    """Training steps of each model."""
    size: int = 32
    """Side of the images in pixels; the original has 64, which takes four times as long."""
    examples: int = 5000
    """Examples to examine the models on."""
    workers: int = 0
    """Processes, one thread each; 0 takes one per core."""
    resume: str | None = None
    """Interrupted demo to continue."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("demo", "examine trained models, train two more on the sprite world, write reports", group="start")
def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "demo")
    store = Store(options.runs)
    if not options.train:
        return show_references(store, options)
    if options.resume is None:
        if reference_names() and not options.json:
            show_references(store, options)
        configs = [_config(objective, options) for objective in (BetaVAE(beta=4.0), BetaTCVAE(beta=6.0))]
        runs = prepare(configs, store)
        demo = store.create({"runs": [run.id for run in runs], "examples": options.examples}, "demo", kind="demo")
    else:
        demo = store.open(options.resume)
        if demo.record["kind"] != "demo":
            raise ValueError(f"{demo.id} is not a demo: 'polariscope train --resume {demo.id}' continues a training")
        runs = [store.open(run_id) for run_id in demo.config["runs"]]
    try:
        with hold(demo.path):
            return show(demo, runs, options)
    except InUseError:
        raise
    except BaseException as stop:
        interrupted = isinstance(stop, KeyboardInterrupt)
        demo.update(status="interrupted" if interrupted else "failed")
        if interrupted:
            words = ["polariscope", "demo", "--resume", demo.id]
            words += [] if options.runs == Path("runs") else ["--runs", str(options.runs)]
            raise KeyboardInterrupt(f"interrupted; continue with: {shlex.join(words)}") from None
        raise


def show_references(store: Store, options: Options) -> int:
    """Examine one of the models that come with the package, beside the documents of the others."""
    if not reference_names():
        raise ValueError("this installation has no reference models: leave --no-train out to train two models")
    console = Terminal(stderr=True)
    runs = take_reference_runs(store)
    encode = [run for run in runs if as_subject(run).encodes is not None]
    console.print(f"examining {encode[0].id}, which was trained before ...", highlight=False)
    first = examine_run(encode[0], count=min(options.examples, REFERENCE_EXAMPLES)).findings()
    report = keep_findings(first, "examine", encode[0])
    others = [kept.load()[0] for run in encode[1:] for kept in kept_findings(run) if kept.kind == "examine"]
    if options.json:
        return answer([first, *others], report, True, runs=[run.id for run in runs])
    side_by_side([first, *others])
    say(f"report: {report}")
    cards = [kept.page for run in runs for kept in kept_findings(run) if kept.kind == "robustness"]
    for card in cards:
        say(f"robustness card of a classifier: {card}")
    words = ["polariscope", "serve", *([] if options.runs == Path("runs") else ["--runs", str(options.runs)])]
    say(f"to move their sliders in a browser: {shlex.join(words)}")
    return 0


def show(demo: Run, runs: list[Run], options: Options) -> int:
    """Train the two models (or finish their training), examine them, write and print the findings."""
    console = Terminal(stderr=True)
    configs = [config_of(run) for run in runs]
    steps = configs[0].training.steps
    console.print(f"training two models for {steps} steps each, in parallel ...", highlight=False)
    with bars([config.label for config in configs], steps, quiet=options.json) as tells:
        finish(runs, options.workers or None, lambda number, point: tells[number](point))
    several = []
    for run in runs:
        console.print(f"examining {run.id} ...", highlight=False)
        several.append(examine_run(run, count=demo.config["examples"]).findings())
        keep_findings(several[-1], "examine", run)
    demo.update(status="done")
    report = keep_findings(several, "examine", demo, title="Two models of the sprite world")
    if options.json:
        return answer(several, report, True, runs=[run.id for run in runs])
    side_by_side(several)
    say(f"report: {report}")
    return 0


def _config(objective: Any, options: Options) -> RunConfig:
    training = TrainingConfig(steps=options.steps, learning_rate=1e-3, evaluate_every=250, checkpoint_every=500)
    return RunConfig(Sprites(size=options.size), objective, AutoencoderConfig(latents=10), training)
