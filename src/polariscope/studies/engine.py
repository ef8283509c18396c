"""Runs a study: jobs in parallel processes, each job's rows kept as soon as it is done, then the verdict.

A study that was cut off goes on where it stopped: a job whose rows are on disk is not done again, a training that
was interrupted inside a job resumes from its checkpoint. Rows that another version of the study made are done again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import torch

from polariscope.atomic import atomic
from polariscope.lab.executors import Workers, in_parallel
from polariscope.lab.provenance import data_record, environment
from polariscope.lab.store import Store, fingerprint
from polariscope.lab.travel import Luggage, travels
from polariscope.report.markdown import markdown
from polariscope.studies.own import FILE as OWN_FILE
from polariscope.studies.own import OwnStudy
from polariscope.studies.page import verdicts
from polariscope.studies.study import (
    UNJUDGED,
    Bench,
    Job,
    Judgement,
    Origin,
    Outcome,
    Row,
    Scale,
    Study,
    Table,
    folder,
    studies,
)
from polariscope.studies.tables import read_table, write_table
from polariscope.worlds.readers.data_files import data_files

COMPILER = "torch._dynamo"
"""What torch imports with the first optimiser of a process, for seconds: the first job of a worker is the longer."""


def reproduce(
    name: str,
    scale: Scale,
    out: Path,
    workers: Workers = None,
    report: Callable[[int, Any], None] | None = None,
    finished: bool = False,
) -> Outcome:
    """Do (or finish) a registered study, telling ``report`` how far each job is (None: done).

    Its table (Parquet and CSV) and its document (page, JSON, Markdown, figures) are written to a folder below ``out``.
    With ``finished`` no job is run: the table has the rows of jobs that are done, and the document names the others.
    """
    return run_study(studies.get(name)(), name, scale, folder(out, name, scale), workers, report, finished)


def run_study(
    study: Study,
    name: str,
    scale: Scale,
    path: Path,
    workers: Workers = None,
    report: Callable[[int, Any], None] | None = None,
    finished: bool = False,
) -> Outcome:
    """Do (or finish) a study in a folder; with ``finished``, show what is done."""
    (path / "jobs").mkdir(parents=True, exist_ok=True)
    tasks = jobs_of(study, name, scale, path)
    open_tasks = [number for number, task in enumerate(tasks) if not task.is_done]
    if report is not None:
        for number in set(range(len(tasks))) - set(open_tasks):
            report(number, None)
    if not finished:
        in_parallel(
            run_job,
            [tasks[number] for number in open_tasks],
            workers,
            None if report is None else lambda number, what: report(open_tasks[number], what),
        )
        open_tasks = []
    elif len(open_tasks) == len(tasks):
        raise ValueError(f"no job of {name} is finished in {path}: run it without --finished")
    done = [task for number, task in enumerate(tasks) if number not in set(open_tasks)]
    records = [json.loads(task.file.read_text(encoding="utf-8")) for task in done]
    table = Table([row for record in records for row in record["rows"]])
    made = [record["made"] for record in records]
    origin = Origin(
        study=name,
        scale=scale,
        seeds=len(table.distinct("seed")),
        seconds=round(_cost(records), 1),
        made={key: _alike([each[key] for each in made]) for key in made[0]},
        not_run=[tasks[number].job for number in open_tasks],
    )
    own = study if isinstance(study, OwnStudy) else None
    outcome = Outcome(path, table, _judged(study, table, scale), origin, own)
    _write(outcome)
    return outcome


@dataclass(frozen=True)
class StudyJob:
    """A job of a study, with where its rows go."""

    study: Study
    name: str
    version: str
    job: Job
    file: Path

    @property
    def is_done(self) -> bool:
        """Whether its rows are there, whole, of this version of the study, and of the data as it is now."""
        try:
            record = json.loads(self.file.read_text(encoding="utf-8"))
            version = record["made"]["study"]
        except (FileNotFoundError, json.JSONDecodeError, KeyError):
            return False
        return bool(version == self.version and record.get("data", []) == self.data)

    @property
    def data(self) -> list[str]:
        """Hashes of the data files of a job that is a configuration, as those of your own studies are."""
        return [entry["sha256"] for entry in data_record(data_files(self.job.get("config", {})))]


def jobs_of(study: Study, name: str, scale: Scale, path: Path) -> list[StudyJob]:
    """All jobs of a study at a scale."""
    version = study.version_at(scale)
    jobs = list(study.jobs(scale))
    keys = [fingerprint({"study": name, "job": job}) for job in jobs]
    files = [path / "jobs" / f"{key}.json" for key in keys]
    return [StudyJob(study, name, version, job, file) for job, file in zip(jobs, files, strict=True)]


def judge(path: Path) -> Outcome:
    """What the code of today says about a table made before."""
    table, origin = read_table(path)
    own = OwnStudy.read(path.parent / OWN_FILE) if (path.parent / OWN_FILE).exists() else None
    study = own or studies.get(origin.study)()
    return Outcome(path.parent, table, _judged(study, table, origin.scale), origin, own)


def _judged(study: Study, table: Table, scale: Scale) -> list[Judgement]:
    """What a table says about every claim: its figures only, at a scale that judges nothing, whatever the study."""
    return [replace(claim, judged=scale not in UNJUDGED) for claim in study.judge(table, scale)]


def judge_all(folder: Path) -> tuple[list[Outcome], list[str]]:
    """What the code of today says about every table one level below a folder, and what is wrong with the others."""
    outcomes, problems = [], []
    for file in sorted(folder.glob("*/table.parquet")):
        try:
            outcomes.append(judge(file))
        except ValueError as error:
            problems.append(str(error))
    return outcomes, problems


def overview(folder: Path) -> str:
    """One table over every study whose results lie in a folder, as its first page."""
    outcomes, problems = judge_all(folder)
    skipped = [f"\nSkipped: {problem}." for problem in problems]
    return "\n".join(["# Results", "", *verdicts(outcomes, linked=True), *skipped, ""])


def write_overview(folder: Path) -> None:
    with atomic(folder / "README.md") as draft:
        draft.write_text(overview(folder), encoding="utf-8")


def _cost(records: list[dict[str, Any]]) -> float:
    """Seconds of all jobs, with those of trainings that no job did since they were there before, each counted once."""
    earlier: dict[str, float] = {}
    for record in records:
        for run, seconds in record.get("earlier", {}).items():
            earlier[run] = min(seconds, earlier.get(run, seconds))
    return float(sum(record["seconds"] for record in records) + sum(earlier.values()))


def _alike(values: list[Any]) -> Any:
    """The one value of all, or the list of them."""
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else distinct


@travels(lambda task: Luggage(task.file.parents[1]))
def run_job(task: StudyJob, tell: Callable[[Any], None]) -> None:
    """One job in a process of its own; its rows go to disk before anything else is done with them."""
    torch.set_num_threads(1)
    first = COMPILER not in sys.modules
    started = time.process_time()  # of one core, whatever else the machine does
    bench = Bench(Store(task.file.parents[1] / "runs"), tell)
    data = task.data
    rows = task.study.run(task.job, bench)
    record = {
        "study": task.name,
        "job": task.job,
        "rows": rows,
        "seconds": time.process_time() - started,
        "first": first and COMPILER in sys.modules,
        "earlier": bench.earlier,
        "made": environment() | {"study": task.version},
    } | ({"data": data} if data else {})
    task.file.parent.mkdir(parents=True, exist_ok=True)
    with atomic(task.file) as draft:
        draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    tell(None)


def _write(outcome: Outcome) -> None:
    path = outcome.path
    if isinstance(outcome.own, OwnStudy):
        with atomic(path / OWN_FILE) as draft:
            draft.write_text(outcome.own.text, encoding="utf-8")
    write_table(path / "table.parquet", outcome.table, outcome.origin)
    with atomic(path / "table.csv") as draft:
        csv.write_csv(pa.Table.from_pylist(_uniform(outcome.table.rows)), draft)
    findings = outcome.findings()
    findings.save(path)
    with atomic(path / "README.md") as draft:
        draft.write_text(markdown(findings), encoding="utf-8")


def _uniform(rows: list[Row]) -> list[Row]:
    """Every row with every column; lists and dictionaries as JSON, so that any study fits a flat table."""
    columns = {key: None for row in rows for key in row}

    def flat(value: Any) -> Any:
        return json.dumps(value) if isinstance(value, list | dict) else value

    return [{key: flat(row.get(key)) for key in columns} for row in rows]
