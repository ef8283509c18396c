"""One process at a time writes a run: the others are told who does, or wait."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout


class InUseError(ValueError):
    """Another process holds the run."""


@contextmanager
def hold(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a run folder, which need not exist yet; :class:`InUseError` if another does, unless ``wait`` is given.

    Who holds it already may hold it again. The system takes the lock back when the process ends, however it ends; the
    lock's file stays beside the folder, because to remove it would let two in.
    """
    folder = Path(os.path.abspath(folder))
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), is_singleton=True)
    note = folder.with_name(f".{folder.name}.holder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise InUseError(f"run {folder.name} is in use by {_holder(note)}: wait for it, or stop it first") from None
    except OSError as error:
        raise OSError(f"cannot write to the run folder {folder.parent}: {error.strerror or error}") from error
    outermost = lock.lock_counter == 1
    try:
        if outermost:
            about = {"pid": os.getpid(), "host": platform.node(), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
            note.write_text(json.dumps(about), encoding="utf-8")
        yield
    finally:
        if outermost:
            note.unlink(missing_ok=True)
        lock.release()


def _holder(note: Path) -> str:
    try:
        about = json.loads(note.read_text(encoding="utf-8"))
        return f"process {about['pid']} on {about['host']} since {about['since']}"
    except (OSError, ValueError, LookupError, TypeError):  # it has only just begun, or just ended
        return "another process"
