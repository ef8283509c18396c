"""Many jobs: order, reports, failures, processes that die, and the end of all of them."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import polariscope.lab.executors
from polariscope.lab.executors import Died, Done, Failed, Told, as_they_come, in_parallel, interrupts_later

PACKAGE = Path(polariscope.lab.executors.__file__).parents[1]
PLACES = [str(Path(__file__).parent), str(PACKAGE.parent)]


@pytest.fixture
def light(monkeypatch):
    """The module and some jobs at top level, which a worker imports without anything heavy."""
    for place in PLACES:
        monkeypatch.syspath_prepend(place)
    return polariscope.lab.executors, importlib.import_module("jobs")


def work(job, tell):
    tell(f"at {job}")
    if job == "two":
        raise ValueError("two is not allowed")
    return job, os.getpid()


def test_results_keep_their_order_and_reports_arrive(light) -> None:
    executors, jobs = light
    heard: list[tuple[int, str]] = []
    report = lambda number, what: heard.append((number, what))  # noqa: E731
    first, second, third = executors.in_parallel(jobs.work, ["a", "b", "threads"], 2, report)
    assert [first[0], second[0], third] == ["a", "b", "1"]
    assert os.getpid() not in {first[1], second[1]}
    assert sorted(heard) == [(0, "at a"), (1, "at b"), (2, "at threads")]


def test_one_worker_stays_in_this_process() -> None:
    heard: list[int] = []
    assert in_parallel(work, ["a"], report=lambda number, what: heard.append(number)) == [("a", os.getpid())]
    assert heard == [0]
    with pytest.raises(ValueError, match="two is not allowed"):
        in_parallel(work, ["two", "a"], workers=1)


def test_a_process_that_dies_is_said_and_replaced(light, tmp_path) -> None:
    executors, jobs = light
    with closing(executors.LocalProcesses(1)) as executor:
        executor.submit(5, jobs.die_once, tmp_path / "marker")
        answer, died = executor.events()
        assert (died.number, died.how) == (5, "killed by signal 9, Killed")
        executor.submit(6, jobs.die_once, tmp_path / "marker")
        told_again, done = executor.events()
        assert told_again.what != answer.what
        assert (done.number, done.result) == (6, "alive")
        for number, job in enumerate(["two", "untravelled", "unsendable", "fine"]):
            executor.submit(number, jobs.work, job)
        ends = [event for event in executor.events() if not isinstance(event, executors.Told)]
    two, untravelled, unsendable, fine = ends
    assert (type(two.error), str(two.error)) == (ValueError, "two is not allowed")
    assert "in work" in two.error.__notes__[0], "the note says where it happened, in the other process"
    assert str(untravelled.error) == "Untravelled: lost on the way (7)"
    assert "lambda" in str(unsendable.error)
    assert fine.result[0] == "fine", "a worker goes on after a failure"


class Scripted:
    """An executor without processes: what happens to each job, attempt by attempt."""

    def __init__(self, script: dict[str, list]) -> None:
        self.script = script
        self.queue: list[tuple[int, str]] = []
        self.closed = False

    def submit(self, number, work, job) -> None:
        self.queue.append((number, job))

    def events(self):
        while self.queue:
            number, job = self.queue.pop(0)
            yield Told(number, job)
            yield self.script[job].pop(0)(number)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def scripted() -> Scripted:
    return Scripted(
        {
            "good": [lambda n: Done(n, "fine")],
            "unlucky": [lambda n: Died(n, "killed"), lambda n: Done(n, "fine")],
            "hungry": [lambda n: Died(n, "killed"), lambda n: Died(n, "killed")],
            "wrong": [lambda n: Failed(n, ValueError("no"))],
        }
    )


def test_what_died_is_tried_once_more_after_the_others(scripted) -> None:
    heard = []
    jobs = ["hungry", "unlucky", "wrong", "good"]
    ends = {end.number: end for end in as_they_come(scripted, work, jobs, lambda number, what: heard.append(what))}
    assert heard == ["hungry", "unlucky", "wrong", "good", "hungry", "unlucky"]
    assert ends[1] == Done(1, "fine")
    assert ends[3] == Done(3, "fine")
    assert str(ends[2].error) == "no", "an exception is an answer, and is not asked for again"
    assert isinstance(ends[0].error, ChildProcessError)
    assert "job 1 of 4 ended without an error message, twice (killed)" in str(ends[0].error)


def test_a_failure_is_raised_once_the_others_have_ended(scripted, monkeypatch) -> None:
    registry = polariscope.lab.executors.executors
    assert "processes" in registry.names(), "all are found before one is replaced"
    monkeypatch.setitem(registry._entries, "processes", lambda workers: scripted)
    heard = []
    with pytest.raises(ValueError, match="no"):
        in_parallel(work, ["wrong", "good", "unlucky"], 2, lambda number, what: heard.append(what))
    assert heard == ["wrong", "good", "unlucky", "unlucky"]
    assert scripted.closed


@pytest.mark.parametrize(
    ("stop", "how", "grace"),
    [
        (KeyboardInterrupt, "sleep", 600.0),
        (ZeroDivisionError, "sleep", 600.0),
        (KeyboardInterrupt, "sleep_deeply", 0.1),
    ],
)
def test_whatever_stops_us_stops_the_jobs(light, tmp_path, monkeypatch, stop, how, grace) -> None:
    """Running jobs may save themselves, those that do not listen are ended, a queued one never begins."""
    executors, jobs = light
    monkeypatch.setattr(executors, "GRACE", grace)
    pids = []

    def report(number, pid) -> None:
        pids.append(pid)
        if len(pids) == 2:
            raise stop

    with pytest.raises(stop):
        executors.in_parallel(getattr(jobs, how), [tmp_path / name for name in "abc"], 2, report)
    assert len(set(pids)) == 2
    assert not any(map(runs, pids))
    assert sorted(file.name for file in tmp_path.iterdir()) == (["a", "b"] if how == "sleep" else [])


def test_a_worker_is_started_as_a_whole() -> None:
    """Ctrl-C in the middle of it would leave half of one, whichever thread of ours is the one to hear it."""
    over, reached = threading.Event(), False
    bystander = threading.Thread(target=over.wait)
    bystander.start()
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_later():
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(0.2)
            reached = True
        assert reached
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        over.set()
        bystander.join()


PARENT = """
import sys
from pathlib import Path

