"""Progress of a training in Python: shown to whoever looks, and to nobody else."""

import io
import sys
import types

import pytest

from polariscope.lab import Store
from polariscope.training import progress as shown
from polariscope.training import train


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_a_terminal(monkeypatch):
    """``at_a_terminal()`` makes standard error one: within the test, because pytest sets it anew before."""

    def seat() -> Terminal:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "200")
        screen = Terminal()
        monkeypatch.setattr("sys.stderr", screen)
        return screen

    return seat


def test_a_terminal_gets_a_bar_unless_quiet(tmp_path, small, at_a_terminal) -> None:
    screen = at_a_terminal()
    train(small(steps=3), Store(tmp_path))
    assert "sprites vae" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    screen.seek(0)
    screen.truncate()
    train(small(steps=3), Store(tmp_path), quiet=True)
    progress = []
    train(small(steps=3), Store(tmp_path), progress.append)
    assert screen.getvalue() == ""
    assert progress[-1].step == 3


def test_neither_a_file_nor_a_worker_gets_any(tmp_path, small, capsys, monkeypatch, at_a_terminal) -> None:
    train(small(steps=3), Store(tmp_path))
    assert capsys.readouterr() == ("", "")
    screen = at_a_terminal()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    train(small(steps=3), Store(tmp_path))
    assert screen.getvalue() == ""


def test_a_notebook_gets_a_line_that_is_written_anew(tmp_path, small, monkeypatch, capsys) -> None:
    lines = []

    class Handle:
        def update(self, content, raw) -> None:
            lines.append(content["text/plain"])

    def display(content, raw, display_id) -> Handle:
        lines.append(content["text/plain"])
        return Handle()

    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    assert shown.watched()
    train(small(steps=3), Store(tmp_path))
    assert lines[0] == "sprites vae: starting"
    assert lines[-1].startswith("sprites vae: step 3 of 3")
    assert capsys.readouterr() == ("", "")


def test_no_rate_and_no_time_left_are_shown_before_a_rate_is_known(monkeypatch, at_a_terminal) -> None:
    now = 0.0
    monkeypatch.setattr(shown.time, "monotonic", lambda: now)
    lines: list[str] = []
    console = types.SimpleNamespace(print=lambda text, highlight: lines.append(text))
    tell = shown._lines(console, "run 1")
    now = 40.0  # the start of a worker of a cluster
    tell(shown.Progress(1, 300_001, 9.0))
    now = 80.0
    tell(shown.Progress(401, 300_001, 8.0))
    assert lines == [
        "run 1: step 1 of 300001, loss 9.0",
        "run 1: step 401 of 300001, 10.0 steps/s, 29960 s left, loss 8.0",
    ]


def test_a_run_that_goes_on_is_not_credited_with_its_earlier_steps() -> None:
    pace = shown.Pace()
    assert pace.rate(5000, 1.0) is None
    assert pace.rate(5010, 3.0) == 5.0
    assert pace.rate(1, 4.0) is None, "it began anew"
    assert pace.rate(5, 6.0) == 2.0
