"""The current command, as one would type it again. Documents made by it store it.

The command line sets it (:func:`carrying_out`); code that resolves a word of it ("latest") replaces the word, so that
the same command gives the same result later. In Python there is no command, and none is stored.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_WORDS: ContextVar[tuple[str, ...]] = ContextVar("words", default=())


@contextmanager
def carrying_out(words: Sequence[str]) -> Iterator[None]:
    """Run a block for this command: ``words`` are the arguments after ``polariscope``."""
    token = _WORDS.set(tuple(words))
    try:
        yield
    finally:
        _WORDS.reset(token)


def again() -> str:
    """The command for a shell, quoted; empty where there is none.

    >>> with carrying_out(["examine", "my model.py:VAE", "--data", "latest"]):
    ...     word_meant("latest", "20260101-vae")
    ...     option_meant("--out", "other")
    ...     again()
    "polariscope examine 'my model.py:VAE' --data 20260101-vae --out other"
    >>> again()
    ''
    """
    words = _WORDS.get()
    return shlex.join(["polariscope", *words]) if words else ""


def word_meant(word: str, exact: str) -> None:
    """The first place of a word that stood for something else, such as ``latest`` for a run's id."""
    words = list(_WORDS.get())
    if word in words:
        words[words.index(word)] = exact
        _WORDS.set(tuple(words))


def option_meant(flag: str, value: str) -> None:
    """The value that an option needs the next time, such as a folder that must be new."""
    words = [word for word in _WORDS.get() if not word.startswith(f"{flag}=")]
    if not words:
        return
    if flag in words:
        place = words.index(flag)
        del words[place : place + 2]
    _WORDS.set((*words, flag, value))
