"""Contract checks of readers of foreign files."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from polariscope.damaged_files import damages, run_limited
from polariscope.testing.promises import require

FAULT = "fault: "


def check_reader(
    read: Callable[[Path], Any],
    corpus: Iterable[Path],
    *,
    count: int = 40,
    seed: int = 0,
    memory: int = 2**30,
    seconds: int = 20,
) -> None:
    """A reader reads the files of a corpus. It also reads each of ``count`` damaged copies of a file, or refuses it in
    a ``ValueError`` of one line that names the file. For each it uses at most ``memory`` bytes and ``seconds`` seconds,
    writes nothing to the terminal, and does not end the process.

    Where a file of the corpus is a folder, the files in it are damaged. If the reader loads content lazily, ``read``
    must load it too. Reading happens in a child process, which needs Linux or macOS; the memory limit needs Linux.

    >>> import numpy as np
    >>> from polariscope.worlds.readers.files import read
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.eye(8))
    ...     check_reader(lambda path: read(path).observe([0]), [Path(folder, "a.npy")])
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, original in enumerate(corpus):
            path = Path(folder, str(number), original.name)
            path.parent.mkdir()
            (shutil.copytree if original.is_dir() else shutil.copyfile)(original, path)
            lines, fault = run_limited(partial(_read_damaged, read, path, count, seed), memory, seconds)
            if lines and lines[-1].startswith(FAULT):
                fault = lines.pop().removeprefix(FAULT)
            damage = lines[-1] if lines else "no damage"
            require(not fault, f"{original.name} with {damage} (seed {seed}): the reader {fault}")


def _read_damaged(read: Callable[[Path], Any], path: Path, count: int, seed: int) -> Iterator[str]:
    """Read a file and damaged copies of it. Yields each damage before the copy is read, and stops after a fault."""
    read(path)
    files = [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]
    for which, file in enumerate(files):
        whole = file.read_bytes()
        for damage in damages(whole, -(-count // len(files)), seed + which):
            file.write_bytes(damage.content)
            yield damage.what if file == path else f"{damage.what} in {file.relative_to(path)}"
            try:
                read(path)
            except ValueError as error:
                sentence = str(error)
                if path.name not in sentence or "\n" in sentence:
                    yield f"{FAULT}refuses it without naming the file in one line: {' '.join(sentence.split())}"
                    return
            except Exception as error:  # noqa: BLE001 - every exception is reported
                place = traceback.extract_tb(error.__traceback__)[-1]
                message = " ".join(str(error).split())
                yield f"{FAULT}raises {type(error).__name__} ({message}) in {place.filename}, line {place.lineno}"
                return
        file.write_bytes(whole)
