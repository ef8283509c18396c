"""``polariscope compare``: two models, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import ModelFlags, is_source, opened, own_subject
from polariscope.cli.parsing import parse, take, take_data, take_first
from polariscope.examination.compare import compare, compared_runs, compared_world
from polariscope.examination.run_subjects import run_subject
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.report.terminal import answer
from polariscope.subjects import Subject
from polariscope.worlds.world import worlds


@dataclass(frozen=True)
class Options(ModelFlags):
    """polariscope compare MODEL MODEL [options]

    Compute the similarity of every layer of the first model to every layer of the second. A model is a run, or your own
    FILE.py:NAME; both models see the data of the first run, unless you give --data.
    """

    data: str | None = None
    """World or file to compare on; its settings are --world.*. By default the data of the first run."""
    second_weights: Path | None = None
    """Weights of the second model, if it is your own module; --weights are for the first."""
    measure: Literal["cka", "procrustes"] = "cka"
    """cka mainly compares the large directions; procrustes compares all of them, and overestimates with few
    examples."""
    debiased: bool = False
    """Correct CKA for layers with more features than there are examples."""
    count: int = 2000
    """Number of examples; best more than the widest layer has features."""
    steps: tuple[int, int] | None = None
    """Snapshots to compare instead of the final models, one step for each run."""
    seed: int = 0
    """Seed of the examples and of the noise of the samples."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path | None = None
    """A page (.html), the first figure (.png, .svg), or a folder for everything; the run then keeps no document. By
    default the folder findings/compare of the first run, or the page compare.html in the current folder."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("compare", "compare two models, layer by layer", group="examination")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    names = [name for name in (take_first(arguments), take_first(arguments)) if name is not None]
    if len(names) != 2 and not {"-h", "--help"} & set(arguments):
        raise ValueError("which models? 'polariscope compare RUN RUN' takes two ('polariscope runs' lists them)")
    data, folder = take_data(arguments), take(arguments, "--runs")
    store = Store(Path(folder or "runs"))
    runs = [None if is_source(name) else opened(store, name) for name in names]
    known = [run for run in runs if run is not None]
    if data is None and names and not known:
        raise ValueError("your own models need --data: the name of a world or the path of a file")
    default = compared_world(known) if data is None and known else chosen_world(arguments, data or "sprites")
    options: Any = parse(with_world(Options, default), arguments, "compare")
    first, second = _subjects(names, runs, options)
    world = meant(options.world)
    chosen = {key: getattr(options, key) for key in ("count", "measure", "debiased", "seed")}
    comparison = compare(first, second, world, **chosen)
    one, other = (name if run is None else run.id for name, run in zip(names, runs, strict=True))
    findings = comparison.findings({"first": one, "second": other, "world": worlds.describe(world)} | chosen)
    return answer(findings, keep_findings(findings, "compare", runs[0], options.out), options.json)


def _subjects(names: list[str], runs: list[Run | None], options: Any) -> Sequence[Subject]:
    """The two models that are named."""
    one, other = runs
    steps = options.steps or (None, None)
    if one is not None and other is not None:
        return compared_runs(one, other, steps)
    flags = (options, replace(options, weights=options.second_weights))
    return [
        own_subject(name, flag) if run is None else run_subject(run, step)
        for name, run, flag, step in zip(names, runs, flags, steps, strict=True)
    ]
