"""Every registered executor keeps its promises; one that breaks a promise is caught at it."""

import os
import traceback
from collections import deque

import pytest

from polariscope.lab.executors import Done, Failed, LocalProcesses, Place, Told, executors, in_parallel
from polariscope.testing import check_executor


@pytest.mark.parametrize("name", [name for name in executors.names() if name != "ray"])  # tests/lab/test_ray.py
def test_registered_executors_keep_the_contract(name, tmp_path) -> None:
    check_executor(executors.get(name), tmp_path)


class Here:
    """Does jobs one after the other in this process: sound, and quick to break."""

    def __init__(self, workers):
        self.queue = deque()

    def submit(self, number, work, job):
        self.queue.append((number, work, job))

    def events(self):
        while self.queue:
            number, work, job = self.queue.popleft()
            reports = []
            try:
                end = Done(number, work(job, reports.append))
            except KeyError as error:
                error.add_note("".join(traceback.format_exception(error)))
                end = Failed(number, error)
            yield from (Told(number, what) for what in reports)
            yield end

    def close(self):
        self.queue.clear()


class Forgets(Here):
    """Loses what is submitted while events are read."""

    def events(self):
        yield from list(super().events())
        self.queue.clear()


class Repeats(Here):
    def events(self):
        for event in super().events():
            yield event
            yield event


class Silent(Here):
    def events(self):
        yield from (event for event in super().events() if not isinstance(event, Told))


class Backwards(Here):
    def events(self):
        reports = []
        for event in super().events():
            if isinstance(event, Told):
                reports.insert(0, event)
                continue
            yield from reports
            reports.clear()
            yield event


class Wrong(Here):
    def events(self):
        for event in super().events():
            yield Done(event.number, (os.getpid(), 0)) if isinstance(event, Done) else event


class NoTraceback(Here):
    def events(self):
        for event in super().events():
            yield Failed(event.number, KeyError("?")) if isinstance(event, Failed) else event


class StopsAtAFailure(Here):
    def events(self):
        for event in super().events():
            yield event
            if isinstance(event, Failed):
                return


@pytest.mark.parametrize(
    ("executor", "sentence"),
    [
        (Forgets, r"ended the jobs \[0, 1, 2, 3, 4\] of 6"),
        (Repeats, r"reports \[.*\] from job 0|reports more of job 0 after its end"),
        (Silent, "reports None from job 0: expected"),
        (Backwards, r"reports \[\(0, 2\), \(0, 1\), \(0, 0\)\] from job 0"),
        (Wrong, "returns 0 as the result of job 1: expected 3"),
        (NoTraceback, "no traceback of the process in which a job raised"),
        (StopsAtAFailure, "does not continue after a job that raises"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_broken_executor_is_caught(executor, sentence, tmp_path) -> None:
    check_executor(Here, tmp_path)
    with pytest.raises(AssertionError, match=sentence):
        check_executor(executor, tmp_path)


class Stubborn(LocalProcesses):
    """Leaves its processes alone on close."""

    def close(self):
        self._queue.clear()


class Careless(LocalProcesses):
    """Tells a death as a failure."""

    def events(self):
        for event in super().events():
            yield Failed(event.number, OSError("?")) if type(event).__name__ == "Died" else event


def test_processes_left_behind_and_deaths_told_as_failures_are_caught(tmp_path) -> None:
    made: list[Stubborn] = []

    def stubborn(workers: int) -> Stubborn:
        made.append(Stubborn(workers))
        return made[-1]

    with pytest.raises(AssertionError, match=r"leaves process \d+ behind after close"):
        check_executor(stubborn, tmp_path)
    for executor in made:
        LocalProcesses.close(executor)
    with pytest.raises(AssertionError, match=r"Careless reports \['Failed'\] for a job that dies once"):
        check_executor(Careless, tmp_path / "second")


def _double(job: int, tell: object) -> int:
    return 2 * job


def test_jobs_are_done_by_the_executor_of_a_name() -> None:
    assert in_parallel(_double, [1, 2], Place("processes", 2)) == [2, 4]
    with pytest.raises(ValueError, match="there is no executor 'proceses': did you mean 'processes'"):
        in_parallel(_double, [1, 2], Place("proceses", 2))
