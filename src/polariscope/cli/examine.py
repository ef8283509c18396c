"""``polariscope examine``: a run of ours, or any model of yours."""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import (
    ModelFlags,
    flags_of,
    is_codes_file,
    is_source,
    opened,
    own_subject,
    run_shelf,
    run_subject,
)
from polariscope.cli.parsing import check_place, parse, take, take_first
from polariscope.examination.embedding import Shelf
from polariscope.examination.examination import Examination, about_run
from polariscope.examination.examine import examine
from polariscope.examination.next_steps import next_commands, said_next
from polariscope.findings import save
from polariscope.lab.holding import InUseError, hold
from polariscope.lab.results import OWN, Basis, Examined, add
from polariscope.lab.store import Run, Store, fingerprint
from polariscope.measures.measure import measures
from polariscope.printable import say
from polariscope.report.terminal import answer
from polariscope.training.config import RunConfig
from polariscope.training.run import config_of, network_of
from polariscope.worlds.splits import Part
from polariscope.worlds.world import World, worlds

LOOKED_AT = {
    "all": "The examples are drawn from training and held-out data alike; --part held-out looks at the latter only.",
    "held-out": "The examples are held-out data, which the model was not trained on.",
    "training": "The examples are training data.",
}

OTHER_DATA = "The examples are not of the run's own data, but of --data or other --world settings."


@dataclass(frozen=True)
class Options(ModelFlags):
    """polariscope examine RUN [options], or polariscope examine FILE.py:NAME --data WORLD_OR_FILE [options]

    RUN is a run's id, its name, a unique beginning or ending of its id, its folder, or 'latest'. FILE.py:NAME is a
    model of yours: an nn.Module, a class or function without arguments that makes one, or a function from observations
    to codes. A file of codes (.npy, .npz), a row for each example, may stand in place of a model.
    """

    data: str | None = None
    """World or file to examine on, whose own settings are --world.*; a run brings its own."""
    part: Literal["all", "held-out", "training"] = "all"
    """Which of a run's own data to look at."""
    count: int = 10_000
    """Examples to look at."""
    measures: str = "*"
    """Names of measures, separated by commas; * and ? stand for any letters, nothing for no measure. By default all for
    which the model gives what they need."""
    seed: int = 0
    """Draws the examples and the noise of the samples."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """A page (.html) or a folder, and then nothing is written to the run; the run's folder, or report.html here, if not
    given."""
    fresh: bool = False
    """Ask the model again, even if what it says about these examples is kept from an earlier look."""
    json: bool = False
    """Print JSON for machines."""


@commands.register(
    "examine", "examine a trained model: latent variables, measures, traversals, in a report", group="examination"
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take_first(arguments)
    helping = "-h" in arguments or "--help" in arguments
    if name is None and not helping:
        raise ValueError("what is to be examined? 'polariscope examine RUN' or 'polariscope examine FILE.py:NAME'")
    data = take(arguments, "--data")
    run = config = None
    if name is not None and not is_source(name):
        folder = take(arguments, "--runs")
        arguments += [] if folder is None else ["--runs", folder]
        run = opened(Store(Path(folder or "runs")), name)
        config = config_of(run)
        if "examine" not in next_commands(config, network_of(run)):
            raise ValueError(
                f"the model of run {run.id} gives no codes to examine; what tells about it: {said_next(run)}"
            )
    if data is None and config is None and not helping:
        raise ValueError("a model of yours needs --data: the name of a world or the path of a file")
    default = config.world if config is not None and data is None else chosen_world(arguments, data or "sprites")
    options: Any = parse(with_world(Options, default), arguments, "examine")
    asked_world = meant(options.world)
    if options.count < 2:
        raise ValueError(f"--count is {options.count}: at least 2 examples are needed")
    wanted = None
    if options.measures != "*":
        wanted = [m for pattern in options.measures.split(",") if pattern for m in _known(pattern.strip())]
    asked = {"count": options.count, "seed": options.seed, "measured": wanted}
    if run is None:
        assert name is not None
        if options.out is None:
            check_place(Path("report.html"), "--out")
        if options.part != "all":
            raise ValueError("--part is for the data of a run, which knows what it was trained on")
        subject = own_subject(name, options)
        shelf = None if options.fresh or is_codes_file(name) else Shelf.of_source(name, **flags_of(options))
        examination = examine(subject, asked_world, shelf=shelf, **asked)
        about = {"model": name, "data": data, "world": worlds.describe(asked_world)}
        findings = examination.findings(name.rpartition(":")[2], about)
        saved = findings.save(options.out or Path("report.html"))
    else:
        assert config is not None
        if options.out is None and not os.access(run.path, os.W_OK):
            raise ValueError(f"the run folder {run.path} cannot be written to: say with --out where the report goes")
        world, looked_at = _part(asked_world, config, options.part, own=asked_world == config.world)
        subject = dataclasses.replace(run_subject(run), notes=looked_at)
        shelf = run_shelf(run) if options.out is None and not options.fresh else None
        beta = config.objective.divergence_weight
        examination = examine(subject, world, beta=beta, shelf=shelf, **asked)
        if options.out is None:
            note(run, examination, options.part, options.seed, None if asked_world == config.world else asked_world)
        findings = examination.findings(**about_run(run))
        saved = save([findings], options.out or run.path, figures=False)
    answer(findings, saved, options.json)
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


def note(run: Run, examination: Examination, part: str = "all", seed: int = 0, other: World | None = None) -> None:
    """Put what was found into the run's record, beside what was found on other examples, unless somebody is writing it:
    a training would be set back by it."""
    data = OWN
    if other is not None:
        described = worlds.describe(other)
        data = f"{described['name']} {fingerprint(described)}"
    try:
        with hold(run.path):
            run.reload()
            on = Basis(data, part, examination.representation.count, seed, run.result.get("step"))
            add(run, Examined(on, examination.counts, examination.measures))
    except InUseError as error:
        say(f"not noted in run.json: {error}", file=sys.stderr)
