"""``polariscope demo``: the main job, from world to report, in a few minutes."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from polariscope.cli.examine import divergence_weight, note
from polariscope.cli.parsing import parse
from polariscope.cli.progress import bars
from polariscope.examination.examine import examine
from polariscope.lab.store import Run, Store
from polariscope.nets.autoencoder import AutoencoderConfig
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report import Case, write_report
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.training.sweep import finish, prepare
from polariscope.worlds.sprites import Sprites


@dataclass(frozen=True)
class Options:
    """Render the sprite world, train a beta-VAE and a beta-TC-VAE on it side by side, examine both, write a report."""

    steps: int = 1800
    """Training steps of each model."""
    size: int = 32
    """Side of the images; 64 is the original's, and takes four times as long."""
    examples: int = 5000
    """Examples to examine the models on."""
    resume: str | None = None
    """A demo that was interrupted, to go on with."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "demo")
    store = Store(options.runs)
    if options.resume is None:
        configs = [config_of(objective, options) for objective in (BetaVAE(beta=4.0), BetaTCVAE(beta=6.0))]
        runs = prepare(configs, store)
        demo = store.create({"runs": [run.id for run in runs], "examples": options.examples}, "demo", kind="demo")
    else:
        demo = store.open(options.resume)
        if demo.record["kind"] != "demo":
            raise ValueError(f"{demo.id} is no demo: 'polariscope train --resume {demo.id}' goes on with a training")
        runs = [store.open(run_id) for run_id in demo.config["runs"]]
    try:
        return show(demo, runs, options)
    except BaseException as stop:
        interrupted = isinstance(stop, KeyboardInterrupt)
        demo.update(status="interrupted" if interrupted else "failed")
        if interrupted:
            words = ["polariscope", "demo", "--resume", demo.id]
            words += [] if options.runs == Path("runs") else ["--runs", str(options.runs)]
            raise KeyboardInterrupt(f"interrupted; go on with: {shlex.join(words)}") from None
        raise


def show(demo: Run, runs: list[Run], options: Options) -> int:
    """Train the two models (or what is left of it), examine them, write and print what was found."""
    console = Console(stderr=True)
    configs = [RunConfig.build(run.config) for run in runs]
    steps = configs[0].training.steps
    console.print(f"training two models for {steps} steps each, in parallel ...", highlight=False)
    with bars([config.label for config in configs], steps, quiet=options.json) as tells:
        finish(runs, report=lambda number, point: tells[number](point))
    cases = []
    for run, config in zip(runs, configs, strict=True):
        console.print(f"examining {run.id} ...", highlight=False)
        beta = divergence_weight(config.objective)
        examination = examine(load_model(run), config.world, count=demo.config["examples"], beta=beta)
        note(run, examination)
        case = Case.of_run(run, examination)
        write_report(run.path / "report.html", [case], case.name)
        cases.append(case)
    report = demo.path / "report.html"
    write_report(report, cases, "Two models of the sprite world")
    demo.update(status="done")
    if options.json:
        findings = {case.name: case.examination.summary() for case in cases}
        print(json.dumps({"report": str(report), "runs": [run.id for run in runs], "findings": findings}))
    else:
        headline(cases, runs)
        print(f"report: {report}")
    return 0


def config_of(objective: Any, options: Options) -> RunConfig:
    training = TrainingConfig(steps=options.steps, learning_rate=1e-3, evaluate_every=250, checkpoint_every=500)
    return RunConfig(Sprites(size=options.size), objective, AutoencoderConfig(latents=10), training)


def headline(cases: list[Case], runs: list[Run]) -> None:
    """One column per model: what is used, what it cost, what the measures say."""
    table = Table(title="Headline", title_justify="left", box=None)
    table.add_column("")
    for case in cases:
        table.add_column(case.name, justify="right")
    rows: list[tuple[str, list[str]]] = [
        ("active / mixed / passive", [" / ".join(map(str, s.examination.counts.values())) for s in cases]),
        ("held-out reconstruction (nats)", [f"{run.result['held_out_reconstruction']:.1f}" for run in runs]),
        ("held-out KL (nats)", [f"{run.result['held_out_kl']:.2f}" for run in runs]),
    ]
    for number, value in enumerate(cases[0].examination.values):
        values = [s.examination.values[number].value for s in cases]
        rows.append((value.title, ["undefined" if v is None else f"{v:.3f}" for v in values]))
    for name, cells in rows:
        table.add_row(name, *cells)
    Console(markup=False, emoji=False).print(table)
