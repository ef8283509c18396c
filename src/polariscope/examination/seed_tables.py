"""Settings compared over their seeds, from the runs of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polariscope.grammar import counted
from polariscope.lab.listing import EXAMINED, Listing
from polariscope.lab.query import Rows
from polariscope.lab.results import Examined, current
from polariscope.measures import measures
from polariscope.measures.seeds import SeedTable, seed_table
from polariscope.training.sweep import by_setting

Note = Callable[[str], object]


def seed_tables(
    listing: Listing, rows: Rows, columns: Sequence[str], note: Note = lambda sentence: None
) -> dict[str, SeedTable]:
    """Statistics over the seeds of each setting, for columns of the table of runs (``measures_mig``,
    ``held_out_loss``). Measures on different examples are not comparable: each set of examples has a table of its own,
    by its description. ``note`` receives a sentence about everything that is left out."""
    trainings = [row for row in rows if row.get("kind") == "train" and row.get("training_seed") is not None]
    if not trainings:
        raise ValueError(
            f"none of the {len(rows)} runs is a training: 'polariscope train WORLD --seeds 5' makes some to compare"
        )
    tables = {basis: values for basis, values in _values(listing, trainings, columns, note).items() if values}
    if not tables:
        raise ValueError(
            f"no setting has two seeds with {' or '.join(columns)}: 'polariscope train --seeds 5' trains "
            "several, 'polariscope examine' adds the measures"
        )
    directions = {column: _higher_is_better(column) for column in columns}
    return {basis: seed_table(values, directions) for basis, values in tables.items()}


def _values(
    listing: Listing, rows: Rows, columns: Sequence[str], note: Note
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Scores by basis, setting and column. If all measures have one basis, results of training are in the same table;
    if they have several, results of training have a table of their own, without a basis."""
    wanted = {row["id"] for row in rows}
    entries = {run.id: current(run.record) for run in listing.runs if run.id in wanted}
    measured = [column for column in columns if column.startswith(EXAMINED)]
    texts = [entry.on.text() for row in rows for entry in entries[row["id"]] if entry.values.keys() & set(measured)]
    bases = list(dict.fromkeys(texts))
    if len(bases) > 1:
        note(f"note: {' and '.join(measured)} were computed on {len(bases)} sets of examples: a table each")
    scores: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name, seeds in by_setting(rows).items():
        for column in columns:
            for basis in (bases or [""]) if column in measured else bases if len(bases) == 1 else [""]:
                all_scores = [_score(row, entries[row["id"]], column, basis) for row in seeds]
                known = [score for score in all_scores if score is not None]
                if len(known) >= 2:
                    scores.setdefault(basis, {}).setdefault(name, {})[column] = known
                else:
                    on = f" on {basis}" if len(bases) > 1 and basis else ""
                    note(f"skipped: {name} has {counted(len(known), 'seed')} with {column}{on}, fewer than 2")
    return scores


def _score(row: Mapping[str, Any], entries: Sequence[Examined], column: str, basis: str) -> float | None:
    if not column.startswith(EXAMINED):
        return row.get(column)
    return next((entry.values.get(column) for entry in entries if entry.on.text() == basis), None)


def _higher_is_better(column: str) -> bool | None:
    """Whether higher is better: measures declare it, losses are better low; other columns are not marked."""
    name = column.removeprefix("measures_")
    if name != column and name in measures.names():
        return measures.get(name).higher_is_better
    return False if column.endswith("loss") else None
