"""``polariscope examine``: a run of ours, or any model of yours."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import ModelFlags, is_source, opened, own_subject, run_subject
from polariscope.cli.parsing import parse, take, take_first
from polariscope.examination.examine import Examination, Variable, examine
from polariscope.lab.holding import InUseError, hold
from polariscope.lab.store import Run, Store
from polariscope.measures.measure import measures
from polariscope.objectives.beta_vae import BetaVAE
from polariscope.objectives.objective import Objective
from polariscope.objectives.vae import VAE
from polariscope.report import Case, write_report
from polariscope.report.page import KNOWS
from polariscope.training.config import RunConfig
from polariscope.training.run import config_of
from polariscope.worlds.splits import Part
from polariscope.worlds.world import World, worlds

ROWS = 30
"""Variables that the terminal shows at most."""
LOOKED_AT = {
    "all": "The examples are drawn from training and held-out data alike; --part held-out looks at the latter only.",
    "held-out": "The examples are held-out data, which the model was not trained on.",
    "training": "The examples are training data.",
}

OTHER_DATA = "The examples are not of the run's own data, but of --data or other --world settings."


@dataclass(frozen=True)
class Options(ModelFlags):
    """polariscope examine RUN [options], or polariscope examine FILE.py:NAME --data WORLD_OR_FILE [options]

    RUN is a run's id, a unique part of it, its folder, or 'latest'. FILE.py:NAME is a model of yours: an nn.Module, a
    class or function without arguments that makes one, or a function from observations to codes.
    """

    data: str | None = None
    """World or file to examine on, whose own settings are --world.*; a run brings its own."""
    part: Literal["all", "held-out", "training"] = "all"
    """Which of a run's own data to look at."""
    count: int = 10_000
    """Examples to look at."""
    measures: str = "*"
    """Names of measures, separated by commas; * and ? stand for any letters, nothing for no measure."""
    seed: int = 0
    """Draws the examples and the noise of the samples."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """The report, and then nothing is written to the run; report.html in the run's folder (or here) if not given."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take_first(arguments)
    asked = "-h" in arguments or "--help" in arguments
    if name is None and not asked:
        raise ValueError("what is to be examined? 'polariscope examine RUN' or 'polariscope examine FILE.py:NAME'")
    data = take(arguments, "--data")
    run = config = None
    if name is not None and not is_source(name):
        folder = take(arguments, "--runs")
        arguments += [] if folder is None else ["--runs", folder]
        run = opened(Store(Path(folder or "runs")), name)
        config = config_of(run)
    if data is None and config is None and not asked:
        raise ValueError("a model of yours needs --data: the name of a world or the path of a file")
    default = config.world if config is not None and data is None else chosen_world(arguments, data or "sprites")
    options: Any = parse(with_world(Options, default), arguments, "examine")
    asked_world = meant(options.world)
    if options.count < 2:
        raise ValueError(f"--count is {options.count}: at least 2 examples are needed")
    wanted = [m for pattern in options.measures.split(",") if pattern for m in _known(pattern.strip())]
    found = {"count": options.count, "seed": options.seed, "measured": wanted}
    if run is None:
        assert name is not None
        if options.part != "all":
            raise ValueError("--part is for the data of a run, which knows what it was trained on")
        examination = examine(own_subject(name, options), asked_world, **found)
        about = {"model": name, "data": data, "world": worlds.describe(asked_world)}
        case = Case(name.rpartition(":")[2], about, [], examination)
        out = options.out or Path("report.html")
    else:
        assert config is not None
        if options.out is None and not os.access(run.path, os.W_OK):
            raise ValueError(f"the run folder {run.path} cannot be written to: say with --out where the report goes")
        world, looked_at = _part(asked_world, config, options.part, own=asked_world == config.world)
        subject = dataclasses.replace(run_subject(run), notes=looked_at)
        examination = examine(subject, world, **found, beta=divergence_weight(config.objective))
        if options.out is None:
            note(run, examination)
        case = Case.of_run(run, examination)
        out = options.out or run.path / "report.html"
    write_report(out, [case], case.name)
    if options.json:
        print(json.dumps({"report": str(out), **examination.summary()}))
    else:
        show(examination, out)
    return 0


def _known(pattern: str) -> list[str]:
    names = measures.names(pattern)
    if not names:
        measures.get(pattern)  # says which was meant
    return names


def _part(world: World, config: RunConfig, part: str, own: bool) -> tuple[World, tuple[str, ...]]:
    """The part of a run's data to look at, and a sentence about it."""
    if not own:
        if part != "all":
            raise ValueError("--part is for the data the run was trained on, without --data and --world.*")
        return world, (OTHER_DATA,)
    if part == "all":
        kept = len(config.split.parts(world).held_out)
        return world, (LOOKED_AT["all" if kept else "training"],)
    return Part(world, config.split, "train" if part == "training" else "held-out"), (LOOKED_AT[part],)


def note(run: Run, examination: Examination) -> None:
    """Put what was found into the run's record, unless somebody is writing it: a training would be set back by it."""
    try:
        with hold(run.path):
            run.update(result={"types": examination.counts, "measures": examination.summary()["measures"]})
    except InUseError as error:
        print(f"not noted in run.json: {error}", file=sys.stderr)


def divergence_weight(objective: Objective) -> float | None:
    """The weight of the divergence, for objectives that have one and no other pressure on the posterior."""
    if type(objective) is BetaVAE:  # not one with a full covariance, to which the diagonal formula does not apply
        return objective.beta
    return 1.0 if isinstance(objective, VAE) else None


def show(examination: Examination, out: Path) -> None:
    """The findings as tables on the terminal."""
    console = Console(markup=False, emoji=False)
    shown = examination.variables[:ROWS]
    columns: dict[str, Callable[[Variable], str]] = {
        "variable": lambda v: str(v.number),
        "type": lambda v: v.type,
        "posterior var": lambda v: "" if v.kl is None else f"{v.mean_var:.3f}",
        "predicted": lambda v: "" if v.predicted_var is None else f"{v.predicted_var:.3f}",
        "var of mean": lambda v: f"{v.var_of_mean:.3f}",
        "KL (nats)": lambda v: "" if v.kl is None else f"{v.kl:.3f}",
        "tells about": lambda v: f"{v.factor} ({v.information:.0%})" if (v.information or 0) >= KNOWS else "",
    }
    table = Table(title="Latent variables, most used first", title_justify="left", box=None)
    cells = {name: texts for name, of in columns.items() if any(texts := [of(v) for v in shown])}
    for name in cells:
        table.add_column(name, justify="left" if name in ("type", "tells about") else "right")
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    console.print(table)
    if len(examination.variables) > ROWS:
        more = len(examination.variables) - ROWS
        console.print(f"  and {more} more, which the report and --json list", highlight=False)
    for value in examination.values:
        said = f"{value.value:.4g}" if value.value is not None else f"undefined: {value.problem}"
        console.print(f"  {value.title}: {said}", highlight=False)
    for note in examination.notes:
        console.print(f"note: {note}", highlight=False)
    console.print(f"report: {out}", highlight=False, soft_wrap=True)
