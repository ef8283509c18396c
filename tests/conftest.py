"""Shared by the whole suite: one thread a process, no display, and where the real data lies if it does."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("polariscope", deadline=None)  # a deadline would assert wall-clock time
settings.load_profile("polariscope")

REAL_DATA = Path(os.environ.get("POLARISCOPE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture
def real_data():
    """``real_data("mnist/x.gz")`` is the path of a real data file; the test skips with a sentence if it is absent."""

    def path(name: str) -> Path:
        file = REAL_DATA / name
        if not file.exists():
            pytest.skip(f"the real data file {name} is not at hand (set POLARISCOPE_DATA to its folder)")
        return file

    return path
