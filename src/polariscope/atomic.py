"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it when the block ends well, and vanishes when it does not.

    A reader, a crash or a full disk therefore never meets a half-written file: the previous one stays.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
