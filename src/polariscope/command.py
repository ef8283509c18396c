"""The command that is being carried out, as one would type it again. Documents made under it keep it.

The command line says which it is (:func:`carrying_out`); whoever finds out what a word of it meant ("latest") puts that
in its place, so that the same words give the same answer tomorrow. In Python there is no command, and none is kept.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_WORDS: ContextVar[tuple[str, ...]] = ContextVar("words", default=())


@contextmanager
def carrying_out(words: Sequence[str]) -> Iterator[None]:
    """Everything inside is done for this command: ``words`` are those behind ``polariscope``."""
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
