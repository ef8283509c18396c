"""A run is written by one process at a time, and the others hear who does."""

import os
import platform
import signal
import subprocess
import sys
import threading

import pytest

import polariscope.lab.holding
from polariscope.lab.holding import InUseError, hold

HOLDER = """
import runpy, sys, time
from pathlib import Path
hold = runpy.run_path(sys.argv[1])["hold"]  # the module alone starts much faster than the package
with hold(Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_another_process_is_named_and_its_death_frees_the_run(tmp_path) -> None:
    folder = tmp_path / "runs" / "victim"
    words = [sys.executable, "-c", HOLDER, polariscope.lab.holding.__file__, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        expected = rf"run victim is in use by process {process.pid} on {platform.node()} since \d{{4}}-\d\d-\d\d \d\d:"
        for _ in range(2):  # the first to be refused must not take the name away
            with pytest.raises(InUseError, match=expected), hold(folder):
                pass
        process.send_signal(signal.SIGKILL)
    with hold(folder):
        assert (tmp_path / "runs" / ".victim.holder").exists()
    assert not (tmp_path / "runs" / ".victim.holder").exists()


def test_who_holds_a_run_may_hold_it_again(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with hold(tmp_path / "run"):
        with hold(tmp_path / "run"), hold(type(tmp_path)("run"), wait=True):
            pass
        assert refused_elsewhere(tmp_path / "run"), "to let go of the inner one must not let go of the outer"
    assert not refused_elsewhere(tmp_path / "run")
    with hold(tmp_path / "run"), hold(tmp_path / "another"):
        pass


def test_who_waits_comes_in_when_the_other_goes(tmp_path) -> None:
    order = []

    def second() -> None:
        with hold(tmp_path / "run", wait=True):
            order.append("second")

    with hold(tmp_path / "run"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_place_that_cannot_be_written_is_said(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"cannot write to the run folder .*file"), hold(tmp_path / "file" / "run"):
        pass


def refused_elsewhere(folder) -> bool:
    """Whether another thread, which counts as another, is refused."""
    found = []

    def ask() -> None:
        try:
            with hold(folder):
                found.append(False)
        except InUseError as error:
            found.append(f"process {os.getpid()} on" in str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]
