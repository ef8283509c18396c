"""Files of jobs that run on other machines: the files that are sent, and the files that come back.

A job's files lie below one folder, its root. If a worker sees that folder, it is used in place. Otherwise the worker
gets the files that the job starts from, works in a folder of its own, and sends back every changed file: at intervals
while the job runs, and at its end. Paths below the root are sent relative to it.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from pathlib import Path, PurePath
from typing import Any, TypeVar

from polariscope import plugins
from polariscope.atomic import atomic, author, is_dead

Files = dict[str, bytes]
"""Contents of files by their path relative to the root."""
Stamps = dict[str, tuple[int, int, int]]
LAST = ("run.json",)
"""Files that mark others as complete; they are written after the others."""
W = TypeVar("W", bound=Callable[..., Any])
_ROOT: list[Path] = []
"""The root of the current job in this process."""


@dataclass(frozen=True)
class Luggage:
    """The folder of a job's files, and the files that it starts from."""

    root: Path
    brings: tuple[Path, ...] = ()


def travels(luggage: Callable[[Any], Luggage]) -> Callable[[W], W]:
    """Decorator of a work function whose jobs have files: ``luggage(job)`` names their folder."""

    def marked(work: W) -> W:
        work.luggage = luggage  # type: ignore[attr-defined]
        return work

    return marked


def luggage_of(work: Callable[..., Any], job: Any) -> Luggage | None:
    declared = getattr(work, "luggage", None)
    return None if declared is None else declared(job)


@dataclass(frozen=True)
class Parcel:
    """A job as it is sent: pickled, with its plug-ins by their hash, and a mark file that identifies a shared
    folder."""

    packed: bytes
    plugins: Mapping[str, tuple[str, bytes]]
    root: str = ""
    mark: str = ""
    files: Mapping[str, bytes] | None = None
    """The files that the job starts from, for a worker that does not see the root."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that a job reads."""


def packed(work: Callable[..., Any], job: Any, root: Path | None) -> bytes:
    """A pickled job, with paths relative to its root."""
    file = io.BytesIO()
    _Packer(file, root).dump((work, job))
    return file.getvalue()


class _Packer(ForkingPickler):
    def __init__(self, file: io.BytesIO, root: Path | None) -> None:
        super().__init__(file)
        self._root = None if root is None else Path(os.path.abspath(root))

    def reducer_override(self, thing: Any) -> Any:
        if self._root is not None and isinstance(thing, PurePath):
            path = Path(os.path.abspath(thing))
            if path.is_relative_to(self._root):
                return within, (path.relative_to(self._root).as_posix(),)
        return NotImplemented


def within(relative: str) -> Path:
    """A path below the root of the job that is being unpacked."""
    return _ROOT[-1] / relative


def is_away() -> bool:
    """Whether this process runs a job that a cluster sent to it."""
    return bool(_ROOT)


def do_parcel(parcel: tuple[Parcel, str], tell: Callable[[Any], None]) -> Any:
    """Unpack a job in this process, with its root at the given place, and run it."""
    sent, root = parcel
    plugins.load_sent(sent.plugins)
    os.environ.update(sent.variables)
    _ROOT.append(Path(root))
    try:
        work, job = ForkingPickler.loads(sent.packed)  # made by the driver of this cluster
        return work(job, tell)
    finally:
        _ROOT.pop()


@contextmanager
def marked(root: Path) -> Iterator[str]:
    """Create a file that identifies the folder for all processes that can see it, and yield the file's name."""
    name = f".shared.{author()}.{secrets.token_hex(8)}"
    root.mkdir(parents=True, exist_ok=True)
    for left in _left_behind(root, ".shared."):
        left.unlink(missing_ok=True)
    (root / name).touch()
    try:
        yield name
    finally:
        (root / name).unlink(missing_ok=True)


def _left_behind(folder: Path, prefix: str) -> list[Path]:
    """The files in a folder, with a prefix and the name of a process, that killed processes of this machine left."""
    author_in = re.compile(re.escape(prefix) + r"(\w+-\d+-\d+)\.\w+")
    named = [(path, author_in.fullmatch(path.name)) for path in folder.iterdir()]
    return [path for path, match in named if match is not None and is_dead(match[1])]


class Scratch:
    """A worker's own folder in place of the root, and the files that changed in it."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        for left in _left_behind(Path(tempfile.gettempdir()), "polariscope-"):
            shutil.rmtree(left, ignore_errors=True)
        self.root = Path(tempfile.mkdtemp(prefix=f"polariscope-{author()}."))
        write(self.root, files)
        self._known = stamps(self.root)

    def changed(self) -> Files:
        """Files that are new or changed since the last call, all from the same moment."""
        while True:
            now = stamps(self.root)
            files = {
                name: read
                for name, stamp in now.items()
                if self._known.get(name) != stamp and (read := _read(self.root / name)) is not None
            }
            if stamps(self.root) == now:  # nothing was written in the meantime, so the files belong together
                self._known = now
                return files

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def stamps(root: Path) -> Stamps:
    """Times, sizes and inode numbers of the visible files below a folder. Hidden files are locks and drafts, which are
    not sent."""
    by_path: Stamps = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                path = os.path.join(folder, name)
                with suppress(FileNotFoundError):
                    about = os.lstat(path)
                    by_path[os.path.relpath(path, root)] = (about.st_mtime_ns, about.st_size, about.st_ino)
    return by_path


def gathered(root: Path, brings: Sequence[Path]) -> Files:
    """The contents of the given files, and of the visible files of the given folders, below a root."""
    root = Path(os.path.abspath(root))
    files: Files = {}
    for path in (Path(os.path.abspath(each)) for each in brings):
        inside = [path] if path.is_file() else [path / name for name in stamps(path)]
        for file in inside:
            content = _read(file)
            if content is not None:
                files[file.relative_to(root).as_posix()] = content
    return files


def write(root: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a root, each atomically; files that mark others as complete come last."""
    for name in sorted(files, key=lambda name: (name.startswith("jobs/"), PurePath(name).name in LAST, name)):
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"a worker sent a file for {name!r}, which is outside of its folder")
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with atomic(root / path) as draft:
            draft.write_bytes(files[name])


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
