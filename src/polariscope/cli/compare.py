"""``polariscope compare``: two models, layer by layer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from polariscope.atomic import atomic
from polariscope.cli.configuration import chosen_world, meant, with_world
from polariscope.cli.named import ModelFlags, is_source, opened, own_subject, run_subject
from polariscope.cli.parsing import parse, take, take_first
from polariscope.examination.compare import compare, encoder_layers
from polariscope.lab.store import Run, Store
from polariscope.measures.similarity import SimilarityMatrix
from polariscope.report.figures import heatmap
from polariscope.training.run import config_of
from polariscope.worlds.world import World


@dataclass(frozen=True)
class Options(ModelFlags):
    """polariscope compare MODEL MODEL [options]

    Similarity of every layer of the first model to every layer of the second. A model is a run, or FILE.py:NAME of
    yours; the data is that of the first run unless --data says otherwise.
    """

    data: str | None = None
    """World or file to compare on, whose own settings are --world.*; a run brings its own."""
    second_weights: Path | None = None
    """Weights of the second model, if it is a module of yours; --weights are those of the first."""
    measure: Literal["cka", "procrustes"] = "cka"
    """cka looks at the large directions; procrustes at all of them, and overestimates with few examples."""
    debiased: bool = False
    """Correct CKA for layers with more features than there are examples."""
    count: int = 2000
    """Examples to compare on: more than the widest layer has features would be best."""
    steps: tuple[int, int] | None = None
    """Snapshots to compare instead of the final models, one step for each run."""
    seed: int = 0
    """Draws the examples and the noise of the samples."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path = Path("compare.png")
    """Where to draw the heatmap."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    names = [name for name in (take_first(arguments), take_first(arguments)) if name is not None]
    if len(names) != 2 and not {"-h", "--help"} & set(arguments):
        raise ValueError("which models? 'polariscope compare RUN RUN' takes two ('polariscope runs' lists them)")
    data, folder = take(arguments, "--data"), take(arguments, "--runs")
    store = Store(Path(folder or "runs"))
    runs = [None if is_source(name) else opened(store, name) for name in names]
    options: Any = parse(
        with_world(Options, _world(runs, arguments, data if names else "sprites")), arguments, "compare"
    )
    if options.count < 2:
        raise ValueError(f"--count is {options.count}: at least 2 examples are needed")
    if options.debiased and options.measure != "cka":
        raise ValueError("--debiased is for cka only")
    flags = (options, replace(options, weights=options.second_weights))
    first, second = (
        own_subject(name, flag) if run is None else run_subject(run, step)
        for name, run, flag, step in zip(names, runs, flags, options.steps or (None, None), strict=True)
    )
    found = compare(
        first,
        second,
        meant(options.world),
        measure=options.measure,
        debiased=options.debiased,
        count=options.count,
        seed=options.seed,
    )
    draw(found, names, options)
    if options.json:
        keys = {"rows": found.rows, "columns": found.columns, "values": found.values.tolist(), "notes": found.notes}
        print(json.dumps({"out": str(options.out), "measure": options.measure, **keys}))
        return 0
    for name in ("mean", "sampled"):
        if name in found.rows and name in found.columns:
            value = found.values[found.rows.index(name), found.columns.index(name)]
            print(f"{options.measure} of the {name} representations: {value:.3f}")
    for note in condensed(found.notes):
        print(f"note: {note}")
    print(f"heatmap: {options.out}")
    return 0


def _world(runs: list[Run | None], arguments: list[str], data: str | None) -> World:
    """The data both models see: what was asked for, or that of the first run."""
    own = [(run.id, config_of(run).world) for run in runs if run is not None]
    if data is not None:
        return chosen_world(arguments, data)
    if not own:
        raise ValueError("models of yours need --data: the name of a world or the path of a file")
    if own[0][1].shape != own[-1][1].shape:
        (one, a), (other, b) = own
        raise ValueError(f"the models see different data: {one} has shape {a.shape}, {other} {b.shape}")
    return own[0][1]


def condensed(notes: tuple[str, ...]) -> list[str]:
    """One note of each kind: the same remark on many layers is said once, with their number."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(re.sub(r"^\S+: |\d+", "", note), []).append(note)
    return [n[0] if len(n) == 1 else f"{n[0]} (and {len(n) - 1} more layers like it)" for n in kinds.values()]


def draw(found: SimilarityMatrix, names: list[str], options: Options) -> None:
    """The heatmap, with lines where each encoder ends."""
    title = f"{options.measure}\nrows: {names[0]}\ncolumns: {names[1]}"
    lines = ([encoder_layers(found.rows)], [encoder_layers(found.columns)])
    figure = heatmap(found.values, found.rows, found.columns, title, low=0, high=1, separators=lines)
    with atomic(options.out) as draft:
        figure.savefig(draft, format="png", dpi=130)
