"""Several one-thread jobs at once on this machine.

Small networks gain little from a second thread and lose a lot when another process is busy, so several runs go
faster as processes of one thread each than one after the other with all threads.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
Report = Callable[[int, Any], None]

_events: Any = None


def in_parallel(
    work: Callable[[Job, Callable[[Any], None]], Result],
    jobs: Sequence[Job],
    workers: int | None = None,
    report: Report | None = None,
) -> list[Result]:
    """``work(job, tell)`` for every job; results in the order of the jobs.

    ``work`` is a module-level function; what it ``tell``s reaches ``report(job number, what)`` here. The first failure
    is raised once the other running jobs have ended. One worker (or one job) runs in this process.
    """
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers <= 1:
        return [work(job, partial(report or _ignore, number)) for number, job in enumerate(jobs)]
    context = multiprocessing.get_context("spawn")
    events = context.Queue()
    with ProcessPoolExecutor(workers, context, _start_worker, (events,)) as pool:
        futures = [pool.submit(_do, work, number, job) for number, job in enumerate(jobs)]
        while not all(future.done() for future in futures):
            _pass_on(events, report, wait=0.1)
        _pass_on(events, report, wait=0.0)
        return [future.result() for future in futures]


def _ignore(number: int, what: Any) -> None:
    """Nobody is listening."""


def _start_worker(events: Any) -> None:
    global _events
    _events = events
    os.environ["OMP_NUM_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Nobody is left to take the result: a killed study must not go on eating a core."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(work: Callable[[Job, Callable[[Any], None]], Result], number: int, job: Job) -> Result:
    return work(job, lambda what: _events.put((number, what)))


def _pass_on(events: Any, report: Report | None, wait: float) -> None:
    """Hand on everything that was told; wait at most ``wait`` seconds for the first of it."""
    try:
        while True:
            number, what = events.get(timeout=wait) if wait else events.get_nowait()
            if report:
                report(number, what)
            wait = 0.0
    except queue.Empty:
        return
