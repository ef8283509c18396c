"""A study of a thousand tiny runs: every run once, and memory that does not grow with their number."""

import pytest

MEGABYTES = 30
"""From the third tenth of the jobs to the last: a leak of 43 kB for each run would fill it."""


@pytest.mark.deep
def test_memory_is_flat_over_a_thousand_runs() -> None:
    scale = pytest.importorskip("benchmarks.scale")
    result = scale.measured(1000)  # which checks that every job has one row and one run
    assert abs(result["growth"]) < MEGABYTES
