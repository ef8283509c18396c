"""The files that a configuration reads: those that its worlds and splits name with ``path`` (or ``..._path``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polariscope.worlds.readers.idx import labels_beside


def data_files(description: Any) -> list[str]:
    """Paths of the data in a JSON-ready description of worlds and splits, each once.

    >>> data_files({"world": {"name": "pairs", "of": {"name": "file", "path": "x.npz"}}, "split": {"name": "random"}})
    ['x.npz']
    """
    paths = dict.fromkeys(_paths(description))
    for path in list(paths):
        place = Path(path).expanduser()
        labels = labels_beside(place) if place.is_file() else None
        if labels is not None:
            paths[str(labels)] = None
    return list(paths)


def _paths(item: Any) -> Iterator[str]:
    if isinstance(item, Mapping):
        for key, value in item.items():
            if (key == "path" or key.endswith("_path")) and isinstance(value, str) and value:
                yield value
            else:
                yield from _paths(value)
    elif isinstance(item, list | tuple):
        for value in item:
            yield from _paths(value)
