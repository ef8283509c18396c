"""Plug-ins: worlds, objectives, models, measures, splits and studies that are registered outside of this package.

A plug-in is the user's own file (``--plugin FILE.py``, or :func:`load_plugin` in Python) or an installed package with
an entry point in the group ``polariscope.plugins``. The user named the file, so any problem with it is an error. A
package may be installed for other reasons, so a broken one is a warning on standard error, and only its entries are
missing. A run records the loaded plug-ins, files with their hash. The record is information for users: nothing that it
names is run because of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from polariscope.user_code import UserCodeError, import_file, in_words, user_code

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

GROUP = "polariscope.plugins"

_FILES: dict[str, str] = {}
"""Files that were loaded, by their absolute path, with their SHA-256."""
_PACKAGES: dict[str, str] = {}
"""Installed packages whose plug-ins were loaded, with their version."""
_TRIED: set[EntryPoint] = set()


def load_plugin(file: Path | str, sha256: str | None = None) -> None:
    """Run the user's file once, so that its entries are registered. Its hash can be checked."""
    path = Path(os.path.abspath(Path(file).expanduser()))
    if sha256 is not None and _FILES.get(str(path)) == sha256:
        return
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ValueError(f"the plug-in {file} cannot be read: {error.strerror or error}") from error
    digest = hashlib.sha256(source).hexdigest()
    if sha256 not in (None, digest):
        raise ValueError(
            f"the plug-in {path} was changed while it was in use: run the command again without changing the file"
        )
    _load(path, source, digest)


def load_sent(sent: Mapping[str, tuple[str, bytes]]) -> None:
    """Load the sources from :func:`sources` in a process on another machine, under the original path."""
    for file, (sha256, source) in sent.items():
        if hashlib.sha256(source).hexdigest() != sha256:
            raise ValueError(f"the plug-in {file} was changed on the way: its SHA-256 is not {sha256[:12]}")
        _load(Path(file), source, sha256)


def sources() -> dict[str, tuple[str, bytes]]:
    """Files that were loaded, with hash and content, for a machine that may not have them."""
    sent = {}
    for file, sha256 in _FILES.items():
        source = Path(file).read_bytes()
        if hashlib.sha256(source).hexdigest() != sha256:
            raise ValueError(
                f"the plug-in {file} was changed while it was in use: run the command again without changing the file"
            )
        sent[file] = (sha256, source)
    return sent


def _load(path: Path, source: bytes, digest: str) -> None:
    if _FILES.get(str(path)) == digest:
        return
    name = _module_name(path)
    sys.modules.pop(name, None)
    try:
        import_file(path, name, source)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    _FILES[str(path)] = digest


def _module_name(path: Path) -> str:
    """The same in every process, so that what a plug-in makes can be sent from one to another."""
    return f"plugin_{re.sub(r'[^0-9a-zA-Z]', '_', path.stem)}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"


def module_of(file: Path | str) -> ModuleType | None:
    """The module of a file that was loaded as a plug-in."""
    path = Path(os.path.abspath(Path(file).expanduser()))
    return sys.modules.get(_module_name(path)) if str(path) in _FILES else None


def load_all(files: Mapping[str, str]) -> None:
    """Load the files from :func:`files` of another process in this one."""
    for file, sha256 in files.items():
        load_plugin(file, sha256)


def load_installed() -> None:
    """Load the plug-ins of installed packages, each once. A broken one is skipped with a warning."""
    for point in _installed():
        if point in _TRIED:
            continue
        _TRIED.add(point)  # at once, as it may look something up itself
        name, version = (point.dist.name, point.dist.version) if point.dist else (point.module, "of no version")
        try:
            with user_code(f"the plug-in {point.name} of the installed package {name} {version}"):
                point.load()
            _PACKAGES[name] = version
        except UserCodeError as error:
            import multiprocessing

            if multiprocessing.parent_process() is None:  # or every worker would say it again
                print(f"warning: {error}; its entries are missing", file=sys.stderr)
                if os.environ.get("POLARISCOPE_DEBUG"):
                    traceback.print_exception(error)


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """Entry points of our group. Without any, which is seen by looking at the files, a slow import is spared."""
    if not any(_declares(place) for place in sys.path):
        return ()
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)))


def _declares(place: str) -> bool:
    """Whether a package in a place on the path of Python declares an entry point of our group."""
    if os.path.isfile(place):  # an archive, which only Python itself looks into
        return True
    try:
        packages = [name for name in os.listdir(place or ".") if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(GROUP in _text(Path(place, name, "entry_points.txt")) for name in packages)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def files() -> dict[str, str]:
    """The loaded files with their hashes, for another process."""
    return dict(_FILES)


def flags() -> list[str]:
    """Words of a command line that loads the same files."""
    return [word for file in _FILES for word in ("--plugin", file)]


def record() -> list[dict[str, str]]:
    """JSON-ready: files with their SHA-256, and packages with their version."""
    packages = [{"package": name, "version": version} for name, version in _PACKAGES.items()]
    return [{"file": file, "sha256": sha256} for file, sha256 in _FILES.items()] + packages


def changes(recorded: Iterable[Mapping[str, str]]) -> list[str]:
    """A sentence for each file that is loaded now and was another when it was recorded."""
    return [
        f"the plug-in {file} has changed since: its SHA-256 was {old[-1][:12]} and is {now[:12]}"
        for file, old in _recorded_files(recorded).items()
        if (now := _loaded_as(file)) is not None and now not in old and not set(old) & set(_FILES.values())
    ]


def missing(recorded: Iterable[Mapping[str, str]]) -> str:
    """Recorded plug-ins that are not loaded, as the end of a sentence about the object that was made with them."""
    recorded = list(recorded)
    parts = []
    for file, old in _recorded_files(recorded).items():
        if _loaded_as(file) is None and not set(old) & set(_FILES.values()):
            now = _hash(Path(file)) or old[-1]
            note = "" if now in old else f" (note that its SHA-256 was {old[-1][:12]} and is {now[:12]} now)"
            parts.append(
                f"with the plug-in {file}: give --plugin {shlex.quote(file)} again, or import it in Python with "
                f"polariscope.load_plugin({file!r}){note}"
            )
    for one in recorded:
        if one.get("package") and one["package"] not in _PACKAGES:
            parts.append(f"with the plug-in of the package {one['package']} {one.get('version', '')}: install that")
    return ", and ".join(parts)


def blamed(error: BaseException) -> BaseException:
    """An error from a line of a plug-in as a sentence with that line; any other error unchanged.

    Divergence, and sentences about the user's code, stay unchanged.
    """
    if isinstance(error, Exception) and not isinstance(error, ArithmeticError | UserCodeError):
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename in _FILES:
                message = str(error) if isinstance(error, ValueError) else in_words(error)
                sentence = UserCodeError(f"{message} (at {frame.filename}:{frame.lineno})")
                sentence.__cause__ = error
                return sentence
    return error


def _recorded_files(recorded: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """Files of a record with the hashes they had: several if a run was gone on with after a change."""
    names: dict[str, list[str]] = {}
    for one in recorded:
        if one.get("file"):
            names.setdefault(one["file"], []).append(one.get("sha256", ""))
    return names


def _loaded_as(file: str) -> str | None:
    """The hash with which a file was loaded; one of the same name elsewhere is as good, for folders move."""
    same = [sha256 for other, sha256 in _FILES.items() if Path(other).name == Path(file).name]
    return _FILES.get(file, same[0] if same else None)


def _hash(path: Path) -> str | None:
    """Of a file of Python, and of nothing else that a record might name."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix == ".py" and path.is_file() else None
    except OSError:
        return None
