"""One process at a time writes a run; the others wait, or get an error that names it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

try:
    import fcntl
except ImportError:  # not on this system, where the lock has to be taken to be looked at
    fcntl = None  # type: ignore[assignment]

MOMENT = 0.1
"""Seconds that :func:`hold` waits at least, because :func:`is_held` takes the lock for some microseconds."""
LONG = 60.0
"""Seconds of waiting for a run after which a message says so."""


def _say(sentence: str) -> None:
    from polariscope.console import notice

    notice(sentence)


say: Callable[[str], None] = _say
"""Receives the message about a long wait; the process of a job sends it to the command."""


class InUseError(ValueError):
    """Another process holds the run."""


@contextmanager
def hold(folder: Path, wait: bool | float = False) -> Iterator[None]:
    """Hold a run folder, which need not exist yet. If another process holds it, raises :class:`InUseError`, at once or
    after ``wait`` seconds; with ``wait=True``, it waits as long as that process lives, with a message after
    :data:`LONG` seconds.

    A process that holds a folder may hold it again, also through another link to it. The system releases the lock when
    the process ends, even if it is killed. The lock file stays beside the folder, because without it two processes
    could hold the folder.
    """
    folder = Path(os.path.realpath(folder))
    lock = FileLock(lock_file(folder), is_singleton=True)
    note = folder.with_name(f".{folder.name}.holder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        patience = LONG if wait is True else wait or MOMENT
        try:
            lock.acquire(timeout=patience, poll_interval=0.05 if wait else MOMENT / 10)
        except Timeout:
            if wait is not True:
                raise
            say(f"waiting for run {folder.name}, which is in use by {_holder(note)}")
            lock.acquire(timeout=-1)
    except Timeout:
        raise InUseError(f"run {folder.name} is in use by {_holder(note)}: wait for it, or stop it first") from None
    except OSError as error:
        raise OSError(f"cannot write to the run folder {folder.parent}: {error.strerror or error}") from error
    outermost = lock.lock_counter == 1
    try:
        if outermost:
            about = {"pid": os.getpid(), "host": platform.node(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
            with suppress(OSError):  # the note is optional, and the disk may be full
                note.write_text(json.dumps(about), encoding="utf-8")
        yield
    finally:
        if outermost:
            note.unlink(missing_ok=True)
        lock.release()


def lock_file(folder: Path) -> Path:
    """The file that is locked while a run folder is held. It lies beside the folder; links are resolved first."""
    folder = Path(os.path.realpath(folder))
    return folder.with_name(f".{folder.name}.lock")


def is_held(folder: Path) -> bool:
    """Whether a living process (this one or another) holds a run folder. The test neither writes nor waits."""
    file = lock_file(folder)
    try:
        if fcntl is None:
            with FileLock(file, timeout=0) if file.exists() else nullcontext():
                return False
        descriptor = os.open(file, os.O_RDONLY)
    except Timeout:
        return True
    except OSError:  # it was never held, or the file may not be read
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)  # and with it the lock
    return False


def _holder(note: Path) -> str:
    try:
        about = json.loads(note.read_text(encoding="utf-8"))
        words = f"process {about['pid']} on {about['host']} since {about['since']}"
        return "".join(letter for letter in words if letter.isprintable())[:300]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # it has only just begun, or just ended
        return "another process"
