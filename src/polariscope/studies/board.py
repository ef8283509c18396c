"""The claims board: every claim of every work on one page, from the committed tables and from a user's own results."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polariscope.findings import Column, Findings, Records
from polariscope.grammar import counted
from polariscope.report.board import Claimed, ClaimsPart, Entry, Picture, pictures
from polariscope.studies.engine import judge_all
from polariscope.studies.own import OwnStudy
from polariscope.studies.page import HOW_JUDGED
from polariscope.studies.study import UNJUDGED, VERDICTS, Outcome, Scale, Study, studies
from polariscope.tabular import Tabular

OWN = "own"
"""The work of studies that no package of the house repeats."""
ROOM = "polariscope.studies."
WEIGHT = 600_000
"""Characters that the figures of a page may weigh together."""
UNJUDGED_VERDICT = "not judged"
COMMITTED: tuple[Scale, ...] = ("laptop", "overnight")
"""Scales whose tables stand on the board."""
NOT_RUN = (Column("study", "Study"), Column("scale", "Scale"), Column("jobs", "Jobs", "%d"),
           Column("cost", "Estimated cost"), Column("command", "To run it", aside=True))  # fmt: skip
NOT_STATED = "share of the published training not stated"


@dataclass(frozen=True, repr=False)
class Board(Tabular):
    """What the present code says about every table."""

    outcomes: Sequence[Outcome]
    problems: Sequence[str] = ()

    @property
    def headline(self) -> str:
        verdicts = [_verdict(claim.verdict) for outcome in self.outcomes for claim in outcome.claims]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in _known(verdicts))
        works = len({work_of(type(outcome.study)) for outcome in self.outcomes})
        return f"{counted(len(verdicts), 'claim')} of {counted(works, 'work')}: {counts}."

    def records(self) -> list[dict[str, Any]]:
        """A row for each claim."""
        return [
            {"work": work_of(type(outcome.study)), "study": outcome.name, "scale": outcome.scale, **claim.record()}
            for outcome in self.outcomes
            for claim in outcome.claims
        ]

    def findings(self, figures: bool = True) -> Findings:
        """The page: works counted, all claims with filters, and a line for every study, with or without a table."""
        drawn: dict[str, list[Picture]] = {}
        if figures:
            made = {str(o.path): o.study.figures(o.table) for o in self.outcomes}
            drawn = pictures(made, WEIGHT)
        entries = [_entry(outcome, drawn.get(str(outcome.path), ())) for outcome in self.outcomes]
        order = {work: number for number, work in enumerate(sorted({entry.work for entry in entries}))}
        entries.sort(key=lambda entry: (order[entry.work], entry.study, entry.folder))
        verdicts = _known([claim.verdict for entry in entries for claim in entry.claims])
        works = {work: about(work) for work in order}
        counted_works = [_counts(work, works[work], entries, verdicts) for work in works]
        columns = [Column("work", "Work"), Column("about", "Source", aside=True), Column("studies", "Studies", "%d"),
                   *(Column(verdict, verdict.capitalize(), "%d") for verdict in verdicts)]  # fmt: skip
        systems = [Column("work", "Work"), Column("study", "Study"), Column("question", "Question"),
                   Column("answer", "Finding"), Column("command", "To run it", aside=True)]  # fmt: skip
        return Findings(
            "Claims board",
            self.headline,
            [
                Records(name="works", title="Works", rows=counted_works, columns=columns),
                ClaimsPart(
                    name="claims",
                    title="Claims",
                    hint="Each published finding with its criterion, the published figure, and what was measured here "
                    "with its 95 % interval over the seeds.",
                    entries=entries,
                    works=works,
                    verdicts=verdicts,
                ),
                Records(name="systems", title="Systems of the works", rows=self._systems(), columns=systems),
                Records(name="not-run", title="Not run yet", rows=self._not_run(), columns=NOT_RUN),
            ],
            [" ".join(HOW_JUDGED.replace("*", "").split()), *(f"Skipped: {problem}." for problem in self.problems)],
        )

    def _systems(self) -> list[dict[str, Any]]:
        """A line for every study of the house and of the tables: the question, and how its claims came out."""
        lines = []
        known = {name: studies.get(name)() for name in studies.names()} | {o.name: o.study for o in self.outcomes}
        for name, study in sorted(known.items(), key=lambda pair: (work_of(type(pair[1])), pair[0])):
            own = [outcome for outcome in self.outcomes if outcome.name == name]
            answer = "; ".join(outcome.headline.partition(": ")[2] for outcome in own) or "no table yet"
            command = f"polariscope reproduce {name}" if name in studies.names() else f"polariscope study {name}.toml"
            line = {"work": work_of(type(study)), "study": name, "question": study.question, "answer": answer}
            lines.append(line | {"command": command})
        return lines

    def _not_run(self) -> list[dict[str, Any]]:
        """What has no table, at laptop scale and with published data and architecture, and what it would cost."""
        tables = {(outcome.name, outcome.scale): outcome for outcome in self.outcomes}
        lines = []
        for name in studies.names():
            study = studies.get(name)()
            for scale in (scale for scale in COMMITTED if scale in study.scales):
                known = tables.get((name, scale))
                missing = len(study.jobs(scale)) if known is None else len(known.origin.not_run)
                if missing:
                    line = {"study": name, "scale": scale, "jobs": missing}
                    cost = study.cost[scale] if known is None else f"about {known.hours_missing:.1f} core hours"
                    lines.append(line | {"cost": cost, "command": f"polariscope reproduce {name} --scale {scale}"})
        return lines


def board(folders: Sequence[Path]) -> Board:
    """Judge every table one level below each folder by the present code."""
    outcomes, problems = [], []
    for folder in folders:
        judged, skipped = judge_all(folder)
        outcomes += judged
        problems += skipped
    return Board(outcomes, problems)


def work_of(study: type[Study]) -> str:
    """The work that a study belongs to: the package it lies in, in words."""
    package = study.__module__.removeprefix(ROOM).partition(".")
    inside = study.__module__.startswith(ROOM) and package[2]
    return package[0].replace("_", " ") if inside else OWN


def about(work: str) -> str:
    """What a work is, as its package says."""
    if work == OWN:
        return "Studies of your own"
    return (importlib.import_module(f"{ROOM}{work.replace(' ', '_')}").__doc__ or "").strip().rstrip(".")


def share(study: Study, scale: str) -> str:
    """How much of the published training a scale does, by the longest training of each, as far as the study's own
    settings say.

    >>> share(studies.get("linear-vae")(), "laptop")
    '10,000 of 20,000 published steps in the longest training (50 %)'
    """
    if isinstance(study, OwnStudy):
        return "as its file says"
    if scale == "paper":
        return "the published settings"
    steps, published = study.steps(scale), study.steps("paper")  # type: ignore[arg-type]
    if steps and published:
        return f"{steps:,} of {published:,} published steps in the longest training ({100 * steps / published:.2g} %)"
    return NOT_STATED


def _entry(outcome: Outcome, drawn: Sequence[Picture]) -> Entry:
    study, origin = outcome.study, outcome.origin
    note = outcome.path / "note.md"
    lines = note.read_text(encoding="utf-8").splitlines() if note.exists() else []
    words = " ".join(line for line in lines if not line.startswith("!["))
    return Entry(
        study=outcome.name,
        work=work_of(type(outcome.study)),
        title=study.title,
        question=study.question,
        source=study.source.rstrip("."),
        folder=outcome.path.as_posix(),
        scale=outcome.scale,
        share=share(study, outcome.scale),
        cost=f"{origin.seconds / 60:.1f} minutes of one core",
        seeds=counted(origin.seeds, "seed") if origin.seeds else "",
        command=outcome.command,
        table=table_hash(outcome.path / "table.parquet"),
        claims=[
            Claimed(c.text, c.tested, c.published, c.measured, _verdict(c.verdict), c.note) for c in outcome.claims
        ],
        beside=study.beside(outcome.table) if outcome.scale in UNJUDGED else (),
        note=re.sub(r"[`]", "", words).strip(),
        pictures=drawn,
    )


def table_hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _verdict(verdict: str | None) -> str:
    return UNJUDGED_VERDICT if verdict is None else verdict


def _known(verdicts: Sequence[str]) -> list[str]:
    return [verdict for verdict in (*VERDICTS, UNJUDGED_VERDICT) if verdict in verdicts]


def _counts(work: str, words: str, entries: Sequence[Entry], verdicts: Sequence[str]) -> dict[str, Any]:
    own = [entry for entry in entries if entry.work == work]
    given = [claim.verdict for entry in own for claim in entry.claims]
    return {"work": work, "about": words, "studies": len(own)} | {each: given.count(each) for each in verdicts}
