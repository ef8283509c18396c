"""A Ray cluster as an executor: one actor per concurrent job, each with a worker process that is reused.

An actor holds the cores and GPUs of a job and one worker process (:class:`LocalProcesses`), so that a job has one
thread, can save its state before it is stopped, and crashes only its own process. If a process, actor or node dies, its
job is tried again elsewhere. The events of a job come back in one stream, in order; :mod:`polariscope.lab.travel`
handles files.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polariscope import plugins
from polariscope.console import notice
from polariscope.lab.executors import GRACE, Died, Done, Event, Failed, LocalProcesses, Place, Work, executors
from polariscope.lab.travel import (
    Files,
    Luggage,
    Parcel,
    Scratch,
    do_parcel,
    gathered,
    luggage_of,
    marked,
    packed,
    write,
)

EVERY = 20.0
"""Seconds between two checks for files to send back, if the worker does not share the folder."""
LONG = 60.0
"""Seconds without an event after which the command prints what it waits for."""
HOPELESS = 600.0
"""Seconds that a command waits for a machine that is large enough for a job."""
FAILED_STARTS = 10
"""After this many consecutive actors that end before they are ready, no more are started."""
OURS = "POLARISCOPE_"
"""Prefix of environment variables that are sent with a job."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}


@dataclass(frozen=True)
class Sent:
    """Files that changed on the machine of a job."""

    number: int
    files: Files


@dataclass(frozen=True)
class Ready:
    """An actor runs on the cluster. It gets no job before, because it may wait for resources for ever."""


class Slot:
    """In an actor: one worker process, and the events of its jobs."""

    def __init__(self) -> None:
        # A worker of ours would begin by running Ray's own main file, which is of no use to it.
        vars(sys.modules["__main__"]).pop("__file__", None)
        self._process = LocalProcesses(1)
        self._events: queue.Queue[Event | Sent | Ready] = queue.Queue()
        self._events.put(Ready())

    def work(self, number: int, parcel: Parcel, every: float) -> None:
        """Run a job to its end, and report all its events."""
        scratch = None
        try:
            if parcel.mark and not Path(parcel.root, parcel.mark).exists():
                scratch = Scratch(parcel.files or {})
            elif parcel.files is not None and not parcel.mark:
                scratch = Scratch(parcel.files)
            root = str(scratch.root) if scratch else parcel.root
            self._process.submit(number, do_parcel, (replace(parcel, files=None), root))
            stop = threading.Event()
            sender = threading.Thread(target=self._send, args=(number, scratch, stop, every), daemon=True)
            sender.start()
            end: Event | None = None
            for event in self._process.events():
                if isinstance(event, Done | Failed | Died):
                    end = event
                else:
                    self._events.put(event)
            stop.set()
            sender.join()
            if scratch is not None:
                self._events.put(Sent(number, scratch.changed()))
            self._events.put(end or Died(number, "its process ended without an error message"))
        except BaseException as error:  # noqa: BLE001 - the command waits for the end of the job, whatever the error
            self._events.put(Failed(number, ChildProcessError(f"{type(error).__name__}: {error}")))
        finally:
            if scratch is not None:
                scratch.close()

    def _send(self, number: int, scratch: Scratch | None, stop: threading.Event, every: float) -> None:
        while scratch is not None and not stop.wait(every):
            files = scratch.changed()
            if files:
                self._events.put(Sent(number, files))

    def listen(self) -> list[Event | Sent | Ready]:
        """Wait for an event, and return all events so far."""
        events = [self._events.get()]
        with suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    def stop(self) -> None:
        """Make the job save its state and end."""
        for worker in list(self._process._workers):
            worker.process.terminate()


@dataclass
class _Seat:
    """An actor, the pending call that waits for its events, and the number of its job."""

    actor: Any
    heard: Any
    job: int | None = None
    ready: bool = False
    refs: list[Any] = field(default_factory=list)


