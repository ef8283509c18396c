"""Contract checks of executors: the end of every job is reported."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from polariscope.lab.executors import Died, Done, Event, Executor, Failed, Tell, Told
from polariscope.testing.promises import require

JOBS = 5


def check_executor(make: Callable[[int], Executor], folder: Path) -> None:
    """An executor runs jobs elsewhere, at most as many at once as the argument of ``make``, and reports each outcome.

    Every job ends once: with its result, with the exception that it raised (which has the traceback of its process as a
    note), or with the death of its process. The reports of a job come before its end, in order. A job can be submitted
    while events are read, also again under its number after its process died. After :meth:`~Executor.close` no process
    is left, and queued jobs are dropped. ``folder`` is a place that all processes can write to.

    >>> import tempfile
    >>> from polariscope.lab.executors import LocalProcesses
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_executor(LocalProcesses, Path(folder))
    """
    name = getattr(make, "__name__", type(make).__name__)
    processes = _check_results(name, make)
    _check_failures(name, make)
    if os.getpid() not in processes:
        _check_deaths(name, make, folder)
        _check_close(name, make, folder)


def _tripled(job: int, tell: Tell) -> tuple[int, int]:
    for part in range(3):
        tell((job, part))
    return os.getpid(), 3 * job


def _fails(job: int, tell: Tell) -> int:
    raise KeyError(f"job {job}")


def _dies_once(job: str, tell: Tell) -> str:
    """Kills its own process the first time."""
    mark = Path(job)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    return "done"


def _waits(job: str, tell: Tell) -> None:
    tell(os.getpid())
    signal.pause()


def _check_results(name: str, make: Callable[[int], Executor]) -> set[int]:
    reports: dict[int, list[Any]] = {}
    results: dict[int, Any] = {}
    with closing(make(2)) as executor:
        for number in range(JOBS):
            executor.submit(number, _tripled, number)
        for event in executor.events():
            require(event.number not in results, f"{name} reports more of job {event.number} after its end")
            if isinstance(event, Told):
                reports.setdefault(event.number, []).append(event.what)
            else:
                require(isinstance(event, Done), f"{name} ends a correct job with {event}")
                results[event.number] = event.result if isinstance(event, Done) else None
                if event.number == 0:
                    executor.submit(JOBS, _tripled, JOBS)
    require(set(results) == set(range(JOBS + 1)), f"{name} ended the jobs {sorted(results)} of {JOBS + 1}")
    for number, (_, result) in results.items():
        require(result == 3 * number, f"{name} returns {result!r} as the result of job {number}: expected {3 * number}")
        expected = [(number, part) for part in range(3)]
        require(
            reports.get(number) == expected,
            f"{name} reports {reports.get(number)} from job {number}: expected {expected}",
        )
    processes = {process for process, _ in results.values()}
    require(len(processes) <= 2, f"{name} with 2 workers did {JOBS + 1} jobs in {len(processes)} processes")
    return processes


def _check_failures(name: str, make: Callable[[int], Executor]) -> None:
    with closing(make(1)) as executor:
        executor.submit(0, _fails, 0)
        executor.submit(1, _tripled, 1)
        ends = {event.number: event for event in executor.events() if not isinstance(event, Told)}
    failed = ends.get(0)
    if not isinstance(failed, Failed) or not isinstance(failed.error, KeyError):
        raise AssertionError(f"{name} ends a job that raises KeyError with {failed}")
    notes = "".join(getattr(failed.error, "__notes__", ()))
    require("_fails" in notes, f"{name} returns no traceback of the process in which a job raised")
    require(isinstance(ends.get(1), Done), f"{name} does not continue after a job that raises: {ends.get(1)}")


def _check_deaths(name: str, make: Callable[[int], Executor], folder: Path) -> None:
    mark = str(folder / "died once")
    events: list[Event] = []
    with closing(make(1)) as executor:
        executor.submit(0, _dies_once, mark)
        for event in executor.events():
            events.append(event)
            if isinstance(event, Died):
                require(bool(event.how), f"{name} does not say how a process died")
                executor.submit(0, _dies_once, mark)
    kinds = [type(event) for event in events]
    require(kinds == [Died, Done], f"{name} reports {[kind.__name__ for kind in kinds]} for a job that dies once")


def _check_close(name: str, make: Callable[[int], Executor], folder: Path) -> None:
    executor = make(1)
    executor.submit(0, _waits, "")
    executor.submit(1, _dies_once, str(folder / "never begun"))
    process = next(event.what for event in executor.events() if isinstance(event, Told))
    executor.close()
    require(not _lives(process), f"{name} leaves process {process} behind after close()")
    require(not (folder / "never begun").exists(), f"{name} runs a queued job after close()")
    require(not list(executor.events()), f"{name} has events after close()")


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
