"""Many jobs at once: one small interface, implemented by processes of this machine.

Small networks gain little from a second thread and lose a lot when another process is busy, so several runs go
faster as processes of one thread each than one after the other with all threads.

An :class:`Executor` takes jobs and reports their events. :func:`as_they_come` reacts to the events in the same way
wherever the jobs run: it passes on reports and retries crashed jobs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Literal, Protocol, TypeVar

from polariscope import plugins
from polariscope.console import notice
from polariscope.interrupts import as_if_interrupted, once
from polariscope.lab import holding
from polariscope.memory import keep_freed_memory
from polariscope.registry import Catalogue

Job = TypeVar("Job")
Result = TypeVar("Result")
Tell = Callable[[Any], None]
Work = Callable[[Job, Tell], Result]
Report = Callable[[int, Any], None]

GRACE = 5.0
"""Seconds that running jobs have to save their state before they are killed."""


@dataclass(frozen=True)
class Told:
    """A job reported its progress."""

    number: int
    what: Any


@dataclass(frozen=True)
class Waits:
    """A job waits; the sentence says for what."""

    number: int
    sentence: str


@dataclass(frozen=True)
class Done:
    """A job finished."""

    number: int
    result: Any


@dataclass(frozen=True)
class Failed:
    """A job raised an exception; a note of the exception has the traceback in the job's process."""

    number: int
    error: BaseException


@dataclass(frozen=True)
class Died:
    """The process of a job ended without an error message; most often the system killed it because memory ran out."""

    number: int
    how: str


Event = Told | Waits | Done | Failed | Died


class Executor(Protocol):
    """An executor of jobs. A cluster needs only these three methods."""

    def submit(self, number: int, work: Work[Any, Any], job: Any) -> None:
        """Queue ``work(job, tell)`` under its number. It may be called while events are read."""

    def events(self) -> Iterator[Event]:
        """The events of all jobs, in order, until no job is left."""

    def close(self) -> None:
        """Drop queued jobs, give running jobs :data:`GRACE` seconds to save their state, and end all processes."""


@dataclass(frozen=True)
class Place:
    """Where jobs run: the name of an executor, and its settings.

    Every function that takes a number of ``workers`` also takes a place.
    """

    executor: str = "processes"
    workers: int | None = None
    """Number of parallel jobs; None means one per core."""
    address: str = ""
    """Address of a cluster; if empty, a new cluster starts on this machine."""
    cpus: float = 1.0
    """Number of cores for each job on a cluster."""
    gpus: float = 0.0
    shared: Literal["auto", "yes", "no"] = "auto"
    """Whether the workers of a cluster see the same files as this process."""
    deaths: int = 1
    """How often a job is tried again after its process or machine died."""


Workers = int | Place | None
"""The number of parallel jobs in processes of this machine, or another place for jobs."""
executors: Catalogue[Callable[[Place], Executor]] = Catalogue("executor")


def is_elsewhere(workers: Workers) -> bool:
    """Whether jobs leave this process: for a number of workers above 1, or for another executor.

    >>> is_elsewhere(1), is_elsewhere(2), is_elsewhere(Place()), is_elsewhere(Place("ray"))
    (False, True, False, True)
    """
    place = workers if isinstance(workers, Place) else Place(workers=workers)
    return place.executor != "processes" or (place.workers or 1) > 1


def in_parallel(
    work: Work[Job, Result],
    jobs: Sequence[Job],
    workers: Workers = None,
    report: Report | None = None,
) -> list[Result]:
    """``work(job, tell)`` for every job; results in the order of the jobs.

    ``work`` is a module-level function; each call of ``tell`` calls ``report(job number, what)`` in this process. An
    exception of a job is raised after the other jobs have ended; Ctrl-C, or an exception of ``report``, ends all jobs.
    With the executor "processes", a single worker (or job) runs in this process.
    """
    report = report or (lambda number, what: None)
    place = workers if isinstance(workers, Place) else Place(workers=workers)
    if not jobs:
        return []
    if place.executor == "processes":
        place = replace(place, workers=min(place.workers or os.cpu_count() or 1, len(jobs)))
        if place.workers == 1:
            return [work(job, partial(report, number)) for number, job in enumerate(jobs)]
    with closing(executors.get(place.executor)(place)) as executor:
        ends = sorted(as_they_come(executor, work, jobs, report, place.deaths), key=lambda end: end.number)
    for end in ends:
        if isinstance(end, Failed):
            raise end.error
    return [end.result for end in ends if isinstance(end, Done)]


def as_they_come(
    executor: Executor, work: Work[Job, Result], jobs: Sequence[Job], report: Report, deaths: int = 1
) -> Iterator[Done | Failed]:
    """Yield the end of each job as soon as it happens. A job whose process died is tried again after the others, up to
    ``deaths`` times."""
    for number, job in enumerate(jobs):
        executor.submit(number, work, job)
    died: Counter[int] = Counter()
    for event in executor.events():
        match event:
            case Told(number, what):
                report(number, what)
            case Waits(number, sentence):
                notice(f"job {number + 1} of {len(jobs)}: {sentence}")
            case Died(number, how) if died[number] >= deaths:
                times = "twice" if deaths == 1 else f"{deaths + 1} times"
                process = f"the process of job {number + 1} of {len(jobs)}"
                sentence = f"{process} ended without an error message, {times} ({how})"
                advice = "fewer parallel jobs need less memory: --workers 1 (in Python workers=1) runs one at a time"
                yield Failed(number, ChildProcessError(f"{sentence}; {advice}"))
            case Died(number):
                died[number] += 1
                executor.submit(number, work, jobs[number])
            case Done() | Failed():
                yield event


