"""Shared by the tests of studies: each study once at smoke scale, and the committed tables as judged today."""

from functools import cache
from pathlib import Path

import pytest

from polariscope.studies import reproduce
from polariscope.studies.engine import Outcome, judge

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture(scope="session")
def outcome(tmp_path_factory, blank_figures):
    """``outcome("fondue")``: a study at smoke scale, on data that needs no file, done once.

    A smoke run shows that a study works from end to end. It is far too short for a verdict: those are in ``committed``.
    Trees are boosted for a few rounds only. Figures are drawn once, in their files; on the page, where the same ones
    would be drawn again, they are blank.
    """
    folder = tmp_path_factory.mktemp("results")

    @cache
    def run(name: str) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("POLARISCOPE_DATA", raising=False)
            patch.setattr("polariscope.measures.boosting.ROUNDS", 5)
            blank_figures(patch, "svg")
            return reproduce(name, "smoke", folder, workers=1)

    return run


@pytest.fixture(scope="session")
def committed():
    """``committed("fondue")``: the laptop-scale table in ``docs/results``, judged by the code of today."""

    @cache
    def read(name: str) -> Outcome:
        file = RESULTS / name / "table.parquet"
        if not file.exists():
            pytest.skip(f"the laptop table of {name} is not there yet: polariscope reproduce {name}")
        return judge(file)

    return read
