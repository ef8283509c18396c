"""A study of your own, without Python: a TOML file with a configuration, a grid, what to measure, and claims.

``polariscope study mine.toml`` runs it like a published one: in parallel, resumable, with table, page and verdicts.
"""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import hashlib
import itertools
import json
import math
import multiprocessing
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polariscope.measures import measures
from polariscope.registry import nearest
from polariscope.report.page import as_toml
from polariscope.studies import criteria
from polariscope.studies.criteria import All, Criterion
from polariscope.studies.criteria.criterion import listed, plain
from polariscope.studies.kit import Curve, Declared, Matrix, Restarts, Scatter
from polariscope.studies.study import Bench, Claim, Job, Judgement, Row, Scale, Study, Table
from polariscope.training.config import RunConfig

NUMBERS = re.compile(r"\[[-+.\deE,\s]*\]")
"""A list of numbers, as a table shows it."""
FILE = "study.toml"
"""What the file is called beside the results, so that they can be judged again."""
SMOKE_STEPS = 20
KEYS = ("title", "question", "source", "base", "grid", "measure", "claims", "figures")
MEASURE_KEYS = ("measures", "examples", "part", "seed")
CLAIM_KEYS = ("finding", "published", "weaker", "note")
TYPES = ("active", "mixed", "passive")
HELD_OUT = "held_out_"
TERMS = ("train_", HELD_OUT)
"""How the columns of the terms of a training begin."""
OF_A_RUN = ("steps", "steps_per_second")
CRITERIA: dict[str, tuple[type[Criterion], dict[str, Any]]] = {
    "at least": (criteria.AtLeast, {}),
    "at most": (criteria.AtMost, {}),
    "between": (criteria.Between, {}),
    "beats": (criteria.Beats, {}),
    "is below": (criteria.Beats, {"higher": False}),
    "not worse than": (criteria.NotWorse, {}),
    "rises": (criteria.Rises, {}),
    "falls": (criteria.Rises, {"falls": True}),
    "peaks": (criteria.Peaks, {}),
    "correlates": (criteria.Correlates, {}),
    "near": (criteria.Near, {}),
    "alike": (criteria.Alike, {}),
    "flat": (criteria.Flat, {}),
    "power law": (criteria.PowerLaw, {}),
}
"""Criteria by the words that a file calls them by."""
FIGURES: dict[str, type[Declared]] = {"curve": Curve, "restarts": Restarts, "matrix": Matrix, "scatter": Scatter}


