"""Commands that run studies: their options, the cost, and a progress bar over all jobs on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from polariscope.cli.place import PlaceOptions, place_of
from polariscope.command import again
from polariscope.console import Terminal
from polariscope.grammar import counted
from polariscope.report.terminal import answer
from polariscope.studies.engine import run_study
from polariscope.studies.estimate import estimate
from polariscope.studies.own import OwnStudy
from polariscope.studies.study import UNJUDGED, Outcome, Scale, Study


@dataclass(frozen=True)
class StudyOptions(PlaceOptions):
    """Options of a command that runs studies."""

    out: Path = Path("results")
    """Folder of the results."""
    estimate: bool = False
    """Run only the first job, and print what all jobs would cost."""
    json: bool = False
    """Print JSON for machines."""


def outcome_of(study: Study, name: str, scale: Scale, path: Path, options: StudyOptions) -> Outcome | None:
    """Run a study, or continue it; with ``--estimate`` only print its cost, and return None."""
    place = place_of(options)
    if options.estimate:
        answer(estimate(study, name, scale, path, place).findings(), None, options.json)
        return None
    with resumable(), watched(name, study, scale, options.json) as report:
        return run_study(study, name, scale, path, place, report)


@contextmanager
def resumable() -> Iterator[None]:
    """A block that the same command continues after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; continue with: {again()}") from None


@contextmanager
def watched(name: str, study: Study, scale: Scale, quiet: bool) -> Iterator[Callable[[int, Any], None]]:
    """Yields a reporter of the progress of a job, by its number; None means that the job is finished."""
    console = Terminal(stderr=True, highlight=False)
    jobs = study.jobs(scale)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    where = "" if isinstance(study, OwnStudy) and scale not in UNJUDGED else f" at {scale} scale"
    console.print(f"{name}: {study.title} ({counted(len(jobs), 'job')}{where})")
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(name, total=len(jobs), now="")
        parts: dict[int, float] = {}

        def report(number: int, what: Any) -> None:
            # A job may train several models, one after the other: it counts whole when it is done, and never back.
            share = 1.0 if what is None else 0.9 * what.step / what.steps
            parts[number] = max(parts.get(number, 0.0), share)
            now = "" if what is None else f"job {number + 1}: step {what.step} of {what.steps}, loss {what.loss:.1f}"
            progress.update(task, completed=sum(parts.values()), now=now)

        yield report
        progress.update(task, completed=len(jobs), now="")
