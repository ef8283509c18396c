"""Documents about runs: every examination of a run has its own folder, ``findings/<kind>/``, and the run's page
``report.html`` lists them all.

Every command ends with :func:`keep_findings`; Python code and the explorer call it too. A document replaces the older
one of the same kind completely or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from polariscope.atomic import replaced_folder, restore_folder
from polariscope.documents import MACHINES, PAGE, headlines, load
from polariscope.findings import Column, Findings, Records, save
from polariscope.lab.labels import Labels
from polariscope.lab.store import Run
from polariscope.printable import one_line

FOLDER = "findings"
KIND = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


@dataclass(frozen=True)
class Kept:
    """A document about a run."""

    kind: str
    """The examination that made it: examine, kernel, ..."""
    page: Path
    title: str
    headline: str
    made: str
    """Time at which it was made, in UTC."""

    def load(self) -> list[Findings]:
        """The findings themselves; most documents hold one."""
        return load(self.page.parent)


def keep_findings(
    findings: Findings | Sequence[Findings],
    kind: str,
    run: Run | None = None,
    out: Path | None = None,
    title: str = "",
) -> Path:
    """Write a document to the folder of its run, and return the page to open.

    ``out`` names another place (a page, a picture or a folder, as for :meth:`Findings.save`). Without ``out``, the
    document goes to ``findings/<kind>/`` in the folder of the ``run``, or without a run to the page ``<kind>.html`` in
    the current folder. ``kind`` is the name of the examination, in small letters.
    """
    several = [findings] if isinstance(findings, Findings) else list(findings)
    if not KIND.fullmatch(kind):
        raise ValueError(f"the kind of a document is a name in small letters, such as 'examine'; got {kind!r}")
    if out is not None or run is None:
        return save(several, out or Path(f"{kind}.html"), title)
    _adopt(run)
    folder = run.path / FOLDER / kind
    folder.parent.mkdir(exist_ok=True)
    with replaced_folder(folder) as draft:
        save(several, draft, title, figures=False)
    _write_page(run)
    return folder / PAGE


def kept_findings(run: Run) -> list[Kept]:
    """The documents about a run, sorted by kind. A document of an earlier version lies in the run folder itself."""
    folder = run.path / FOLDER
    documents = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for hidden in folder.glob(".*.replaced"):
            restore_folder(folder / hidden.name[1:].removesuffix(".replaced"))
        documents = [path for path in folder.iterdir() if KIND.fullmatch(path.name) and (path / MACHINES).is_file()]
    described = [_kept(path.name, path) for path in documents]
    older = _older_kind(run)
    return sorted([*described, *([_kept(older, run.path)] if older else [])], key=lambda one: one.kind)


def _kept(kind: str, folder: Path) -> Kept:
    """The entry of a document in a list; for a document that cannot be read, the entry says so."""
    when = datetime.fromtimestamp((folder / MACHINES).stat().st_mtime, UTC).isoformat(timespec="seconds")
    try:
        several = headlines(folder)
    except ValueError as error:
        several = [(kind, f"This document cannot be read: {one_line(error)}")]
    titles = list(dict.fromkeys(title for title, _ in several))
    return Kept(kind, folder / PAGE, ", ".join(titles), " ".join(headline for _, headline in several), when)


def _older_kind(run: Run) -> str:
    """The kind of the document that an earlier version left in the run folder itself; empty if there is none."""
    if not (run.path / MACHINES).is_file():
        return ""
    try:
        document = load(run.path)[0].json()
    except ValueError:
        return "examine"
    known = str(run.record["kind"])
    return known if known != "train" and KIND.fullmatch(known) else "kernel" if "verdict" in document else "examine"


def _adopt(run: Run) -> None:
    """Move a document of an earlier version to its current place."""
    kind = _older_kind(run)
    if not kind:
        return
    folder = run.path / FOLDER / kind
    names = [PAGE, MACHINES, "arrays.safetensors", *(file.name for file in run.path.glob("*.png"))]
    present = [run.path / name for name in names if (run.path / name).is_file()]
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with replaced_folder(folder) as draft:
            for file in present:
                shutil.copy2(file, draft)
    (run.path / MACHINES).unlink()  # first: without it the run has no older document
    for file in present:
        file.unlink(missing_ok=True)


def _write_page(run: Run) -> None:
    """Write the page of a run, and once more if another process added a document in the meantime."""
    listed: list[Kept] | None = None
    while listed != (now := kept_findings(run)):
        listed = now
        run_findings(run, listed).save(run.path / PAGE)


def run_findings(run: Run, documents: Sequence[Kept] | None = None) -> Findings:
    """A run as a document: its state, its results, and the documents about it with links."""
    documents = kept_findings(run) if documents is None else documents
    rows = [
        {
            "kind": one.kind,
            "headline": one.headline,
            "made": one.made,
            "page": os.path.relpath(one.page, run.path).replace(os.sep, "/"),
        }
        for one in documents
    ]
    columns = [Column("kind", "Examination", link="page"), Column("headline", "Result"), Column("made", "Made (UTC)")]
    results = [
        {"name": name, "value": value}
        for name, value in run.result.items()
        if isinstance(value, int | float | str) and not isinstance(value, bool)
    ]
    labels = Labels()
    with suppress(ValueError):  # the list of runs reports damaged labels
        labels = run.labels
    count = f"{len(rows)} examination{'' if len(rows) == 1 else 's'}"
    return Findings(
        labels.name or run.id,
        f"Run {run.id}, {run.state}: {count}.",
        [
            Records(name="findings", title="Examinations", rows=rows, columns=columns),
            Records(
                name="result",
                title="Results in the record",
                rows=results,
                columns=[Column("name", "Name"), Column("value", "Value", "%.6g")],
            ),
        ],
        notes=[labels.note] if labels.note else [],
        settings=run.config,
        environment={"run": run.id, "created": run.record["created"], **run.record["environment"]},
        command="",
    )
