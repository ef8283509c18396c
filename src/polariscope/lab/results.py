"""Results of examinations in a run's record, each with the data it was computed on.

A result on 300 examples and one on 10,000 are different results. An examination on the same examples with the same code
replaces the results it computes and keeps the others; an examination on other examples is stored beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from polariscope.lab.provenance import environment

if TYPE_CHECKING:
    from polariscope.lab.store import Run

OWN = "own"
"""The data that a run was trained on."""
LARGEST = 2**63
EARLIER = "unknown examples (noted by an earlier version)"


@dataclass(frozen=True)
class Basis:
    """The data and weights that a result was computed on."""

    data: str = OWN
    """``own``, or the world that was given instead, by its name and a fingerprint of its settings."""
    part: str = "all"
    count: int | None = None
    """Number of examples; None if an earlier version did not record it."""
    seed: int = 0
    """Seed of the choice of examples and of the noise of samples."""
    step: int | None = None
    """Step of the run's training."""
    protocol: str = "default"
    """Name of the settings of the measures."""
    version: str = field(default_factory=lambda: environment()["polariscope"])
    """Version of the code."""

    def text(self) -> str:
        """The basis in words. Results with different words must not be averaged.

        >>> Basis(count=1296, version="0.1").text(), Basis(part="held-out", count=300, seed=2, version="0.1").text()
        ('1,296 examples, seed 0, version 0.1', '300 held-out examples, seed 2, version 0.1')
        """
        if self.count is None:
            return EARLIER
        part = "" if self.part == "all" else f" {self.part}"
        data = "" if self.data == OWN else f" of {self.data}"
        protocol = "" if self.protocol == "default" else f", {self.protocol} protocol"
        return f"{self.count:,}{part} examples{data}, seed {self.seed}{protocol}, version {self.version}"


KINDS = {entry.name: str if entry.type == "str" else int for entry in fields(Basis)}


@dataclass(frozen=True)
class Examined:
    """Results on one basis."""

    on: Basis
    types: Mapping[str, int]
    """Number of latent variables of each type."""
    measures: Mapping[str, float | None]
    """Values by measure; None if a measure is undefined."""

    @property
    def values(self) -> dict[str, float | None]:
        """All results, under the names of the columns in the table of runs."""
        types = {f"types_{name}": value for name, value in self.types.items()}
        return types | {f"measures_{name}": value for name, value in self.measures.items()}

    def joined(self, later: Examined) -> Examined:
        """These results, updated by a later examination on the same basis."""
        return Examined(self.on, later.types or self.types, {**self.measures, **later.measures})


def add(run: Run, examined: Examined) -> None:
    """Add results to a run's record. No other process may write the record at the same time."""
    run.reload()
    known = {entry.on: entry for entry in _entries(run.record)}
    known[examined.on] = known[examined.on].joined(examined) if examined.on in known else examined
    run.update(examinations=[asdict(entry) for entry in known.values()])


def examined_of(record: Mapping[str, Any]) -> list[Examined]:
    """All results of a run's record. Results of an earlier version, without a basis, come first."""
    result = record["result"]
    types, measures = (_numbers(result.get(key)) for key in ("types", "measures"))
    earlier = [Examined(_basis({"step": result.get("step")}), types, measures)] if types or measures else []
    return earlier + _entries(record)


def current(record: Mapping[str, Any]) -> list[Examined]:
    """Results for the current weights of a run, without those of earlier weights."""
    return [entry for entry in examined_of(record) if entry.on.step == record["result"].get("step")]


def shown(entries: Sequence[Examined]) -> Examined | None:
    """The results that represent a run in a table with one row per run: those on the run's own data if there are any,
    then those on the largest number of examples, then the latest."""
    order = [(entry.on.data == OWN, entry.on.count or 0, at) for at, entry in enumerate(entries)]
    return entries[max(order)[2]] if entries else None


def _entries(record: Mapping[str, Any]) -> list[Examined]:
    """The results in the record; entries of another form, which this program did not write, are skipped."""
    entries = [entry for entry in record.get("examinations", ()) if isinstance(entry, dict)]
    return [
        Examined(_basis(entry["on"]), _numbers(entry.get("types")), _numbers(entry.get("measures")))
        for entry in entries
        if isinstance(entry.get("on"), dict)
    ]


def _basis(on: Mapping[str, Any]) -> Basis:
    given = {name: on[name] for name, kind in KINDS.items() if type(on.get(name)) is kind}
    whole = {name: value for name, value in given.items() if isinstance(value, str) or abs(value) < LARGEST}
    return Basis(**{"version": "", **whole})


def _numbers(values: Any) -> dict[str, Any]:
    """The entries that are numbers or None, by name."""
    kept = (float, int, type(None))
    return {k: v for k, v in values.items() if type(v) in kept} if isinstance(values, dict) else {}
