"""How long ten thousand runs take to list, to filter and to query, beside merely reading and parsing their records.

The goal is a second each, with the index there; the first listing makes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from polariscope.lab.store import Store
from polariscope.training.config import RunConfig
from polariscope.worlds.renderers.sprites import Sprites


def made(root: Path, count: int) -> Store:
    """A store of runs that were never trained."""
    store = Store(root)
    record = json.loads((store.create(RunConfig(Sprites()).describe(), "first").path / "run.json").read_text())
    record |= {"status": "done", "result": {"step": 10_000, "held_out_loss": 1.5}}
    for number in range(count - 1):
        folder = root / f"run-{number:06d}"
        folder.mkdir()
        record["config"]["training"]["seed"] = number
        (folder / "run.json").write_text(json.dumps(record, indent=2))
    return store


def seconds(act: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Wall-clock and processor time of the quickest round; the latter with the processes it starts, and it is what the
    wall clock would show on an idle core."""
    times = []
    for _ in range(rounds):
        started, before = time.perf_counter(), sum(os.times()[:4])
        act()
        times.append((time.perf_counter() - started, sum(os.times()[:4]) - before))
    return min(wall for wall, _ in times), min(processor for _, processor in times)


def main(count: int = 10_000, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = made(Path(folder), count)
        time.sleep(2.1)  # a run that changed within the last two seconds is not trusted to the index
        files = [path / "run.json" for path in store.root.iterdir() if path.is_dir()]
        parsing = seconds(lambda: [json.loads(file.read_text()) for file in files], rounds)
        first = seconds(store.listing, 1)
        acts = {
            "list": lambda: store.listing().where("true", ("id", "status", "step")),
            "filter": lambda: store.listing().where("training_seed < 10", ("id",)),
            "SQL": lambda: store.query("select avg(held_out_loss) as mean from runs"),
            "one run changed": lambda: (store.open("run-000007").update(status="done"), store.listing())[1],
            "the command": lambda: subprocess.run(
                [sys.executable, "-m", "polariscope", "runs", "--runs", folder, "--where", "training_seed < 10"],
                check=True,
                capture_output=True,
            ),
        }
        table = Table("", "seconds", "processor seconds", "ratio to parsing", title=f"{count:,} runs")
        taken = {"the index is made": first} | {name: seconds(act, rounds) for name, act in acts.items()}
        for name, (wall, processor) in taken.items():
            table.add_row(name, f"{wall:.2f}", f"{processor:.2f}", f"{processor / parsing[1]:.2f}")
        Console().print(table)


if __name__ == "__main__":
    main()
