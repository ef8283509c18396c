"""Reference models: trained runs that come with the package, so that users can examine a model before they train one.

Each is a run folder: record, weights, learning curves, and documents without their pages, which are written when the
folder is copied into a store. The copy behaves like a run that was trained there, but it has no optimiser state and so
cannot be trained further.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from polariscope.atomic import atomic_folder, replaced_folder
from polariscope.documents import PAGE
from polariscope.lab.run_documents import FOLDER as DOCUMENTS
from polariscope.lab.run_documents import keep_findings, kept_findings
from polariscope.lab.store import Run, Store
from polariscope.training import checkpoint
from polariscope.training.checkpoint import TrainingState
from polariscope.training.run import load_model

SHIPPED = Path(__file__).resolve().parent / "reference_models"
"""The folder of the package with a run folder for each model."""
PREFIX = "reference-"
FILES = ("run.json", "metrics.parquet", "labels.json")
"""Files of a run that are shipped beside its weights and documents."""


def reference_names() -> list[str]:
    """The names of the reference models in this installation."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/run.json"))


def take_reference_runs(store: Store, names: Sequence[str] | None = None) -> list[Run]:
    """The reference models as runs of a store, copied into it unless they are there already."""
    known = reference_names()
    runs = []
    for name in known if names is None else names:
        if name not in known:
            raise ValueError(f"there is no reference model {name!r}; there are {', '.join(known) or 'none'}")
        place = store.path_of(f"{PREFIX}{name}")
        store.root.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), atomic_folder(place) as draft:
            shutil.copytree(SHIPPED / name, draft, dirs_exist_ok=True)
        run = store.open(place)
        for kept in kept_findings(run):
            if not kept.page.exists():
                keep_findings(kept.load(), kept.kind, run)
        runs.append(run)
    return runs


def ship(run: Run, name: str, folder: Path = SHIPPED) -> Path:
    """Write a trained run as a reference model: its record, weights, learning curves and documents."""
    if run.record["status"] != "done":
        raise ValueError(f"run {run.id} is {run.record['status']}: only a finished run becomes a reference model")
    model = load_model(run)
    folder.mkdir(parents=True, exist_ok=True)
    with replaced_folder(folder / name) as draft:
        for file in FILES:
            if (run.path / file).is_file():
                shutil.copyfile(run.path / file, draft / file)
        if (run.path / DOCUMENTS).is_dir():
            shutil.copytree(run.path / DOCUMENTS, draft / DOCUMENTS, ignore=shutil.ignore_patterns(PAGE))
        state = TrainingState(model, step=int(run.result["step"]))
        checkpoint.save(state, draft / run.checkpoint.name, weights_only=True)
    return folder / name
