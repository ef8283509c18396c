"""What a study would cost, from its first job: jobs, core hours and disk, before anything else starts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.findings import Findings, Value, Values
from polariscope.lab.executors import Place, in_parallel
from polariscope.studies.engine import do_task, tasks_of
from polariscope.studies.study import Scale, Study


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

    @property
    def core_hours(self) -> float:
        return self.open_jobs * self.seconds / 3600

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
            Value("core_hours", "Core hours that are left", self.core_hours),
            Value("megabytes", "Megabytes on the disk that are left", self.disk),
        ]
        return Findings(
            "Estimate",
            self.headline,
            [Values(name="estimate", title="Estimate", entries=entries)],
            [
                "From jobs that were done and are kept, the first one at least; jobs of other settings may take longer "
                "or shorter. On n cores the time is the core hours over n."
            ],
        )


def estimate(study: Study, name: str, scale: Scale, path: Path) -> Estimate:
    """Do the first job that is left, if none is done yet, and say what the others would cost at its price."""
    (path / "jobs").mkdir(parents=True, exist_ok=True)
    tasks = tasks_of(study, name, scale, path)
    if not any(task.is_done for task in tasks):
        in_parallel(do_task, tasks[:1], Place(workers=1))
    done = [task for task in tasks if task.is_done]
    records: list[dict[str, Any]] = [json.loads(task.file.read_text(encoding="utf-8")) for task in done]
    seconds = sum(record["seconds"] for record in records) / len(records)
    weight = size_of(path) / len(done) / 2**20
    return Estimate(name, len(tasks), len(tasks) - len(done), seconds, weight)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    sizes = 0
    for root, _, names in os.walk(folder):
        sizes += sum(os.lstat(os.path.join(root, name)).st_size for name in names)
    return sizes
