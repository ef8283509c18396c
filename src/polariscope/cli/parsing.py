"""From arguments to options: dataclasses define the flags. No heavy module is imported here, so that a listing starts
at once."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
import shutil
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

T = TypeVar("T")


def flag(kind: Any, words: str) -> Any:
    """The type of a flag together with its help."""
    return Annotated[kind, tyro.conf.arg(help=words)]


RUNS = ("runs", flag(Path, "Folder of the runs."), Path("runs"))
OUT = (
    "out",
    flag(
        Path | None,
        "A page (.html), the first figure (.png, .svg), or a folder for everything; the run then keeps no document. By "
        "default a folder of the run (findings/), or a page in the current folder.",
    ),
    None,
)
WRITTEN = (".html", ".png", ".svg", ".jpg", ".md", ".csv", ".parquet", ".xyz", ".sdf", ".json")
"""Endings of files that a command may write anew; other files are those of a user."""
UNWRITTEN = (".pdf", ".eps", ".ps", ".gif", ".tif", ".tiff", ".bmp", ".webp", ".jpeg", ".htm", ".txt", ".doc", ".docx")
"""Endings of files that no command writes; a folder of such a name would surprise."""
JSON = ("json", flag(bool, "Print JSON for machines."), False)


def parse(kind: type[T] | Callable[..., T], arguments: list[str], command: str, more: Callable[[], str] = str) -> T:
    """Flags to an instance of ``kind``; flags that do not fit raise a :class:`ValueError` of one sentence.

    Help ends with ``more``.
    """
    complaint, shown = io.StringIO(), Shown()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(shown):
            result: T = tyro.cli(kind, args=arguments, prog=f"polariscope {command}")
    except SystemExit as stop:
        if stop.code in (0, None):
            print(wrapped(shown.getvalue().rstrip("\n")))
            print(more(), end="")
            raise
        raise ValueError(_sentence(complaint.getvalue(), command)) from None
    out = getattr(result, "out", None)
    if isinstance(out, Path):
        if out.suffix.lower() in UNWRITTEN and not out.is_dir():
            raise ValueError(
                f"--out {out}: no {out.suffix} file is written; name a file or folder that --help describes"
            )
        if out.is_file() and out.suffix not in WRITTEN:
            raise ValueError(f"--out {out} is a file: name a page (.html), a picture (.png, .svg) or a folder")
        check_place(out, "--out")
    return result


def check_place(path: Path, option: str) -> None:
    """Refuse a folder that cannot be written to before hours of work are lost. The test leaves no file behind."""
    folder = path if path.is_dir() else path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"cannot write to {folder.absolute()}: {reason}; name another place with {option}") from error


class Shown(io.StringIO):
    """The output of a block as text, with the colours and the encoding of its final destination."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(sys.__stdout__, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def wrapped(text: str) -> str:
    """Wrap lines of prose that are wider than the terminal; boxes stay as they are."""
    width = columns()
    lines = []
    for line in text.splitlines():
        prose = len(line) > width and not line.startswith(("\x1b", "╭", "│", "╰"))
        lines += textwrap.wrap(line, width, break_on_hyphens=False) if prose else [line]
    return "\n".join(lines)


def columns() -> int:
    """Width of help: that of the terminal, up to a readable limit."""
    return min(shutil.get_terminal_size().columns, 120)


