"""``polariscope demo``: the main job, from world to report, in a few minutes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from polariscope.cli.examine import divergence_weight
from polariscope.cli.parsing import parse
from polariscope.cli.progress import bars
from polariscope.examine import examine
from polariscope.lab.store import Run, Store
from polariscope.nets.autoencoder import ModelConfig
from polariscope.objectives.beta_tc_vae import BetaTCVAE
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.report import Subject, write_report
from polariscope.training.config import RunConfig, TrainingConfig
from polariscope.training.run import load_model
from polariscope.training.sweep import train_all
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
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    options = parse(Options, arguments, "demo")
    console = Console(stderr=True)
    configs = [config_of(objective, options) for objective in (BetaVAE(beta=4.0), BetaTCVAE(beta=6.0))]
    store = Store(options.runs)
    console.print(f"training two models for {options.steps} steps each, in parallel ...", highlight=False)
    with bars([config.label for config in configs], options.steps, quiet=options.json) as tells:
        runs = train_all(configs, store, report=lambda number, point: tells[number](point))
    subjects = []
    for run in runs:
        console.print(f"examining {run.id} ...", highlight=False)
        config = RunConfig.build(run.config)
        beta = divergence_weight(config.objective)
        examination = examine(load_model(run), config.world, count=options.examples, beta=beta)
        run.update(result={"types": examination.counts, "measures": examination.summary()["measures"]})
        subject = Subject.of_run(run, examination)
        write_report(run.path / "report.html", [subject], subject.name)
        subjects.append(subject)
    ids = [run.id for run in runs]
    demo = store.create({"runs": ids}, "demo", kind="demo")
    report = demo.path / "report.html"
    write_report(report, subjects, "Two models of the sprite world")
    demo.update(status="done")
    if options.json:
        findings = {subject.name: subject.examination.summary() for subject in subjects}
        print(json.dumps({"report": str(report), "runs": ids, "findings": findings}))
    else:
        headline(subjects, [store.open(i) for i in ids])
        print(f"report: {report}")
    return 0


def config_of(objective: Any, options: Options) -> RunConfig:
    training = TrainingConfig(steps=options.steps, learning_rate=1e-3, evaluate_every=250, checkpoint_every=500)
    return RunConfig(Sprites(size=options.size), objective, ModelConfig(latents=10), training)


def headline(subjects: list[Subject], runs: list[Run]) -> None:
    """One column a model: what is used, what it cost, what the measures say."""
    table = Table(title="Headline", title_justify="left", box=None)
    table.add_column("")
    for subject in subjects:
        table.add_column(subject.name, justify="right")
    rows: list[tuple[str, list[str]]] = [
        ("active / mixed / passive", [" / ".join(map(str, s.examination.counts.values())) for s in subjects]),
        ("held-out reconstruction (nats)", [f"{run.result['held_out_reconstruction']:.1f}" for run in runs]),
        ("held-out KL (nats)", [f"{run.result['held_out_kl']:.2f}" for run in runs]),
    ]
    for number, value in enumerate(subjects[0].examination.values):
        values = [s.examination.values[number].value for s in subjects]
        rows.append((value.title, ["undefined" if v is None else f"{v:.3f}" for v in values]))
    for name, cells in rows:
        table.add_row(name, *cells)
    Console().print(table)
