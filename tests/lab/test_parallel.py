"""Jobs in other processes: order, reports, failures."""

import os

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
