"""Files appear whole or not at all, and stay there when the power goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it when the block ends well, and vanishes when it does not.

    A reader, a crash or a full disk therefore never meets a half-written file: the previous one stays. Whatever library
    wrote it, the file has the mode that the umask gives.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        mode = _usual_mode(draft)
        yield draft
        os.chmod(draft, mode)
        _sync(draft, os.O_RDWR)  # first the content: a name must never point to bytes that are not on the disk
        os.replace(draft, path)
        with suppress(OSError):  # then the name; some file systems cannot sync a folder, and the file is there
            _sync(path.parent, os.O_RDONLY)
    finally:
        draft.unlink(missing_ok=True)


def _usual_mode(path: Path) -> int:
    """The mode of a file made here in the ordinary way: to ask for the umask is to change it for all threads."""
    path.touch()
    mode = path.stat().st_mode & 0o777
    path.unlink()
    return mode


def _sync(path: Path, how: int) -> None:
    descriptor = os.open(path, how)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
