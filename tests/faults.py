"""Kills and full disks at an exact act on the disk.

``polariscope.atomic`` tells each draft, write, sync and rename before it happens. A child of this warm process, which
is much faster to start than a new one, ends there without another word; or the disk is full from there on.
"""

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polariscope.atomic

KILLED = 9


def fork(work: Callable[[], Any]) -> int:
    """The exit code of a child that does some work: 0 if it came to its end, 1 if it raised."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads of ours, of which a child uses none
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the child may go on as a second test run
        traceback.print_exc()
    finally:
        os._exit(code)


def killed_at(number: int, work: Callable[[], Any]) -> bool:
    """Do some work in a child that is killed at its ``number``-th act on the disk; False if it has no so many."""

    def run() -> None:
        polariscope.atomic.fault = _counted(number, _kill)
        work()

    code = fork(run)
    assert code in (0, KILLED), f"the child ended with {code}"
    return code == KILLED


def acts_of(work: Callable[[], Any]) -> list[str]:
    """What some work, which is done here, does on the disk."""
    acts: list[str] = []
    with _fault(lambda act, path: acts.append(act)):
        work()
    return acts


@contextmanager
def full_disk(number: int, *, for_good: bool = True):
    """From the ``number``-th act on, nothing more can be written; or at that act only. Yields what was refused."""
    refused: list[str] = []

    def refuse(act: str, path: Path) -> None:
        refused.append(act)
        _half(act, path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with _fault(_counted(number, refuse, for_good)):
        yield refused


def _counted(number: int, then: Callable[[str, Path], None], for_good: bool = False):
    acts = 0

    def fault(act: str, path: Path) -> None:
        nonlocal acts
        acts += 1
        # An act may only name or sync what is written: a full disk has no quarrel with it.
        if acts - 1 == number or (for_good and acts - 1 > number and act in ("draft", "written")):
            then(act, path)

    return fault


def _kill(act: str, path: Path) -> None:
    _half(act, path)
    os._exit(KILLED)


def _half(act: str, path: Path) -> None:
    """Of what was being written, half is there."""
    if act == "written" and path.is_file():
        os.truncate(path, path.stat().st_size // 2)


@contextmanager
def _fault(fault: Callable[[str, Path], None]):
    before = polariscope.atomic.fault
    polariscope.atomic.fault = fault
    try:
        yield
    finally:
        polariscope.atomic.fault = before