@dataclass(frozen=True)
class OwnStudy(Study):
    """What a file says."""

    text: str
    """The file itself."""

    def __post_init__(self) -> None:
        self.described()  # what is wrong is said before anything is done

    @classmethod
    def read(cls, path: Path) -> OwnStudy:
        """The study of a file, whose name is the name of the study."""
        try:
            return cls(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is not a TOML file: {error}") from error
        except OSError as error:
            raise ValueError(f"the study {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"the study {path} is not a text file: {error.reason}") from error

    @classmethod
    def sweep(
        cls,
        config: RunConfig,
        choices: Mapping[str, Sequence[Any]],
        seeds: int = 5,
        measure: Sequence[str] = (),
        examples: int = 5000,
    ) -> OwnStudy:
        """A configuration with every combination of ``choices`` (``{"objective.beta": [1, 4]}``) and several seeds."""
        base = config.describe()
        base["training"].pop("seed")
        if not base["start"].get("run"):
            base.pop("start")
        grid = {"seeds": list(range(seeds)), **choices}
        asked = {"measures": list(measure), "examples": examples}
        study = cls(as_toml({"title": f"Sweep of {config.label}", "base": base, "grid": grid, "measure": asked}))
        study.check()
        return study

    def described(self) -> dict[str, Any]:
        described = tomllib.loads(self.text)
        _check_keys(described, KEYS, "a study")
        if "title" not in described:
            raise ValueError('a study needs a title, such as title = "Does a larger beta prune more?"')
        if "world" not in described.get("base", {}):
            raise ValueError("a study needs a configuration to start from: [base.world] with a name, and what differs "
                             "from the defaults in [base.objective], [base.training] and so on")  # fmt: skip
        _check_keys(described.get("measure", {}), MEASURE_KEYS, "[measure]")
        return described

    @property
    def title(self) -> str:  # type: ignore[override]
        return str(self.described()["title"])

    @property
    def question(self) -> str:  # type: ignore[override]
        return str(self.described().get("question", self.title))

    @property
    def source(self) -> str:  # type: ignore[override]
        return str(self.described().get("source", "your own study"))

    @property
    def cost(self) -> dict[str, str]:  # type: ignore[override]
        return {}

    def version(self) -> str:
        """Of what makes rows besides the configurations, which are in the jobs."""
        asked = json.dumps(self.described().get("measure", {}), sort_keys=True)
        return hashlib.sha256(f"{ROWS_VERSION}{asked}".encode()).hexdigest()[:12]

    def jobs(self, scale: Scale) -> Sequence[Job]:
        described = self.described()
        base, grids = described["base"], described.get("grid", {})
        jobs: list[Job] = []
        for one in grids if isinstance(grids, list) else [grids]:
            seeds, choices = _choices(one)
            names = _short(list(choices))
            for values in itertools.product(*choices.values()):
                for seed in seeds[: 1 if scale == "smoke" else None]:
                    config = copy.deepcopy(base)
                    for path, value in zip(choices, values, strict=True):
                        _put(config, path, value)
                    _put(config, "training.seed", seed)
                    if scale == "smoke":
                        steps = config["training"].get("steps", SMOKE_STEPS)
                        config["training"]["steps"] = min(SMOKE_STEPS, steps)
                    cell = {names[path]: _named(value) for path, value in zip(choices, values, strict=True)}
                    jobs.append({"config": config, "cell": cell, "seed": seed})
        keys = [json.dumps(job["config"], sort_keys=True, default=str) for job in jobs]
        if len(set(keys)) < len(keys):
            raise ValueError("two jobs of the grid are the same: name each value and each seed once")
        return jobs

    def fingerprint(self) -> str:
        """Eight digits that name what the file says."""
        return hashlib.sha256(json.dumps(self.described(), sort_keys=True, default=str).encode()).hexdigest()[:8]

    def check(self) -> None:
        """Refuse what cannot be run or judged, before the first job: every configuration, measure and claim."""
        jobs = self.jobs("paper")
        evaluated = [(job["cell"], RunConfig.build(job["config"]).training.evaluate_every > 0) for job in jobs]
        cells = {name for job in jobs for name in job["cell"]}
        self.measured()
        for claim in self.claims("paper"):
            for one in _parts(claim):
                self._check_columns(one, cells)
                _check_order(one, [job["cell"] for job in jobs])
                _check_evaluated(one, evaluated)
        for name, figure in self.drawn.items():
            for key in ("over", "by", "within", "rows", "columns"):
                given = getattr(figure, key, "")
                for column in [given] if isinstance(given, str) else given:
                    if column and column not in cells:
                        raise ValueError(
                            f"the figure {name} is {key} {column!r}, no setting of the grid: {nearest(column, cells)}"
                        )

    def _check_columns(self, criterion: Criterion, cells: set[str]) -> None:
        settings = [getattr(criterion, key, "") for key in ("over", "each")]
        for key in ("where", "first", "second"):
            settings += list(getattr(criterion, key, {}))
        for column in filter(None, settings):
            if column not in cells:
                raise ValueError(f"a claim speaks of {column!r}, no setting of the grid: {nearest(column, cells)}")
        known = {*cells, *OF_A_RUN, *self.measured(), *(TYPES if self.measured() else ())}
        for column in _columns(criterion):
            if column not in known and not column.startswith(TERMS):
                known |= {"held_out_loss", "train_loss"}
                raise ValueError(f"a claim asks for {column!r}, which is not measured: {nearest(column, known)}")

    def measured(self) -> list[str]:
        """The names of the measures that are asked for."""
        patterns = self.described().get("measure", {}).get("measures", [])
        names: list[str] = []
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            matching = fnmatch.filter(measures.names(), pattern)
            if not matching:
                raise ValueError(f"there is no measure {pattern!r}: {nearest(pattern, measures.names())}")
            names += matching
        return list(dict.fromkeys(names))

    def run(self, job: Job, bench: Bench) -> list[Row]:
        asked = dict(self.described().get("measure", {}))
        names = self.measured()
        asked.pop("measures", None)
        in_worker = multiprocessing.parent_process() is not None
        if in_worker and self.text in _REFUSED:
            raise ValueError(_REFUSED[self.text])
        scores = bench.scored(RunConfig.build(job["config"]), names, **asked)
        row = {**job["cell"], "seed": job["seed"], **scores}
        try:
            self._check_row(job, row)
        except ValueError as error:
            if in_worker:
                _REFUSED[self.text] = str(error)
            raise
        return [row]

    def _check_row(self, job: Job, row: Row) -> None:
        """Refuse a claim about a column that the row of a job lacks, if no other job that the claim is about could have
        it: jobs that differ only in numbers and in their training have the same columns."""
        for number, claim in enumerate(self.claims("paper"), 1):
            for one in _parts(claim):
                missing = [column for column in _columns(one) if column not in row]
                for scope in _scopes(one) if missing else ():
                    kinds = {_kind(each["config"]) for each in self.jobs("paper") if _matches(each["cell"], scope)}
                    if _matches(job["cell"], scope) and len(kinds) == 1:
                        raise ValueError(f"claim {number} asks for {missing[0]!r}, which this training does not have: "
                                         f"{nearest(missing[0], _numbers([row]))}")  # fmt: skip

    def judge(self, table: Table, scale: Scale) -> list[Judgement]:
        """What a table says about every claim, with the reason where it says nothing."""
        return [
            replace(one, finding=replace(one.finding, note=_reason(one, table) or one.finding.note))
            for one in super().judge(table, scale)
        ]

    def claims(self, scale: Scale) -> list[Claim]:
        return [_claim(one, number) for number, one in enumerate(self.described().get("claims", []), 1)]

    def steps(self, scale: Scale) -> int | None:
        return None

    @property
    def drawn(self) -> Mapping[str, Declared]:  # type: ignore[override]
        """The figures that the file declares; else every claimed or measured column over every setting."""
        declared = self.described().get("figures", [])
        if declared:
            return {
                f"{number}-{one.get('kind', '')}": _made(one, "kind", FIGURES, "figure")
                for number, one in enumerate(declared, 1)
            }
        jobs = self.jobs("paper")
        cells = dict.fromkeys(name for job in jobs for name in job["cell"])
        values = {cell: {json.dumps(job["cell"].get(cell)) for job in jobs} for cell in cells}
        claimed = (str(getattr(claim.criterion, "column", "")) for claim in self.claims("paper"))
        columns = list(dict.fromkeys([*claimed, *self.measured()])) or ["held_out_loss"]
        figures: dict[str, Declared] = {}
        for column, cell in itertools.product(filter(None, columns), cells):
            if len(values[cell]) > 1 and column != cell:
                words = any(value.startswith('"') or value in ("true", "false", "null") for value in values[cell])
                figures[f"{column}-over-{cell}"] = Restarts(column, cell) if words else Curve(column, cell)
        return figures


def read_study(file: Path) -> tuple[OwnStudy, str]:
    """The study of a file, checked, and the name of its results."""
    study = OwnStudy.read(file)
    try:
        study.check()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    return study, re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-.") or "study"


_REFUSED: dict[str, str] = {}
"""Studies that a job of this worker process refused, with the sentence: its other jobs train nothing for it."""
ROWS_VERSION = 1
"""Raised when the rows of the same file would be others."""


def _parts(claim: Claim) -> Sequence[Criterion]:
    return claim.criterion.parts if isinstance(claim.criterion, All) else (claim.criterion,)


def _columns(criterion: Criterion) -> list[str]:
    """Columns of numbers that a criterion looks at."""
    return [column for key in ("column", "other") if (column := str(getattr(criterion, key, "")))]


def _scopes(criterion: Criterion) -> list[Mapping[str, Any]]:
    """Settings of the rows that a criterion looks at: of each of its two sides, where it has two."""
    where = dict(getattr(criterion, "where", {}))
    sides = [getattr(criterion, side) for side in ("first", "second") if hasattr(criterion, side)]
    return [where | dict(side) for side in sides] or [where]


def _matches(cell: Mapping[str, Any], scope: Mapping[str, Any]) -> bool:
    return all(cell.get(name) == value for name, value in scope.items())


def _kind(config: Mapping[str, Any]) -> str:
    """What is trained, without its numbers and without how it is trained."""

    def words(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: words(inner) for key, inner in value.items()}
        return value if isinstance(value, str | bool) else None

    return json.dumps(words({name: value for name, value in config.items() if name != "training"}), sort_keys=True)


def _check_evaluated(criterion: Criterion, evaluated: Sequence[tuple[Mapping[str, Any], bool]]) -> None:
    """Refuse a claim about held-out data of jobs of which none evaluates on it; ``evaluated`` says it of each cell."""
    for column in _columns(criterion):
        for scope in _scopes(criterion):
            own = [is_so for cell, is_so in evaluated if _matches(cell, scope)]
            if column.startswith(HELD_OUT) and own and not any(own):
                raise ValueError(
                    f"a claim asks for {column!r}, and evaluate_every = 0 evaluates nothing on held-out data: set "
                    "[base.training] evaluate_every, such as 500"
                )


def _numbers(rows: Sequence[Row]) -> list[str]:
    """Columns with numbers."""
    numbers = (name for row in rows for name, value in row.items() if type(value) in (int, float))
    return [name for name in dict.fromkeys(numbers) if name != "seed"]


def _reason(judgement: Judgement, table: Table) -> str:
    """Why there is nothing to judge; empty if there is something."""
    reasons = []
    for one in _parts(judgement.claim):
        for column, scope in itertools.product(_columns(one), _scopes(one)):
            rows = table.where(**scope)
            if not len(rows):
                reasons.append(f"no row has {listed(scope)}" if scope else "the table has no row")
            elif not len(rows.column(column)):
                of_some = scope and len(table.column(column))
                which = f" ({listed(scope)})" if of_some else ""
                there = ", ".join(_numbers(rows.rows if of_some else table.rows)) or "no numbers"
                reasons.append(f"no row{which} has a value of {column!r}; there are {there}")
    return f"nothing was measured: {'; '.join(dict.fromkeys(reasons))}" if reasons else ""


def _check_keys(given: Mapping[str, Any], known: Sequence[str], of: str) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{of} has no {key!r}: {nearest(key, known)}")


def _choices(grid: Mapping[str, Any]) -> tuple[list[int], dict[str, list[Any]]]:
    """Seeds, and the values to try by the dotted name of their setting."""
    given = dict(grid)
    seeds = given.pop("seeds", 5)
    seeds = list(range(seeds)) if type(seeds) is int else seeds
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise ValueError(f"seeds are a number of them or a list of whole numbers; got {grid.get('seeds')!r}")
    choices = dict(_leaves(given))
    for path, values in choices.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"the grid has a list of values for each setting, {path} = [1, 2]; got {values!r}")
    return seeds, choices


def _leaves(section: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from _leaves(value, name)
        else:
            yield name, value


def _short(paths: Sequence[str]) -> dict[str, str]:
    """Names of columns: the last word of each setting, or more words where two end alike.

    >>> _short(["objective.beta", "world.size", "model.size"])
    {'objective.beta': 'beta', 'world.size': 'world_size', 'model.size': 'model_size'}
    """
    names = {}
    for path in paths:
        words = path.split(".")
        for count in range(1, len(words) + 1):
            short = words[-count:]
            if sum(other.split(".")[-count:] == short for other in paths) == 1:
                break
        names[path] = "_".join(short)
    return names


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *sections, last = path.split(".")
    for section in sections:
        inner = config.setdefault(section, {})
        if isinstance(inner, str):
            inner = config[section] = {"name": inner}
        config = inner
    config[last] = copy.deepcopy(value)


def _check_order(criterion: Criterion, cells: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a claim that something rises or peaks over words, which have no order."""
    over = getattr(criterion, "over", "")
    if not over or isinstance(criterion, criteria.Flat):
        return
    for value in (cell.get(over) for cell in cells):
        if isinstance(value, str) and not NUMBERS.fullmatch(value):
            raise ValueError(
                f"a claim needs an order of {over}, and {value!r} is a word: compare two settings with "
                'criterion = "beats", first and second'
            )


def _named(value: Any) -> Any:
    """What stands in a table for a value: a whole section by its name and what is set in it."""
    if not isinstance(value, dict):
        return json.dumps(value) if isinstance(value, list) else value
    rest = ", ".join(f"{key} {plain(inner)}" for key, inner in value.items() if key != "name")
    return " ".join(filter(None, [str(value.get("name", "")), rest]))


def _claim(given: Mapping[str, Any], number: int) -> Claim:
    if not isinstance(given, Mapping) or "finding" not in given:
        raise ValueError(f'claim {number} of the study needs a sentence: finding = "A larger beta prunes more"')
    texts = {key: str(given[key]) for key in CLAIM_KEYS if key in given}
    rest = {key: value for key, value in given.items() if key not in CLAIM_KEYS}
    several = rest.pop("all", None)
    parts = several if several is not None else [rest]
    criterion = [_made(part, "criterion", CRITERIA, f"claim {number}") for part in parts]
    return Claim(**{"published": "-", **texts}, criterion=criterion[0] if len(criterion) == 1 else All(*criterion))  # type: ignore[arg-type]


def _made(given: Mapping[str, Any], key: str, known: Mapping[str, Any], of: str) -> Any:
    """A criterion or a figure by its name and its settings."""
    name = str(given.get(key))
    if name not in known:
        raise ValueError(f"{of} has {key} = {given.get(key)!r}: {nearest(name, list(known))}")
    kind, fixed = known[name] if isinstance(known[name], tuple) else (known[name], {})
    settings = {entry.name: entry for entry in dataclasses.fields(kind) if entry.name not in fixed}
    arguments = {word: value for word, value in given.items() if word != key}
    _check_keys(arguments, list(settings), f"{of} ({name})")
    missing = [
        word
        for word, entry in settings.items()
        if word not in arguments and entry.default is entry.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{of} ({name}) needs {' and '.join(missing)}")
    for word, value in arguments.items():
        wanted = str(settings[word].type)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if (wanted.startswith("float") and not number and not ("str" in wanted and isinstance(value, str))) or (
            wanted == "str" and not isinstance(value, str)
        ):
            raise ValueError(
                f"{of} ({name}) needs a {'number' if 'float' in wanted else 'word'} for {word}; got {value!r}"
            )
    return kind(**arguments, **fixed)
