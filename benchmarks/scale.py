"""Studies of 10, 100 and 1,000 tiny runs on two cores: seconds and memory a job, and the share of starting up.

Memory is that of the driver and of its workers together, looked at after every tenth of the jobs: a leak would show as
a rise from the first tenth to the last. The study is one of the TOML kind; each job trains an MLP for a few steps.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from polariscope.lab.executors import Place
from polariscope.studies.engine import jobs_of, run_study
from polariscope.studies.own import OwnStudy

STUDY = """
title = "Tiny runs"
[base.world]
name = "squares"
size = 8
[base.model]
latents = 2
[base.model.architecture]
name = "mlp"
encoder_widths = [16]
decoder_widths = [16]
[base.training]
steps = 10
batch_size = 16
evaluate_every = 0
[grid]
seeds = {count}
"""


def memory(pid: int) -> int:
    """Resident bytes of a process and of all that it started."""
    total = 0
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                after = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                sizes[int(entry)] = int(after[21]) * os.sysconf("SC_PAGE_SIZE")
                children.setdefault(int(after[1]), []).append(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                continue
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        total += sizes.get(one, 0)
        waiting += children.get(one, [])
    return total


def measured(count: int, workers: int = 2) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        study = OwnStudy(STUDY.format(count=count))
        looks: list[int] = []
        ends: list[float] = []
        started, before = time.perf_counter(), sum(os.times()[:4])

        def report(number: int, what: Any) -> None:
            if what is None:
                ends.append(time.perf_counter() - started)
                if len(ends) % max(1, count // 10) == 0:
                    looks.append(memory(os.getpid()))

        outcome = run_study(study, "tiny", "own", Path(folder), Place(workers=workers), report)  # type: ignore[arg-type]
        wall, processor = time.perf_counter() - started, sum(os.times()[:4]) - before
        assert len(outcome.table) == count
        assert len(list((Path(folder) / "runs").glob("[!.]*"))) == count
        begun = time.perf_counter()
        run_study(study, "tiny", "own", Path(folder), Place(workers=workers))  # type: ignore[arg-type]
        again = time.perf_counter() - begun
        assert all(task.is_done for task in jobs_of(study, "tiny", "own", Path(folder)))  # type: ignore[arg-type]
        return {
            "seconds": wall,
            "processor": processor,
            "first": ends[0],
            "a job": (ends[-1] - ends[0]) / max(1, count - 1),
            "again": again,
            "memory": looks[0] / 2**20,
            "growth": (looks[-1] - looks[len(looks) // 5]) / 2**20,
        }


def main(counts: tuple[int, ...] = (10, 100, 1000)) -> None:
    table = Table("jobs", "seconds", "CPU seconds", "until the first end", "a job after that", "share of start-up",
                  "the same again", "memory, MB", "growth, MB", title="Tiny runs on two cores")  # fmt: skip
    for count in counts:
        result = measured(count)
        table.add_row(
            f"{count:,}",
            f"{result['seconds']:.1f}",
            f"{result['processor']:.1f}",
            f"{result['first']:.1f}",
            f"{result['a job']:.3f}",
            f"{result['first'] / result['seconds']:.0%}",
            f"{result['again']:.1f}",
            f"{result['memory']:.0f}",
            f"{result['growth']:+.0f}",
        )
        Console(width=140).print(table.rows and f"{count} jobs: {result}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
