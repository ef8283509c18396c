"""From words to flags: dataclasses are the flags. Nothing heavy is imported here, so that a listing starts at once."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

T = TypeVar("T")


def flag(kind: Any, words: str) -> Any:
    """The type of a flag together with its help."""
    return Annotated[kind, tyro.conf.arg(help=words)]


RUNS = ("runs", flag(Path, "Folder of the runs."), Path("runs"))
JSON = ("json", flag(bool, "Print JSON for machines."), False)


def parse(kind: type[T] | Callable[..., T], arguments: list[str], command: str, default: Any = None) -> T:
    """Flags to an instance of ``kind``. What does not fit is a :class:`ValueError` of one sentence."""
    complaint = io.StringIO()
    options = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(complaint):
            result: T = tyro.cli(kind, args=arguments, prog=f"polariscope {command}", **options)
            return result
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(_sentence(complaint.getvalue(), command)) from None


def _sentence(box: str, command: str) -> str:
    """tyro draws its complaints in boxes; we say them in a line."""
    lines = [re.sub(r"[╭╮╰╯│─|+]+|-{3,}", " ", line).strip() for line in box.splitlines()[1:]]
    lines = [line for line in lines if line and not line.startswith("For full helptext")]
    text = " ".join(lines)
    text = re.sub(r"^Error parsing [\w.-]+: (?=\w+ (is|needs|has))", "", text)
    text = re.sub(r"Unrecognized options: (\S+?)(, .*?)?(?= Perhaps|$)", r"there is no option \1.", text)
    text = re.sub(r" Perhaps you meant: (--\S+).*", r" Did you mean \1?", text)
    return f"{text} ('polariscope {command} --help' lists the options)"


def take(arguments: list[str], flag: str) -> str | None:
    """Remove ``--flag VALUE`` (or ``--flag=VALUE``) from the words and give its value."""
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


def take_first(arguments: list[str]) -> str | None:
    """Remove the first word and give it, if it is not an option."""
    return arguments.pop(0) if arguments and not arguments[0].startswith("-") else None


def read_toml(path: str | None) -> dict[str, Any]:
    """A configuration file, or a sentence."""
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no configuration file {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the configuration file {path} is not valid TOML: {error}") from error


def options_type(fields: list[tuple[str, Any, Any]], help_text: str = "") -> Any:
    """A dataclass of (name, type, default) fields: what tyro turns into flags."""
    options = dataclasses.make_dataclass(
        "Options", [(name, kind, dataclasses.field(default=value)) for name, kind, value in fields], frozen=True
    )
    options.__doc__ = help_text
    return options
