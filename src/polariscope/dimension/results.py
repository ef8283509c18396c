"""Results of dimension selection as a table: n ± SD over seeds, time per run, models trained, steps of each training.

The columns are those of the published tables (Spec 002, section 13; Bonheme 2023, tables 8.1 to 8.8), with steps
instead of epochs. Rows are plain dictionaries, ready for Parquet or DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from polariscope.dimension.figures import trace_curves
from polariscope.dimension.trained import DimensionSearch, Reading, StableDimension
from polariscope.findings import Chart, Column, Findings, Records
from polariscope.grammar import counted, listed

SCHEMA = ("algorithm", "dataset", "n_mean", "n_sd", "seconds_per_run", "models", "steps", "runs", "trusted")

ANSWER_COLUMNS = (
    Column("algorithm", "algorithm"),
    Column("dataset", "dataset"),
    Column("n", "n (avg ± SD)"),
    Column("time", "time/run"),
    Column("models", "models", "%.3g"),
    Column("steps", "steps", "%d"),
    Column("trusted", "trusted"),
)
READING_COLUMNS = (
    Column("seed", "seed", "%d"),
    Column("steps", "steps", "%d"),
    Column("latents", "latents", "%d"),
    Column("trace_gap", "trace gap", "%.3f"),
    Column("reconstruction", "reconstruction (nats)", "%.2f"),
    Column("explained", "explained", "percent"),
    Column("collapsed", "collapsed"),
    Column("active", "active", "%d"),
    Column("mixed", "mixed", "%d"),
    Column("passive", "passive", "%d"),
)


def result_rows(by_data: Mapping[str, Iterable[DimensionSearch]]) -> list[dict[str, Any]]:
    """One row per dataset and algorithm; ``by_data`` maps a dataset's name to searches, usually one per seed.

    ``models`` is the mean number of trainings per run, ``trusted`` the share of runs that passed the collapse guard,
    ``n_sd`` the sample standard deviation (0 for a single run).
    """
    rows = []
    for dataset, searches in by_data.items():
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


def dimension_findings(
    stable: Sequence[StableDimension], data: str, start: int, settings: Mapping[str, Any] | None = None
) -> Findings:
    """The document of the searches of several seeds on one data set."""
    last = [one.last for one in stable]
    table = result_rows({data: last})
    attempts = [attempt for one in stable for attempt in one.attempts]
    answers = [one.answer for one in stable]
    return Findings(
        f"Dimension of {data}",
        headline(stable),
        [
            Records(
                name="table",
                title="Answers",
                rows=[
                    row | {"n": _spread(row), "time": duration(row["seconds_per_run"]), "trusted": _share(row)}
                    for row in table
                ],
                columns=ANSWER_COLUMNS,
            ),
            Records(
                name="readings",
                title="Models that were trained",
                hint=(
                    "A search trains a model for a short time at each number of latents it tries. A collapsed model "
                    "has not learned to use its latents yet, and its answer cannot be trusted."
                ),
                rows=[
                    {"algorithm": attempt.algorithm, **reading_row(reading)}
                    for attempt in attempts
                    for reading in attempt.readings
                ],
                columns=READING_COLUMNS,
            ),
            Chart(
                name="dimension",
                title="Traces and statistic over the number of latents",
                hint=(
                    "Left: the traces of means and samples diverge where latents become passive. Right: the statistic "
                    "that decided."
                ),
                draw=lambda: trace_curves(last),
            ),
        ],
        [note for one in stable for note in doubts(one)],
        {
            "answers": answers,
            "stable": [one.stable for one in stable],
            "trusted": [one.last.trusted for one in stable],
            "start": start,
            "searches": [search_row(attempt) for attempt in attempts],
        },
        settings=settings or {},
    )


def headline(answers: Sequence[StableDimension]) -> str:
    """The answer in one sentence; doubts about it are stated, and an untrusted number is not stated first."""
    trusted = [one for one in answers if one.last.trusted]
    all_answers = listed([str(one.answer) for one in answers])
    if not trusted:
        ended = f"The search ended at {all_answers}" if len(answers) == 1 else f"The searches ended at {all_answers}"
        return f"No trusted number: the models that decided have not learned to use their latents yet. {ended}."
    numbers = [one.answer for one in trusted]
    text = counted(numbers[0], "latent variable") if len(numbers) == 1 else f"{listed(list(map(str, numbers)))} latents"
    if len(numbers) > 1:
        text += f" over {counted(len(numbers), 'seed')}; mean {np.mean(numbers):.1f}"
    if any(one.last.search.capped for one in trusted):
        text = f"At least {text}: the search ended at its limit"
    elif not all(one.stable for one in trusted):
        several = any(len(one.attempts) > 1 for one in trusted)
        text += (
            "; the answer still changes with more steps"
            if several
            else "; it is unknown whether more steps would change it"
        )
    if len(trusted) < len(answers):
        text += f". {counted(len(answers) - len(trusted), 'seed')} of {len(answers)} had no trusted number"
    return f"{text}."


def doubts(answer: StableDimension) -> list[str]:
    """The reasons to doubt the answer of one seed."""
    last, notes = answer.last, []
    if not last.trusted:
        notes.append(
            "Models that decided the answer reconstruct hardly better than their mean: they have not learned to use "
            "latents yet. Train longer (--budget, --training.steps), or regularise less."
        )
    if last.search.capped:
        notes.append("The search ended at its limit: raise --cap.")
    if last.saturated:
        notes.append("I(x; x̂) is saturated: this answer depends on the codes alone; prefer --statistic trace.")
    return notes


def search_row(search: DimensionSearch) -> dict[str, Any]:
    """One search in plain values; its readings are a table of their own."""
    return {
        "algorithm": search.algorithm,
        "seed": search.readings[0].seed if search.readings else None,
        "steps": search.steps,
        "answer": search.answer,
        "capped": search.search.capped,
        "threshold": search.search.threshold,
        "visited": search.search.visited,
        "trusted": search.trusted,
        "readings": [reading_row(reading) for reading in search.readings],
    }


def _share(row: Mapping[str, Any]) -> str:
    """Whether a single run can be trusted, or how many of several runs can."""
    if row["runs"] == 1:
        return "yes" if row["trusted"] else "no"
    return f"{round(row['trusted'] * row['runs'])} of {row['runs']}"


def _spread(row: Mapping[str, Any]) -> str:
    """``n ± SD``, or only n for a single run, which has no spread."""
    return f"{row['n_mean']:.1f} ± {row['n_sd']:.1f}" if row["runs"] > 1 else f"{row['n_mean']:g} (one run)"


def duration(seconds: float) -> str:
    """A duration in words.

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
