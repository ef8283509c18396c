"""``polariscope examine``: a run of ours, or any model of yours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.cli import commands
from polariscope.cli.configuration import meant, with_world
from polariscope.cli.named import ModelFlags, flags_of, is_codes_file, named_model, own_subject
from polariscope.cli.parsing import check_place, parse
from polariscope.examination.embedding import Shelf
from polariscope.examination.examine import Protocol, Share, examine, examine_run
from polariscope.lab.run_documents import keep_findings
from polariscope.report.terminal import answer
from polariscope.worlds.world import worlds


@dataclass(frozen=True)
class Options(ModelFlags):
    """polariscope examine RUN [options], or polariscope examine FILE.py:NAME DATA [options]

    RUN is a run's id, its name, a unique beginning or ending of its id, its folder, or 'latest'. FILE.py:NAME is your
    own model: an nn.Module, a class or function without arguments that makes one, or a function from observations to
    codes. A file of codes (.npy, .npz) with one row for each example can replace the model. DATA is the name of a world
    or the path of a file; --data DATA means the same.
    """

    data: str | None = None
    """World or file to draw examples from; its settings are --world.*. A run has its own data."""
    part: Share = "all"
    """Part of a run's own data to draw examples from."""
    count: int = 10_000
    """Number of examples."""
    measures: str = "*"
    """Names of measures, separated by commas; * and ? match any letters, an empty string no measure. By default all
    measures that can be computed for the model."""
    protocol: Protocol = "default"
    """published takes the probes and sample sizes of the publications, as far as --count examples allow (minutes)."""
    seed: int = 0
    """Seed of the examples and of the noise of the samples."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """A page (.html), the first figure (.png, .svg), or a folder for everything; the run then keeps no document. By
    default the folder findings/examine of the run, or the page examine.html in the current folder."""
    fresh: bool = False
    """Run the model again, even if its codes for these examples are stored."""
    json: bool = False
    """Print JSON for machines."""


@commands.register(
    "examine",
    "examine a trained model: latent variables, measures, traversals, in a report",
    group="examination",
    needs="codes",
)
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name, run, data, default = named_model("examine", arguments)
    options: Any = parse(with_world(Options, default), arguments, "examine")
    world = meant(options.world)
    wanted = None if options.measures == "*" else [m.strip() for m in options.measures.split(",") if m.strip()]
    asked: dict[str, Any] = {
        "count": options.count,
        "seed": options.seed,
        "measured": wanted,
        "protocol": options.protocol,
    }
    if run is not None:
        keep = options.out is None
        result = examine_run(run, part=options.part, data=world, keep=keep, fresh=options.fresh, **asked)
        findings = result.findings()
    else:
        if options.part != "all":
            raise ValueError("--part needs a run, which records what it was trained on")
        check_place(options.out or Path("examine.html"), "--out")
        subject = own_subject(name, options)
        shelf = None if options.fresh or is_codes_file(name) else Shelf.of_source(name, **flags_of(options))
        result = examine(subject, world, shelf=shelf, **asked)
        about = {"model": name, "data": data, "world": worlds.describe(world)}
        findings = result.findings(name.rpartition(":")[2], about)
    return answer(findings, keep_findings(findings, "examine", run, options.out), options.json)
