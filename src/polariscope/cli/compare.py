"""``polariscope compare``: two models, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from polariscope.cli import commands
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import ModelFlags, is_source, opened, own_subject, run_subject
from polariscope.cli.parsing import parse, take, take_data, take_first
from polariscope.examination.compare import compare
from polariscope.examination.titles import distinct_titles, run_title
from polariscope.lab.run_documents import keep_findings
from polariscope.lab.store import Run, Store
from polariscope.report.terminal import answer
from polariscope.training.run import config_of, load_model
from polariscope.worlds.world import World, worlds


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
    """Draws the examples and the noise of the samples."""
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
    options: Any = parse(
        with_world(Options, _world(runs, arguments, data if names else "sprites")), arguments, "compare"
    )
    if options.count < 2:
        raise ValueError(f"--count is {options.count}: at least 2 examples are needed")
    if options.debiased and options.measure != "cka":
        raise ValueError("--debiased is for cka only")
    flags, steps = (options, replace(options, weights=options.second_weights)), options.steps or (None, None)
    first, second = (
        own_subject(name, flag) if run is None else run_subject(run, step)
        for name, run, flag, step in zip(names, runs, flags, steps, strict=True)
    )
    titles = _titles(names, runs, steps)
    found = compare(
        replace(first, name=titles[0]),
        replace(second, name=titles[1]),
        meant(options.world),
        measure=options.measure,
        debiased=options.debiased,
        count=options.count,
        seed=options.seed,
        untrained=_untrained(runs[1]),
    )
    about = {
        "first": names[0] if runs[0] is None else runs[0].id,
        "second": names[1] if runs[1] is None else runs[1].id,
        "world": worlds.describe(meant(options.world)),
        "count": options.count,
    }
    chosen = {key: getattr(options, key) for key in ("count", "measure", "debiased", "seed")}
    findings = found.findings(about | chosen)
    return answer(findings, keep_findings(findings, "compare", runs[0], options.out), options.json)


def _titles(names: list[str], runs: list[Run | None], steps: Sequence[int | None]) -> list[str]:
    first, second = runs
    if first is not None and second is not None:
        return distinct_titles([first, second], steps)
    return [name.rpartition(":")[2] if run is None else run_title(run) for name, run in zip(names, runs, strict=True)]


def _untrained(run: Run | None) -> Any:
    """The model of a run before training; None if it is unknown or started from the weights of another run."""
    return None if run is None or config_of(run).start.run else load_model(run, 0)


def _world(runs: list[Run | None], arguments: list[str], data: str | None) -> World:
    """The data that both models see: the given data, or that of the first run."""
    own = [(run.id, config_of(run).world) for run in runs if run is not None]
    if data is not None:
        return chosen_world(arguments, data)
    if not own:
        raise ValueError("your own models need --data: the name of a world or the path of a file")
    if own[0][1].shape != own[-1][1].shape:
        (one, a), (other, b) = own
        raise ValueError(f"the models see different data: {one} has shape {a.shape}, {other} {b.shape}")
    return own[0][1]
