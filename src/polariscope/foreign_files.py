"""Files that may come from strangers: only regular files are opened, and an unreadable file is refused in one sentence.

Libraries raise many exceptions on a damaged file: a ``KeyError`` for a node that is not there, an ``OverflowError`` for
a shape of 2^70, a ``SyntaxError`` for a header. :func:`reading` is the one boundary at which they become a
``ValueError`` that names the file. A reader of a plug-in can use both, and ``polariscope.testing.check_reader`` checks
it.
"""

from __future__ import annotations

import lzma
import stat
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNREADABLE = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RuntimeError, SyntaxError,
    SystemError, EOFError, OSError, MemoryError, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
    tokenize.TokenError,
)  # fmt: skip
"""Exceptions that libraries raise on files that are truncated, damaged, or claim a wrong size. A missing library
(``ImportError``) and an interrupt are not among them."""
LONGEST = 300
"""Characters of a library's message, or of names in a file, that are printed."""

_KINDS = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
    stat.S_ISDIR: "a folder",
}


def check_regular(path: Path | str) -> None:
    """Refuse pipes, devices and sockets before they are opened: reading one waits for ever, or never ends."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ValueError(f"{path}: expected a file that can be read, but {reason_of(error)}") from error
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS.items() if is_kind(mode)), "none")
        raise ValueError(f"{path}: expected a regular file, but it is {kind}; copy its content into a file first")


@contextmanager
def reading(path: Path | str, expected: str) -> Iterator[None]:
    """Turn the exceptions of libraries on a file into one sentence; sentences that begin with the file stay as they
    are.

    >>> with reading("a.npy", "a whole npy file"):
    ...     raise OverflowError("Python integer 2361183241434822606848 out of bounds for int64.")
    Traceback (most recent call last):
    ValueError: a.npy: expected a whole npy file, but reading it failed: Python integer 2361183241434822606848 out of
    bounds for int64
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about files that they read or refuse all the same
            yield
    except UNREADABLE as error:
        if isinstance(error, ValueError) and str(error).startswith(f"{path}: "):
            raise
        raise ValueError(f"{path}: expected {expected}, but {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """A library's message as the end of a sentence: one line, without its final stop."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    message = printable(message).rstrip(".")
    if isinstance(error, MemoryError):
        message = message or "it needs more memory than there is"
    elif isinstance(error, LookupError | AssertionError | AttributeError) or not message:
        message = f"{type(error).__name__} {message}".strip()  # the missing name alone would tell nothing
    return f"reading it failed: {message}"


def printable(text: str, longest: int = LONGEST) -> str:
    """Text from a file or a library as part of a sentence: one line, not too long, without control characters.

    >>> printable("a \\x1b[2J\\n name")
    'a ?[2J name'
    """
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text[: 2 * longest]).split())
    return line if len(line) <= longest else f"{line[:longest]} ..."
