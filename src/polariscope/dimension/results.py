"""Results of dimension selection as a table: n ± SD over seeds, time per run, models trained, steps of each training.

The columns are those of the published tables (Spec 002, section 13; Bonheme 2023, tables 8.1 to 8.8), with steps
where those have epochs. Rows are plain dictionaries, ready for Parquet or DuckDB; :func:`markdown` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from polariscope.dimension.trained import DimensionSearch, Reading

SCHEMA = ("algorithm", "dataset", "n_mean", "n_sd", "seconds_per_run", "models", "steps", "runs", "trusted")


def result_rows(found: Mapping[str, Iterable[DimensionSearch]]) -> list[dict[str, Any]]:
    """One row per dataset and algorithm; ``found`` maps a dataset's name to searches, usually one per seed.

    ``models`` is the mean number of trainings a run, ``trusted`` the share of runs that passed the collapse guard.
    The deviation is that of the sample (0 for a single run).
    """
    rows = []
    for dataset, searches in found.items():
        groups: dict[tuple[str, int], list[DimensionSearch]] = {}
        for search in searches:
            groups.setdefault((search.algorithm, search.steps), []).append(search)
        for (algorithm, steps), runs in groups.items():
            answers = [run.answer for run in runs]
            cells = (
                algorithm,
                dataset,
                float(np.mean(answers)),
                float(np.std(answers, ddof=1)) if len(runs) > 1 else 0.0,
                float(np.mean([run.seconds for run in runs])),
                float(np.mean([run.models for run in runs])),
                steps,
                len(runs),
                float(np.mean([run.trusted for run in runs])),
            )
            rows.append(dict(zip(SCHEMA, cells, strict=True)))
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table in the form of the published ones."""
    lines = ["| algorithm | dataset | n (avg ± SD) | time/run | models | steps |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['algorithm']} | {row['dataset']} | {_spread(row)} "
        f"| {duration(row['seconds_per_run'])} | {row['models']:.3g} | {row['steps']} |"
        for row in rows
    ]
    return "\n".join(lines)


def _spread(row: Mapping[str, Any]) -> str:
    """``n ± SD``, or n alone of a single run, which has no spread."""
    return f"{row['n_mean']:.1f} ± {row['n_sd']:.1f}" if row["runs"] > 1 else f"{row['n_mean']:g} (one run)"


def duration(seconds: float) -> str:
    """
    >>> duration(12.34), duration(400)
    ('12.3 s', '6.7 min')
    """
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def reading_row(reading: Reading) -> dict[str, Any]:
    """A reading as one flat row of numbers."""
    row = asdict(reading)
    bottleneck = row.pop("bottleneck")
    for name in ("entropy", "information", "saturated"):
        row[name] = None if bottleneck is None else bottleneck[name]
    return row
