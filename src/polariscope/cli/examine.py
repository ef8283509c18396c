"""``polariscope examine``: a run of ours, or any module with an ``encode`` method."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from polariscope.cli.parsing import parse, take_first, world_named
from polariscope.examine import Examination, examine
from polariscope.lab.holding import InUseError, hold
from polariscope.lab.store import Run, Store
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.vae import VAE
from polariscope.report import Subject, write_report
from polariscope.training.config import RunConfig
from polariscope.training.run import load_model
from polariscope.worlds.world import worlds


@dataclass(frozen=True)
class Options:
    """polariscope examine RUN [options], or polariscope examine FILE.py:NAME --data WORLD_OR_FILE [options]

    RUN is a run's id, a unique part of it, its folder, or 'latest'. FILE.py:NAME is a class or function of yours that
    returns an nn.Module with an encode(x) method when called without arguments.
    """

    data: str | None = None
    """World or file to examine on; a run brings its own."""
    weights: Path | None = None
    """safetensors file of weights for a module of yours."""
    count: int = 10_000
    """Examples to look at."""
    seed: int = 0
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """The report, and then nothing is written to the run; report.html in the run's folder (or here) if not given."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take_first(arguments)
    options = parse(Options, arguments, "examine")
    if name is None:
        raise ValueError("what is to be examined? 'polariscope examine RUN' or 'polariscope examine FILE.py:NAME'")
    if options.count < 2:
        raise ValueError(f"--count is {options.count}: at least 2 examples are needed")
    if ".py:" in name:
        if options.data is None:
            raise ValueError("a model of yours needs --data: the name of a world or the path of a file")
        model = own_model(name, options.weights)
        world = worlds.build(world_named(options.data))
        examination = examine(model, world, count=options.count, seed=options.seed)
        subject = Subject(name.rpartition(":")[2], {"model": name, "data": options.data}, [], examination)
        out = options.out or Path("report.html")
    else:
        run = opened(Store(options.runs), name)
        if options.out is None and not os.access(run.path, os.W_OK):
            raise ValueError(f"the run folder {run.path} cannot be written to: say with --out where the report goes")
        model = load_model(run)
        config = RunConfig.build(run.config)
        world = worlds.build(world_named(options.data)) if options.data else config.world
        beta = divergence_weight(config.objective)
        examination = examine(model, world, count=options.count, seed=options.seed, beta=beta)
        if options.out is None:
            note(run, examination)
        subject = Subject.of_run(run, examination)
        out = options.out or run.path / "report.html"
    write_report(out, [subject], f"{subject.name}")
    if options.json:
        print(json.dumps({"report": str(out), **examination.summary()}))
    else:
        show(examination, out)
    return 0


def opened(store: Store, name: str) -> Run:
    """The run of that name; runs that could not be looked at on the way to ``latest`` are said."""
    try:
        return store.open(name)
    finally:
        for problem in store.problems:
            print(f"skipped: {problem}", file=sys.stderr)


def note(run: Run, examination: Examination) -> None:
    """Put what was found into the run's record, unless somebody is writing it: a training would be set back by it."""
    try:
        with hold(run.path):
            run.update(result={"types": examination.counts, "measures": examination.summary()["measures"]})
    except InUseError as error:
        print(f"not noted in run.json: {error}", file=sys.stderr)


def divergence_weight(objective: Objective) -> float | None:
    """The weight of the divergence, for objectives that have one and no other pressure on the posterior."""
    if isinstance(objective, BetaVAE):
        return objective.beta
    return 1.0 if isinstance(objective, VAE) else None


def own_model(reference: str, weights: Path | None) -> nn.Module:
    """The module that ``FILE.py:NAME`` makes, with its weights."""
    file, _, name = reference.rpartition(":")
    if not Path(file).is_file():
        raise ValueError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location("examined_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = getattr(module, name, None)
    if not callable(make):
        raise ValueError(f"{file} has no class or function {name!r} to make a model with")
    model = make()
    if not isinstance(model, nn.Module):
        raise TypeError(f"{reference} gave a {type(model).__name__}; an nn.Module is needed")
    if weights is not None:
        try:
            model.load_state_dict(load_file(weights))
        except (SafetensorError, FileNotFoundError, RuntimeError) as error:
            raise ValueError(f"the weights {weights} do not load into {name}: {str(error).splitlines()[0]}") from error
    return model.eval()


def show(examination: Examination, out: Path) -> None:
    """The findings as tables on the terminal."""
    console = Console()
    table = Table(title="Latent variables, most used first", title_justify="left", box=None)
    for column in ("variable", "type", "posterior var", "predicted", "var of mean", "KL (nats)", "tells about"):
        table.add_column(column, justify="left" if column in ("type", "tells about") else "right")
    for v in examination.variables:
        about = "" if v.factor is None or not v.information else f"{v.factor} ({v.information:.0%})"
        kl = "" if v.kl is None else f"{v.kl:.3f}"
        predicted = "" if v.predicted_var is None else f"{v.predicted_var:.3f}"
        table.add_row(str(v.number), v.type, f"{v.mean_var:.3f}", predicted, f"{v.var_of_mean:.3f}", kl, about)
    console.print(table)
    for value in examination.values:
        shown = f"{value.value:.4g}" if value.value is not None else f"undefined: {value.problem}"
        console.print(f"  {value.title}: {shown}", highlight=False)
    for note in examination.notes:
        console.print(f"note: {note}", highlight=False)
    console.print(f"report: {out}", highlight=False, soft_wrap=True)
