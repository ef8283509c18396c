"""``polariscope export``: a trained model for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polariscope.cli import commands
from polariscope.cli.named import opened
from polariscope.cli.parsing import parse, take_first
from polariscope.examination.titles import run_title
from polariscope.lab.store import Store
from polariscope.printable import say
from polariscope.strict_json import json_text
from polariscope.subjects import as_subject
from polariscope.subjects.exporting import export_model
from polariscope.training.run import config_of
from polariscope.worlds.world import to_tensor


@dataclass(frozen=True)
class Options:
    """polariscope export RUN [options]

    Write the model of a run to a folder, for programs without Polariscope: its weights (weights.safetensors), a Python
    file with a class that needs only torch (model.py), its origin (about.json), and ONNX files if the extra [onnx] is
    installed.
    """

    out: Path = Path("exported")
    """Folder to write to."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    json: bool = False
    """Print JSON for machines."""


@commands.register("export", "write a trained model for programs without polariscope: torch or ONNX", group="training")
def main(arguments: list[str]) -> int:
    arguments = list(arguments)
    name = take_first(arguments)
    options = parse(Options, arguments, "export")
    if name is None:
        raise ValueError("which run? 'polariscope export RUN'")
    run = opened(Store(options.runs), name)
    world = config_of(run).world
    x = to_tensor(world.observe(np.arange(min(64, len(world)))))
    about = {"run": run.id, "title": run_title(run), "config": run.config, "result": run.result}
    result = export_model(as_subject(run), x, options.out, {**about, "environment": run.record["environment"]})
    if options.json:
        print(json_text({"folder": str(result.folder), "methods": result.methods, "onnx": result.onnx,
                         "notes": result.notes}))  # fmt: skip
        return 0
    for note in result.notes:
        say(f"note: {note}")
    say(f"{result.folder}: model.py and weights.safetensors ({', '.join(result.methods)})"
        + (f", {', '.join(result.onnx)}" if result.onnx else ""))  # fmt: skip
    return 0
