"""The benchmark of generalisation: the published rows of a data set with our own among them, the best first."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from polariscope.examination.generalise import Generalisation
from polariscope.findings import Column, Findings, Records
from polariscope.registry import nearest
from polariscope.studies.published import Published, PublishedTable, names, published, read
from polariscope.tabular import Tabular
from polariscope.worlds.world import World, worlds

SplitName = Literal["random", "composition", "interpolation", "extrapolation"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
WORK, TABLE = "inductive_biases", "in-domain-"
DATASETS = {"sprites": "dsprites", "shapes3d": "shapes3d", "arm3d": "mpi3d-real", "faces": "celebglow"}
"""The published data set that each of our worlds stands for."""
OURS = ", ours"
"""What stands behind the name of a row that was not published."""
Rows = dict[str, dict[str, Published]]


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard(Tabular):
    """Mean R² over the factors in percent, by model and split."""

    dataset: str
    table: PublishedTable
    by: SplitName

    @property
    def headline(self) -> str:
        first = next(iter(self.table.rows))
        own = sum(name.endswith(OURS) for name in self.table.rows)
        return f"{first} leads {len(self.table.rows)} models on {self.by} of {self.dataset}, {own} of them ours"

    def records(self) -> list[dict[str, Any]]:
        return [
            {"rank": rank, "model": name} | {split: str(cells[split]) if split in cells else None for split in SPLITS}
            for rank, (name, cells) in enumerate(self.table.rows.items(), 1)
        ]

    def findings(self, settings: Mapping[str, Any] | None = None) -> Findings:
        columns = [Column("rank", "Rank", "%d"), Column("model", "Model"), *(Column(s, s.capitalize()) for s in SPLITS)]
        return Findings(
            f"Leaderboard of {self.dataset}",
            f"{self.headline}.",
            [Records(name="leaderboard", title=self.table.title, rows=self.records(), columns=columns)],
            [f"Published rows: {self.table.source}."],
            settings=settings or {},
        )

    def text(self) -> str:
        """The table as a file that :func:`from_text` reads."""
        return as_text(self.table)


def published_data(world: World) -> str:
    """The published data set that a world stands for."""
    name = DATASETS.get(worlds.name_of(world))
    if name is None:
        raise ValueError(f"nothing was published for this world; there are rows for {', '.join(DATASETS)}")
    return "dsprites-quarter" if name == "dsprites" and getattr(world, "unambiguous", False) else name


def leaderboard(
    dataset: str, own: Mapping[str, Mapping[str, Published]] | None = None, by: SplitName = "extrapolation"
) -> Leaderboard:
    """The published rows of a data set and ``own`` ones, ``{model: {split: score in percent}}``, sorted by a split.

    >>> leaderboard("shapes3d", {"clip": {"extrapolation": Published(91.56)}}).headline
    'clip, ours leads 18 models on extrapolation of shapes3d, 1 of them ours'
    """
    if dataset not in datasets():
        raise ValueError(f"the benchmark has no data set {dataset!r}: {nearest(dataset, datasets())}")
    if by not in SPLITS:
        raise ValueError(f"the benchmark has no split {by!r}: {nearest(by, SPLITS)}")
    for name, cells in (own or {}).items():
        for split in cells:
            if split not in SPLITS:
                raise ValueError(
                    f"{name} has a score on {split!r}, no split of the benchmark: {nearest(split, SPLITS)}"
                )
    printed = published(f"{WORK}/{TABLE}{dataset}")
    rows = printed.rows | {f"{name}{OURS}": dict(cells) for name, cells in (own or {}).items()}
    # What has no score on this split comes last.
    order = sorted(rows, key=lambda name: -rows[name][by].mean if by in rows[name] else np.inf)
    table = PublishedTable(printed.title, printed.source, {name: rows[name] for name in order}, {"sorted by": by})
    return Leaderboard(dataset, table, by)


def own_rows(results: Mapping[str, Sequence[Generalisation]]) -> Rows:
    """Rows of our own: mean and standard deviation over the runs (seeds) of each model, on each split they were on."""
    rows: Rows = {}
    for name, runs in results.items():
        scores: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            for split, score in run.leaderboard_row.items():
                scores[split].append(score)
        rows[name] = {
            split: Published(float(np.mean(several)), float(np.std(several, ddof=1)) if len(several) > 1 else None)
            for split, several in scores.items()
        }
    return rows


def datasets() -> list[str]:
    """The data sets of the benchmark."""
    start = f"{WORK}/{TABLE}"
    return [name.removeprefix(start) for name in names() if name.startswith(start)]


def as_text(table: PublishedTable) -> str:
    """A table in the form in which published ones are kept, which :func:`~polariscope.studies.published.read` reads."""
    columns = list(dict.fromkeys(column for cells in table.rows.values() for column in cells))
    file = io.StringIO()
    for key, value in {"title": table.title, "source": table.source, **table.notes}.items():
        file.write(f"# {key}: {value}\n")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["model", *columns])
    for name, cells in table.rows.items():
        chosen = (cells.get(column, ()) for column in columns)
        writer.writerow([name, *(" ± ".join(repr(number) for number in cell if number is not None) for cell in chosen)])
    return file.getvalue()


def from_text(dataset: str, text: str) -> Leaderboard:
    """A leaderboard from what :meth:`Leaderboard.text` wrote."""
    table = read(text)
    by = next((split for split in SPLITS if split == table.notes.get("sorted by")), None)
    if by is None:
        raise ValueError("the text of a leaderboard has a line '# sorted by:' with a split, and this has none")
    return Leaderboard(dataset, table, by)
