"""Interrupts: a scheduler's SIGTERM saves the same state as Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


def as_if_interrupted(number: int, frame: FrameType | None) -> None:
    """A handler: what Ctrl-C would do here now, which is to raise, or to stop a training between two steps."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # what a shell starts in the background ignores Ctrl-C, and is to heed this all the same
        raise KeyboardInterrupt
    handler(number, frame)


def once(handler: Handler) -> Handler:
    """A handler for the first time, and none for later ones: a scheduler tells a whole group, and so do we."""
    came: list[int] = []

    def first(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            handler(number, frame)

    return first


@contextmanager
def terminated_as_interrupted() -> Iterator[list[int]]:
    """Within the block SIGTERM does what Ctrl-C does; yields a list that has its number once it came.

    Who has a handler already keeps it, and threads have none.
    """
    came: list[int] = []
    usual = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread() or not usual:
        yield came
        return

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        as_if_interrupted(number, frame)

    signal.signal(signal.SIGTERM, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
