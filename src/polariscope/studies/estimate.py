"""What a study would cost, from its first job: jobs, core hours and disk, before anything else starts."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from polariscope.findings import Findings, Value, Values
from polariscope.grammar import counted
from polariscope.lab.executors import LocalProcesses, Place, Workers, as_they_come, in_parallel
from polariscope.studies.engine import jobs_of, run_job
from polariscope.studies.study import Scale, Study
from polariscope.training.loop import import_optimisers


@dataclass(frozen=True)
class Estimate:
    """What is left to do, at the cost of a job that was done and timed. Jobs may differ; it is an estimate."""

    name: str
    jobs: int
    open_jobs: int
    seconds: float
    """Of one core, for one job."""
    megabytes: float
    """That one job leaves on the disk."""
    start: float = 0.0
    """Seconds of one core until a new worker can begin with its first job."""
    workers: int = 1
    """Each starts once and lives on from job to job."""

    @property
    def core_hours(self) -> float:
        starts = min(self.workers, self.open_jobs)
        return (self.open_jobs * self.seconds + starts * self.start) / 3600

    @property
    def disk(self) -> float:
        """Megabytes in all."""
        return self.open_jobs * self.megabytes

    @property
    def headline(self) -> str:
        return (
            f"{self.name}: {self.open_jobs:,} of {self.jobs:,} jobs are left, about {self.core_hours:.3g} core hours "
            f"and {self.disk:,.3g} MB of disk."
        )

    def findings(self) -> Findings:
        entries = [
            Value("jobs", "Jobs", self.jobs),
            Value("open_jobs", "Jobs that are left", self.open_jobs),
            Value("seconds", "Seconds of one core for a job", self.seconds),
            Value("start", "Seconds of one core until a worker has started", self.start),
            Value("workers", "Workers, each of which starts once", self.workers),
            Value("core_hours", "Core hours that are left", self.core_hours),
            Value("megabytes", "Megabytes on the disk that are left", self.disk),
        ]
        return Findings(
            "Estimate",
            self.headline,
            [Values(name="estimate", title="Estimate", entries=entries)],
            [
                f"The estimate assumes that each job that is left costs as much as the mean of the "
                f"{counted(self.jobs - self.open_jobs, 'finished job')}. Jobs of other settings may cost more or less. "
                "The results of finished jobs are kept. On n cores the time is the core hours divided by n."
            ],
            {"study": self.name},
        )


def estimate(study: Study, name: str, scale: Scale, path: Path, workers: Workers = None) -> Estimate:
    """Do the first job that is left, if none is done yet, and say what the others would cost at its price.

    The start of a worker is not part of the price of a job: it is counted once for each of the ``workers``.
    """
    (path / "jobs").mkdir(parents=True, exist_ok=True)
    tasks = jobs_of(study, name, scale, path)
    if not any(task.is_done for task in tasks):
        import_optimisers()
        in_parallel(run_job, tasks[:1], Place(workers=1))
    done = [task for task in tasks if task.is_done]
    records: list[dict[str, Any]] = [json.loads(task.file.read_text(encoding="utf-8")) for task in done]
    weight = size_of(path) / len(done) / 2**20
    warm = [record for record in records if not record.get("first")] or records
    seconds = sum(record["seconds"] for record in warm) / len(warm)
    place = workers if isinstance(workers, Place) else Place(workers=workers)
    most = place.workers or os.cpu_count() or 1
    start = start_up() if len(done) < len(tasks) else 0.0
    return Estimate(name, len(tasks), len(tasks) - len(done), seconds, weight, start, most)


@cache
def start_up() -> float:
    """CPU seconds until a new worker process of this machine can begin with its first job, measured on one."""
    seconds: list[float] = []
    with closing(LocalProcesses(1)) as executor:
        deque(as_they_come(executor, started_worker, [None], lambda number, what: seconds.append(what)), maxlen=0)
    return seconds[0]


def started_worker(nothing: None, tell: Callable[[Any], None]) -> None:
    """The job of a worker that does nothing but get ready, and tells what that cost."""
    import_optimisers()
    tell(time.process_time())


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    sizes = 0
    for root, _, names in os.walk(folder):
        sizes += sum(os.lstat(os.path.join(root, name)).st_size for name in names)
    return sizes