@dataclass
class _Worker:
    """A process, our end of the pipe to it, and the number of its current job."""

    process: SpawnProcess
    pipe: Connection
    job: int | None = None


@executors.register("processes")
class LocalProcesses:
    """Processes of one thread each on this machine: an :class:`Executor`."""

    def __init__(self, workers: int | Place) -> None:
        self._workers: list[_Worker] = []
        most = workers.workers if isinstance(workers, Place) else workers
        self._most = most or os.cpu_count() or 1
        self._queue: deque[tuple[int, dict[str, str], bytes]] = deque()

    def submit(self, number: int, work: Work[Any, Any], job: Any) -> None:
        # Pickled here, because a worker can unpickle objects of plug-ins only after it has loaded the plug-ins.
        self._queue.append((number, plugins.files(), bytes(ForkingPickler.dumps((work, job)))))

    def events(self) -> Iterator[Event]:
        while self._queue or any(worker.job is not None for worker in self._workers):
            self._hand_out()
            yield from self._heard()

    def close(self) -> None:
        self._queue.clear()
        try:
            for worker in self._workers:
                worker.process.terminate()
            deadline = time.monotonic() + GRACE
            while self._workers and time.monotonic() < deadline:
                # Reading on lets a worker that is in the middle of a message finish it.
                deque(self._heard(max(0.0, deadline - time.monotonic())), maxlen=0)
        finally:  # also at the second Ctrl-C
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                self._bury(worker)
            self._workers.clear()

    def _hand_out(self) -> None:
        """Give queued jobs to idle workers, and to new workers up to the limit."""
        idle = [worker for worker in self._workers if worker.job is None]
        while self._queue and (idle or len(self._workers) < self._most):
            worker = idle.pop() if idle else self._hire()
            worker.job = self._queue[0][0]
            try:
                worker.pipe.send(self._queue.popleft())
            except OSError:  # it died while idle, which the next call of _heard finds
                continue

    def _hire(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,))
        with interrupts_later(), _one_thread():
            process.start()
            self._workers.append(_Worker(process, ours))
        theirs.close()  # so that the end of the process is the end of the pipe
        return self._workers[-1]

    def _heard(self, timeout: float | None = None) -> Iterator[Event]:
        """Wait for a message from any worker, or for the end of one."""
        ready = wait([end for worker in self._workers for end in (worker.pipe, worker.process.sentinel)], timeout)
        for worker in [w for w in self._workers if w.pipe in ready or w.process.sentinel in ready]:
            try:
                if not worker.pipe.poll():
                    raise EOFError
                event: Event = worker.pipe.recv()
            except (EOFError, OSError):
                self._workers.remove(worker)
                self._bury(worker)
                if worker.job is not None:
                    yield Died(worker.job, _how(worker.process.exitcode))
                continue
            if not isinstance(event, Told | Waits):
                worker.job = None
            yield event

    def _bury(self, worker: _Worker) -> None:
        worker.process.join()
        worker.pipe.close()


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by signal {-code}, {signal.strsignal(-code)}"
    return f"exit code {code}"


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, and keep it from processes that are started in the block.

    A terminal sends Ctrl-C to all its processes, but only this process should stop its workers. Child processes inherit
    the mask. In this process another thread may still receive the signal, so a handler catches it as well.
    """
    resource_tracker.ensure_running()  # it sets the mask itself, so it must not start inside of this block
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number)) if in_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set the number of threads in the environment: libraries read it before any code of ours runs in a worker."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _serve(pipe: Connection) -> None:
    """The main loop of a worker: one job after the other, until the pipe or the parent ends or a signal stops it."""
    keep_freed_memory()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, once(as_if_interrupted))  # a second signal would cut the saving short
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            number, loaded, packed = pipe.recv()
            pipe.send(_end_of(number, loaded, packed, pipe))
    except (KeyboardInterrupt, EOFError):
        return


def _end_of(number: int, loaded: dict[str, str], packed: bytes, pipe: Connection) -> Done | Failed:
    holding.say = lambda sentence: pipe.send(Waits(number, sentence))
    try:
        plugins.load_all(loaded)
        work, job = ForkingPickler.loads(packed)
        end: Done | Failed = Done(number, work(job, lambda what: pipe.send(Told(number, what))))
        ForkingPickler.dumps(end)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        blamed = plugins.blamed(error)
        blamed.add_note("".join(traceback.format_exception(error)))
        end = Failed(number, _sendable(blamed))
    return end


def _sendable(error: BaseException) -> BaseException:
    """The exception itself if it can be pickled and unpickled, otherwise an exception with its message."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # noqa: BLE001 - pickling a user's class may fail in any way
        return ChildProcessError(f"{type(error).__name__}: {error}")
    return error


def _end_with_parent() -> None:
    """End this process when its parent ends: without a parent, nothing takes the result."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