@executors.register("ray")
class RayCluster:
    """Actors of a Ray cluster: an :class:`~polariscope.lab.executors.Executor`."""

    def __init__(self, place: int | Place) -> None:
        self._place = place if isinstance(place, Place) else Place("ray", place)
        self._queue: deque[tuple[int, Work[Any, Any], Any]] = deque()
        self._jobs: dict[int, Luggage | None] = {}
        self._came: dict[int, set[str]] = {}
        self._seats: list[_Seat] = []
        self._failed_starts: list[BaseException] = []
        self._silent_since = time.monotonic()
        self._said = ""
        self._marks: dict[Path, str] = {}
        self._closing = ExitStack()
        self._ray = _connected(self._place, self._closing)
        self._actor = self._ray.remote(Slot).options(
            num_cpus=self._place.cpus, num_gpus=self._place.gpus, max_concurrency=3, max_restarts=0
        )

    @staticmethod
    def check_installed() -> None:
        """Raise an error if Ray is not installed. Commands call this before they write anything."""
        _imported()

    def submit(self, number: int, work: Work[Any, Any], job: Any) -> None:
        self._jobs[number] = luggage_of(work, job)
        self._queue.append((number, work, job))

    def events(self) -> Iterator[Event]:
        while self._queue or any(seat.job is not None for seat in self._seats):
            self._hand_out()
            yield from self._heard()

    def close(self) -> None:
        self._queue.clear()
        try:
            for seat in self._seats:
                if seat.job is not None:
                    seat.refs.append(seat.actor.stop.remote())
            deadline = time.monotonic() + GRACE
            while any(seat.job is not None for seat in self._seats) and time.monotonic() < deadline:
                deque(self._heard(max(0.0, deadline - time.monotonic())), maxlen=0)
        finally:  # also at the second Ctrl-C
            for seat in self._seats:
                self._ray.kill(seat.actor)
            self._seats.clear()
            self._closing.close()

    def _hand_out(self) -> None:
        """Give queued jobs to idle actors, and start more actors up to the limit."""
        idle = [seat for seat in self._seats if seat.job is None and seat.ready]
        coming = sum(not seat.ready for seat in self._seats)
        missing = min(len(self._queue) - len(idle) - coming, self._most() - len(self._seats))
        if len(self._failed_starts) < FAILED_STARTS:
            for _ in range(missing):
                self._hire()
        elif not self._seats:
            error = self._failed_starts[-1]
            raise ChildProcessError(
                f"no worker starts on the Ray cluster, {FAILED_STARTS} times in a row ({_last_line(error)}); every "
                "machine needs the same version of Polariscope and of Ray"
            ) from error
        while self._queue and idle:
            seat = idle.pop()
            number, work, job = self._queue.popleft()
            seat.job = number
            seat.refs = [seat.actor.work.remote(number, self._parcel(number, work, job), EVERY)]

    def _most(self) -> int:
        """Number of parallel jobs: the requested number, or by default as many as fit into the cluster now."""
        if self._place.workers:
            return self._place.workers
        there = self._ray.cluster_resources()
        rooms = [
            there.get(name, 0.0) // need
            for name, need in (("CPU", self._place.cpus), ("GPU", self._place.gpus))
            if need
        ]
        return max(1, int(min(rooms, default=1)))

    def _hire(self) -> None:
        actor = self._actor.remote()
        self._seats.append(_Seat(actor, actor.listen.remote()))

    def _parcel(self, number: int, work: Work[Any, Any], job: Any) -> Parcel:
        luggage = self._jobs[number]
        root = None if luggage is None else luggage.root
        variables = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
        parcel = Parcel(packed(work, job, root), plugins.sources(), variables=variables)
        if luggage is None:
            return parcel
        root = Path(os.path.abspath(luggage.root))
        mark = "" if self._place.shared == "no" else self._mark(root)
        if self._place.shared == "yes":
            return replace(parcel, root=str(root))
        back = [root / name for name in self._came.get(number, ())]  # what an earlier try sent before it died
        files = gathered(root, [*luggage.brings, *(file for file in back if file.exists())])
        return replace(parcel, root=str(root), mark=mark, files=files)

    def _mark(self, root: Path) -> str:
        if root not in self._marks:
            self._marks[root] = self._closing.enter_context(marked(root))
        return self._marks[root]

    def _heard(self, timeout: float | None = None) -> Iterator[Event]:
        """Wait for an event of any actor, or for the end of one, but not for ever."""
        by_ref = {seat.heard: seat for seat in self._seats}
        ready, _ = self._ray.wait(list(by_ref), num_returns=1, timeout=LONG if timeout is None else timeout)
        if ready:
            self._silent_since = time.monotonic()
        elif timeout is None and all(seat.job is None for seat in self._seats):
            self._explain_wait()
        for ref in ready:
            seat = by_ref[ref]
            try:
                events = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._ray.kill(seat.actor)  # it may live on behind a network that failed, and hold its run
                self._seats.remove(seat)
                if seat.job is not None:
                    yield Died(seat.job, _first_line(error))
                elif not seat.ready:
                    self._failed_starts.append(error)
                continue
            seat.heard = seat.actor.listen.remote()
            for event in events:
                if isinstance(event, Ready):
                    seat.ready = True
                    self._failed_starts.clear()
                    continue
                if isinstance(event, Sent):
                    self._take(event)
                    continue
                if isinstance(event, Done | Failed | Died):
                    seat.job = None
                yield event

    def _explain_wait(self) -> None:
        """Print once what waiting jobs wait for; raise an error if the cluster can never run them."""
        need = {name: each for name, each in (("CPU", self._place.cpus), ("GPU", self._place.gpus)) if each}
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        job = f"a job takes {_resources(need)}"
        if any(all(machine.get(name, 0) >= each for name, each in need.items()) for machine in machines):
            there, free = self._ray.cluster_resources(), self._ray.available_resources()
            counts = {name: (free.get(name, 0), there.get(name, 0)) for name in need}
            free_now = ", ".join(f"{left:g} of {_resources({name: all_})}" for name, (left, all_) in counts.items())
            wait = f"waiting for room on the Ray cluster: {job}; free: {free_now}"
        else:
            largest = {name: max((machine.get(name, 0) for machine in machines), default=0) for name in need}
            lack = f"no machine of the Ray cluster has room for a job: {job}; the most on one: {_resources(largest)}"
            if not self._place.address or time.monotonic() - self._silent_since > HOPELESS:
                raise ValueError(f"{lack}. Give smaller --cpus or --gpus, or add a machine")
            wait = f"{lack}. Waiting for a machine to join"
        if wait != self._said:
            notice(wait)
            self._said = wait

    def _take(self, sent: Sent) -> None:
        luggage = self._jobs[sent.number]
        assert luggage is not None
        write(luggage.root, sent.files)
        self._came.setdefault(sent.number, set()).update(sent.files)


