"""What a study is: a grid of jobs, one function that does a job, and the claims its table must answer to.

A new study is one file with a registered class. ``jobs`` lists what is to be done at a scale, ``run`` does one job
and gives rows of a table, ``claims`` holds the table against what was published, ``figures`` draws it. The engine
does the rest: processes, resuming, files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.lab.holding import hold
from polariscope.lab.store import Run, Store, fingerprint
from polariscope.nets.autoencoder import Autoencoder
from polariscope.registry import Registry
from polariscope.tabular import Tabular
from polariscope.training.config import RunConfig
from polariscope.training.loop import Listeners
from polariscope.training.run import Progress, paced, resume, train, train_in_memory

Scale = Literal["smoke", "laptop", "paper"]
Row = dict[str, Any]
Job = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """What a publication found, and what came out here.

    ``held`` is None where this scale cannot decide; ``note`` then says why.
    """

    text: str
    published: str
    measured: str
    held: bool | None
    note: str = ""

    @property
    def verdict(self) -> str:
        return {True: "held", False: "not held", None: "undecided"}[self.held]


@dataclass(frozen=True)
class Table:
    """Rows with named columns: enough of a data frame for claims.

    >>> table = Table([{"beta": 1, "kl": 4.0}, {"beta": 1, "kl": 6.0}, {"beta": 2, "kl": 1.0}])
    >>> table.where(beta=1).mean("kl"), table.distinct("beta")
    (5.0, [1, 2])
    >>> [(beta, group.mean("kl")) for beta, group in table.by("beta")]
    [(1, 5.0), (2, 1.0)]
    """

    rows: list[Row]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, **conditions: Any) -> Table:
        """Rows whose columns have these values."""
        return Table([row for row in self.rows if all(row.get(k) == v for k, v in conditions.items())])

    def column(self, name: str) -> NDArray[Any]:
        """Values of a column, of the rows that have it."""
        return np.array([row[name] for row in self.rows if row.get(name) is not None])

    def mean(self, name: str) -> float:
        values = self.column(name)
        if not len(values):
            raise ValueError(f"no row has a {name}")
        return float(np.mean(values))

    def std(self, name: str) -> float:
        """Spread over the rows (n - 1); 0 for a single one."""
        values = self.column(name)
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    def distinct(self, name: str) -> list[Any]:
        return sorted({row[name] for row in self.rows if row.get(name) is not None})

    def by(self, name: str) -> Iterator[tuple[Any, Table]]:
        """Each value of a column with the rows that have it, in order of the values."""
        for value in self.distinct(name):
            yield value, self.where(**{name: value})


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


@dataclass(frozen=True, repr=False)
class Outcome(Tabular):
    """What became of a study: its table, and what the code of today makes of it."""

    path: Path
    table: Table
    claims: list[Claim]
    origin: Origin

    @property
    def headline(self) -> str:
        found = [claim.verdict for claim in self.claims]
        counts = ", ".join(f"{found.count(v)} {v}" for v in ("held", "not held", "undecided") if v in found)
        return f"{self.name} at {self.scale} scale: {counts}"

    def records(self) -> list[Row]:
        """A row for each claim."""
        keys = ("text", "published", "measured", "verdict", "note")
        return [{key: getattr(claim, key) for key in keys} for claim in self.claims]

    @property
    def name(self) -> str:
        return self.origin.study

    @property
    def scale(self) -> Scale:
        return self.origin.scale

    @property
    def held(self) -> bool:
        """No claim failed."""
        return all(claim.held is not False for claim in self.claims)

    def claim(self, words: str) -> Claim:
        """The claim whose text has ``words`` in it."""
        (found,) = (claim for claim in self.claims if words in claim.text)
        return found


@dataclass(frozen=True)
class Bench:
    """What a job has at hand: a place for trained runs, and someone to tell how far it is."""

    store: Store
    tell: Callable[[Progress], None]

    def train(self, config: RunConfig) -> Run:
        """The trained run of a configuration: from the store if it is there, resumed if it was cut off."""
        run_id = f"{config.label.replace(' ', '-')}-{fingerprint(config.describe())}"
        path = self.store.path_of(run_id)
        with hold(path, wait=True):  # two jobs that need the same run train it once
            if (path / "run.json").exists():
                return resume(self.store.open(run_id), self.tell)
            return train(config, self.store, self.tell, run_id)

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

    @abstractmethod
    def jobs(self, scale: Scale) -> Sequence[Job]:
        """What is to be done: JSON-ready dictionaries, each enough for :meth:`run`."""

    @abstractmethod
    def run(self, job: Job, bench: Bench) -> list[Row]:
        """Do one job, in a process of its own; rows repeat the job's settings they will be grouped by."""

    @abstractmethod
    def claims(self, table: Table, scale: Scale) -> list[Claim]:
        """The published findings, each with what the table says."""

    def beside(self, table: Table) -> list[Row]:
        """The published table with ours in it: rows of one set of columns, for people to read."""
        return []

    def figures(self, table: Table) -> dict[str, Figure]:
        """Pictures of the table, by file name."""
        return {}


studies: Registry[Study] = Registry("study", "polariscope.studies")


def plus_minus(values: NDArray[Any] | Sequence[float], digits: int = 2) -> str:
    """``mean ± sd (n)`` of some seeds.

    >>> plus_minus([1.0, 2.0, 3.0])
    '2.00 ± 1.00 (n=3)'
    """
    values = np.asarray(values, dtype=float)
    if len(values) == 1:
        return f"{values[0]:.{digits}f} (n=1)"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f} (n={len(values)})"


def folder(out: Path, name: str, scale: Scale) -> Path:
    """Where a study's results lie."""
    return out / f"{name}-{scale}"
