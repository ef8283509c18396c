"""Shared by the tests of studies: each study is worked out once a module, at smoke scale."""

import pytest

from polariscope.studies import reproduce
from polariscope.studies.engine import Outcome


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """``outcome("fondue")``: a study at smoke scale, on data that needs no file, done once a module."""
    folder = tmp_path_factory.mktemp("results")
    done: dict[str, Outcome] = {}

    def run(name: str) -> Outcome:
        if name not in done:
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("POLARISCOPE_DATA", raising=False)
                done[name] = reproduce(name, "smoke", folder, workers=1)
        return done[name]

    return run