import jobs

from polariscope.lab import executors

if __name__ == "__main__":
    executors.GRACE = 600.0  # however busy the machine is
    work, *files = sys.argv[1:]
    executors.in_parallel(getattr(jobs, work), [Path(f) for f in files], 2, lambda number, pid: print(pid, flush=True))
"""


@pytest.fixture
def parent(tmp_path):
    """``parent("sleep", "a", "b")``: a process that has these jobs done in two others, which it starts."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PLACES)}
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> tuple[subprocess.Popen[str], list[int]]:
        process = subprocess.Popen(
            [sys.executable, script, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, [int(process.stdout.readline()) for _ in range(2)]

    yield start
    for process in started:
        with process:
            process.kill()


def test_workers_end_with_their_parent(parent) -> None:
    process, workers = parent("sleep_deeply", "a", "b")
    process.kill()
    while any(map(runs, workers)):
        time.sleep(0.05)


def test_one_key_reaches_every_worker_once(parent, tmp_path) -> None:
    """As a terminal does it: the signal goes to every process of the group, workers included."""
    process, workers = parent("sleep_and_save", "a", "b", "c")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1, "of the parent, which has no command line to catch it; no worker's"
    assert not any(map(runs, workers))
    assert {file.name: file.read_text() for file in tmp_path.glob("?")} == {"a": "saved", "b": "saved"}


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended but was not waited for still has a number.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
