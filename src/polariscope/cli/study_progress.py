"""Progress of a study: one bar over all its jobs on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from polariscope.console import Terminal
from polariscope.grammar import counted
from polariscope.studies.own import OwnStudy
from polariscope.studies.study import UNJUDGED, Scale, Study


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
