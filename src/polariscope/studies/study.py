"""What a study is: a grid of jobs, one function that does a job, and the claims that its table is judged by.

A new study is one file with a registered class. ``jobs`` lists what is to be done at a scale, ``run`` does one job
and gives rows of a table, ``claims`` are the published findings with their criteria, ``readings`` make of the rows what
the criteria look at, ``figures`` draw them. The engine does the rest: processes, resuming, files.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from matplotlib.figure import Figure

from polariscope.examination.examine import Share, examine_run
from polariscope.findings import Chart, Column, Findings, Part, Records
from polariscope.grammar import counted
from polariscope.lab.holding import hold
from polariscope.lab.store import Run, Store
from polariscope.nets.autoencoder import Autoencoder
from polariscope.registry import Registry
from polariscope.studies.criteria import Criterion, Finding
from polariscope.studies.kit import Beside, Declared
from polariscope.studies.rows import Row, Table
from polariscope.studies.version import version_of
from polariscope.tabular import Tabular
from polariscope.training.config import RunConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import Progress, paced, standing_id, train_in_memory, train_once

Scale = Literal["smoke", "laptop", "overnight", "paper"]
Job = dict[str, Any]


CLAIM_COLUMNS = (
    Column("text", "claim"),
    Column("tested", "tested", aside=True),
    Column("published", "published"),
    Column("measured", "measured here"),
    Column("verdict", "verdict", badge=True),
    Column("note", "note", aside=True),
)
Verdict = Literal["held", "weaker form held", "not held", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
UNJUDGED: Mapping[Scale, str] = {
    "smoke": "only shows that the study runs, and judges nothing",
    "overnight": "has few seeds: its figures are shown beside the published ones, and judge nothing",
}
"""Scales with too little for a verdict, and what they are for."""


@dataclass(frozen=True)
class Claim:
    """What a publication found, and the criterion by which a table is held against it."""

    finding: str
    """The finding, in a sentence."""
    published: str
    """Where it was published, and with which figures."""
    criterion: Criterion
    provided: Criterion | None = None
    """What has to be so for the table to decide anything."""
    weaker: str = ""
    """In what the criterion asks for less than was published, if it does."""
    note: str = ""
    """What a reader should know whatever comes out."""

    def judge(self, table: Table) -> Judgement:
        finding = self.criterion.judge(table)
        if self.provided is not None:
            condition = self.provided.judge(table)
            if not condition.held:
                here = f"; here {condition.measured}" if condition.measured else ""
                reason = f"decided only if {self.provided.sentence}{here}"
                finding = replace(finding, held=None, note=reason)
        if not finding.measured:
            finding = Finding("-", None, finding.note or "nothing was measured")
        return Judgement(self, finding)

    def examples(self) -> Iterator[tuple[list[Row], bool | None]]:
        """Made-up rows with what has to come out: one table that meets the criterion, and one for each way to fail."""
        basis = self.provided.met() if self.provided is not None else []
        yield basis + self.criterion.met(), True
        for rows in self.criterion.missed():
            yield basis + rows, False
        if self.provided is not None:
            for rows in self.provided.missed():
                yield rows + self.criterion.met(), None


@dataclass(frozen=True)
class Judgement:
    """A claim, and what a table says about it."""

    claim: Claim
    finding: Finding
    judged: bool = True
    """False for a scale that judges nothing."""

    @property
    def text(self) -> str:
        return self.claim.finding

    @property
    def tested(self) -> str:
        """What was asked of the table, in the words of the criterion."""
        return self.claim.criterion.sentence

    @property
    def published(self) -> str:
        return self.claim.published

    @property
    def measured(self) -> str:
        return self.finding.measured

    @property
    def held(self) -> bool | None:
        return self.finding.held if self.judged else None

    @property
    def note(self) -> str:
        weaker = f"weaker than published: {self.claim.weaker}" if self.claim.weaker else ""
        reason = self.finding.note if self.judged or self.measured == "-" else ""
        return "; ".join(part for part in (weaker, reason, self.claim.note) if part)

    @property
    def verdict(self) -> Verdict | None:
        """None where nothing is judged."""
        if not self.judged:
            return None
        if self.held:
            return "weaker form held" if self.claim.weaker else "held"
        return "undecided" if self.held is None else "not held"

    def record(self) -> Row:
        """Everything in words."""
        keys = ("text", "tested", "published", "measured", "verdict", "note")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class Origin:
    """Where a table comes from."""

    study: str
    scale: Scale
    seeds: int
    """Distinct seeds among its rows; 0 where nothing is random."""
    seconds: float
    """Of one core."""
    made: Mapping[str, Any]
    """Versions, machine and code; a list of values where its jobs were not all made alike."""
    not_run: Sequence[Job] = ()
    """Jobs that the table has no rows of."""


@dataclass(frozen=True, repr=False)
class Outcome(Tabular):
    """What became of a study: its table, and what the code of today makes of it."""

    path: Path
    table: Table
    claims: list[Judgement]
    origin: Origin
    own: Study | None = None
    """The study, where it is not one of those that are registered."""

    @property
    def headline(self) -> str:
        if self.scale in UNJUDGED:
            return f"{self.name}: {self.scale} scale {UNJUDGED[self.scale]}"
        verdicts = [claim.verdict for claim in self.claims]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)
        where = "" if self.own is not None else f" at {self.scale} scale"
        return f"{self.name}{where}: {counts}"

    def records(self) -> list[Row]:
        """A row for each claim."""
        return [claim.record() for claim in self.claims]

    @property
    def name(self) -> str:
        return self.origin.study

    @property
    def study(self) -> Study:
        return self.own or studies.get(self.name)()

    @property
    def command(self) -> str:
        """What to type to make the table again."""
        if self.own is not None:
            return f"polariscope study {self.name}.toml{' --smoke' if self.scale in UNJUDGED else ''}"
        return f"polariscope reproduce {self.name} --scale {self.scale}"

    @property
    def scale(self) -> Scale:
        return self.origin.scale

    @property
    def held(self) -> bool:
        """No claim failed; nor can any at a scale that judges nothing."""
        return all(claim.held is not False for claim in self.claims)

    def findings(self, figures: bool = True) -> Findings:
        """The document: claims beside what was published, the published table with ours in it, figures, origin."""
        study = self.study
        origin = self.origin
        columns = [column for column in CLAIM_COLUMNS if column.key != "verdict" or self.scale not in UNJUDGED]
        parts: list[Part] = []
        if self.claims:
            parts.append(Records(name="claims", title="Claims", rows=self.records(), columns=columns))
        beside = study.beside(self.table)
        if beside:
            headings = [Column(key, key) for key in beside[0]]
            parts.append(Records(name="beside", title="Published and measured", rows=beside, columns=headings))
        for name, figure in (study.figures(self.table) if figures else {}).items():
            title = name.replace("-", " ").replace("_", " ").capitalize()
            parts.append(Chart(name=name, title=title, draw=lambda figure=figure: figure))  # type: ignore[misc]
        if origin.not_run:
            missing = [{key: value for key, value in job.items() if key != "scale"} for job in origin.not_run]
            headings = [Column(key, key) for key in dict.fromkeys(key for job in missing for key in job)]
            parts.append(Records(name="not-run", title="Not run", rows=missing, columns=headings))
        size = counted(len(self.table), "row") + (f"; {counted(origin.seeds, 'seed')}" if origin.seeds else "")
        return Findings(
            study.title,
            f"{study.question} {self.headline}.",
            parts,
            [
                f"Source: {study.source}.",
                f"Made by {self.command}: {size}; {origin.seconds / 60:.1f} minutes of one core.",
                *([self.open_work] if origin.not_run else []),
            ],
            {"study": self.name, "scale": self.scale, "seeds": origin.seeds, "seconds": origin.seconds},
            environment=origin.made,
        )

    @property
    def open_work(self) -> str:
        """What was not run, and what it would cost by the mean of the jobs that were."""
        missing, jobs = len(self.origin.not_run), len(self.study.jobs(self.scale))
        hours = f"about {self.hours_missing:.1f} core hours by the mean of the others"
        return f"Not run: {missing} of {jobs} jobs, {hours}."

    @property
    def hours_missing(self) -> float:
        """Core hours of the jobs that were not run, by the mean of those that were."""
        missing = len(self.origin.not_run)
        return self.origin.seconds / max(len(self.study.jobs(self.scale)) - missing, 1) * missing / 3600

    def claim(self, words: str) -> Judgement:
        """The claim whose text has ``words`` in it."""
        (judgement,) = (claim for claim in self.claims if words in claim.text)
        return judgement


@dataclass(frozen=True)
class Bench:
    """What a job has at hand: a place for trained runs, and someone to tell how far it is."""

    store: Store
    tell: Callable[[Progress], None]
    earlier: dict[str, float] = field(default_factory=dict)
    """Seconds that each training took which was done before; 0 for one that is done now."""

    def train(self, config: RunConfig) -> Run:
        """The trained run of a configuration: from the store if it is there, resumed if it was cut off."""
        run_id = standing_id(config)
        path = self.store.path_of(run_id)
        with hold(path, wait=True):  # two jobs that need the same run train it once
            done = (path / "run.json").exists() and self.store.open(run_id).status == "done"
            run = train_once(config, self.store, self.tell)
            pace = run.result["steps_per_second"] if done else 0.0
            self.earlier.setdefault(run_id, run.result["step"] / pace if pace else 0.0)
            return run

    def scored(
        self,
        config: RunConfig,
        measures: Sequence[str] = (),
        examples: int = 10_000,
        part: Share = "all",
        seed: int = 0,
    ) -> Row:
        """A trained configuration in numbers: what training gave, and measures and types of variables, by name.

        A measure that has no value there is None. Without measures nothing is examined, so that any model will do.
        """
        run = self.train(config)
        row: Row = {key: value for key, value in run.result.items() if type(value) in (int, float)}
        row["steps"] = row.pop("step")
        if measures:
            examination = examine_run(run, part=part, count=examples, seed=seed, measured=list(measures), keep=False)
            row |= examination.counts | {name: examination.measures.get(name) for name in measures}
        return row

    def fit(self, config: RunConfig) -> Autoencoder:
        """A model trained in memory, on a world that has no name to be stored under."""
        return train_in_memory(config, Listeners(step=paced(self.tell, config.training.steps)))


class Study(ABC):
    """One published experiment."""

    title: ClassVar[str]
    source: ClassVar[str]
    """The work, by author and title, and where in it."""
    question: ClassVar[str]
    """What a user learns from it, in a sentence."""
    cost: ClassVar[dict[str, str]]
    """Rough time on two cores for each scale."""
    training_lengths: ClassVar[Mapping[Any, int]] = {}
    """Steps of one training at each scale, where the jobs do not say it."""
    scales: ClassVar[tuple[Scale, ...]] = ("smoke", "laptop", "paper")
    """Scales that the study has. One with "overnight" trains with the published data and architecture, for a share of
    the published steps."""
    added: ClassVar[Mapping[Any, Any]] = {}
    """Settings of scales that ``jobs`` and ``run`` find elsewhere than in their own code, by scale: they count for the
    version of their scale alone, so that a new scale leaves the rows of the others as they are."""
    drawn: ClassVar[Mapping[str, Declared]] = {}
    """Figures by file name, declared with the kit."""
    published: ClassVar[Beside | None] = None
    """The published table to stand beside ours, declared with the kit."""

    @abstractmethod
    def jobs(self, scale: Scale) -> Sequence[Job]:
        """What is to be done: JSON-ready dictionaries, each enough for :meth:`run`."""

    @abstractmethod
    def run(self, job: Job, bench: Bench) -> list[Row]:
        """Do one job, in a process of its own; rows repeat the job's settings they will be grouped by."""

    @abstractmethod
    def claims(self, scale: Scale) -> Sequence[Claim]:
        """The published findings, each with the criterion that :meth:`readings` of a table have to meet."""

    def readings(self, table: Table) -> Table:
        """What criteria look at: the rows as they are, or numbers made of several of them, such as slopes."""
        return table

    def version(self) -> str:
        """What the code is that makes the rows: rows of another version are made again."""
        return version_of(type(self))

    def version_at(self, scale: Scale) -> str:
        """The version of the rows of a scale: that of the code, and of the settings that were added for it."""
        if scale not in self.added:
            return self.version()
        return hashlib.sha256(f"{self.version()}:{self.added[scale]!r}".encode()).hexdigest()[:12]

    def judge(self, table: Table, scale: Scale) -> list[Judgement]:
        """What a table says about every claim; whether its scale may judge is the engine's to say."""
        readings = self.readings(table)
        return [claim.judge(readings) for claim in self.claims(scale)]

    def steps(self, scale: Scale) -> int | None:
        """Steps of the longest training at a scale; None where nothing says it."""
        if scale in self.training_lengths:
            return self.training_lengths[scale]
        jobs = self.jobs(scale)
        known = [job["steps"] for job in jobs if type(job.get("steps")) is int]
        sweeps = [job for job in jobs if {"epochs", "train", "batch"} <= job.keys()]
        known += [job["epochs"] * math.ceil(job["train"] / (job["batch"] or job["train"])) for job in sweeps]
        return max(known, default=None)

    def beside(self, table: Table) -> list[Row]:
        """The published table with ours in it: rows of one set of columns, for people to read."""
        return [] if self.published is None else self.published.rows(table)

    def figures(self, table: Table) -> dict[str, Figure]:
        """Pictures of the table, by file name: those that the study declares."""
        made = {name: declared.draw(table) for name, declared in self.drawn.items()}
        return {name: figure for name, figure in made.items() if figure is not None}


studies: Registry[Study] = Registry("study", plural="studies")


def folder(out: Path, name: str, scale: Scale) -> Path:
    """Where a study's results lie; a scale that it does not have is refused."""
    scales = studies.get(name).scales
    if scale not in scales:
        raise ValueError(f"{name} has no {scale} scale: choose {' or '.join(scales)}")
    return out / f"{name}-{scale}"
