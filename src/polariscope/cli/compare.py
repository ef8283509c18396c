"""``polariscope compare``: two runs, layer by layer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polariscope.atomic import atomic
from polariscope.cli.parsing import parse, take_first
from polariscope.compare import compare, encoder_layers
from polariscope.lab.store import Run, Store
from polariscope.measures.similarity import SimilarityMatrix
from polariscope.report.figures import heatmap
from polariscope.training.config import RunConfig
from polariscope.training.run import load_model


@dataclass(frozen=True)
class Options:
    """polariscope compare RUN RUN [options]

    Similarity of every layer of the first run's model to every layer of the second's, on the first run's world.
    """

    measure: Literal["cka", "procrustes"] = "cka"
    """cka looks at the large directions; procrustes at all of them, and overestimates with few examples."""
    debiased: bool = False
    """Correct CKA for layers with more features than there are examples."""
    count: int = 2000
    """Examples to compare on: more than the widest layer has features would be best."""
    steps: tuple[int, int] | None = None
    """Snapshots to compare instead of the final models, one step for each run."""
    seed: int = 0
    runs: Path = Path("runs")
    """Folder of the runs."""
    out: Path = Path("compare.png")
    """Where to draw the heatmap."""
    json: bool = False
    """Print JSON for machines."""


def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    names = [name for name in (take_first(arguments), take_first(arguments)) if name is not None]
    options = parse(Options, arguments, "compare")
    if len(names) != 2:
        raise ValueError("which runs? 'polariscope compare RUN RUN' takes two ('polariscope runs' lists them)")
    if options.count < 2:
        raise ValueError(f"--count is {options.count}: at least 2 examples are needed")
    store = Store(options.runs)
    runs = [store.open(name) for name in names]
    models = [load_model(run, step) for run, step in zip(runs, options.steps or (None, None), strict=True)]
    worlds = [RunConfig.build(run.config).world for run in runs]
    if worlds[0].shape != worlds[1].shape:
        raise ValueError(
            f"the models see different data: {runs[0].id} has shape {worlds[0].shape}, {runs[1].id} {worlds[1].shape}"
        )
    first, second = models
    if options.debiased and options.measure != "cka":
        raise ValueError("--debiased is for cka only")
    found = compare(
        first,
        second,
        worlds[0],
        measure=options.measure,
        debiased=options.debiased,
        count=options.count,
        seed=options.seed,
    )
    draw(found, runs, options)
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


def condensed(notes: tuple[str, ...]) -> list[str]:
    """One note of each kind: the same remark on many layers is said once, with their number."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(re.sub(r"^\S+: |\d+", "", note), []).append(note)
    return [n[0] if len(n) == 1 else f"{n[0]} (and {len(n) - 1} more layers like it)" for n in kinds.values()]


def draw(found: SimilarityMatrix, runs: list[Run], options: Options) -> None:
    """The heatmap, with lines where each encoder ends."""
    title = f"{options.measure}\nrows: {runs[0].id}\ncolumns: {runs[1].id}"
    lines = ([encoder_layers(found.rows)], [encoder_layers(found.columns)])
    figure = heatmap(found.values, found.rows, found.columns, title, low=0, high=1, separators=lines)
    with atomic(options.out) as draft:
        figure.savefig(draft, format="png", dpi=130)
