"""Shared by the whole suite: one thread a process, no display, and where the real data lies if it does."""

import importlib.util
import io
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of a test that has two wait without eating a core
os.environ.setdefault("MPLBACKEND", "Agg")

import signal

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # What a shell starts in the background ignores Ctrl-C, and so would everything here that is tested for heeding it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No deadline, which would assert wall-clock time; and the same examples on every run, for which "deep" is the exception
# (make test-deep). A test that wants fewer examples than others takes a share of settings.default.max_examples.
settings.register_profile("polariscope", deadline=None, derandomize=True)
settings.register_profile("deep", deadline=None, derandomize=False, max_examples=2000, print_blob=True)
settings.load_profile("polariscope")

BLANK = {"svg": b'<svg viewBox="0 0 1 1"></svg>', "png": b"\x89PNG\r\n\x1a\n"}
"""What is saved of figures that no test looks at."""
collect_ignore = ["fixtures"]
"""Files of earlier versions: a plug-in among them registers its entries when it is imported."""
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


@pytest.fixture(scope="session")
def faults():
    """Kills and full disks at an exact act on the disk: see ``faults.py``."""
    spec = importlib.util.spec_from_file_location("faults", Path(__file__).with_name("faults.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def blank_figures():
    """``blank_figures(patch, "svg")``: figures in these formats are made and saved, but not drawn."""

    def blank(patch: pytest.MonkeyPatch, *formats: str) -> None:
        from matplotlib.figure import Figure

        draw = Figure.savefig

        def save(figure: Figure, file, **options) -> None:
            name = options.get("format") or Path(file).suffix[1:]
            if name not in formats:
                draw(figure, file, **options)
            elif isinstance(file, io.StringIO):
                file.write(BLANK[name].decode())
            else:
                Path(file).write_bytes(BLANK[name])

        patch.setattr(Figure, "savefig", save)

    return blank


@pytest.fixture
def undrawn(monkeypatch, blank_figures) -> None:
    """No figure is drawn, which takes most of the time that a page takes: for tests that do not look at any."""
    blank_figures(monkeypatch, *BLANK)


@pytest.fixture
def queries_here(monkeypatch) -> None:
    """Queries in this process: the one of their own takes a moment to start, and is not what is looked at."""

    from polariscope.lab import query, query_process

    def run(request: bytes, limits: object) -> dict:
        out = io.BytesIO()
        query_process.main(io.BytesIO(request), out)
        return json.loads(out.getvalue())

    monkeypatch.setattr(query_process, "_limit", lambda megabytes, seconds: None)
    monkeypatch.setattr(query, "_run", run)