_MARKS = [
    (r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1"),  # :class:`~polariscope.worlds.world.World`
    (r"``?([^`]+)``?", r"\1"),
    (r"\*\*([^*]+)\*\*", r"\1"),
    (r"\s*\((?:[^()]*;\s*)?[Ss]pec \d[^()]*\)", ""),  # (Klindt et al. 2021; Spec 001a, section 8.5)
    (r"[;,]?\s*\b[Ss]pec \d\w*(?:, (?:section|table|row|appendix)s? [\w.]*\w(?:(?:, | and | to )[\w.]*\d\w*)*)?", ""),
]
"""Markup and references in docstrings, and their replacements on the command line."""


def plain_words(docstring: str | None, settings: Collection[str] = ()) -> str:
    """A docstring for users: its first paragraph, and the paragraphs that explain one of the ``settings``, without
    markup, examples and references to the specification.

    >>> plain_words("Draws ``count`` bars (Spec 002, section 1.3).\\n\\nHow fast.\\n\\n>>> Bars(3)")
    'Draws count bars.'
    """
    first, *others = re.split(r"\n\s*\n", inspect.cleandoc(docstring or ""))
    explanations = [part for part in others if not part.startswith(">>>") and _explains(part, settings)]
    return "\n\n".join(_unmarked(part) for part in (first, *explanations))


def _explains(paragraph: str, settings: Collection[str]) -> bool:
    return any(f"``{name}``" in paragraph for name in settings)


def _unmarked(text: str) -> str:
    text = " ".join(text.split())
    for mark, plain in _MARKS:
        text = re.sub(mark, plain, text)
    return text


_COMPLAINTS = [
    (
        r"^Error parsing (--\S+): invalid literal for int.*?: ('.*?').*",
        r"\1 needs a whole number, got \2",
    ),
    (r"^Error parsing (--\S+): could not convert string to float: ('.*?').*", r"\1 needs a number, got \2"),
    (r"^Error parsing (?!--)[\w.]+: ", ""),
    (r"^Missing value for argument '(--\S+?)'.*", r"\1 needs a value"),
    (
        r"^invalid choice (.*?) for argument '(--\S+?)'. Expected one of \((.*?),?\)\.",
        r"\2 is \1: it needs to be one of \3",
    ),
    (r"Unrecognized options: (?!-)(\S+?)(, .*?)?(?= Perhaps|$)", r"'\1' is one argument too many."),
    (
        r"Unrecognized options: --(world|objective|model|split)\.(\S+?)(, .*?)?$",
        r"this \1 has no setting \2: --\1 NAME chooses another \1.",
    ),
    (r"Unrecognized options: (\S+?)(, .*?)?(?= Perhaps|$)", r"there is no option \1."),
    (r" Perhaps you meant: (--\S+).*", r" Did you mean \1?"),
]
"""Messages of tyro, and our sentences for them."""


def _sentence(box: str, command: str) -> str:
    """One line instead of the box that tyro prints."""
    lines = [re.sub(r"[╭╮╰╯│─|+]+|-{3,}", " ", line).strip() for line in box.splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith("For full helptext")]
    text = " ".join(lines)
    for theirs, ours in _COMPLAINTS:
        text = re.sub(theirs, ours, text)
    return f"{text} ('polariscope {command} --help' lists the options)"


def take(arguments: list[str], flag: str) -> str | None:
    """Remove ``--flag VALUE`` (or ``--flag=VALUE``) from the arguments and return its value."""
    for position, word in enumerate(arguments):
        if word == flag:
            if position + 1 == len(arguments):
                raise ValueError(f"{flag} needs a value")
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if word.startswith(f"{flag}="):
            del arguments[position]
            return word.removeprefix(f"{flag}=")
    return None


def peek(arguments: list[str], flag: str) -> str | None:
    """The value of ``--flag VALUE``, which stays among the arguments."""
    return take(list(arguments), flag)


def take_data(arguments: list[str]) -> str | None:
    """Remove the data of a command from the arguments and return it: the first word, ``--data DATA``, or ``--world
    DATA``."""
    named = [take_first(arguments), take(arguments, "--data"), take(arguments, "--world")]
    given = list(dict.fromkeys(word for word in named if word is not None))
    if len(given) > 1:
        raise ValueError(f"a command takes one data set, got {' and '.join(given)}: leave one out")
    return given[0] if given else None


def asks_for_help(arguments: Collection[str]) -> bool:
    return "-h" in arguments or "--help" in arguments


def take_first(arguments: list[str]) -> str | None:
    """Remove the first word and return it, if it is not an option."""
    return arguments.pop(0) if arguments and not arguments[0].startswith("-") else None


def read_toml(path: str | None) -> dict[str, Any]:
    """The content of a configuration file; a bad file is refused in one sentence."""
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no configuration file {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the configuration file {path} is not valid TOML: {error}") from error


def options_type(fields: list[tuple[str, Any, Any]], help_text: str = "", base: type = object) -> Any:
    """A dataclass of (name, type, default) fields besides those of its base: what tyro turns into flags. If a default
    is empty (``inspect.Parameter.empty``), the option must be given."""
    given = [(n, k) if v is inspect.Parameter.empty else (n, k, dataclasses.field(default=v)) for n, k, v in fields]
    options = dataclasses.make_dataclass("Options", given, bases=(base,), frozen=True, kw_only=True)
    options.__doc__ = help_text
    return options
