"""How long many runs take to list and to filter, beside merely reading and parsing their records.

A ratio of 1 would say that checking the records, making a table of them and asking it costs nothing. The query's own
process starts once, whatever the number of runs.
"""

from __future__ import annotations

import json
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


def seconds(act: Callable[[], object], rounds: int) -> float:
    """Processor time of this process, of the quickest round: other work on the machine counts little."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        act()
        times.append(time.process_time() - started)
    return min(times)


def main(count: int = 2000, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = made(Path(folder), count)
        files = [path / "run.json" for path in store.root.iterdir() if path.is_dir()]
        parsing = seconds(lambda: [json.loads(file.read_text()) for file in files], rounds)
        acts = {
            "list": lambda: store.listing().where("true", ("id", "status", "step")),
            "filter": lambda: store.listing().where("training_seed < 10", ("id",)),
            "SQL": lambda: store.query("select avg(held_out_loss) as mean from runs"),
        }
        table = Table("", "microseconds a run", "ratio to parsing", title=f"{count:,} runs")
        for name, act in acts.items():
            taken = seconds(act, rounds)
            table.add_row(name, f"{taken / count * 1e6:.0f}", f"{taken / parsing:.1f}")
        Console().print(table)


if __name__ == "__main__":
    main()
