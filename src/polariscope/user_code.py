"""The user's code: loaded from a file, and reported in one sentence with the user's line if it fails."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib"))


class UserCodeError(ValueError):
    """Something the user wrote raised; the sentence has their file and line, the cause the whole story."""


@contextmanager
def user_code(what: str, hint: Callable[[Exception], str] = lambda error: "") -> Iterator[None]:
    """Turn an exception of the user's code into one sentence. ``hint`` may add advice."""
    try:
        yield
    except UserCodeError:
        raise
    except Exception as error:
        raise UserCodeError(f"{what} failed{_own_line(error)}: {in_words(error)}{hint(error)}") from error


def in_words(error: Exception) -> str:
    """Kind and words of an exception in a line that is not too long."""
    message = " ".join(str(error).split()) or "without an error message"
    return f"{type(error).__name__}: {message if len(message) < 300 else f'{message[:300]} ...'}"


def _own_line(error: Exception) -> str:
    """The innermost line that is neither ours nor a library's: where the user can do something about it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and not any(file.resolve().is_relative_to(place) for place in (PACKAGE, *LIBRARIES)):
            return f" at {frame.filename}:{frame.lineno}"
    return ""


def import_file(path: Path, name: str, source: bytes | None = None) -> ModuleType:
    """The module of a file (or of its text, if that was read before), registered under ``name``.

    No bytecode is cached, so that an edit in the same second takes effect.
    """
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))  # their own imports of modules beside it
    loader = SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)  # dataclasses and the like look themselves up there
    with user_code(f"reading {path}"):
        exec(loader.source_to_code(path.read_bytes() if source is None else source, str(path)), vars(module))
    return module


def load_source(reference: str) -> Any:
    """The thing ``FILE.py:NAME`` names. A class, and a function that needs no arguments, is called to make it."""
    file, _, name = reference.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {file}")
    from polariscope import plugins  # which is made of this module

    plugin = plugins.module_of(path)  # what a plug-in registers is registered once
    module = import_file(path, path.stem) if plugin is None else plugin
    try:
        thing = getattr(module, name)
    except AttributeError as error:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"{file} has no {name!r}; it has {', '.join(known) or 'nothing to call'}") from error
    if not (isinstance(thing, type) or inspect.isfunction(thing)) or (inspect.isfunction(thing) and _required(thing)):
        return thing if plugin is None else copy.deepcopy(thing)  # as new as from a file that is run again
    missing = _required(thing)
    if missing:
        raise ValueError(
            f"{reference} needs arguments ({', '.join(missing)}): write a function without arguments that returns it, "
            f"such as 'def make(): return {name}({', '.join(f'{m}=...' for m in missing)})', and name that"
        )
    with user_code(f"making {name}"):
        return thing()


def _required(thing: Callable[..., Any]) -> list[str]:
    """Arguments without a default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # built in C: nothing is known about it
        return []
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in kinds]