def _imported() -> Any:
    """The module ray, imported after its environment variables are set."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    try:
        import ray
    except ImportError as error:
        raise ValueError("--executor ray needs Ray: pip install 'polariscope[cluster]'") from error
    return ray


def _connected(place: Place, closing: ExitStack) -> Any:
    """Ray, connected to the cluster at the address, to the one that this process already uses, or to a new one."""
    ray = _imported()
    if ray.is_initialized():
        return ray
    settings: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "address": place.address}
    if not place.address:
        cores = place.workers or os.cpu_count() or 1
        # "local", or Ray would join whatever cluster was last started on this machine.
        settings |= {"address": "local", "num_cpus": max(1, int(cores * max(place.cpus, 1)))}
        settings["include_dashboard"] = False
    try:
        with _only_errors(logging.getLogger("ray")):
            ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {place.address!r}" if place.address else "Ray on this machine"
        raise ValueError(f"cannot connect to {where}: {_first_line(error)}") from error
    closing.callback(ray.shutdown)
    ray._private.worker._worker_logs_enabled = False  # log_to_driver leaves lines of a dead node on standard output
    return ray


@contextmanager
def _only_errors(logger: logging.Logger) -> Iterator[None]:
    """Hide Ray's messages about its own start, except errors."""
    level = logger.level
    logger.setLevel(max(level, logging.ERROR))
    try:
        yield
    finally:
        logger.setLevel(level)


def _resources(amounts: dict[str, float]) -> str:
    """Numbers of cores and GPUs in words.

    >>> _resources({"CPU": 1.0, "GPU": 0.5})
    '1 core and 0.5 GPUs'
    """
    nouns = {"CPU": "core", "GPU": "GPU"}
    return " and ".join(f"{each:g} {nouns[name]}{'' if each == 1 else 's'}" for name, each in amounts.items())


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _last_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
