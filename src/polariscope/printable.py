"""Words to people, whoever chose the names in them: a name in a file may hold the bytes that move a cursor."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from typing import TextIO

LONGEST = 300
"""Letters of a stranger's words that fit into a sentence."""
SPELLED = dict(zip("–—‘’“”±×→≥≤", ("-", "-", "'", "'", '"', '"', "+-", "x", "->", ">=", "<="), strict=True))
"""ASCII replacements of our signs."""
LETTERS = "spelled-out"


def printable(text: object) -> str:
    """Text without control characters; line breaks and tabs stay.

    >>> printable("size\\x1b[2J\\x07")
    'size[2J'
    """
    words = str(text)
    return words if words.isprintable() else "".join(c for c in words if c.isprintable() or c in "\n\t")


def one_line(text: object) -> str:
    """Foreign text inside a sentence: one line, not too long, without control characters."""
    line = str(text)
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def say(words: object, file: TextIO | None = None) -> None:
    """Print one or more lines for people, by default on standard output."""
    print(printable(words), file=file or sys.stdout)


def spell_out(stream: TextIO) -> None:
    """Let a stream replace letters that it cannot encode, so that no result is lost to a dash."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:  # not so of what a program put in its place
        reconfigure(errors=LETTERS)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(SPELLED.get(letter) or _plain(letter) for letter in letters), error.end


def _plain(letter: str) -> str:
    """
    >>> _plain("²"), _plain("é"), _plain("雪")
    ('2', 'e', '?')
    """
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


codecs.register_error(LETTERS, _spelled)
