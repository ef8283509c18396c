"""Labels that users give to runs: a name, tags and a note, in ``labels.json`` beside the record.

They have their own file because a training may be writing the record.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polariscope.atomic import atomic

if TYPE_CHECKING:
    from polariscope.lab.store import Run, Store

FILE = "labels.json"
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST_NOTE = 2000
LARGEST_FILE = 2**20


@dataclass(frozen=True)
class Labels:
    """A name, tags and a note."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for what, word in [("name", self.name), *(("tag", tag) for tag in self.tags)]:
            if (word and not WORD.fullmatch(word)) or (what == "tag" and not word) or word == "latest":
                raise ValueError(
                    f"{word[:100]!r} cannot be the {what} of a run: a {what} has up to 100 letters, digits, '.', '_' "
                    "and '-', begins with a letter or a digit, and is not 'latest'"
                )
        if len(self.note) > LONGEST_NOTE:
            raise ValueError(f"a note has up to {LONGEST_NOTE} characters; this one has {len(self.note)}")


NONE = Labels()


def read_labels(folder: Path) -> Labels:
    """The labels of a run folder; an error for damaged labels."""
    try:
        if not stat.S_ISREG(os.stat(f"{folder}/{FILE}").st_mode):  # a pipe would have us wait for ever
            raise OSError(f"{FILE} is not a regular file")
        with open(f"{folder}/{FILE}", "rb") as file:
            raw = file.read(LARGEST_FILE)
    except FileNotFoundError:
        return NONE
    except OSError as error:
        raise ValueError(f"the labels of run {folder.name} cannot be read: {error.strerror or error}") from error
    try:
        given: Any = json.loads(raw)
        text = [given["name"], given["note"], *given["tags"]]
        if not all(isinstance(word, str) for word in text):
            raise ValueError("they are not text")
        "".join(text).encode()  # half a surrogate pair would fail only later
        return Labels(given["name"], tuple(given["tags"]), given["note"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"the labels of run {folder.name} are damaged: this program did not write {FILE} like this"
        ) from error


def label(
    store: Store, run: Run, name: str | None = None, tags: Sequence[str] | None = None, note: str | None = None
) -> Labels:
    """Change the given labels of a run. No two runs of a store may have the same name."""
    changes: dict[str, Any] = {"name": name, "tags": None if tags is None else tuple(dict.fromkeys(tags)), "note": note}
    labels = replace(run.labels, **{key: value for key, value in changes.items() if value is not None})
    if name:
        check_name(store, name, run)
    with atomic(run.path / FILE) as draft:
        draft.write_text(json.dumps(asdict(labels), indent=2) + "\n", encoding="utf-8")
    run.reload()
    return labels


def check_name(store: Store, name: str, run: Run | None = None) -> None:
    """Refuse a name that another run has as its name or its id."""
    Labels(name)
    others = [other for other in store.named(name) if run is None or other.path != run.path]
    if others:
        raise ValueError(f"run {others[0].id} is already called {name}: use another name, or rename that run first")
