"""Files and folders appear whole or not at all, and stay there when the power goes.

A draft lies under a hidden name beside its final place; the name contains its process. A killed process leaves its
draft behind; the next process that writes to the same folder sees that its author is dead, and removes it.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

DRAFT = re.compile(r"\..+\.(?P<host>[0-9a-f]{4})-(?P<pid>\d+)-(?P<start>\d+)-\d+\.draft")
OLDER_DRAFT = re.compile(r"\..+\.(?P<pid>\d+)\.draft")
"""As versions before named them: by the process alone."""
ABANDONED = 24 * 3600.0
"""Seconds after which the draft of a process on another machine counts as abandoned."""
FULL = (errno.ENOSPC, errno.EDQUOT)

_numbers = itertools.count()
_swept: set[tuple[int, str]] = set()
fault: Callable[[str, Path], None] | None = None
"""For tests: told before each act on the disk (``draft``, ``written``, ``sync``, ``rename``, ``sync folder``), with the
path it is about. It may raise, as a full disk does, or end the process, as a power cut does."""


class FullDiskError(OSError):
    """The disk is full."""


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it when the block ends well, and vanishes when it does not.

    A reader, a crash or a full disk therefore never meets a half-written file: the previous one stays. The file has the
    mode of the umask, whichever library wrote it.
    """
    path = Path(path)
    with _drafted(path) as draft:
        mode = _usual_mode(draft)
        yield draft
        _about_to("written", draft)
        os.chmod(draft, mode)
        _sync(draft, os.O_RDWR)  # first the content: a name must never point to bytes that are not on the disk
        _about_to("rename", path)
        os.replace(draft, path)
        _sync_folder(path.parent)  # then the name


@contextmanager
def atomic_folder(path: Path | str) -> Iterator[Path]:
    """A hidden folder to fill, which gets its name when the block ends well; :class:`FileExistsError` if it is taken.

    Of several processes that want one name, one gets it. An empty folder in its place is no obstacle.
    """
    path = Path(path)
    with _drafted(path) as draft:
        draft.mkdir()
        yield draft
        _sync_folder(draft)
        _about_to("rename", path)
        try:
            os.rename(draft, path)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            raise
        _sync_folder(path.parent)


@contextmanager
def replaced_folder(path: Path | str) -> Iterator[Path]:
    """A hidden folder to fill, which takes the place of the folder ``path`` when the block ends well, if there is one.

    A reader sees all of the old folder or all of the new one. Where the system cannot exchange two names at once, there
    is a moment without a folder; after a crash in it, :func:`restore_folder` brings the old one back.
    """
    path = Path(path)
    aside = _aside(path)
    with _drafted(path) as draft:
        draft.mkdir()
        yield draft
        _sync_folder(draft)
        restore_folder(path)
        _about_to("rename", path)
        if not path.is_dir():
            os.rename(draft, path)
        elif not _exchanged(draft, path):
            os.rename(path, aside)
            _about_to("rename", path)
            os.rename(draft, path)
            shutil.rmtree(aside, ignore_errors=True)
        _sync_folder(path.parent)


def restore_folder(path: Path) -> None:
    """Bring back the folder that a crash left aside while it was to be replaced; remove it if it was replaced."""
    aside = _aside(path)
    if aside.is_dir():
        if path.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(aside, path)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange the names of two folders at once, which Linux can do on most file systems; False where it cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # another system
        return False
    here, exchange = -100, 2
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


@contextmanager
def _drafted(path: Path) -> Iterator[Path]:
    """A hidden name of this process beside ``path``, where nothing stays; a full disk is said in a sentence."""
    sweep(path.parent)
    draft = path.with_name(f".{path.name}.{author()}-{next(_numbers)}.draft")
    try:
        _about_to("draft", draft)
        yield draft
    except Exception as error:
        if is_full(error) and not isinstance(error, FullDiskError):
            state = "is as it was before" if path.exists() else "is not there"
            raise FullDiskError(
                f"the disk is full: {path} could not be written and {state}; free some space, then run the command "
                "again"
            ) from error
        raise
    finally:
        _remove(draft)


def is_full(error: BaseException) -> bool:
    """Whether an exception of any library means that the disk is full."""
    if isinstance(error, FullDiskError) or (isinstance(error, OSError) and error.errno in FULL):
        return True
    # safetensors and Arrow have the system's answer in their text alone
    return type(error).__name__ in ("SafetensorError", "OSError") and bool(
        re.search(r"os error (28|122)\b|errno (28|122)\b", str(error), re.IGNORECASE)
    )


def sweep(folder: Path) -> None:
    """Remove the drafts that dead processes left in a folder; once for each folder, because it lists the folder."""
    key = (os.getpid(), os.path.abspath(folder))
    if key in _swept:
        return
    _swept.add(key)
    with suppress(OSError):  # a folder that is not there, or whose drafts are not ours to remove: they do no harm
        for name in os.listdir(folder):
            if name.endswith(".draft") and is_abandoned(folder / name):
                _remove(folder / name)


def is_abandoned(draft: Path) -> bool:
    """Whether a path is a draft, and its author is dead."""
    named = DRAFT.fullmatch(draft.name)
    if named is None:
        older = OLDER_DRAFT.fullmatch(draft.name)
        return older is not None and _start_of(int(older["pid"])) is None
    if named["host"] != _host():
        with suppress(FileNotFoundError):
            return time.time() - draft.stat().st_mtime > ABANDONED
        return False
    return is_dead(f"{named['host']}-{named['pid']}-{named['start']}")


def author() -> str:
    """Who writes: the machine, the process, and when that began, because numbers of processes come again."""
    return f"{_host()}-{os.getpid()}-{_start_of(os.getpid())}"


def is_dead(author: str) -> bool:
    """Whether an author, as named by :func:`author`, was a process of this machine and is dead."""
    host, pid, start = author.split("-")
    return host == _host() and _start_of(int(pid)) != int(start)


@lru_cache(maxsize=1)
def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:4]


def _start_of(pid: int) -> int | None:
    """When a process of this machine began, in the system's own count; 0 where that is not told; None: it is dead."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if after_name[0] in "ZX" else int(after_name[19])
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except OSError:
        return 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def _remove(draft: Path) -> None:
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def _usual_mode(path: Path) -> int:
    """The mode of a file made here in the ordinary way: to ask for the umask is to change it for all threads."""
    path.touch()
    mode = path.stat().st_mode & 0o777
    path.unlink()
    return mode


def _about_to(act: str, path: Path) -> None:
    if fault is not None:
        fault(act, path)


def _sync(path: Path, how: int) -> None:
    _about_to("sync", path)
    descriptor = os.open(path, how)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # some file systems cannot sync a folder, and what is in it is there
        _about_to("sync folder", path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
