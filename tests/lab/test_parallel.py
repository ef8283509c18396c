"""Jobs in other processes: order, reports, failures."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polariscope.lab import in_parallel


def square(job: int, tell) -> tuple[int, int]:
    tell(f"squaring {job}")
    return job**2, os.getpid()


def fail_on_two(job: int, tell) -> int:
    if job == 2:
        raise ValueError("two is not allowed")
    return job


def test_results_keep_their_order_and_reports_arrive() -> None:
    heard: list[tuple[int, str]] = []
    results = in_parallel(square, [3, 4, 5], workers=2, report=lambda number, what: heard.append((number, what)))
    assert [value for value, _ in results] == [9, 16, 25]
    assert os.getpid() not in {pid for _, pid in results}
    assert sorted(heard) == [(0, "squaring 3"), (1, "squaring 4"), (2, "squaring 5")]


def test_one_worker_stays_in_this_process() -> None:
    heard: list[int] = []
    assert in_parallel(square, [2], report=lambda number, what: heard.append(number)) == [(4, os.getpid())]
    assert heard == [0]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_is_raised_here(workers: int) -> None:
    with pytest.raises(ValueError, match="two is not allowed"):
        in_parallel(fail_on_two, [1, 2, 3], workers=workers)


PARENT = """
import os, sys, time
from polariscope.lab.parallel import in_parallel

def work(job, tell):
    tell(os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    in_parallel(work, [0, 1], 2, lambda number, pid: print(pid, flush=True))
"""


def test_workers_end_with_their_parent(tmp_path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    for _ in range(200):
        alive = [pid for pid in workers if _runs(pid)]
        if not alive:
            break
        time.sleep(0.1)
    assert not alive
    parent.stdout.close()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended but was not waited for still has a number.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
